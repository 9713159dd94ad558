"""What one input may cost, and how that is measured.

Time is processor time of the thread, so that a busy machine raises no alarm: 2 ms that each input has (an exception
with its text, a first allocation) and 1 ms for each KiB. An input that seems to take more is given to the decoder
again, and the least of several tries counts. Memory is the peak that tracemalloc sees, what comes out included: 1 MiB
and 32 times the input. Since tracemalloc doubles and triples the time, memory is measured in a second call, and not of
all inputs: of each that is longer than 4 KiB, and of every sixteenth of the others.

Where a decoder unfolds what it is given, within limits that it documents, both bounds are of the unfolded bytes.
"""

import gc
import signal
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

KIB = 1024
MIB = 1024 * 1024
# Inputs up to this size have their memory measured now and then only.
SMALL_BYTES = 4 * KIB
SAMPLE = 16
TRIES = 5
# Who takes so many times what is allowed is not waited for.
_PATIENCE = 20
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an input of `size` bytes may cost."""

    seconds_free: float = 0.002
    seconds_per_kib: float = 0.001
    bytes_free: int = MIB
    bytes_per_byte: int = 32

    def seconds(self, size: int) -> float:
        """Return how much processor time is allowed."""
        return self.seconds_free + self.seconds_per_kib * size / KIB

    def bytes(self, size: int) -> int:
        """Return how much memory is allowed."""
        return self.bytes_free + self.bytes_per_byte * size


BOUNDS = Bounds()
# For the ordinary suite, whose machines are slow and busy: what it finds, it finds by orders of magnitude.
GENEROUS = Bounds(seconds_free=0.05, seconds_per_kib=0.01)


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder: what it takes, what it may raise, and what its inputs are made of."""

    name: str
    decode: Callable[[bytes], object]
    """Gives bytes to the decoder. Everything that it keeps between calls is made anew in each."""
    refuses: tuple[type[Exception], ...]
    """The errors that it documents; whatever else comes out is a breach."""
    seeds: tuple[bytes, ...]
    heavy: tuple[Callable[[], bytes], ...] = ()
    """Large inputs, made when their turn comes: up to the decoder's own limit, and what the issues name."""
    mend: Callable[[bytes], bytes] | None = None
    """Puts right what hides the inside of a mutated input: a length, a checksum, the compression around it."""
    unfolded: Callable[[bytes], int] = len
    """Bytes that the bounds are of."""
    bytes_max: int = 64 * KIB
    """Mutated inputs grow up to here."""
    weight: int = 2
    tokens: tuple[bytes, ...] = field(
        default=(b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"\\u0000", b"-1", b"1e9")
    )


class Outcome(NamedTuple):
    """What an input came to."""

    accepted: bool
    size: int
    """Bytes that the bounds are of."""
    seconds: float
    peak: int
    """Bytes; 0 when memory was not measured."""
    breach: str
    """What is not as it must be; "" when all is well."""


class StillAtIt(BaseException):
    """A decoder was stopped: no decoder's own `except` may take this for one of its errors."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise StillAtIt


def measure(target: Target, data: bytes, bounds: Bounds = BOUNDS, *, memory: bool = True) -> Outcome:
    """Give an input to a decoder and tell what came of it; in the main thread, for it stops who comes to no end."""
    size = target.unfolded(data)
    allowed = bounds.seconds(size)
    before = signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE_SECONDS + _PATIENCE * allowed)
    try:
        accepted, wrong, seconds = _timed(target, data)
    except StillAtIt:
        seconds = _PATIENCE_SECONDS + _PATIENCE * allowed
        wrong = f"it was stopped after {seconds:.1f} s with {size} bytes, {allowed * 1000:.1f} ms are allowed"
        accepted = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if wrong:
        return Outcome(accepted, size, seconds, 0, wrong)
    tries = 1
    while seconds > allowed and tries < TRIES:
        gc.collect()
        seconds = min(seconds, _timed(target, data)[2])
        tries += 1
    if seconds > allowed:
        took = f"it took {seconds * 1000:.1f} ms for {size} bytes, {allowed * 1000:.1f} ms are allowed"
        return Outcome(accepted, size, seconds, 0, took)
    peak = _peak(target, data) if memory or len(data) > SMALL_BYTES else 0
    most = bounds.bytes(size)
    breach = f"it took {peak} bytes of memory for {size}, {most} are allowed" if peak > most else ""
    return Outcome(accepted, size, seconds, peak, breach)


def _timed(target: Target, data: bytes) -> tuple[bool, str, float]:
    """Return whether the decoder accepted it, the wrong exception in words, and the processor time."""
    accepted, wrong = True, ""
    began = time.thread_time()
    try:
        target.decode(data)
    except target.refuses:
        accepted = False
    except Exception as error:
        wrong = f"it raised {type(error).__name__}: {str(error)[:200]}"
    return accepted, wrong, time.thread_time() - began


def _peak(target: Target, data: bytes) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        try:
            kept = target.decode(data)
        except target.refuses as error:
            kept = error
        peak = tracemalloc.get_traced_memory()[1] - before
        del kept
    finally:
        tracemalloc.stop()
    return peak
