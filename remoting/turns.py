"""Fair turns: who sends much is served in slices, so that who sends little need not wait for all of it.

A connection that has sent more than its share of a read waits here with the rest, and is read no further meanwhile; all
that wait are served in slices, one after another, until the turn's time is over. Between two turns the loop reads who
sends little, and does what cannot wait: answers to members of a group, timers. While the broker has more than it can
store (`congested`) nobody who waits is served: what they send stays in their sockets, and TCP tells them.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from runtime.timings import Timings

# Commands of one read that are served at once: alone, and while others wait. The first is what a group makes one entry
# of under load; the second more than anybody has in flight who waits for answers now and then.
ALONE_COMMANDS = 512
BESIDE_COMMANDS = 16
# Commands of one slice: a few hundred microseconds of sends.
SLICE_COMMANDS = 64
# How long slices are served before the loop goes on, seconds: a tenth of what a quiet client's answer may take.
TURN_SECONDS = 0.004
# How long one read may be served at once, seconds, and after how many commands the clock is looked at: far above what
# so many sends take (to cut those would make a group's entries smaller), and a part of what a quiet client may wait.
# What takes so long is a filter over many records, or a list of all that there is.
READ_SECONDS = 0.02
LOOK_COMMANDS = 8
# Bodies of answers of one connection in one turn, bytes: what it asked for behind them waits. To copy and check so much
# takes a fifth of a millisecond; a reader of old log has a pull of each queue under way, with answers of 256 KiB.
ANSWER_BYTES = 128 * 1024
# How soon it is looked again whether the broker has room, seconds: a fraction of what a group's entry takes.
CONGESTED_SECONDS = 0.001
# Bytes read and not served of all connections together. Beyond it reads are served whole: that costs others time, and
# this process no memory.
UNSERVED_BYTES_MAX = 64 * 1024 * 1024
_NO_LIMIT = 1 << 62


class Unserved(Protocol):
    """A connection with commands that are not served."""

    @property
    def unserved(self) -> int:
        """Bytes of them."""
        ...

    @property
    def spent(self) -> int:
        """Bytes of answers that it got in this turn."""
        ...

    def serve_more(self, most: int) -> bool:
        """Serve so many of them; tell whether more are left that can be served now."""
        ...


C = TypeVar("C", bound=Unserved)


class Turns(Generic[C]):
    """Who waits for a slice on one server."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
        clock: Callable[[], float],
        congested: Callable[[], bool],
    ) -> None:
        """`soon` and `later` call in the loop's next turn, and after seconds; `clock` gives seconds."""
        self._soon = soon
        self._later = later
        self._clock = clock
        self._congested = congested
        # In the order of their turns; the bytes are what each had when it came.
        self._waiting: deque[C] = deque()
        self._unserved: dict[C, int] = {}
        self._unserved_bytes = 0
        self._scheduled = False
        self.at_once = ALONE_COMMANDS
        """How many commands of a read are served at once. Each read looks: no call."""
        self.times = Timings()
        """What commands waited for their turn, counted slice by slice."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def unserved_bytes(self) -> int:
        """Bytes that were read, and of which no command is served yet."""
        return self._unserved_bytes

    def until(self) -> float:
        """Return by when a read that is being served leaves the rest for its turn, on the clock."""
        # What is left here takes memory.
        return self._clock() + READ_SECONDS if self._unserved_bytes < UNSERVED_BYTES_MAX else math.inf

    def add(self, connection: C) -> None:
        """Let a connection wait for its turn; nothing is changed when it waits already."""
        if connection in self._unserved:
            return
        self._note(connection)
        self._waiting.append(connection)
        self._share()
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._run)

    def _share(self) -> None:
        if not self._waiting:
            self.at_once = ALONE_COMMANDS
        else:
            self.at_once = BESIDE_COMMANDS if self._unserved_bytes < UNSERVED_BYTES_MAX else _NO_LIMIT

    def _note(self, connection: C) -> None:
        unserved = connection.unserved
        self._unserved_bytes += unserved - self._unserved.get(connection, 0)
        self._unserved[connection] = unserved

    def _run(self) -> None:
        waiting, until = self._waiting, self._clock() + TURN_SECONDS
        while waiting:
            if self._congested():
                self._share()
                self._later(CONGESTED_SECONDS, self._run)
                return
            connection = waiting.popleft()
            if connection.serve_more(SLICE_COMMANDS):
                self._note(connection)
                waiting.append(connection)
            else:
                self._unserved_bytes -= self._unserved.pop(connection)
            if connection.spent > ANSWER_BYTES or self._clock() >= until:
                break
        self._share()
        self._scheduled = bool(waiting)
        if waiting:
            self._soon(self._run)
