"""What is written and not committed yet stays out of queues and index (R12); release() lets it in.

The leader keeps what its appends will dispatch, up to a limit. A follower keeps nothing: it reads the records of an
entry when that is committed, while the disk already syncs the next ones. Both read from the log what is not in memory.
"""

from collections.abc import Callable

from remoting.record import RecordError
from store.assembler import Assembler
from store.commitlog import CommitLog
from store.covered import CoveredReader
from store.entryfinder import EntryFinder
from store.errors import StoreDamaged
from store.types import Dispatched

# Dispatched records kept while they wait for the commit, about 400 bytes each; more are read from the log again.
HELD_RECORDS_MAX = 131_072
# Records delivered at once when many are released.
BATCH_RECORDS = 4096


class HeldBack:
    """Owns `released`, the entry up to which everything is dispatched."""

    def __init__(
        self,
        log: CommitLog,
        assembler: Assembler,
        finder: EntryFinder,
        deliver: Callable[[list[Dispatched]], None],
        levels_ms: tuple[int, ...],
        *,
        released: int,
    ) -> None:
        self._log = log
        self._assembler = assembler
        self._finder = finder
        self._deliver = deliver
        self._reader = CoveredReader(levels_ms)
        self.released = released
        self._batches: dict[int, list[Dispatched]] = {}
        self._records = 0
        # Whether the next offsets must be made again from the queues and what is held.
        self._offsets_stale = True

    @property
    def records(self) -> int:
        """Records held in memory."""
        return self._records

    def keep(self, index: int, batch: list[Dispatched]) -> None:
        """Take what an entry that was just appended will dispatch; its offsets came from the assembler."""
        if self._records + len(batch) <= HELD_RECORDS_MAX:
            self._batches[index] = batch
            self._records += len(batch)

    def forget_offsets(self) -> None:
        """Note that entries came or went past the assembler, or that a topic is no more."""
        self._offsets_stale = True

    def cut(self, last: int) -> None:
        """Drop what is held of entries behind `last`."""
        for index in [index for index in self._batches if index > last]:
            self._records -= len(self._batches.pop(index))
        self._offsets_stale = True

    def refresh_offsets(self, last: int) -> None:
        """Make the next offset of each queue what queues and held records, up to entry `last`, say.

        A new leader does this once, over the tail that it does not know as committed.
        """
        if not self._offsets_stale:
            return
        self._assembler.forget_pending()
        for index in range(self.released + 1, last + 1):
            self._assembler.follow(self._batch(index))
        self._offsets_stale = False

    def release(self, until: int) -> None:
        """Dispatch every entry up to `until`. Raises what `deliver` raises, StoreDamaged, OSError."""
        batch: list[Dispatched] = []
        for index in range(self.released + 1, until + 1):
            part = self._batch(index)
            batch = batch + part if batch else part
            if len(batch) >= BATCH_RECORDS or index == until:
                if batch:
                    self._deliver(batch)
                    batch = []
                self._log.dispatched = self._finder.kept(index).end
                self._forget(index)

    def _forget(self, released: int) -> None:
        for index in range(self.released + 1, released + 1):
            self._records -= len(self._batches.pop(index, ()))
        self.released = released

    def _batch(self, index: int) -> list[Dispatched]:
        held = self._batches.get(index)
        if held is not None:
            return held
        control = self._finder.kept(index)
        if not control.covered_count:
            return []
        try:
            return self._reader.read(self._finder.data(control), control.size, control.covered_count)
        except RecordError as error:
            raise StoreDamaged(f"entry {index} at {control.position} of the CommitLog: {error}") from error
