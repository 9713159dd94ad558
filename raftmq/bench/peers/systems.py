"""What can be measured side by side: each system's name, its promise with an acknowledgement, and how it is made."""

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from raftmq.bench.group import ASYNC_FLUSH, NODES, SYNC_FLUSH
from raftmq.bench.peers import rocketmq
from raftmq.bench.peers.maven import BROKER, NAMESRV, NoJava, class_path
from raftmq.bench.peers.nats import NatsSystem
from raftmq.bench.peers.ours import OurSystem
from raftmq.bench.peers.rabbitmq import RabbitSystem, program
from raftmq.bench.peers.rocketmq import RocketSystem

TOPIC = "bench_peers"
# Of the first time, when Maven brings some 170 jars.
MAVEN_TIMEOUT_S = 900.0

PAGE_CACHE = "page cache of one broker"
PAIR = "page caches of master and slave"
MAJORITY = "page caches of a majority of three"
FSYNCED = "a majority of three has fsynced"
STORED = "a majority of three has stored it, no fsync"


class PeerSystem(Protocol):
    """A system that runs on this machine."""

    protocol: str
    """The load's word for what it speaks."""

    def start(self) -> None:
        """Start everything; raises ProcessError."""

    async def port(self) -> int:
        """Return the port of whoever leads now; raises ProcessError."""

    def settled(self) -> None:
        """Look at what its first sends made; raises ProcessError when that is not what is to be measured."""

    def pids(self) -> list[int]:
        """Return the processes that were started."""

    def kill(self) -> None:
        """End everything at once, also while it starts."""


class PeerKind(NamedTuple):
    """A system that can be made."""

    family: str
    promise: str
    """Where a message is when its send is acknowledged."""
    copies: int
    """How often it is on the disk in the end."""
    compiles: bool
    """Whether it is compiled while it runs, and is fast only then."""
    make: Callable[[Path], PeerSystem]


def _ours(mode: str, promise: str) -> PeerKind:
    single = functools.partial(OurSystem, mode="single", nodes=1, flush=ASYNC_FLUSH)
    pair = functools.partial(OurSystem, mode="sync", nodes=2, flush=ASYNC_FLUSH)
    group = functools.partial(OurSystem, mode="raft", nodes=NODES, flush=SYNC_FLUSH)
    lazy = functools.partial(OurSystem, mode="raft", nodes=NODES, flush=ASYNC_FLUSH)
    make, copies = {"single": (single, 1), "sync": (pair, 2), "raft": (group, 3), "lazy": (lazy, 3)}[mode]
    return PeerKind("RaftMQ", promise, copies, False, make)


def _rocketmq(brokers: Callable[[], list[rocketmq.Settings]], promise: str, copies: int) -> PeerKind:
    return PeerKind("RocketMQ", promise, copies, True, lambda folder: RocketSystem(folder, jars(), brokers()))


# The first of those that are measured is what the others are compared with.
SYSTEMS: Mapping[str, PeerKind] = {
    "raftmq-raft": _ours("raft", FSYNCED),
    "rocketmq-dledger": _rocketmq(rocketmq.dledger, MAJORITY, 3),
    "rabbitmq-quorum": PeerKind("RabbitMQ", FSYNCED, 3, False, lambda folder: RabbitSystem(folder, TOPIC)),
    "nats-r3": PeerKind("NATS", STORED, 3, False, lambda folder: NatsSystem(folder, TOPIC)),
    "raftmq-raft-nofsync": _ours("lazy", MAJORITY),
    "raftmq-sync": _ours("sync", PAIR),
    "rocketmq-sync": _rocketmq(rocketmq.pair, PAIR, 2),
    "raftmq-single": _ours("single", PAGE_CACHE),
    "rocketmq-single": _rocketmq(rocketmq.single, PAGE_CACHE, 1),
}


def lacking(systems: Iterable[str]) -> dict[str, str]:
    """Return the systems among these that cannot run here, and why: what is to be installed."""
    families: dict[str, str | None] = {}
    for name in systems:
        family = SYSTEMS[name].family
        if family not in families:
            families[family] = _CHECKS[family]()
    return {name: why for name in systems if (why := families[SYSTEMS[name].family]) is not None}


@functools.cache
def jars() -> str:
    """Return Java's class path of RocketMQ, which Maven brings the first time; raises NoJava."""
    with tempfile.TemporaryDirectory(prefix="raftmq-maven-") as folder:
        return class_path(Path(folder), BROKER, NAMESRV, timeout_s=MAVEN_TIMEOUT_S)


def _rocketmq_lacks() -> str | None:
    try:
        jars()
    except NoJava as error:
        return f"{error} (Debian: apt-get install maven openjdk-17-jre-headless)"
    return None


def _nats_lacks() -> str | None:
    there = shutil.which("nats-server") is not None
    return None if there else "nats-server is not on PATH (Debian: apt-get install nats-server)"


def _rabbitmq_lacks() -> str | None:
    missing = [name for name in ("rabbitmq-server", "rabbitmqctl") if program(name) is None]
    missing += [name for name in ("erl", "epmd") if shutil.which(name) is None]
    if not missing:
        return None
    return f"{missing[0]} is not on PATH (Debian: apt-get install rabbitmq-server; its service need not run)"


_CHECKS: Mapping[str, Callable[[], str | None]] = {
    "RaftMQ": lambda: None,
    "RocketMQ": _rocketmq_lacks,
    "NATS": _nats_lacks,
    "RabbitMQ": _rabbitmq_lacks,
}
