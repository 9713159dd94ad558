"""What a store tells, handed on to whomever a test names: also when the store has long been open."""

from collections.abc import Callable
from typing import Any

from runtime.late import late
from store.events import StoreEvents


def nobody(*_told: object) -> None:
    """Nobody hears of it."""


def at_once(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
    """Do what others do in another thread."""
    then(work())


class Told:
    """`events` go to MessageStore.open(); nobody hears of them before the test says who."""

    def __init__(self) -> None:
        self.dispatched: Callable[..., Any] = nobody
        self.flushed: Callable[..., Any] = nobody
        self.worked: Callable[..., Any] = nobody
        self.fatal: Callable[..., Any] = nobody
        self.events = StoreEvents(
            dispatched=late(lambda: self.dispatched),
            flushed=late(lambda: self.flushed),
            worked=late(lambda: self.worked),
            fatal=late(lambda: self.fatal),
        )
