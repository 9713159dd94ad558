"""What each toxic does to the bytes of one direction of one connection; no I/O, and time is handed in.

A stage takes pieces of bytes, and at last the end of the stream, and gives them to the next one, later, cut or not at
all. What it keeps is told to its place, so that the socket that feeds it can be stopped in time.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

BANDWIDTH_STEP_MS = 100  # pieces that take longer are cut, so that bytes trickle and do not gush
LOST_TIMES_MAX = 6  # then it gets through, however bad the link: a timer of TCP's grows no further than some seconds

# A piece of bytes; None is the end of the stream.
Piece = bytes | None


class StageTimer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Do not call it."""
        ...


class Timers(Protocol):
    """An event loop's clock: seconds."""

    def time(self) -> float:
        """Return the monotonic time, in seconds."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> StageTimer:
        """Call `callback` at the time `when`."""
        ...


class Outlet(Protocol):
    """Where bytes go on: the next stage, or a socket."""

    def take(self, data: bytes) -> None:
        """Take bytes, never none."""
        ...

    def end(self) -> None:
        """Take the end of the stream; nothing comes behind it."""
        ...


class StagePlace(Protocol):
    """What a stage may ask of the direction in which it stands."""

    @property
    def timers(self) -> Timers:
        """Time."""
        ...

    def keep(self, pieces: int, count: int) -> None:
        """Note that so many pieces and bytes more (or fewer, below 0) are kept in a stage."""
        ...

    def lose(self, count: int) -> None:
        """Note that so many bytes were thrown away."""
        ...

    def reset(self) -> None:
        """Reset both sides of the connection."""
        ...


class Stage:
    """One toxic in one direction of one connection; as it stands here, it lets everything through.

    `after` is set before anything is taken.
    """

    after: Outlet

    def __init__(self, place: StagePlace, settings: Mapping[str, int], random: Random) -> None:
        self._place = place
        self._settings = settings
        self._random = random

    def start(self) -> None:
        """Count from now, when it stands in the chain."""

    def take(self, data: bytes) -> None:
        """Take bytes."""
        self.after.take(data)

    def end(self) -> None:
        """Take the end of the stream."""
        self.after.end()

    def leave(self) -> None:
        """Give away at once what is kept: the toxic was removed."""

    def retune(self, settings: Mapping[str, int]) -> None:
        """Take other attributes."""
        self._settings = settings

    def drop(self) -> None:
        """Forget everything: the connection is gone."""


class DueQueue(Stage):
    """Keeps pieces in order, each until it is due."""

    # Whether each piece gets a turn of the event loop for itself, so that a socket sends them apart.
    one_by_one = False

    def __init__(self, place: StagePlace, settings: Mapping[str, int], random: Random) -> None:
        super().__init__(place, settings, random)
        self._kept: deque[tuple[float, Piece]] = deque()
        self._timer: StageTimer | None = None
        self._next = -math.inf  # of stages that leave gaps between pieces: when the next one may go

    def put(self, due: float, piece: Piece) -> None:
        """Keep a piece until `due`, and until the one before has gone."""
        if not self._kept and piece is not None and due <= self._place.timers.time() and not self.one_by_one:
            self.after.take(piece)
            return
        self._kept.append((due, piece))
        self._place.keep(1, len(piece or b""))
        self._arm()

    def leave(self) -> None:
        """Give everything away at once, in order."""
        self.drop_timer()
        while self._kept:
            self._pass_first()

    def retune(self, settings: Mapping[str, int]) -> None:
        """Count what is kept as taken now, with the new settings."""
        super().retune(settings)
        self.drop_timer()
        pieces = [piece for _, piece in self._kept]
        self.drop()
        self._next = -math.inf
        for piece in pieces:
            if piece is None:
                self.end()
            else:
                self.take(piece)

    def drop(self) -> None:
        """Forget everything."""
        self.drop_timer()
        self._place.keep(-len(self._kept), -sum(len(piece or b"") for _, piece in self._kept))
        self._kept.clear()

    def drop_timer(self) -> None:
        """Wait for nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._kept and self._kept[0][0] < math.inf:
            self._timer = self._place.timers.call_at(self._kept[0][0], self._pump)

    def _pump(self) -> None:
        self._timer = None
        now = self._place.timers.time()
        while self._kept and self._kept[0][0] <= now:
            self._pass_first()
            if self.one_by_one:
                break
        self._arm()

    def _pass_first(self) -> None:
        _, piece = self._kept.popleft()
        self._place.keep(-1, -len(piece or b""))
        if piece is None:
            self.after.end()
        else:
            self.after.take(piece)


class Latency(DueQueue):
    """Each piece takes `latency` ± `jitter` ms; they do not overtake each other."""

    def take(self, data: bytes) -> None:
        """Take bytes."""
        jitter = self._settings["jitter"]
        # As Toxiproxy draws it: from -jitter up to, but not, +jitter.
        delay_ms = self._settings["latency"] + (self._random.randrange(-jitter, jitter) if jitter else 0)
        self.put(self._place.timers.time() + delay_ms / 1000, data)

    def end(self) -> None:
        """End behind the last piece, not later."""
        self.put(self._place.timers.time(), None)


