"""The Raft log of a group member: entries in the CommitLog, each a control record and the records that it covers.

Called in one thread, the loop; only `on_durable` comes from the flusher's. What is appended is held back from queues
and index until release() says that it is committed (R12).
"""

import errno
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from remoting.topics import RAFT_TOPIC
from store.assembler import Assembler
from store.commitlog import CommitLog
from store.consumequeue import ConsumeQueues
from store.controlrecord import CLASSIC_FROM_HERE, Control, EntryKind
from store.entrybuild import EntryBuilder, Place, Records
from store.entrycache import EntryCache
from store.entrycheck import SentEntry, check_entries
from store.entryfinder import Entry, EntryFinder
from store.entryrepair import Hole, HoleMender
from store.errors import EntryRefused
from store.floorfile import FloorFile, Mark
from store.flusher import Flusher
from store.groupscan import NO_CHAIN, FoundEntries, base_of, hint_of, mark_of
from store.health import Health
from store.heldback import HeldBack
from store.logcopies import LogCopies
from store.types import Dispatched, PendingRecord, PutResult, PutStatus


class EntryParts(NamedTuple):
    """The parts of the store that the log of entries works with."""

    log: CommitLog
    queues: ConsumeQueues
    assembler: Assembler
    flusher: Flusher
    health: Health
    floor: FloorFile
    deliver: Callable[[list[Dispatched]], None]
    """Brings committed records into queues and index and tells of them."""
    make_room: Callable[[], None]
    """Has zeros written ahead."""
    store_host: bytes
    file_bytes: int
    levels_ms: tuple[int, ...]


