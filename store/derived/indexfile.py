"""The index: from a message's unique key, its KEYS and its TAGS to its place in the CommitLog (RocketMQ's IndexFile).

Messages gather in a buffer and are applied in batches by numpy. Entries are written at once; the slot table of the
newest file is kept in memory (20 MB by default) and written when the file is full and at a clean stop. After an unclean
stop it is made again from the entries, so that nothing but the entries need be trusted.
"""

import logging
import re
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from remoting.compiled.door import COMPILED, hotpath
from runtime.clock import Clock, SystemClock
from store.derived.indexhash import KeyHasher, key_hash, spread_keys
from store.derived.indextable import IndexTable, Int64s, Shape
from store.errors import is_full
from store.files.descriptors import Descriptors
from store.files.disk import Disk
from store.types import Dispatched

_LOG = logging.getLogger(__name__)

# Messages that gather before they are applied: one application takes about 2 ms of the caller's time.
BUFFERED_MESSAGES_MAX = 2048
# Such batches that may wait for room on the disk: some 10 MB.
UNWRITTEN_MAX = 64
# Entries that one query walks at most, over all files; what was found until then is the answer.
QUERY_STEPS_MAX = 65_536
# Index files are few and large; two of them are in use at a time.
_DESCRIPTORS_MAX = 8
_ROLLBACK = 0xC
_NAME = re.compile(r"\d{17}")