class Bandwidth(DueQueue):
    """Lets `rate` bytes per ms through."""

    def take(self, data: bytes) -> None:
        """Take bytes."""
        rate = self._settings["rate"]
        if rate == 0:
            self.put(math.inf, data)
            return
        step = rate * BANDWIDTH_STEP_MS
        self._next = max(self._place.timers.time(), self._next)
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            self._next += len(piece) / rate / 1000
            self.put(self._next, piece)

    def end(self) -> None:
        """End behind the last piece."""
        self.put(self._place.timers.time(), None)


class Slicer(DueQueue):
    """Cuts pieces into slices of `average_size` ± `size_variation` bytes, `delay` µs apart."""

    one_by_one = True

    def take(self, data: bytes) -> None:
        """Take bytes."""
        self._next = max(self._place.timers.time(), self._next)
        for start, end in self._cuts(len(data)):
            self.put(self._next, data[start:end])
            self._next += self._settings["delay"] / 1_000_000

    def end(self) -> None:
        """End behind the last slice and its pause."""
        self.put(max(self._place.timers.time(), self._next), None)

    def _cuts(self, length: int) -> list[tuple[int, int]]:
        """Return the slices' bounds: halved, a little beside the middle, until small enough (as Toxiproxy does)."""
        average, variation = self._settings["average_size"], self._settings["size_variation"]
        found: list[tuple[int, int]] = []
        waiting = [(0, length)]
        while waiting:
            start, end = waiting.pop()
            if end - start - average <= variation:
                found.append((start, end))
                continue
            beside = self._random.randrange(-variation, variation) if variation else 0
            middle = min(max(start + (end - start) // 2 + beside, start + 1), end - 1)
            waiting += [(middle, end), (start, middle)]
        return found


class SlowClose(DueQueue):
    """Lets bytes through, and the end `delay` ms later."""

    def take(self, data: bytes) -> None:
        """Take bytes."""
        self.put(-math.inf, data)

    def end(self) -> None:
        """End later."""
        self.put(self._place.timers.time() + self._settings["delay"] / 1000, None)


class Hold(DueQueue):
    """Keeps everything until it is removed."""

    def take(self, data: bytes) -> None:
        """Take bytes."""
        self.put(math.inf, data)

    def end(self) -> None:
        """Keep the end, too."""
        self.put(math.inf, None)


class Loss(DueQueue):
    """Loses pieces as packets are lost: each is sent again after `rto` ms, then after twice that, and so on.

    Nothing overtakes a piece that was lost, and nothing is missing in the end: what stands behind it waits for it.
    """

    def take(self, data: bytes) -> None:
        """Take bytes."""
        delay_ms = 0
        for times in range(LOST_TIMES_MAX):
            if self._random.randrange(1000) >= self._settings["per_mille"]:
                break
            delay_ms += self._settings["rto"] << times
        self.put(self._place.timers.time() + delay_ms / 1000, data)

    def end(self) -> None:
        """End behind the last piece."""
        self.put(self._place.timers.time(), None)


class Cutter(Stage):
    """May end the stream before its source does: once, and then throws away what comes."""

    def __init__(self, place: StagePlace, settings: Mapping[str, int], random: Random) -> None:
        super().__init__(place, settings, random)
        self._ended = False
        self._timer: StageTimer | None = None

    def end(self) -> None:
        """End the stream."""
        self.drop()
        if not self._ended:
            self._ended = True
            self.after.end()

    def drop(self) -> None:
        """Wait for nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Timeout(Cutter):
    """Throws everything away; ends the stream after `timeout` ms without a byte (0: never), and when it is removed.

    That any byte starts the count anew is what Shopify's server does.
    """

    def start(self) -> None:
        """Count from now."""
        self.drop()
        if self._settings["timeout"] and not self._ended:
            when = self._place.timers.time() + self._settings["timeout"] / 1000
            self._timer = self._place.timers.call_at(when, self.end)

    def take(self, data: bytes) -> None:
        """Take bytes."""
        self._place.lose(len(data))
        self.start()

    def leave(self) -> None:
        """End the stream: bytes are missing in it."""
        self.end()

    def retune(self, settings: Mapping[str, int]) -> None:
        """Count anew."""
        super().retune(settings)
        self.start()


class LimitData(Cutter):
    """Ends the stream after `bytes` bytes."""

    def __init__(self, place: StagePlace, settings: Mapping[str, int], random: Random) -> None:
        super().__init__(place, settings, random)
        self._passed = 0

    def take(self, data: bytes) -> None:
        """Take bytes."""
        left = 0 if self._ended else max(0, self._settings["bytes"] - self._passed)
        self._place.lose(max(0, len(data) - left))
        if left:
            self._passed += min(left, len(data))
            self.after.take(data[:left])
        if self._passed >= self._settings["bytes"]:
            self.end()


class ResetPeer(Cutter):
    """Resets the connection `timeout` ms after its first byte, or end, came by; what comes by is thrown away."""

    def take(self, data: bytes) -> None:
        """Take bytes."""
        self._place.lose(len(data))
        self.end()

    def end(self) -> None:
        """Take the end of the stream."""
        if self._timer is None:
            when = self._place.timers.time() + self._settings["timeout"] / 1000
            self._timer = self._place.timers.call_at(when, self._place.reset)

    def leave(self) -> None:
        """Reset at once where bytes are gone already."""
        if self._timer is not None:
            self._place.reset()


STAGES: Mapping[str, type[Stage]] = {
    "latency": Latency,
    "bandwidth": Bandwidth,
    "slow_close": SlowClose,
    "timeout": Timeout,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "limit_data": LimitData,
    "hold": Hold,
    "loss": Loss,
    "noop": Stage,
}