class EntryLog:
    """See raft.types.Log for what its callers rely on. Made by MessageStore.open(…, group=True).

    Attributes, for reading: `durable` (index); `commit` (the last value given to release(), at a start what the log
    itself tells); `damaged` (first and last index below the floor that cannot be read, None when there is none).
    """

    def __init__(self, parts: EntryParts, found: FoundEntries) -> None:
        self._parts = parts
        self._log = parts.log
        self._assembler = parts.assembler
        self._file_bytes = parts.file_bytes
        self._builder = EntryBuilder(parts.log, parts.assembler, parts.store_host, parts.file_bytes)
        self._cache = EntryCache()
        self._finder = EntryFinder(parts.log, parts.queues, self._cache, file_bytes=parts.file_bytes)
        self._held = HeldBack(
            parts.log, parts.assembler, self._finder, parts.deliver, parts.levels_ms, released=found.released
        )
        self._base = found.base
        self._last = found.last
        self._last_config = found.last_config
        self.damaged = found.damaged
        self.durable = found.last.index if found.damaged is None else found.damaged[0] - 1
        self.commit = found.commit
        self._mender = HoleMender(parts.log, parts.queues, parts.file_bytes)
        self.copies = LogCopies(parts.log)
        self.files_upto, self.read_bytes = self.copies.files_upto, self.copies.read_bytes
        self.pin, self.unpin = self.copies.pin, self.copies.unpin
        # Called in the flusher's thread with the durable position; the loop then calls settle().
        self.on_durable: Callable[[int], None] | None = None
        # Tells of a CONFIG's payload whether it ends the group; the store reads no payload itself.
        self.ends_group: Callable[[bytes], bool] = lambda _: False
        # What accept() and repair() raise; whoever carries entries may put his own class here.
        self.refused: type[Exception] = EntryRefused
        self._log.dispatched = self.end_position(found.released)
        parts.flusher.witness = self._witness
        if found.last.index > found.base.index:
            # Recovery has synced all that it found.
            parts.floor.advance(found.last, parts.floor.epoch)
        self._release_readable()

    # -- what the log is

    @property
    def base(self) -> Mark:
        """The mark before the first entry that is kept. Its chain is the digest of what lies before the entries.

        Reads all that lies there when the log has no entry yet.
        """
        if self._base.chain == NO_CHAIN:
            self._base = self._base._replace(chain=self.copies.digest(self._base.end))
            if self._last.index == self._base.index:
                self._last = self._base
        return self._base

    @property
    def last(self) -> Mark:
        """The mark of the last entry; equals `base` when there is none."""
        return self._last if self._last.chain != NO_CHAIN else self.base

    @property
    def floor(self) -> int:
        """The index up to which this member has ever synced its log, or known as committed."""
        mark = self._parts.floor.mark
        return max(self.commit, mark.index if mark is not None else 0)

    @property
    def whole(self) -> bool:
        """Whether everything up to the floor can be read."""
        return self.damaged is None

    @property
    def released(self) -> int:
        """The index up to which everything is in queues and index."""
        return self._held.released

    def term(self, index: int) -> int | None:
        """Return the term of an entry from base to last, None outside (and for a damaged one)."""
        if index == self._last.index:
            return self._last.term
        if index == self._base.index:
            return self._base.term
        control = self._control(index)
        return control.term if control is not None else None

    def kind(self, index: int) -> EntryKind:
        """Return the type of an entry that is kept; equal to raft.types.EntryType by number."""
        return self._kept(index).kind

    def payload(self, index: int) -> bytes:
        """Return the payload of a META or CONFIG entry, b"" for the others."""
        return self._kept(index).payload

    def last_config(self) -> int:
        """Return the index of the newest CONFIG entry that can be read, committed or not; 0 when there is none."""
        hole = self.damaged[0] if self.damaged is not None and self._is_damaged(self._last_config) else 0
        before = self._control(hole - 1) if hole else None
        return before.config if before is not None else 0 if hole else self._last_config

    def end_position(self, index: int) -> int:
        """Return the position behind an entry from base to last."""
        if index == self._base.index:
            return self._base.end
        return self._last.end if index == self._last.index else self._kept(index).end

    def index_at(self, position: int) -> int:
        """Return the last entry that ends at or before a position; base's index when none does."""
        if position >= self._last.end:
            return self._last.index
        low, high = self._base.index, self._last.index
        while high - low > 1:
            middle = (low + high) // 2
            if self.end_position(middle) <= position:
                low = middle
            else:
                high = middle
        return low

    def read(self, index: int, bytes_max: int) -> list[Entry]:
        """Return entries from `index` on, at least one when it is kept, then as many as fit into `bytes_max`."""
        last = self._last.index
        if not self._base.index < index <= last or self._is_damaged(index):
            return []
        if self.damaged is not None and index < self.damaged[0]:
            last = self.damaged[0] - 1
        found = self._finder.read(index, last, bytes_max)
        if not found and index <= self.floor:
            # A disk that rots is found out when an old entry is read.
            first, until = self.damaged if self.damaged is not None else (index, index)
            self.damaged = min(first, index), max(until, index)
        return found

    def _control(self, index: int) -> Control | None:
        if not self._base.index < index <= self._last.index or self._is_damaged(index):
            return None
        return self._finder.control(index)

    def _kept(self, index: int) -> Control:
        control = self._control(index)
        if control is None:
            raise LookupError(f"entry {index} cannot be read: kept are {self._base.index + 1} to {self._last.index}")
        return control

    def _is_damaged(self, index: int) -> bool:
        return self.damaged is not None and self.damaged[0] <= index <= self.damaged[1]

    # -- a leader's appends

    def append(self, kind: int, term: int, payload: bytes, commit: int) -> int:
        """Append a NOOP, META or CONFIG as leader and return its index; `commit` is written into it.

        Also when the disk is too full for messages. Raises OSError; ValueError when no file can hold the payload.
        """
        self._check_writable()
        kind = EntryKind(kind)
        assert kind is not EntryKind.MESSAGES, "messages come by append_records"
        flags = CLASSIC_FROM_HERE if kind is EntryKind.CONFIG and self.ends_group(payload) else 0
        place = Place(self.last, self._last_config, term, commit)
        built = self._builder.build_control(kind, place, payload=payload, flags=flags)
        self._write([(built.control, built.data)])
        return built.control.index

    def entry_room(self, size: int) -> bool:
        """Tell whether one entry can cover records of `size` bytes."""
        return self._builder.has_room(size)

    def append_records(self, records: Records, term: int, commit: int) -> tuple[int, list[Any]]:
        """Append one MESSAGES entry as leader; return its index and what became of each element of `records`.

        A record's result is a PutResult; that of records side by side, all or none, a list of them (one that says why
        when they were refused). The index is -1 when nothing was taken: then nothing was appended. Raises OSError.
        """
        if self._assembler.refused is not None:
            refusal = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
            return -1, [refusal if isinstance(each, PendingRecord) else [refusal] for each in records]
        self._held.refresh_offsets(self._last.index)
        place = Place(self.last, self._last_config, term, commit)
        try:
            built, results = self._builder.build_records(records, place)
        except Exception:
            self._held.forget_offsets()
            raise
        if built is None:
            return -1, results
        self._write([(built.control, built.data)])
        self._held.keep(built.control.index, built.batch)
        return built.control.index, results

    def _check_writable(self) -> None:
        if self._parts.health.failed is not None:
            raise OSError(errno.EIO, self._parts.health.failed)

    # -- a follower's

    def accept(self, entries: Sequence[SentEntry]) -> None:
        """Append a leader's entries verbatim behind `last`, all checked first.

        Raises EntryRefused (see `refused`): nothing was written; OSError.
        """
        self._check_writable()
        try:
            checked = check_entries(entries, self.last, self._last_config, self._file_bytes)
        except EntryRefused as error:
            raise self.refused(str(error)) from None
        log = self._log
        try:
            for control, data in checked:
                if control.position != log.end:
                    log.roll()
                assert control.position == log.end, f"entry {control.index} is of {control.position}, not {log.end}"
                log.pieces.append(data)
                log.end += len(data)
        except OSError:
            log.discard()
            raise
        self._held.forget_offsets()
        if checked:
            self._assembler.stamp(checked[-1].control.timestamp)
            self._write(checked)

    def cut(self, last: int) -> None:
        """Remove every entry behind index `last`; durable when this returns. Raises OSError: the store is over then."""
        assert last >= max(self.commit, self._base.index), "what is committed is never cut"
        if last >= self._last.index:
            return
        self._check_writable()
        mark, config = self._mark(last)
        parts = self._parts
        try:
            with parts.flusher.syncing:
                # First the floor: after a crash in between it must not promise what is gone.
                parts.floor.lower(mark)
                parts.flusher.cut(mark.end)
                self._log.cut(mark.end)
                # Before the flusher may look again: what it takes for synced becomes the floor.
                self._last = mark
        except OSError as error:
            parts.health.fail(f"the CommitLog cannot be cut at {mark.end}: {error}; restart the broker")
            raise
        self._cache.cut(last)
        self._held.cut(last)
        parts.queues.cut_queue(RAFT_TOPIC, 0, last + 1)
        self._last_config = config
        self._assembler.moved()
        if self.damaged is not None and self.damaged[0] > last:
            self.damaged = None
        self.durable = min(self.durable, last)
        self.settle(mark.end)

    def repair(self, entries: Sequence[SentEntry]) -> None:
        """Write a peer's verbatim bytes over the beginning of the damaged range, durably (R4).

        Raises EntryRefused (see `refused`) when they are not what stood there; OSError.
        """
        assert self.damaged is not None, "only what is damaged is repaired"
        self._check_writable()
        first, last = self.damaged
        behind = self._finder.kept(last + 1) if last < self._last.index else None
        hole = Hole(*self._mark(first - 1), last, behind, self._last)
        try:
            with self._parts.flusher.syncing:
                filled = self._mender.fill(entries, hole)
        except EntryRefused as error:
            raise self.refused(str(error)) from None
        self._last_config = max(self._last_config, filled.config)
        self.damaged = (filled.index + 1, last) if filled.index < last else None
        if self.damaged is None:
            self._mender.finish()
            self.settle(self._last.end)
        self._release_readable()

    def _mark(self, index: int) -> tuple[Mark, int]:
        """Return the mark of an entry from base to last, and the last CONFIG there."""
        if index == self._base.index:
            return self.base, 0
        control = self._kept(index)
        return mark_of(control), control.config

    def _write(self, entries: Sequence[tuple[Control, bytes | memoryview]]) -> None:
        """Write what is pending, which is these entries, and make them the log's last."""
        parts = self._parts
        try:
            self._log.write()
        except OSError as error:
            parts.health.undo_write(error)
            self._held.forget_offsets()
            raise
        for control, data in entries:
            self._cache.add(control, data)
        self._last = mark_of(control)
        self._last_config = control.config
        self._assembler.moved()
        parts.queues.append_many([hint_of(each[0]) for each in entries])
        if self._log.wants_room:
            parts.make_room()

    # -- durable and committed

    def sync_soon(self) -> None:
        """Have everything appended made durable; on_durable tells when."""
        self._parts.flusher.ask(self._log.written)

    def settle(self, position: int) -> int:
        """Take over what on_durable told, in the loop; return the durable index.

        What was cut meanwhile does not count, nor what was appended in its place and is not synced yet.
        """
        position = min(position, self._log.flushed)
        if self.damaged is not None:
            return self.durable
        if position >= self._last.end:
            self.durable = self._last.index
        while self.durable < self._last.index and self.end_position(self.durable + 1) <= position:
            self.durable += 1
        return self.durable

    def release(self, index: int) -> None:
        """Dispatch everything up to the end of an entry that is known as committed (R12).

        Raises StoreWriteError when queues or index cannot take it: the store is over then.
        """
        assert index <= self._last.index, "what is committed here is in the log"
        self.commit = max(self.commit, index)
        self._release_readable()

    def _release_readable(self) -> None:
        """Dispatch what is committed, as far as it can be read."""
        until = self.commit if self.damaged is None else min(self.commit, self.damaged[0] - 1)
        if until > self._held.released:
            self._held.release(until)

    def trimmed(self) -> None:
        """Take note that files were removed from the front of the log."""
        first = self._finder.control_at(self._log.min_position)
        if self._base.end < self._log.min_position and first is not None:
            self._base = base_of(first)

    def forget_topic(self) -> None:
        """Note that a topic begins anew, behind what is held of it."""
        self._held.forget_offsets()

    def _witness(self) -> Callable[[], None] | None:
        """Return what raises the floor once what is written now is synced. In the flusher's thread."""
        floor, last, epoch = self._parts.floor, self._last, self._parts.floor.epoch
        floor.hand_over()
        if last.index == self._base.index:
            return None
        return lambda: floor.advance(last, epoch)

    def digest(self) -> int:
        """Return the CRC-32 of everything before the first entry: what members of a group must have in common."""
        return self.base.chain
