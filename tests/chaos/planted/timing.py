"""Bugs of timer messages: some come before their time, long after it, twice, or not at all."""

from collections.abc import Sequence
from typing import Any

from broker.delay import batch
from broker.delay.batch import Made
from broker.delay.feed import TimerFeed
from broker.delay.timers import TimerService
from broker.messages.timed_record import Timed
from store.timerruns import TimerEntry
from store.types import QueueEntry
from tests.chaos.planted.grafts import graft

# Of so many one: a broker that gets every one wrong would be found by anybody. By the offset, as all members see it.
EVERY = 5
EARLY_MS, LATE_MS = 3000, 9000


def _shift(by_ms: int) -> None:
    def make(honest: Any) -> Any:
        def add(self: TimerFeed, offset: int, entry: QueueEntry, found: Timed) -> bool:
            if offset % EVERY == 0:
                found = found._replace(out_ms=max(1, found.out_ms + by_ms))
            taken: bool = honest(self, offset, entry, found)
            return taken

        return add

    graft(TimerFeed, "_add", make)


def deliver_early() -> None:
    """Take some for due some seconds before they are."""
    _shift(-EARLY_MS)


def deliver_late() -> None:
    """Take some for due some seconds after they are."""
    _shift(LATE_MS)


def pass_over() -> None:
    """Mark some as delivered without storing them."""

    def make(honest: Any) -> Any:
        def made(store: Any, entry: TimerEntry, *more: Any) -> Made:
            if entry.offset % EVERY == 0:
                return Made(entry.slot, entry.offset)
            found: Made = honest(store, entry, *more)
            return found

        return made

    graft(batch, "_made", make)


def deliver_twice() -> None:
    """Store some two times."""

    def make(honest: Any) -> Any:
        def made(self: TimerService, entries: Sequence[TimerEntry], now_ms: int) -> list[Made]:
            found: list[Made] = honest(self, entries, now_ms)
            return [one for each in found for one in [each] * (2 if each.offset % EVERY == 0 else 1)]

        return made

    graft(TimerService, "_made", make)
