"""What signatures and TLS cost: sends, and pulls, at a single broker and a Raft group, plain, signed, encrypted, both.

All clusters of a mode run side by side, and are loaded by turns, round after round: what else the machine does comes to
all of them alike, and each round's cost is reckoned against the plain sends of the same round. The load signs nothing
while it runs (raftmq/bench/frames.py); how busy it was is told, and what brokers used of the processor.
"""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from chaos.host.local import LocalCluster, Mode
from chaos.host.security import Security, connecting_to
from client.admin.client import AdminClient
from raftmq.bench.frames import CONSUMER_GROUP, QUEUES, BadAnswer
from raftmq.bench.group import ASYNC_FLUSH, NODES, SYNC_FLUSH, until_done
from raftmq.bench.load import LoadedBroker, Pulls, Result, Sends, run_load
from raftmq.bench.suite import PULL_COUNT, PULLS_IN_FLIGHT, max_offsets
from remoting.signing import Credentials
from runtime.tls import ClientTls

T = TypeVar("T")

TOPIC, USER, SECRET_KEY = "bench_security", "bench", "a-secret-of-the-bench"
IN_FLIGHT = (1, 64, 512)
# The first messages of each queue, which are pulled.
PULLED_OF_A_QUEUE = 4096


class Protection(NamedTuple):
    """What a cluster asks of its clients, and does on its links."""

    users: bool
    tls: bool
    stateful: bool = False
    """Whether a connection that has proved a user need not do so with each request."""


PLAIN = "plain"
PROTECTIONS: Mapping[str, Protection] = {
    PLAIN: Protection(users=False, tls=False),
    "signed": Protection(users=True, tls=False),
    "stateful": Protection(users=True, tls=False, stateful=True),
    "tls": Protection(users=False, tls=True),
    "both": Protection(users=True, tls=True),
}
SECURED_MODES: Mapping[str, tuple[Mode, int, str]] = {
    "single": ("single", 1, ASYNC_FLUSH),
    "raft": ("raft", NODES, SYNC_FLUSH),
}
# Percent of the plain messages per second that may be lost, with so many in flight.
AIM_IN_FLIGHT = 64
AIMS: Mapping[str, float] = {"signed": 15.0, "stateful": 15.0, "tls": 60.0}


class SecurityRound(NamedTuple):
    """One measurement."""

    mode: str
    protection: str
    number: int
    result: Result


