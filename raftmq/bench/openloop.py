"""An open loop: messages leave when they are due, whatever has become of those before them; also a closed one.

Each message carries in its body when it was due, and of which phase of a run it is. A latency counts from then on: a
message that leaves late, since the broker or this process was held up, has waited like one that left in time. The clock
is the machine's monotonic one, which all of its processes share.

One thread, one connection, and select(), whose timeout is in microseconds: an event loop's timers are in milliseconds,
which is longer than what is measured.
"""

import select
import socket
import threading
import time
from array import array
from dataclasses import dataclass, field
from typing import Protocol

from raftmq.bench.frames import OPAQUE_COUNT, OPAQUE_MIN, QUEUES, AnswerReader, BadAnswer, body_of, send_template
from raftmq.bench.load import DRAIN_TIMEOUT_S, IN_FLIGHT_MAX, SAMPLES_MAX

SECOND_NS = 1_000_000_000
# In front of a body: when the message was due, in ns, and the phase of the run.
DUE_DIGITS, PHASE_DIGITS = 20, 2
STAMP_BYTES = DUE_DIGITS + PHASE_DIGITS
_MARK = b"S" * STAMP_BYTES
# Frames that one write may gather: with more, the answers would wait for this process.
BURST_MAX = 256
# Bytes that the socket has not taken yet, above which no more frames are made.
UNSENT_MAX = 1024 * 1024
WAIT_S = 0.05
READ_BYTES = 1024 * 1024
CONNECT_S = 10.0


class SendPace(Protocol):
    """Tells when messages are due. Times are those of the monotonic clock, in ns."""

    def due(self, now_ns: int, sent: int, answered: int) -> int:
        """Return how many more are due by now."""
        ...

    def due_ns(self, number: int, now_ns: int) -> int:
        """Return when a message is due, 0 being the first; it leaves now."""
        ...

    def wait_s(self, now_ns: int, sent: int) -> float:
        """Return the seconds until the next one is due, if nothing else happens."""
        ...

    def ended(self, now_ns: int, sent: int) -> bool:
        """Tell whether none will be due any more."""
        ...


