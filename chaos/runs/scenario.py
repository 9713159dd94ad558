"""A scenario: which cluster, what is asked of it, which faults, and what is promised."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.faults.device import CAPABILITY as EXT4
from chaos.faults.net import CAPABILITY as NETNS
from chaos.faults.pairs import PROMOTIONS
from chaos.host.local import Mode
from chaos.load.workload import Workload
from chaos.runs.nemesis import FAULTS
from chaos.site.settings import GROUP, member_names
from pipeline.history.promises import Promises, promises_of


@dataclass(frozen=True)
class Scenario:
    """A scenario is data: the same one with the same seed and schedule fires the same faults at the same points."""

    name: str
    promises: Promises
    text: str = ""
    mode: Mode = "raft"
    nodes: int = 3
    workloads: tuple[str | Callable[[], Workload], ...] = ("send",)
    """Names in chaos.workloads.catalogue, or classes of one's own, Workloads; they share the rate."""
    faults: tuple[str, ...] = ()
    """Names in chaos.runs.nemesis.FAULTS; one that stands twice is drawn twice as often. None: nothing is broken."""
    seconds: float = 45.0
    rate: float = 1000.0
    """Sends per second that are asked of the cluster."""
    pace: float = 0.0
    """Acknowledged sends per second by which the faults are placed in the load, for a broken cluster acknowledges
    fewer than are asked of it; 0: the rate."""
    period_s: float = 5.0
    """One fault comes in so many seconds, or none."""
    acknowledged_min: int = 1000
    """With fewer acknowledged sends the verdict is unknown."""
    links: bool = False
    """Whether the members reach one another through fault proxies."""
    tier: str = "T0"
    settings: Mapping[str, object] = field(default_factory=dict)
    """Keys of every member's broker.conf."""
    secure: bool = False
    """Whether all servers take signed requests and TLS only, and links between members are encrypted."""
    planted: str = ""
    """A bug that members are started with, "module:function" (chaos/site/member.py): such a run must not be valid."""

    @property
    def needs(self) -> frozenset[str]:
        """Return the capabilities (chaos.runs.tiers) that its faults need."""
        return frozenset(need for name in self.faults if name in FAULTS for need in FAULTS[name]().needs)

    @property
    def network(self) -> bool:
        """Whether its members are in network namespaces around a switch, and not behind proxies."""
        return NETNS in self.needs

    @property
    def moves(self) -> bool:
        """Whether another member may take messages in the end than in the beginning: clients ask all of them."""
        return self.mode == "raft" or not PROMOTIONS.isdisjoint(self.faults)

    @property
    def own_disks(self) -> bool:
        """Whether each member's store is on a file system of its own."""
        return EXT4 in self.needs

    @property
    def workload_names(self) -> tuple[str, ...]:
        """What its workloads are called."""
        return tuple(one if isinstance(one, str) else one().name for one in self.workloads)


def promised(mode: Mode, nodes: int, /, **changes: Any) -> Promises:
    """Return what a mode promises with so many members; `changes` are fields of Promises, `mode` among them."""
    members = {GROUP: tuple(member_names(mode, nodes))}
    return promises_of(changes.pop("mode", mode), members, **changes)