class MessageIndex:
    """The index files of a store folder, the newest of which grows.

    `clean` tells whether the store was stopped cleanly; if not, the newest files are checked, their slots made again,
    and the last message's entries dropped, since they may not be complete, unless it stands before `synced`, up to
    where a checkpoint knows them to be: dispatch from `end_physical` on again.
    Raises StoreDamaged when files have another size than configured. Not for several threads at once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int,
        entries: int,
        clean: bool = True,
        synced: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._folder = folder
        self._shape = Shape(slots, entries)
        self._clock = clock if clock is not None else SystemClock()
        self._descriptors = Descriptors(_DESCRIPTORS_MAX)
        self._hasher = KeyHasher()
        self._pending: list[Dispatched] = []
        # Hashes, positions and times of entries that are not in a file yet.
        self._unwritten: deque[tuple[Int64s, Int64s, Int64s]] = deque()
        self._files: list[IndexTable] = []
        if folder.is_dir():
            names = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
            self._files = [IndexTable(f"{folder}/{name}", self._shape, self._descriptors) for name in names]
        if not clean:
            for table in self._files[-2:]:
                table.keep_below(None)
            self._drop_empty()
        self._newest = self._files[-1].end_physical if self._files else -1
        if not clean and self._newest >= synced:
            self.truncate_above(self._newest)

    @property
    def end_physical(self) -> int:
        """Position of the newest message that is indexed, -1 when there is none."""
        return self._newest

    @property
    def end_timestamp(self) -> int:
        """Store time of the newest message that is indexed, ms; 0 when there is none."""
        if self._pending:
            return self._pending[-1].store_timestamp
        return self._files[-1].end_timestamp if self._files else 0

    @property
    def files(self) -> int:
        """Number of index files."""
        return len(self._files)

    def append_many(self, batch: Sequence[Dispatched]) -> None:
        """Index the keys of messages in log order; those up to `end_physical` are there already and are skipped."""
        if not batch:
            return
        if batch[0].physical_offset <= self._newest:
            batch = [entry for entry in batch if entry.physical_offset > self._newest]
            if not batch:
                return
        self._pending += batch
        self._newest = batch[-1].physical_offset
        if len(self._pending) >= BUFFERED_MESSAGES_MAX:
            self._apply_if_room()

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return positions of messages of `topic` with this KEYS word or unique key, newest first.

        Times are kept by the second, so a message up to 1 s outside [begin_ms, end_ms] may be among them, and another
        key with the same hash as well: the caller looks at the records.
        """
        self._apply_if_room()
        wanted = key_hash(topic, key)
        found: dict[int, None] = {}
        steps = QUERY_STEPS_MAX
        for table in reversed(self._files):
            if len(found) >= max_count or steps <= 0:
                break
            steps = table.collect(wanted, max_count, begin_ms, end_ms, found, steps)
            if table.begin_timestamp < begin_ms:
                break
        return list(found)

    def persist(self, *, sync: bool = False) -> None:
        """Apply what gathered and write the newest header; with `sync` write the slots too and bring all to the disk.

        Raises OSError.
        """
        self._apply()
        if self._files:
            self._files[-1].save_header()
            if sync:
                # The one before too: its slots may wait for room since the start.
                for table in self._files[-2:]:
                    table.save_slots()
                    table.save_header()
                Disk().sync_tree(self._folder)

    def close(self) -> None:
        """Write everything and close the files."""
        try:
            self._apply()
            if self._files:
                self._files[-1].save_slots()
                self._files[-1].save_header()
        finally:
            self._descriptors.close()

    def delete_below(self, physical: int) -> int:
        """Delete the files that only know messages before `physical`, except the newest; returns how many."""
        deleted = 0
        while len(self._files) > 1 and self._files[0].end_physical < physical:
            self._descriptors.delete(self._files.pop(0).path)
            deleted += 1
        return deleted

    def truncate_above(self, physical: int) -> None:
        """Drop every entry whose message stands at or behind `physical`."""
        self._apply()
        for table in reversed(self._files):
            if table.end_physical < physical:
                break
            table.keep_below(physical)
        self._drop_empty()
        self._newest = self._files[-1].end_physical if self._files else -1

    def clear(self) -> None:
        """Delete all index files, before they are built from the log anew."""
        self._pending.clear()
        for table in self._files:
            self._descriptors.delete(table.path)
        self._files.clear()
        self._newest = -1

    def _drop_empty(self) -> None:
        while self._files and self._files[-1].is_empty:
            self._descriptors.delete(self._files.pop().path)

    @property
    def owes(self) -> bool:
        """Whether entries wait because the disk had no room for them."""
        return bool(self._unwritten)

    @property
    def crowded(self) -> bool:
        """Whether half of what may wait does."""
        return len(self._unwritten) > UNWRITTEN_MAX // 2

    def catch_up(self) -> None:
        """Write what had no room before. Raises OSError."""
        self._write_out()

    def _apply_if_room(self) -> None:
        """Do what _apply() does; what finds no room waits in memory, up to a limit. Raises OSError."""
        try:
            self._apply()
        except OSError as error:
            if not is_full(error) or len(self._unwritten) > UNWRITTEN_MAX:
                raise

    def _apply(self) -> None:
        """Bring what gathered into the files. Raises OSError; what is not written then is written next time."""
        pending = self._pending
        if (usual := self._usual_columns(pending)) is not None:
            if len(usual[0]):
                self._unwritten.append(usual)
            pending.clear()
            self._write_out()
            return
        if [True for entry in pending if entry[9] & _ROLLBACK == _ROLLBACK]:
            pending = [entry for entry in pending if entry[9] & _ROLLBACK != _ROLLBACK]
        if pending:
            columns = tuple(zip(*pending, strict=True))
            topics, places, times, uniq_keys, keys, tags = (columns[at] for at in (0, 3, 6, 7, 8, 10))
            pieces, counts = spread_keys(uniq_keys, keys, tags)
            hashes, real = self._hasher.hashes(topics, pieces, counts)
            found = (
                hashes[real],
                np.repeat(np.array(places, np.int64), counts)[real],
                np.repeat(np.array(times, np.int64), counts)[real],
            )
            self._unwritten.append(found)
        self._pending.clear()
        self._write_out()

    def _usual_columns(self, pending: list[Dispatched]) -> tuple[Int64s, Int64s, Int64s] | None:
        """Return hashes, positions and times of all keys, None when one wants to be looked at."""
        if not COMPILED:
            return None
        columns = hotpath.index_columns(pending, self._hasher.prefixes({entry[0] for entry in pending}), _ROLLBACK)
        if columns is None:
            return None
        hashes, places, times = (np.frombuffer(column, np.int64) for column in columns)
        return hashes, places, times

    def _write_out(self) -> None:
        """Append entries to the newest file, and to new ones as they fill up."""
        waiting = self._unwritten
        while waiting:
            hashes, places, times = waiting[0]
            if len(hashes):
                if not self._files or self._files[-1].room == 0:
                    self._roll()
                taken = self._files[-1].append(hashes, places, times)
                waiting[0] = hashes[taken:], places[taken:], times[taken:]
            if not len(waiting[0][0]):
                waiting.popleft()

    def _roll(self) -> None:
        now = self._clock.now_ms()
        if self._files:
            self._files[-1].finish()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
        if self._files:
            # Names tell the order, even when the clock went back or two files fill within a millisecond.
            name = max(name, f"{int(Path(self._files[-1].path).name) + 1:017d}")
        self._files.append(IndexTable(f"{self._folder}/{name}", self._shape, self._descriptors))
        _LOG.info("index file %s", name)