@dataclass(frozen=True, slots=True)
class SecurityCost:
    """One row: medians over the rounds; costs in percent against what was plain in the same round."""

    mode: str
    what: str
    protection: str
    in_flight: int
    body_bytes: int
    rounds: int
    messages_per_s: int
    p50_ms: float
    p99_ms: float
    server_cpu_us_per_message: float | None
    client_busy: float
    cost_percent: float | None = None
    """So many percent fewer messages per second."""
    cpu_cost_percent: float | None = None
    """So many percent more of the brokers' processor time for each message."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SecurityAim:
    """What one protection may cost, and whether it stays below that."""

    mode: str
    protection: str
    in_flight: int
    cost_percent: float
    cost_percent_max: float
    met: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SecurityLoad:
    """What is measured in each round."""

    in_flight: Sequence[int] = IN_FLIGHT
    body_bytes: int = 100
    rounds: int = 5
    seconds: float = 2.0
    pulls: bool = False
    """Whether pulls of what was sent are measured, too."""


async def run_security(
    modes: Sequence[str], load: SecurityLoad, parent: Path | None = None
) -> AsyncGenerator[SecurityRound]:
    """Yield each measurement; `costs` sums them up. Raises ProcessError, BadAnswer."""
    with connecting_to(None):
        for mode in modes:
            with ExitStack() as stack:
                # One after the other: a start takes the whole machine.
                clusters = [
                    await asyncio.to_thread(stack.enter_context, SecuredCluster(mode, name, parent))
                    for name in PROTECTIONS
                ]
                for cluster in clusters:
                    await cluster.prepare()
                for number in range(load.rounds):
                    for in_flight in load.in_flight:
                        # Each comes first in its turn.
                        for cluster in turned(clusters, number):
                            yield SecurityRound(mode, cluster.protection, number, await cluster.sends(load, in_flight))
                    for cluster in turned(clusters, number) if load.pulls else ():
                        yield SecurityRound(mode, cluster.protection, number, await cluster.pulls(load))


def turned(values: Sequence[T], by: int) -> list[T]:
    """Return the values, beginning so much further on."""
    by %= len(values)
    return [*values[by:], *values[:by]]


class SecuredCluster:
    """A running cluster with one protection. Use as a context manager."""

    def __init__(self, mode: str, protection: str, parent: Path | None) -> None:
        self.protection = protection
        self._mode = mode
        self._parent = parent
        self._stack = ExitStack()
        self._ends: list[int] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=self._parent)))
            asked = PROTECTIONS[self.protection]
            security = Security(folder / "security", users=asked.users, tls=asked.tls) if any(asked) else None
            mode, nodes, flush = SECURED_MODES[self._mode]
            settings = {"flushDiskType": flush}
            if asked.stateful:
                settings["authenticationStrategy"] = "StatefulAuthenticationStrategy"
            self._cluster = LocalCluster(folder, nodes=nodes, mode=mode, broker_settings=settings, security=security)
            self._cluster.start()
            stack.callback(self._cluster.kill)
            self._admin = Credentials(security.access_key, security.secret_key) if security and asked.users else None
            self.user = Credentials(USER, SECRET_KEY) if asked.users else None
            """Who may send to the topic, where anybody is asked."""
            self._tls = ClientTls(str(security.authority)) if security and asked.tls else None
            self._context = security.trusting() if security and asked.tls else None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    async def prepare(self) -> None:
        """Make the topic, and the user who may send to it and is no super user; raises ProcessError."""
        async with AdminClient(self._cluster.address, tls=self._tls or False, credentials=self._admin) as admin:
            await until_done(lambda: admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES))
            if self.user is not None:
                await until_done(lambda: admin.create_user(USER, SECRET_KEY))
                await until_done(lambda: admin.set_policy(USER, f"Topic:{TOPIC}", ["Pub", "Sub"]))
                await until_done(lambda: admin.set_policy(USER, f"Group:{CONSUMER_GROUP}", ["Sub"]))

    def target(self) -> LoadedBroker:
        """Return the broker to load, and how it is spoken to; waits for one that leads."""
        brokers = self._cluster.brokers
        leader = self._cluster.wait_for_leader()
        return LoadedBroker(leader.address, lambda: sum(broker.cpu_seconds() for broker in brokers), self._context)

    async def sends(self, load: SecurityLoad, in_flight: int) -> Result:
        """Measure; raises BadAnswer when anything was refused, for then it is no send that was measured."""
        target = await asyncio.to_thread(self.target)
        work = Sends(TOPIC, load.body_bytes, self.user)
        found = await run_load(
            "send", target, lambda: work, in_flight=in_flight, seconds=load.seconds, body_bytes=load.body_bytes
        )
        return self._all_served(found)

    async def pulls(self, load: SecurityLoad) -> Result:
        """Measure pulls of what the first sends stored, again and again; raises BadAnswer as sends() does."""
        target = await asyncio.to_thread(self.target)
        if not self._ends:
            self._ends = await max_offsets(target.address, TOPIC, self.user, self._tls)
        # Of all clusters as much is read, however fast they were.
        ends = [min(end, PULLED_OF_A_QUEUE) for end in self._ends]
        work = Pulls(TOPIC, ends, PULL_COUNT, self.user)
        found = await run_load(
            f"pull of {PULL_COUNT}",
            target,
            lambda: work,
            in_flight=PULLS_IN_FLIGHT,
            seconds=load.seconds,
            body_bytes=load.body_bytes,
        )
        return self._all_served(found)

    def _all_served(self, found: Result) -> Result:
        if found.errors or not found.messages:
            asked = f"of {found.requests} of {found.what} {found.errors} were refused"
            raise BadAnswer(f"{self._mode}, {self.protection}: {asked}")
        return found


def costs(measured: Iterable[SecurityRound]) -> list[SecurityCost]:
    """Return a row for each mode, kind of request, number in flight and protection that was measured; sends first."""
    kinds: dict[tuple[str, str, int, str], dict[int, Result]] = {}
    for one in measured:
        kind = one.mode, one.result.what, one.result.in_flight, one.protection
        kinds.setdefault(kind, {})[one.number] = one.result
    order = list(PROTECTIONS)
    rows = sorted(
        kinds, key=lambda kind: (kind[0] != "single", kind[0], kind[1] != "send", kind[2], order.index(kind[3]))
    )
    return [_row(kind, kinds[kind], kinds.get((*kind[:3], PLAIN), {})) for kind in rows]


def _row(kind: tuple[str, str, int, str], rounds: Mapping[int, Result], plain: Mapping[int, Result]) -> SecurityCost:
    mode, what, in_flight, protection = kind
    results = list(rounds.values())
    cpu = [one.server_cpu_us_per_message for one in results if one.server_cpu_us_per_message is not None]
    pairs = [(one, plain[number]) for number, one in rounds.items() if number in plain and protection != PLAIN]
    return SecurityCost(
        mode=mode,
        what=what,
        protection=protection,
        in_flight=in_flight,
        body_bytes=results[0].body_bytes,
        rounds=len(results),
        messages_per_s=round(statistics.median(one.messages_per_s for one in results)),
        p50_ms=round(statistics.median(one.p50_ms for one in results), 3),
        p99_ms=round(statistics.median(one.p99_ms for one in results), 3),
        server_cpu_us_per_message=round(statistics.median(cpu), 2) if cpu else None,
        client_busy=round(statistics.median(one.client_busy for one in results), 2),
        cost_percent=_median([100 * (1 - one.messages_per_s / base.messages_per_s) for one, base in pairs]),
        cpu_cost_percent=_median([
            100 * (one.server_cpu_us_per_message / base.server_cpu_us_per_message - 1)
            for one, base in pairs
            if one.server_cpu_us_per_message and base.server_cpu_us_per_message
        ]),
    )  # fmt: skip


def aims(rows: Iterable[SecurityCost]) -> list[SecurityAim]:
    """Return how the costs that have an aim stand to it."""
    return [
        SecurityAim(row.mode, row.protection, row.in_flight, row.cost_percent, most, row.cost_percent <= most)
        for row in rows
        if row.what == "send"
        and row.in_flight == AIM_IN_FLIGHT
        and (most := AIMS.get(row.protection))
        and row.cost_percent is not None
    ]


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None
