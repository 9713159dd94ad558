"""Whose clock the library reads: that of the node that is being entered.

PySyncObj takes the time from a global of its module. Several nodes, each with its own clock, may live in one process,
and one thread enters them in turn.
"""

import time
from collections.abc import Callable


class _ClockSwitch:
    """What the library takes for the monotonic clock."""

    def __init__(self) -> None:
        self.read: Callable[[], float] = time.monotonic

    def __call__(self) -> float:
        return self.read()


clock = _ClockSwitch()


class entered:  # noqa: N801 # reads as a word of the with statement
    """Let the library see this clock until the block ends. A plain class: one is made for every way into a node."""

    __slots__ = ("_before", "_monotonic")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic

    def __enter__(self) -> None:
        self._before, clock.read = clock.read, self._monotonic

    def __exit__(self, *_error: object) -> None:
        clock.read = self._before
