"""Kills a process in the middle of its start, while it builds queues from the log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from store.derived.consumequeue import ConsumeQueues
from store.types import Dispatched
from tests.simulation.simdisk import SimDisk


class KilledInStart(OSError):
    """The process is gone before it has begun."""


@contextmanager
def killed_after(batches: int | None, disk: SimDisk) -> Iterator[None]:
    """Have whatever starts here end once so many batches are in the queues, and written; None: let it live."""
    if batches is None:
        yield
        return
    honest = ConsumeQueues.append_many
    left = batches

    def append_many(self: ConsumeQueues, batch: Sequence[Dispatched], **options: Any) -> None:
        nonlocal left
        if left <= 0:
            # Nothing that a dead process would tidy up is tidied up.
            disk.dead = True
            raise KilledInStart
        left -= 1
        honest(self, batch, **options)
        self.persist()

    ConsumeQueues.append_many = append_many  # type: ignore[method-assign]  # for this start only
    try:
        yield
    finally:
        ConsumeQueues.append_many = honest  # type: ignore[method-assign]  # given back
