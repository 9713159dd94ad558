"""A scenario: which cluster, what is asked of it, which faults, and what is promised."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.cluster import GROUP, member_names
from chaos.local import Mode
from pipeline.promises import Promises, promises_of


@dataclass(frozen=True)
class Scenario:
    """A scenario is data: the same one with the same seed and schedule fires the same faults at the same points."""

    name: str
    promises: Promises
    text: str = ""
    mode: Mode = "raft"
    nodes: int = 3
    workloads: tuple[str, ...] = ("send",)
    """Names in chaos.workloads.catalogue; they share the rate."""
    faults: tuple[str, ...] = ()
    """Names in chaos.nemesis.FAULTS; one that stands twice is drawn twice as often. None: nothing is broken."""
    seconds: float = 45.0
    rate: float = 1000.0
    """Sends per second that are asked of the cluster."""
    acknowledged_min: int = 1000
    """With fewer acknowledged sends the verdict is unknown."""
    links: bool = False
    """Whether the members reach one another through fault proxies."""
    tier: str = "T0"
    settings: Mapping[str, object] = field(default_factory=dict)
    """Keys of every member's broker.conf."""
    planted: str = ""
    """A bug that members are started with, "module:function" (chaos/member.py): such a run must not be valid."""


def promised(mode: Mode, nodes: int, /, **changes: Any) -> Promises:
    """Return what a mode promises with so many members; `changes` are fields of Promises, `mode` among them."""
    members = {GROUP: tuple(member_names(mode, nodes))}
    return promises_of(changes.pop("mode", mode), members, **changes)
