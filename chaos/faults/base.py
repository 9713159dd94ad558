"""What a fault needs of a cluster, and what it tells: the nouns between nemeses, sites and whoever runs them.

Roles are "leader" and "follower" in a Raft group, "master" and "slave" in the classic modes, "" when it is not known;
`leader` is the master there, and `follower` any slave. Members are called by their names everywhere.
"""

import asyncio
import http.client
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

# Seconds that a fault waits for a leader that it is to hit, and for a member that it started to be ready.
PATIENCE_S = 30.0
POLL_S = 0.05

T0, T1, T2 = "T0", "T1", "T2"
"""Tiers: no privileges; user namespaces; root."""

BYTES, PACKETS = "bytes and connections came to faulty links", "packets were dropped"
"""What `Links.touched` counts: at proxies, or by the kernel between namespaces."""


class Unable(Exception):
    """A fault that cannot be done here or now: nothing was changed. The text says why."""


class NotHealed(Exception):
    """What a fault broke is still broken: nothing that comes after in this run proves anything."""


class NotWhole(NotHealed):
    """A member did not come back, or not with all that it had, although others hold it: what the group promises."""


class CopyLost(NotHealed):
    """What a broker had is gone from it, or from those who follow it, by no fault's doing: a promise of every mode."""


class Effect(NamedTuple):
    """What a fault did. `effect` is the proof that it took place; empty: nothing shows it."""

    target: str
    """Names of the members, separated by commas; a link is "n0>n1", both ways "n0<>n1"."""
    wanted: str
    """The role that was asked for."""
    effect: str


class Process(Protocol):
    """A member's process (chaos.host.processes.ServerProcess)."""

    environment: dict[str, str]
    """Variables that its next start has beside the harness's own."""

    @property
    def pid(self) -> int:
        """Its id; it must have been started."""
        ...

    @property
    def address(self) -> str:
        """Where it serves clients."""
        ...

    def http(self) -> http.client.HTTPConnection:
        """Return a connection to where it tells its state; OSError when it is asked."""
        ...

    @property
    def running(self) -> bool:
        """Whether it is there."""
        ...

    @property
    def exit_code(self) -> int | None:
        """What it ended with, None while it runs."""
        ...

    def launch(self) -> None:
        """Start it without waiting; it must be down."""
        ...

    def stop(self) -> int:
        """Have it end in good order, and return its exit code; raises ProcessError when it does not end."""
        ...

    def kill(self) -> None:
        """End it as kill -9 does, and wait until it is gone."""
        ...

    def last_words(self) -> str:
        """Return the end of what it logged."""
        ...

    def ready(self) -> bool:
        """Whether it says that it serves."""
        ...

    def state(self, path: str) -> Any | None:
        """Return what it tells at an HTTP path, None when it does not answer."""
        ...

    def cpu_seconds(self) -> float:
        """Return the processor time that it has used."""
        ...


class Device(Protocol):
    """A member's own file system (chaos.host.loopdisk.LoopDisk); its methods take a while, for threads."""

    def lose_power(self) -> str:
        """Lose what was not synced, and return what shows it; the member must be dead."""
        ...

    def fill(self) -> int:
        """Take all the room that is left; return how many bytes are taken so by now."""
        ...

    def drain(self) -> None:
        """Give that room back."""
        ...

    def free_bytes(self) -> int:
        """Return how much room is left."""
        ...


class Node(Protocol):
    """One broker of the group."""

    paused: bool
    """Stands still: it answers nothing, and is not to be asked."""

    @property
    def name(self) -> str:
        """What it is called: "n0", "master", "slave1"."""
        ...

    @property
    def process(self) -> Process:
        """Its process, also while it is down."""
        ...

    @property
    def store(self) -> Path:
        """Its store folder."""
        ...

    @property
    def undo(self) -> Path | None:
        """Notes of what it wrote and did not sync; None for one whose disk is not watched."""
        ...

    @property
    def disk(self) -> Path | None:
        """Where its disk is told how to misbehave (chaos.site.member); None for one whose disk takes no orders."""
        ...

    @property
    def clock(self) -> Path | None:
        """Where its clock is told how far it is from ours (chaos.faults.clock); None for one that takes no orders."""
        ...

    @property
    def device(self) -> Device | None:
        """The file system that its store is alone on; None where its store is a folder like any other."""
        ...