class DueTimes:
    """An open loop: `per_s` messages a second, evenly, from `began_ns` on, for some seconds."""

    def __init__(self, began_ns: int, per_s: int, seconds: float) -> None:
        assert per_s > 0, "a rate"
        self._began_ns = began_ns
        self._per_s = per_s
        self.total = max(1, round(per_s * seconds))

    def due(self, now_ns: int, sent: int, answered: int) -> int:  # noqa: ARG002 - that is what makes the loop open
        """Return how many more are due by now."""
        if now_ns < self._began_ns:
            return 0
        return min(self.total, (now_ns - self._began_ns) * self._per_s // SECOND_NS + 1) - sent

    def due_ns(self, number: int, now_ns: int = 0) -> int:  # noqa: ARG002 - however late it leaves
        """Return when a message is due, 0 being the first."""
        return self._began_ns - (-number * SECOND_NS // self._per_s)

    def wait_s(self, now_ns: int, sent: int) -> float:
        """Return the seconds until the next one is due."""
        return max(0.0, (self.due_ns(sent) - now_ns) / SECOND_NS) if sent < self.total else WAIT_S

    def ended(self, now_ns: int, sent: int) -> bool:  # noqa: ARG002 - all of them leave
        """Tell whether all have left."""
        return sent >= self.total


class SendWindow:
    """A closed loop: so many in flight for some seconds, the next one is due when an answer comes."""

    def __init__(self, began_ns: int, in_flight: int, seconds: float) -> None:
        self._end_ns = began_ns + round(seconds * SECOND_NS)
        self._in_flight = in_flight

    def due(self, now_ns: int, sent: int, answered: int) -> int:
        """Return how many the window has room for."""
        return 0 if now_ns >= self._end_ns else self._in_flight - (sent - answered)

    def due_ns(self, number: int, now_ns: int) -> int:  # noqa: ARG002 - each one when it leaves
        """Return now."""
        return now_ns

    def wait_s(self, now_ns: int, sent: int) -> float:  # noqa: ARG002 - nothing but an answer makes room
        """Return how long to wait for an answer, at most."""
        return min(WAIT_S, max(0.0, (self._end_ns - now_ns) / SECOND_NS)) or WAIT_S

    def ended(self, now_ns: int, sent: int) -> bool:  # noqa: ARG002 - by time alone
        """Tell whether the time is over."""
        return now_ns >= self._end_ns


@dataclass(slots=True)
class PacedSends:
    """What one run of a sender was: latencies in microseconds, from when a message was due to its acknowledgement."""

    sent: int = 0
    answered: int = 0
    seconds: float = 0.0
    """From the beginning to the last answer."""
    busy: float = 0.0
    """The share of that in which the sending thread was at work."""
    latencies_us: "array[int]" = field(default_factory=lambda: array("I"))
    late_us: "array[int]" = field(default_factory=lambda: array("I"))
    """How long after it was due each message left this process."""
    errors: dict[int, int] = field(default_factory=dict)

    @property
    def acknowledged(self) -> int:
        """How many were stored."""
        return self.answered - sum(self.errors.values())


class StampedSender:
    """Sends stamped bodies of one size to the queues of a topic in turn. `run` blocks: it is for a thread."""

    def __init__(self, address: str, topic: str, size: int) -> None:
        """Connect; raises OSError."""
        assert size >= STAMP_BYTES, "a body holds its stamp"
        body = _MARK + body_of(size - STAMP_BYTES)
        stamp = b"%%0%dd%%0%dd" % (DUE_DIGITS, PHASE_DIGITS)
        self._patterns = []
        for queue in range(QUEUES):
            before, mark, after = send_template(topic, queue, body).pattern.partition(_MARK)
            assert mark, "the body has its mark"
            self._patterns.append(before + stamp + after)
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._answers = AnswerReader()
        self._left: dict[int, int] = {}
        self._unsent = bytearray()
        self._next = 0
        self._stopped = threading.Event()
        self.now = PacedSends()
        """The run that goes on, or the last one."""

    def stop(self) -> None:
        """Have a run end soon, from another thread."""
        self._stopped.set()

    def close(self) -> None:
        """Close the connection; no run may go on."""
        self._socket.close()

    def run(self, pace: SendPace, phase: int) -> PacedSends:
        """Send at a pace until that ends and everything is answered; raises OSError, BadAnswer."""
        figures = self.now = PacedSends()
        began, used = time.perf_counter(), time.thread_time()
        give_up = 0.0
        while not self._stopped.is_set():
            now_ns = time.monotonic_ns()
            self._make(pace, phase, now_ns)
            self._write()
            ended = pace.ended(now_ns, figures.sent)
            if ended and not self._left:
                break
            give_up = give_up or (time.monotonic() + DRAIN_TIMEOUT_S if ended else 0.0)
            if give_up and time.monotonic() > give_up:
                raise BadAnswer(f"{len(self._left)} sends got no answer within {DRAIN_TIMEOUT_S:g} s")
            wait_s = pace.wait_s(time.monotonic_ns(), figures.sent) if len(self._left) < IN_FLIGHT_MAX else WAIT_S
            readable, _, _ = select.select(
                [self._socket], [self._socket] if self._unsent else [], [], min(WAIT_S, wait_s)
            )
            if readable:
                self._read()
        figures.seconds = time.perf_counter() - began
        figures.busy = (time.thread_time() - used) / figures.seconds
        return figures

    def _make(self, pace: SendPace, phase: int, now_ns: int) -> None:
        """Make the frames of what is due, as far as there is room."""
        figures = self.now
        if len(self._unsent) > UNSENT_MAX:
            return
        due = pace.due(now_ns, figures.sent, figures.answered)
        count = min(due, BURST_MAX, IN_FLIGHT_MAX - len(self._left))
        patterns, left, late = self._patterns, self._left, figures.late_us
        for number in range(figures.sent, figures.sent + max(0, count)):
            due_ns = pace.due_ns(number, now_ns)
            opaque = OPAQUE_MIN + self._next
            self._next = (self._next + 1) % OPAQUE_COUNT
            self._unsent += patterns[number % QUEUES] % (opaque, due_ns, phase)
            left[opaque] = due_ns
            if len(late) < SAMPLES_MAX:
                late.append((now_ns - due_ns) // 1000)
        figures.sent += max(0, count)

    def _write(self) -> None:
        if self._unsent:
            try:
                del self._unsent[: self._socket.send(self._unsent)]
            except BlockingIOError:
                return

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        now_ns = time.monotonic_ns()
        if not data:
            raise BadAnswer("the broker closed the connection")
        figures = self.now
        for opaque, code, _ in self._answers.feed(data):
            due_ns = self._left.pop(opaque, None)
            if due_ns is None:
                raise BadAnswer("an answer came to nothing that was asked")
            figures.answered += 1
            if code:
                figures.errors[code] = figures.errors.get(code, 0) + 1
            elif len(figures.latencies_us) < SAMPLES_MAX:
                figures.latencies_us.append((now_ns - due_ns) // 1000)
