"""One round of syncs: what it makes durable, what is made durable beside it, and who is told."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

# What a witness saw: where the last entry ended, and what is to be called once a sync has covered it (None: nothing).
Witnessed = tuple[int, Callable[[], None] | None]


class BesideLog(Protocol):
    """A small file that is to become durable beside the log, with its next sync; store.files.floorfile.FloorFile."""

    def hand_over(self) -> None:
        """Wait until the next fdatasync, of whatever file, makes it durable. For threads. Raises OSError."""

    def along(self) -> tuple[int, Callable[[], None]] | None:
        """Return a descriptor to be synced beside the log's, and whom to tell then; None when there is no need."""

    def catch_up(self) -> float | None:
        """Write what it lacks if it is time; return in how many seconds it wants to be asked again. Raises OSError."""


class SyncRound:
    """A round that the kernel was asked for: what it makes durable, and what is called once it did."""

    __slots__ = ("began", "error", "landed", "until", "whole", "witnessed")

    def __init__(self, until: int, witnessed: Witnessed | None, landed: Callable[[], None] | None) -> None:
        self.until = until
        self.witnessed = witnessed
        # Of what was synced beside the log.
        self.landed = landed
        self.began = time.monotonic()
        # Whether the kernel took all that it was asked for.
        self.whole = True
        self.error: OSError | None = None

    def note(self, results: Sequence[OSError | None]) -> None:
        """Take note of what became of some of its syncs."""
        for error in results:
            self.error = self.error or error