class Links(Protocol):
    """The directed links between members: each through a proxy of its own, or all through a switch of the kernel's."""

    @property
    def counted(self) -> str:
        """What `touched` counts: BYTES or PACKETS."""
        ...

    async def cut(self, source: str, target: str, *, both: bool = False) -> None:
        """Let nothing more through from `source` to `target`: what was sent is lost, connections break at heal."""
        ...

    async def hold(self, source: str, target: str, *, both: bool = False) -> None:
        """Keep what is sent, and deliver it after heal: connections stay, as through a switch that comes back."""
        ...

    async def slow(self, source: str, target: str, ms: int, jitter_ms: int = 0) -> None:
        """Delay everything."""
        ...

    async def loss(self, source: str, target: str, share: float) -> None:
        """Lose that share of what is sent, 0 to 1, as packets are lost: it arrives later, when it was sent again."""
        ...

    async def resets(self, source: str, target: str, share: float) -> None:
        """Reset that share of connections, 0 to 1, soon after they came about."""
        ...

    async def tear(self, source: str, target: str, after_bytes: int) -> None:
        """Close connections after so many bytes, in the middle of a frame."""
        ...

    async def heal(self) -> None:
        """Take every fault of every link away."""
        ...

    async def verify(self) -> None:
        """Return when all links carry again what is sent; raises NotHealed."""
        ...

    async def touched(self) -> int:
        """Return how many bytes and connections, or packets, came to faults of all links so far."""
        ...


class FaultSite(Protocol):
    """A running cluster."""

    @property
    def members(self) -> Sequence[Node]:
        """All brokers, in the order of their names."""
        ...

    @property
    def mode(self) -> str:
        """A chaos.host.local Mode, or a Promises mode: those of Raft groups begin with "raft"."""
        ...

    @property
    def namesrv(self) -> str:
        """The NameServers' addresses, as clients take them."""
        ...

    @property
    def links(self) -> Links:
        """The links between the members."""
        ...

    async def role_of(self, name: str) -> str:
        """Return the role that a member says it has, "" when it does not answer."""
        ...

    async def leader(self) -> Node | None:
        """Return who leads in the highest term, or the master; None while there is none."""
        ...

    async def start(self, name: str) -> None:
        """Start a member that is down, and return when it is ready."""
        ...

    async def launch(self, name: str) -> None:
        """Start a member that is down, and do not wait: one that was deposed is never ready."""
        ...

    async def restart_namesrv(self) -> str:
        """Kill the NameServer and start it again, which makes it forget everything; return what shows it."""
        ...

    async def restart(self, name: str) -> None:
        """Stop a member in good order, start it again, and return when it is ready."""
        ...

    async def start_missing(self) -> None:
        """Start all members that are down, and return when they are ready."""
        ...

    async def crash_client(self, rng: random.Random) -> str:
        """End a client without goodbye; return what shows it, "" when there is no client to crash."""
        ...


class Nemesis(Protocol):
    """One fault. An object is used for one firing."""

    @property
    def name(self) -> str:
        """Its name in FAULTS."""
        ...

    @property
    def tier(self) -> str:
        """The privileges that it needs."""
        ...

    @property
    def needs(self) -> Sequence[str]:
        """Capabilities (chaos.runs.tiers) without which it is skipped."""
        ...

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Break something; raises Unable when that is not possible."""
        ...

    async def heal(self, site: FaultSite) -> str:
        """Mend it, verify that, and return further proof, "" for none; raises NotHealed. To be called after any fire.

        A fire that raised or was cancelled half way is healed too, and healing twice does no harm.
        """
        ...


async def wait_until(what: str, true: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S) -> float:
    """Wait until something is true, and return how many seconds that took; raises NotHealed after `seconds`."""
    began = time.monotonic()
    while not await true():
        if time.monotonic() - began > seconds:
            raise NotHealed(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began
