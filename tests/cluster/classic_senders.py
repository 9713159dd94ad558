"""Senders of numbered messages: every attempt is a message of its own, and what was acknowledged is known to the byte.

Nothing here retries, so one number may stand in the log once at most. `differences_of` compares what senders were told
with what stands in the brokers' logs.
"""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from chaos.load.clients import connections
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.properties import encode_properties
from store.log.dispatch import dispatched_from_record
from store.log.logscan import LogScan, Span

TOPIC = "numbered"
GROUP = "numbered_readers"
QUEUES = 4
BODY_BYTES = 100
NUMBER_BYTES = 12
SENDERS = 16
# Whoever is alive answers by then on a busy machine too; who is killed ends the connection.
SEND_TIMEOUT_S = 10.0
PAUSE_S = 0.02
COMPARE_BYTES = 4 * 1024 * 1024


@dataclass
class History:
    """What senders saw. Index of `queue` and `offset`: the number of the attempt; -1: not acknowledged."""

    queue: "array[int]" = field(default_factory=lambda: array("b"))
    offset: "array[int]" = field(default_factory=lambda: array("q"))
    acknowledged: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def attempt(self) -> int:
        self.queue.append(-1)
        self.offset.append(-1)
        return len(self.queue) - 1

    def acknowledge(self, number: int, queue: int, offset: int) -> None:
        self.queue[number] = queue
        self.offset[number] = offset
        self.acknowledged += 1

    def failed(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1


class Senders:
    """Some of them, who all send to one broker."""

    def __init__(self, address: str, history: History, senders: int = SENDERS) -> None:
        self._address = address
        self._history = history
        self._client = connections("numbered")
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._send_forever()) for _ in range(senders)]

    async def stop(self) -> None:
        """Take no new attempts and wait for the answers of those under way."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
        await self._client.close()

    async def _send_forever(self) -> None:
        while not self._stop.is_set():
            number = self._history.attempt()
            error = await self._send(number, number % QUEUES)
            if error:
                self._history.failed(error)
                await asyncio.sleep(PAUSE_S)

    async def _send(self, number: int, queue: int) -> str:
        """Send once; return "" or what went wrong."""
        header = SendMessageRequestHeaderV2(
            producerGroup="numbered",
            topic=TOPIC,
            defaultTopic="TBW102",
            defaultTopicQueueNums=QUEUES,
            queueId=queue,
            sysFlag=0,
            bornTimestamp=1,
            flag=0,
            properties=encode_properties({"UNIQ_KEY": f"{number:032d}"}).decode(),
        )
        body = b"%0*d" % (NUMBER_BYTES, number) + b"x" * (BODY_BYTES - NUMBER_BYTES)
        try:
            request = Command.request(RequestCode.SEND_MESSAGE_V2, header, body)
            answer = await self._client.invoke(self._address, request, SEND_TIMEOUT_S)
        except RemotingError as error:
            return type(error).__name__
        if answer.code != ResponseCode.SUCCESS:
            return f"code {answer.code}"
        self._history.acknowledge(number, int(answer.ext["queueId"]), int(answer.ext["queueOffset"]))
        return ""


@dataclass(frozen=True)
class Differences:
    """Counts of attempts. `lost`: acknowledged and not in the log; `misplaced`: it stands elsewhere than was told."""

    lost: int
    misplaced: int
    repeated: int
    between_logs: list[str]


def differences_of(stores: Sequence[Path], history: History) -> Differences:
    """Compare a history with the logs of stopped brokers: the first with what was told, the others with the first."""
    count = np.zeros(len(history.queue), np.int32)
    queue = np.full(len(history.queue), -1, np.int8)
    offset = np.full(len(history.queue), -1, np.int64)
    spans = log_spans(stores[0])
    scan = LogScan(spans, spans[0].start, check_crc=True)
    for found in scan:
        record = dispatched_from_record(found.view, found.at)
        if record.topic == TOPIC:
            number = int(_body_of(found.view, found.at)[:NUMBER_BYTES])
            count[number] += 1
            queue[number] = record.queue_id
            offset[number] = record.queue_offset
    told_queue = np.frombuffer(history.queue, np.int8)
    told_offset = np.frombuffer(history.offset, np.int64)
    acknowledged = told_queue >= 0
    there = acknowledged & (count > 0)
    return Differences(
        lost=int((acknowledged & (count == 0)).sum()),
        misplaced=int((there & ((queue != told_queue) | (offset != told_offset))).sum()),
        repeated=int((count > 1).sum()),
        between_logs=[line for other in stores[1:] for line in _differences(stores[0], other, scan.end)],
    )


def log_spans(store: Path) -> list[Span]:
    """Return the files of a store's CommitLog."""
    files = sorted((store / "commitlog").iterdir())
    return [Span(path, int(path.name), path.stat().st_size) for path in files]


def _body_of(view: memoryview, at: int) -> bytes:
    """Return the body of an IPv4 record, which all records here are."""
    length = int.from_bytes(view[at + 84 : at + 88], "big")
    return bytes(view[at + 88 : at + 88 + length])


def _differences(one: Path, other: Path, end: int) -> list[str]:
    """Return where two logs differ before `end`; the shorter one must reach it."""
    theirs = {span.start: span for span in log_spans(other)}
    found = []
    for mine in log_spans(one):
        if mine.start >= end:
            continue
        if mine.start not in theirs:
            found.append(f"{other} lacks the file at {mine.start}")
            continue
        length = min(mine.size, end - mine.start)
        with mine.path.open("rb") as left, theirs[mine.start].path.open("rb") as right:
            for at in range(0, length, COMPARE_BYTES):
                step = min(COMPARE_BYTES, length - at)
                if left.read(step) != right.read(step):
                    found.append(f"{one} and {other} differ between {mine.start + at} and {mine.start + at + step}")
                    break
    return found
