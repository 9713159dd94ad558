"""A closed loop: W requests in flight on each connection, the next one leaves when an answer comes."""

import asyncio
import functools
import ssl
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol, cast

from raftmq.bench.frames import (
    CONSUMER_GROUP,
    OPAQUE_COUNT,
    OPAQUE_MIN,
    Answer,
    AnswerReader,
    BadAnswer,
    batch_templates,
    next_offset,
    pull_template,
    send_templates,
)
from remoting.codes import ResponseCode
from remoting.signing import Credentials

IN_FLIGHT_MAX = 65_535  # a slot of the table of departure times each
WARM_UP_S = 0.5
DRAIN_TIMEOUT_S = 15.0
SAMPLES_MAX = 4_000_000  # latencies kept, 4 bytes each; later ones are counted but not measured


@dataclass(frozen=True, slots=True)
class Result:
    """What a run measured. Rates are per second of measured time, latencies in milliseconds."""

    what: str
    connections: int
    in_flight: int
    body_bytes: int
    seconds: float
    requests: int
    messages: int
    messages_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    errors: dict[int, int] = field(default_factory=dict)
    server_cpu_us_per_message: float | None = None
    client_busy: float = 0.0
    """The share of the time in which this process was at work: near 1 it is the load that is measured."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        values = asdict(self)
        values["errors"] = {str(code): count for code, count in self.errors.items()}
        return values


class LoadedBroker(NamedTuple):
    """The broker that is loaded."""

    address: str
    cpu_seconds: Callable[[], float] | None = None
    """Tells the server's processor time so far."""
    tls: ssl.SSLContext | None = None
    """What it is spoken to with; None: plainly."""


class Work(Protocol):
    """What is asked for: the frames of the next requests, and what answers were worth."""

    def frames(self, opaques: range) -> list[bytes]:
        """Return the next requests, one for each opaque."""
        ...

    def messages(self, answers: Sequence[Answer]) -> int:
        """Return how many messages the answers stand for; errors count none."""
        ...


class Sends:
    """Sends bodies of one size to the queues of a topic in turn, signed by `credentials` if there are any."""

    def __init__(self, topic: str, size: int, credentials: Credentials | None = None) -> None:
        self._patterns = [template.pattern for template in send_templates(topic, size, credentials)]

    def frames(self, opaques: range) -> list[bytes]:
        """Return sends to the opaques' queues."""
        patterns, count = self._patterns, len(self._patterns)
        return [patterns[opaque % count] % opaque for opaque in opaques]

    def messages(self, answers: Sequence[Answer]) -> int:
        """Return 1 for each stored message."""
        return sum(not code for _, code, _ in answers)


class BatchSends:
    """Sends batches of `count` bodies of one size to the queues of a topic in turn."""

    def __init__(self, topic: str, size: int, count: int) -> None:
        self._count = count
        self._patterns = [template.pattern for template in batch_templates(topic, size, count)]

    def frames(self, opaques: range) -> list[bytes]:
        """Return batches to the opaques' queues."""
        patterns, count = self._patterns, len(self._patterns)
        return [patterns[opaque % count] % opaque for opaque in opaques]

    def messages(self, answers: Sequence[Answer]) -> int:
        """Return how many messages were stored: a batch is, or is not."""
        return self._count * sum(not code for _, code, _ in answers)


class Pulls:
    """Pulls `count` messages at a time from every queue in turn, from the start again at the end."""

    def __init__(
        self,
        topic: str,
        ends: Sequence[int],
        count: int,
        credentials: Credentials | None = None,
        *,
        begins: Sequence[int] = (),
        group: str = CONSUMER_GROUP,
    ) -> None:
        """Take the max offset of each queue of the topic as `ends`, and where its pulls start as `begins`, else at 0.

        At least one queue must have `count` messages between them.
        """
        self._topic = topic
        self._count = count
        self._credentials = credentials
        self._group = group
        starts = begins or [0] * len(ends)
        self._queues = [
            (queue_id, begin, end)
            for queue_id, (begin, end) in enumerate(zip(starts, ends, strict=True))
            if end - begin >= count
        ]
        self._turns = [0] * len(self._queues)
        self._asked: dict[int, int] = {}
        # One entry per `count` messages of the topic: a benchmark's topic is small.
        self._patterns: dict[tuple[int, int], bytes] = {}

    def frames(self, opaques: range) -> list[bytes]:
        """Return the next pulls."""
        return [self._frame(opaque) for opaque in opaques]

    def messages(self, answers: Sequence[Answer]) -> int:
        """Return how far the answers lead on from the offsets that were asked for."""
        total = 0
        for answer in answers:
            asked = self._asked.pop(answer[0])
            if answer[1] == ResponseCode.SUCCESS:
                total += next_offset(answer) - asked
        return total

    def _frame(self, opaque: int) -> bytes:
        slot = opaque % len(self._queues)
        queue_id, begin, end = self._queues[slot]
        offset = begin + self._turns[slot] * self._count
        if offset + self._count > end:
            offset, self._turns[slot] = begin, 0
        self._turns[slot] += 1
        self._asked[opaque] = offset
        pattern = self._patterns.get((queue_id, offset))
        if pattern is None:
            # A queue's pulls repeat, so each is encoded once.
            template = pull_template(self._topic, queue_id, offset, self._count, self._credentials, group=self._group)
            pattern = template.pattern
            self._patterns[queue_id, offset] = pattern
        return pattern % opaque


