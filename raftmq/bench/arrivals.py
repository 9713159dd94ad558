"""A consumer as a process of its own that tells when stamped messages arrived (raftmq/bench/openloop.py).

A pull that waits for messages is always under way for each queue, as a push consumer has it; what comes is looked at
and asked on. Who started the process writes the number of a phase to its standard input and gets a line of JSON.
"""

import os
import select
import socket
import struct
import sys
import time
from array import array
from dataclasses import dataclass, field
from typing import Any

import orjson

from raftmq.bench.frames import OPAQUE_MIN, QUEUES, BadAnswer, pull_template
from raftmq.bench.load import SAMPLES_MAX, percentile
from raftmq.bench.openloop import CONNECT_S, DUE_DIGITS, READ_BYTES, STAMP_BYTES
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.framing import FrameReader
from remoting.headers.registry import PullMessageResponseHeader
from remoting.record import BORNHOST_V6, HEADS, STOREHOST_V6, SYSFLAG_AT

PULL_COUNT = 32
SUSPEND_MS = 15_000
# What a broker answers to a pull that goes on: found, none came, ask again from another offset.
GOING_ON = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip
_INT = struct.Struct(">i")


@dataclass(slots=True)
class ArrivedPhase:
    """What arrived of one phase: latencies in microseconds, from when a message was due."""

    latencies_us: "array[int]" = field(default_factory=lambda: array("I"))
    arrived: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def take(self, due_ns: int, now_ns: int) -> None:
        """Note one message."""
        self.arrived += 1
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        if len(self.latencies_us) < SAMPLES_MAX:
            self.latencies_us.append(max(0, now_ns - due_ns) // 1000)

    def figures(self) -> dict[str, Any]:
        """Return them for JSON."""
        ordered = sorted(self.latencies_us)
        seconds = (self.last_ns - self.first_ns) / 1e9
        return {
            "arrived": self.arrived,
            "arrived_per_s": round(self.arrived / seconds) if seconds > 0 else 0,
            "p50_ms": percentile(ordered, 0.50),
            "p99_ms": percentile(ordered, 0.99),
            "max_ms": percentile(ordered, 1.0),
        }


class ArrivalBook:
    """Notes stamped messages by their phase."""

    def __init__(self) -> None:
        self._phases: dict[int, ArrivedPhase] = {}

    def phase(self, number: int) -> ArrivedPhase:
        """Return what arrived of a phase."""
        return self._phases.setdefault(number, ArrivedPhase())

    def note(self, records: bytes | memoryview, now_ns: int) -> None:
        """Note the messages of an answer to a pull, which are records one after the other."""
        at, end = 0, len(records)
        while at < end:
            (size,) = _INT.unpack_from(records, at)
            (flags,) = _INT.unpack_from(records, at + SYSFLAG_AT)
            body = at + HEADS[flags & (BORNHOST_V6 | STOREHOST_V6)].size
            stamp = bytes(records[body : body + STAMP_BYTES])
            self.phase(int(stamp[DUE_DIGITS:])).take(int(stamp[:DUE_DIGITS]), now_ns)
            at += size


class ArrivingPulls:
    """Pulls that wait, one of each queue of a topic, over one connection."""

    def __init__(self, address: str, topic: str) -> None:
        """Connect and ask for what comes from the topic's beginning on; raises OSError."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic
        self._frames = FrameReader()
        self.book = ArrivalBook()
        self._ask([(queue, 0) for queue in range(QUEUES)])

    def read(self) -> None:
        """Take what has come and ask on; raises OSError, BadAnswer."""
        data = self.socket.recv(READ_BYTES)
        now_ns = time.monotonic_ns()
        if not data:
            raise BadAnswer("the broker closed the consumer's connection")
        self._ask([self._taken(answer, now_ns) for answer in self._frames.feed(data)])

    def _taken(self, answer: Command, now_ns: int) -> tuple[int, int]:
        """Note an answer's messages; return the queue and the offset to go on at."""
        if answer.code not in GOING_ON:
            raise BadAnswer(f"a pull was answered with {answer.code}: {answer.remark}")
        if answer.code == ResponseCode.SUCCESS:
            self.book.note(answer.body, now_ns)
        return answer.opaque - OPAQUE_MIN, answer.header(PullMessageResponseHeader).nextBeginOffset

    def _ask(self, places: list[tuple[int, int]]) -> None:
        if places:
            self.socket.sendall(
                b"".join(
                    pull_template(self._topic, queue, offset, PULL_COUNT, suspend_ms=SUSPEND_MS).fill(
                        OPAQUE_MIN + queue
                    )
                    for queue, offset in places
                )
            )


def _main(address: str, topic: str) -> None:
    pulls = ArrivingPulls(address, topic)
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([pulls.socket, sys.stdin], [], [])
        if pulls.socket in readable:
            pulls.read()
        if sys.stdin in readable:
            asked = sys.stdin.readline()
            if not asked:
                return
            _answer(pulls.book, asked.split())


def _answer(book: ArrivalBook, asked: list[str]) -> None:
    """Tell of a phase: all figures of "1 figures", of "1" only how many have arrived, which costs no sorting."""
    phase = book.phase(int(asked[0]))
    told = {"cpu_s": time.process_time()} | (phase.figures() if asked[1:] else {"arrived": phase.arrived})
    print(orjson.dumps(told).decode(), flush=True)


if __name__ == "__main__":
    try:
        _main(sys.argv[1], sys.argv[2])
    except BadAnswer as error:
        sys.exit(str(error))
    except (BrokenPipeError, KeyboardInterrupt):
        # Who started it is gone, or ends.
        os._exit(1)
