"""The demonstration: nothing that was acknowledged is lost when the broker is killed in the middle.

Everything is real: a NameServer and a broker as processes on free ports of the loopback interface, with their files
in a temporary folder; records that somebody collected; `kill -9`; and a comparison of all that comes back with all that
was sent, byte for byte.
"""

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from client.errors import ClientError
from client.litepull import LitePullConsumer
from client.message import Message
from client.producer import Producer
from raftmq.flights import Record, Records
from raftmq.local import LocalCluster
from remoting.errors import RemotingError

TOPIC = "demo"
IN_FLIGHT = 64
SEND_DEADLINE_S = 30.0  # for one message, over all attempts: a broker is back within a few seconds
SEND_PAUSE_S = 0.1
QUIET_S = 10.0  # without a new message while some are missing: then they are missing for good
POLL_S = 0.5
NUMBER = "number"  # the property that tells which record a message is


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was sent and what came back, in messages. `lost` counts acknowledged messages that never came back."""

    records: str
    sent: int
    acknowledged: int
    consumed: int
    lost: int
    duplicates: int
    altered: int
    broker_kills: int
    broker_back_s: float
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
            ("broker killed (kill -9)", self.broker_kills),
            ("serving again after", f"{self.broker_back_s:.1f} s"),
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

    def __init__(self, records: Records, *, quiet: bool = False) -> None:
        """Send these records; `quiet` shows no progress."""
        self._records = records
        self._quiet = quiet
        self._acknowledged: set[int] = set()
        self._back_s = 0.0

    async def run(self) -> Verdict:
        """Run everything; raises ProcessError when a server does not come up, ClientError when consuming fails."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="raftmq-demo-") as folder:
            cluster = LocalCluster(Path(folder))
            await asyncio.to_thread(cluster.start)
            try:
                with self._progress() as progress:
                    await self._send_all(cluster, progress)
                    received = await self._consume_all(cluster, progress)
            finally:
                await asyncio.to_thread(cluster.kill)
        return self._judge(received, time.monotonic() - began)

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, disable=self._quiet)

    async def _send_all(self, cluster: LocalCluster, progress: Progress) -> None:
        """Send with IN_FLIGHT workers; one more task kills and restarts the broker when half is acknowledged."""
        bar = progress.add_task("sending", total=len(self._records.items))
        waiting = iter(enumerate(self._records.items))
        half = asyncio.Event()

        async def worker(producer: Producer) -> None:
            for number, record in waiting:
                if await _send(producer, number, record):
                    self._acknowledged.add(number)
                    progress.advance(bar)
                if len(self._acknowledged) * 2 >= len(self._records.items):
                    half.set()

        async def killer() -> None:
            await half.wait()
            await asyncio.to_thread(self._kill_and_restart, cluster, progress)

        async with Producer("demo_producer", cluster.address) as producer, asyncio.TaskGroup() as group:
            group.create_task(killer())
            await asyncio.gather(*(worker(producer) for _ in range(IN_FLIGHT)))
            half.set()

    def _kill_and_restart(self, cluster: LocalCluster, progress: Progress) -> None:
        began = time.monotonic()
        cluster.broker.kill()
        self._say(progress, f"killed the broker (kill -9) after {len(self._acknowledged):,} acknowledged messages")
        cluster.broker.start()
        self._back_s = time.monotonic() - began
        self._say(progress, f"the broker recovered its store and serves again after {self._back_s:.1f} s")

    def _say(self, progress: Progress, text: str) -> None:
        if not self._quiet:
            progress.console.print(text)

    async def _consume_all(self, cluster: LocalCluster, progress: Progress) -> dict[int, list[bytes]]:
        """Read every queue from its start until all acknowledged numbers were seen, or nothing new comes."""
        bar = progress.add_task("consuming", total=len(self._records.items))
        received: dict[int, list[bytes]] = {}
        missing = set(self._acknowledged)
        async with LitePullConsumer("demo_consumer", cluster.address) as consumer:
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

    def _judge(self, received: dict[int, list[bytes]], seconds: float) -> Verdict:
        return judge(self._records, self._acknowledged, received, back_s=self._back_s, seconds=seconds)


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
    records: Records,
    acknowledged: set[int],
    received: dict[int, list[bytes]],
    *,
    back_s: float,
    seconds: float,
) -> Verdict:
    """Compare what was sent with what came back, by number and byte for byte."""
    copies = sum(len(bodies) for bodies in received.values())
    altered = sum(
        1 for number, bodies in received.items() if any(body != records.items[number].body for body in bodies)
    )
    return Verdict(
        records=records.title,
        sent=len(records.items),
        acknowledged=len(acknowledged),
        consumed=len(received),
        lost=len(acknowledged - received.keys()),
        duplicates=copies - len(received),
        altered=altered,
        broker_kills=1,
        broker_back_s=round(back_s, 2),
        seconds=round(seconds, 2),
    )
