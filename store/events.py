"""What a store tells whoever opened it, and what it asks of its owner: two values for MessageStore.open()."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from store.types import Dispatched

# Behind every position.
EVERYTHING_MAY_GO = 2**63 - 1


def _nobody(*_told: object) -> None:
    """Nobody wants to hear of it."""


@dataclass(frozen=True, slots=True)
class StoreEvents:
    """What a store tells of. It may do so from open() on: what is committed comes into the queues there."""

    dispatched: Callable[[Sequence[Dispatched]], None] = _nobody
    """In the loop, once per batch: these records are in queues and index."""
    flushed: Callable[[int], None] = _nobody
    """In the flusher's thread: everything before this position is on the disk."""
    worked: Callable[[], None] = _nobody
    """In the worker's thread: a job of repair is done, EntryLog.mending has something to tell."""
    fatal: Callable[[BaseException], None] = _nobody
    """In one of the store's threads: nothing is called flushed any more, the process must end."""
    needed_from: Callable[[], int] = lambda: EVERYTHING_MAY_GO
    """Asked before files expire: from which position on somebody needs the log, whatever its age."""


@dataclass(frozen=True, slots=True)
class Payloads:
    """What the payloads of a group's entries mean: the store reads none itself."""

    deletes: Callable[[bytes], Sequence[str]] = lambda _payload: ()
    """Which topics a META entry deletes."""
    ends_group: Callable[[bytes], bool] = lambda _payload: False
    """Whether a CONFIG entry ends the group."""
