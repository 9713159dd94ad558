"""The demonstration: nothing that was acknowledged is lost when the leader is killed in the middle.

Everything is real: a NameServer and the three brokers of a Raft group as processes on free ports of the loopback
interface, with their files in a temporary folder; records that somebody collected; `kill -9` of whoever leads; and a
comparison of all that comes back with all that was sent, byte for byte.
"""

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chaos.host.local import LocalCluster
from chaos.host.security import Security
from client.consume.litepull import LitePullConsumer
from client.credentials import Credentials
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer
from raftmq.flights import FlightRecords, Record
from remoting.errors import RemotingError
from runtime.tls import ClientTls

TOPIC = "demo"
IN_FLIGHT = 64
SEND_DEADLINE_S = 30.0  # for one message, over all attempts: a new leader is there within a second or two
SEND_PAUSE_S = 0.05
NODES = 3
QUIET_S = 10.0  # without a new message while some are missing: then they are missing for good
POLL_S = 0.5
NUMBER = "number"  # the property that tells which record a message is


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What was sent and what came back, in messages. `lost` counts acknowledged messages that never came back."""

    records: str
    sent: int
    acknowledged: int
    consumed: int
    lost: int
    duplicates: int
    altered: int
    leader_kills: int
    leaderless_s: float
    seconds: float

    @property
    def good(self) -> bool:
        """Whether everything was acknowledged and came back as it was."""
        return self.lost == 0 and self.altered == 0 and self.acknowledged == self.consumed == self.sent

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**asdict(self), "ok": self.good}

    def rows(self) -> list[tuple[str, object]]:
        """Return what people are shown."""
        return [
            ("records", self.records),
            ("messages sent", self.sent),
            ("acknowledged", self.acknowledged),
            ("consumed", self.consumed),
            ("lost", self.lost),
            ("duplicates", self.duplicates),
            ("altered", self.altered),
            ("leader killed (kill -9)", self.leader_kills),
            ("time without a leader", f"{self.leaderless_s:.2f} s"),
            ("took", f"{self.seconds:.1f} s"),
        ]

    def sentence(self) -> str:
        """Return the verdict in one line."""
        if self.good:
            return "OK: every acknowledged message was consumed as it was sent, lost 0"
        return (
            f"FAILED: of {self.sent} messages {self.sent - self.acknowledged} were not acknowledged, "
            f"{self.lost} acknowledged ones were lost, {self.altered} came back altered"
        )


class Demo:
    """One run; `run` gives the verdict."""

    def __init__(self, records: FlightRecords, *, secure: bool = False, quiet: bool = False) -> None:
        """Send these records; `secure`: signed, and over TLS; `quiet` shows no progress."""
        self._records = records
        self._secure = secure
        self._tls: ClientTls | None = None
        self._credentials: Credentials | None = None
        self._quiet = quiet
        self._acknowledged: set[int] = set()
        # When the leader was killed, and when the next acknowledgement came.
        self._killed_at: float | None = None
        self._leaderless_s: float | None = None

    async def run(self) -> DemoOutcome:
        """Run everything; raises ProcessError when a server does not come up, ClientError when consuming fails."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="raftmq-demo-") as folder:
            security = await asyncio.to_thread(Security, Path(folder) / "security") if self._secure else None
            if security is not None:
                self._tls = ClientTls(str(security.authority))
                self._credentials = Credentials(security.access_key, security.secret_key)
            cluster = LocalCluster(Path(folder), nodes=NODES, security=security)
            await asyncio.to_thread(cluster.start)
            try:
                with self._progress() as progress:
                    await self._send_all(cluster, progress)
                    received = await self._consume_all(cluster, progress)
            finally:
                await asyncio.to_thread(cluster.kill)
        seconds = time.monotonic() - began
        return judge(
            self._records, self._acknowledged, received, leaderless_s=self._leaderless_s or 0.0, seconds=seconds
        )

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, disable=self._quiet)

    async def _send_all(self, cluster: LocalCluster, progress: Progress) -> None:
        """Send with IN_FLIGHT workers; one more task kills the leader when half is acknowledged."""
        bar = progress.add_task("sending", total=len(self._records.items))
        waiting = iter(enumerate(self._records.items))
        half = asyncio.Event()

        async def worker(producer: Producer) -> None:
            for number, record in waiting:
                if await _send(producer, number, record):
                    self._acknowledged.add(number)
                    progress.advance(bar)
                    if self._killed_at is not None and self._leaderless_s is None:
                        self._leaderless_s = time.monotonic() - self._killed_at
                        self._say(progress, f"acknowledged again {self._leaderless_s:.2f} s after the kill")
                if len(self._acknowledged) * 2 >= len(self._records.items):
                    half.set()

        async def killer() -> None:
            await half.wait()
            await self._kill_leader(cluster, progress)

        signed = Producer("demo_producer", cluster.address, tls=self._tls, credentials=self._credentials)
        async with signed as producer, asyncio.TaskGroup() as group:
            group.create_task(killer())
            await asyncio.gather(*(worker(producer) for _ in range(IN_FLIGHT)))
            half.set()

    async def _kill_leader(self, cluster: LocalCluster, progress: Progress) -> None:
        """Kill who leads, see that another one takes over, and bring the killed one back as a follower."""
        old = await asyncio.to_thread(cluster.wait_for_leader)
        await asyncio.to_thread(old.kill)
        # Answers that were on their way may still come in; what counts begins when the process is gone.
        await asyncio.sleep(0)
        self._killed_at = time.monotonic()
        self._say(progress, f"killed the leader, {old.name}, after {len(self._acknowledged):,} acknowledged messages")
        new = await asyncio.to_thread(cluster.wait_for_leader)
        state = await asyncio.to_thread(new.state, "/v1/raft")
        term = f" in term {state['term']}" if state is not None else ""
        self._say(progress, f"{new.name} was elected{term}")
        await asyncio.to_thread(old.start)
        self._say(progress, f"{old.name} is back as a follower")

    def _say(self, progress: Progress, text: str) -> None:
        if not self._quiet:
            progress.console.print(text)

    async def _consume_all(self, cluster: LocalCluster, progress: Progress) -> dict[int, list[bytes]]:
        """Read every queue from its start until all acknowledged numbers were seen, or nothing new comes."""
        bar = progress.add_task("consuming", total=len(self._records.items))
        received: dict[int, list[bytes]] = {}
        missing = set(self._acknowledged)
        signed = LitePullConsumer("demo_consumer", cluster.address, tls=self._tls, credentials=self._credentials)
        async with signed as consumer:
            queues = await consumer.queues(TOPIC)
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            last_new = time.monotonic()
            while missing and time.monotonic() - last_new < QUIET_S:
                for message in await consumer.poll(POLL_S):
                    number = int(message.properties[NUMBER])
                    received.setdefault(number, []).append(bytes(message.body))
                    missing.discard(number)
                    last_new = time.monotonic()
                progress.update(bar, completed=len(received))
        return received


async def _send(producer: Producer, number: int, record: Record) -> bool:
    """Send one record until it is acknowledged; False when that does not happen in time."""
    message = Message(TOPIC, record.body, keys=record.key, properties={NUMBER: str(number)})
    deadline = time.monotonic() + SEND_DEADLINE_S
    while True:
        try:
            await producer.send(message)
            return True
        except (ClientError, RemotingError):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(SEND_PAUSE_S)


def judge(
    records: FlightRecords,
    acknowledged: set[int],
    received: dict[int, list[bytes]],
    *,
    leaderless_s: float,
    seconds: float,
) -> DemoOutcome:
    """Compare what was sent with what came back, by number and byte for byte."""
    copies = sum(len(bodies) for bodies in received.values())
    altered = sum(
        1 for number, bodies in received.items() if any(body != records.items[number].body for body in bodies)
    )
    return DemoOutcome(
        records=records.title,
        sent=len(records.items),
        acknowledged=len(acknowledged),
        consumed=len(received),
        lost=len(acknowledged - received.keys()),
        duplicates=copies - len(received),
        altered=altered,
        leader_kills=1,
        leaderless_s=round(leaderless_s, 2),
        seconds=round(seconds, 2),
    )