class _Tally:
    """Counts of one run, shared by its connections."""

    def __init__(self) -> None:
        self.measuring = False
        self.requests = 0
        self.messages = 0
        self.errors: dict[int, int] = {}
        self.latencies_us = array("I")

    def add(self, answers: Sequence[Answer], messages: int, latencies_us: list[int]) -> None:
        """Count the answers of one read."""
        if not self.measuring:
            return
        self.requests += len(answers)
        self.messages += messages
        for _, code, _ in answers:
            if code:
                self.errors[code] = self.errors.get(code, 0) + 1
        if len(self.latencies_us) < SAMPLES_MAX:
            self.latencies_us.extend(latencies_us)


class _Connection(asyncio.Protocol):
    """Keeps its window full; all requests that one read makes room for leave in one write."""

    def __init__(self, work: Work, in_flight: int, tally: _Tally) -> None:
        self._work = work
        self._in_flight = in_flight
        self._tally = tally
        self._reader = AnswerReader()
        self._next = 0
        self._left: dict[int, float] = {}
        self._transport: asyncio.Transport | None = None
        self.stopping = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._send(self._in_flight)

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._reader.feed(data)
            now = time.perf_counter()
            pop = self._left.pop
            latencies_us = [int((now - pop(opaque)) * 1_000_000) for opaque, _, _ in answers]
            self._tally.add(answers, self._work.messages(answers), latencies_us)
        except (BadAnswer, KeyError) as error:
            self._end(BadAnswer(f"answers and requests do not match: {error}"))
            return
        if self.stopping:
            if not self._left:
                self._end(None)
        elif answers:
            self._send(len(answers))

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("the broker closed the connection"))

    def close(self) -> None:
        """Close the connection, whatever is still under way; nobody asks any more how it ended."""
        if self._transport is not None:
            self._transport.close()
        if not self.done.cancel() and not self.done.cancelled():
            self.done.exception()

    def _send(self, count: int) -> None:
        assert self._transport is not None
        if self._next + count > OPAQUE_COUNT:
            self._next = 0
        opaques = range(OPAQUE_MIN + self._next, OPAQUE_MIN + self._next + count)
        self._next += count
        frames = self._work.frames(opaques)
        self._left.update(dict.fromkeys(opaques, time.perf_counter()))
        self._transport.write(b"".join(frames))

    def _end(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


async def run_load(
    what: str,
    target: LoadedBroker,
    work: Callable[[], Work],
    *,
    in_flight: int,
    seconds: float,
    body_bytes: int = 0,
    connections: int = 1,
) -> Result:
    """Load a broker for `seconds` (after a warm-up); `work` is made for each connection.

    While nothing at all was answered it goes on, for 15 s at most.
    Raises OSError when there is no connection or it breaks, BadAnswer when the peer is no broker or does not answer.
    """
    host, _, port = target.address.rpartition(":")
    cpu_seconds = target.cpu_seconds
    tally = _Tally()
    loop = asyncio.get_running_loop()
    opened: list[_Connection] = []
    try:
        for _ in range(connections):
            one = work()
            _, protocol = await loop.create_connection(
                functools.partial(_Connection, one, in_flight, tally), host.strip("[]"), int(port), ssl=target.tls
            )
            opened.append(protocol)
        ends = [connection.done for connection in opened]
        await _watch(ends, WARM_UP_S)
        cpu_before = cpu_seconds() if cpu_seconds is not None else 0.0
        began, own_before = time.perf_counter(), time.process_time()
        tally.measuring = True
        await _watch(ends, seconds)
        # Beside much else a short while can go by without any answer, of which nothing could be said.
        while not tally.requests and time.perf_counter() - began < DRAIN_TIMEOUT_S:
            await _watch(ends, seconds)
        tally.measuring = False
        took, own_used = time.perf_counter() - began, time.process_time() - own_before
        cpu_used = cpu_seconds() - cpu_before if cpu_seconds is not None else None
        for connection in opened:
            connection.stopping = True
        await _drain(ends)
    finally:
        for connection in opened:
            connection.close()
    found = _result(what, tally, took, cpu_used, (connections, in_flight, body_bytes))
    return replace(found, client_busy=round(own_used / took, 3))


async def _watch(ends: Sequence[asyncio.Future[None]], seconds: float) -> None:
    """Let time pass; raises what ended a connection meanwhile."""
    done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for end in done:
        end.result()


async def _drain(ends: Sequence[asyncio.Future[None]]) -> None:
    """Wait for the answers that are still to come, so that none meets a closed connection."""
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            await asyncio.gather(*ends)
    except TimeoutError:
        raise BadAnswer(f"requests got no answer within {DRAIN_TIMEOUT_S:g} s") from None


def _result(what: str, tally: _Tally, took: float, cpu_used: float | None, shape: tuple[int, int, int]) -> Result:
    latencies = sorted(tally.latencies_us)
    connections, in_flight, body_bytes = shape
    return Result(
        what=what,
        connections=connections,
        in_flight=in_flight,
        body_bytes=body_bytes,
        seconds=round(took, 3),
        requests=tally.requests,
        messages=tally.messages,
        messages_per_s=round(tally.messages / took),
        p50_ms=percentile(latencies, 0.50),
        p99_ms=percentile(latencies, 0.99),
        max_ms=percentile(latencies, 1.0),
        errors=dict(sorted(tally.errors.items())),
        server_cpu_us_per_message=None
        if cpu_used is None or not tally.messages
        else round(cpu_used / tally.messages * 1e6, 2),
    )


def percentile(sorted_us: Sequence[int], share: float) -> float:
    """Return the value below which `share` of the sorted microseconds lie, in milliseconds; 0 for none."""
    if not sorted_us:
        return 0.0
    return round(sorted_us[min(len(sorted_us) - 1, int(len(sorted_us) * share))] / 1000, 3)
