"""What is written and not committed yet stays out of queues and index (R12); release() lets it in.

The leader keeps what its appends will dispatch, up to a limit. A follower keeps nothing: it reads the records of an
entry when that is committed, while the disk already syncs the next ones. Both read from the log what is not in memory.
"""

import logging
from collections.abc import Callable

from raft.protocol.types import EntryType
from remoting.record import RecordError
from store.controlrecord import Control
from store.log.assembler import Assembler
from store.log.commitlog import CommitLog
from store.raftlog.covered_records import CoveredReader
from store.raftlog.entryfinder import EntryFinder
from store.types import Dispatched

_LOG = logging.getLogger(__name__)

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
        deletes: Callable[[int, bytes], bool],
    ) -> None:
        """Make it; `deletes` is told of each META entry, in the order of the log."""
        self._log = log
        self._assembler = assembler
        self._finder = finder
        self._deliver = deliver
        self._deletes = deletes
        self._reader = CoveredReader(levels_ms)
        self.released = released
        self._batches: dict[int, list[Dispatched]] = {}
        self._records = 0
        self.offsets_stale = True
        """Whether the next offsets must be made again from the queues and what is held: refresh_offsets()."""

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
        self.offsets_stale = True

    def cut(self, last: int) -> None:
        """Drop what is held of entries behind `last`."""
        for index in [index for index in self._batches if index > last]:
            self._records -= len(self._batches.pop(index))
        self.offsets_stale = True

    def refresh_offsets(self, last: int) -> int | None:
        """Make the next offset of each queue what queues and held records, up to entry `last`, say.

        A new leader does this once, over the tail that it does not know as committed. Returns the first entry that
        cannot be read; then nothing may be appended.
        """
        if not self.offsets_stale:
            return None
        self._assembler.forget_pending()
        for index in range(self.released + 1, last + 1):
            try:
                self._assembler.follow(self._batch(index))
            except (LookupError, RecordError) as error:
                _LOG.error("entry %d cannot be read, and what follows it cannot be appended: %s", index, error)
                return index
        self.offsets_stale = False
        return None

    def release(self, until: int) -> int | None:
        """Dispatch every entry up to `until`; return the first one that cannot be read, behind which nothing is.

        Raises what `deliver` raises, OSError.
        """
        batch: list[Dispatched] = []
        last: Control | None = None
        for index in range(self.released + 1, until + 1):
            try:
                part, control = self._batch(index), self._finder.kept(index)
            except (LookupError, RecordError) as error:
                _LOG.error("entry %d cannot be dispatched: %s", index, error)
                if last is not None:
                    self._bring(batch, last)
                return index
            batch = batch + part if batch else part
            last = control
            if len(batch) >= BATCH_RECORDS or index == until or control.kind is EntryType.META:
                self._bring(batch, control)
                batch, last = [], None
        return None

    def _bring(self, batch: list[Dispatched], last: Control) -> None:
        if batch:
            self._deliver(batch)
        if last.kind is EntryType.META and self._deletes(last.end, last.payload):
            # Here, and not when the tables hear of it: records behind it may begin the topic's queues anew.
            self.offsets_stale = True
        self._log.dispatched = last.end
        self._forget(last.index)

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
        return self._reader.read(self._finder.data(control), control.size, control.covered_count)
