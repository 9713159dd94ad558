"""The Raft log of a group member: entries in the CommitLog, each a control record and the records that it covers.

Called in one thread, the loop; only witness() may be called in the flusher's. What is appended is held back from queues
and index until release() says that it is committed (R12).
"""

import errno
from collections.abc import Callable, Sequence
from typing import Any

from raft.protocol.types import Entry, EntryRefused, EntryType, Mark
from remoting.topics import RAFT_TOPIC
from store.controlrecord import CLASSIC_FROM_HERE, Control
from store.errors import is_full
from store.files.beginning import config_before
from store.raftlog.entrybuild import EntryBuilder, Place, Records
from store.raftlog.entrycheck import Checked, check_entries
from store.raftlog.entryparts import EntryParts
from store.raftlog.entryrepair import Mender
from store.raftlog.entryview import EntryView
from store.raftlog.groupscan import FoundEntries, base_of, hint_of, mark_of
from store.raftlog.mending import EntryMending
from store.raftlog.uncommitted import HeldBack
from store.types import PendingRecord, PutResult, PutStatus

# Messages leave so much room in the log, on the disk, for what must go on when that is full: topics, offsets, and the
# start of the log, which moves to make room again (R12). At most a quarter of a file.
META_BYTES = 4 * 1024 * 1024
# And metadata leaves so much for no-ops and lists of members: hundreds of terms. At most a sixteenth of a file.
CONTROL_BYTES = 64 * 1024
_new = tuple.__new__  # without the frame of the NamedTuple's own function


class EntryLog(EntryView):
    """See raft.protocol.types.Log for what its callers rely on. Made by MessageStore.open(…, group=True).

    Attributes, for reading: `durable` (index); `commit` (the last value given to release(), at a start what the log
    itself tells); `holes` (the entries that cannot be read and are fetched from peers).
    """

    def __init__(self, parts: EntryParts, found: FoundEntries) -> None:
        super().__init__(parts, found)
        self._assembler = parts.assembler
        self._file_bytes = parts.file_bytes
        # See CONTROL_BYTES and META_BYTES.
        left_by_meta = min(CONTROL_BYTES, parts.file_bytes // 16)
        self._left_by_messages = left_by_meta + min(META_BYTES, parts.file_bytes // 4)
        # The bytes that must be left behind an entry of each kind.
        self._leaves = {EntryType.META: left_by_meta, EntryType.MESSAGES: self._left_by_messages}
        self._builder = EntryBuilder(parts.log, parts.assembler, parts.store_host, parts.file_bytes)
        self._held = HeldBack(
            parts.log,
            parts.assembler,
            self._finder,
            parts.deliver,
            parts.levels_ms,
            released=found.released,
            deletes=parts.deletes,
        )
        mender = Mender(parts.log, parts.queues, self._finder, self.holes, parts.worker, parts.file_bytes, self._mark)
        self.mending = EntryMending(mender, parts.log, parts.worker, self, parts.file_bytes)
        # Not whole since the start: so it has led nobody, and nothing here may count with anybody above its floor.
        self._maimed = found.damaged is not None
        self.files_upto, self.read_bytes = self.copies.files_upto, self.copies.read_bytes
        self.pin, self.unpin = self.copies.pin, self.copies.unpin
        self._log.dispatched = self.end_position(found.released)
        if found.last.index > found.base.index and found.damaged is None:
            # Recovery has synced all that it found.
            parts.floor.advance(found.last, parts.floor.epoch)
        self._release_readable(self.commit)

    @property
    def readable(self) -> int:
        """The index up to which what is committed can be released now."""
        hole = self.holes.behind(self._held.released) if self.holes.ranges else None
        return self._last.index if hole is None else max(self._held.released, hole[0] - 1)

    @property
    def released(self) -> int:
        """The index up to which everything is in queues and index."""
        return self._held.released

    def _lacks_tail(self) -> bool:
        """Whether what is not released yet, from which the next offsets come, cannot all be read."""
        lost = self._held.refresh_offsets(self._last.index)
        if lost is not None:
            self.mark_damaged(lost, lost)
        return lost is not None

    # -- a leader's appends

    def append(self, kind: int, term: int, payload: bytes, commit: int) -> int:
        """Append a NOOP, META or CONFIG as leader and return its index; `commit` is written into it.

        Also when the disk is too full for messages, as long as what they must leave lasts. Raises EntryRefused (see
        `refused`) when it does not: nothing was written; OSError; ValueError when no file can hold the payload.
        """
        self._check_writable()
        self._end_cuts()
        kind = EntryType(kind)
        assert kind is not EntryType.MESSAGES, "messages come by append_records"
        flags = CLASSIC_FROM_HERE if kind is EntryType.CONFIG and self._parts.ends_group(payload) else 0
        place = Place(self.last, self._last_config, term, commit)
        try:
            built = self._builder.build_control(kind, place, payload=payload, flags=flags)
        except OSError as error:
            self._undo(error)
            raise
        self._write([(built.control, built.data)])
        return built.control.index

    def entry_room(self, size: int) -> bool:
        """Tell whether one entry can cover records of `size` bytes."""
        return self._builder.has_room(size)

    def append_records(self, records: Records, term: int, commit: int) -> tuple[int, list[Any]]:
        """Append one MESSAGES entry as leader; return its index and what became of each element of `records`.

        A record's result is a PutResult; that of records side by side, all or none, a list of them (one that says why
        when they were refused). The index is -1 when nothing was taken: then nothing was appended. Raises
        EntryRefused when there is no room: nothing was written; OSError.
        """
        if self._parts.health.writable() is not None or (self._held.offsets_stale and self._lacks_tail()):
            refusal = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
            return -1, [refusal if isinstance(each, PendingRecord) else [refusal] for each in records]
        self._end_cuts()
        place = _new(Place, (self.last, self._last_config, term, commit))
        try:
            built, results = self._builder.build_records(records, place)
        except OSError as error:
            self._undo(error)
            raise
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

    @property
    def cutting(self) -> bool:
        """Whether a cut is on its way to the disk: until it is there nothing is appended (R11)."""
        return self._log.cutting

    def _end_cuts(self) -> None:
        """Wait for cuts to be on the disk: who has just won an election may have to. Raises OSError."""
        if self.cutting:
            self._parts.worker.drain()
            self._check_writable()
            assert not self.cutting, "what was handed in is done, or the store is over"

    # -- a follower's

    def accept(self, entries: Sequence[Entry]) -> None:
        """Append a leader's entries verbatim behind `last`, all checked first.

        Raises EntryRefused, also while `cutting` and when there is no room: nothing was written, or on a full disk what
        stands before the first messages; OSError.
        """
        self._check_writable()
        if self.cutting:
            raise EntryRefused(f"what stood behind entry {self._last.index} is still being cut")
        if self._parts.health.crowded:
            # Not answered, a leader sends them again: that is how fast this member is until there is room.
            raise EntryRefused("too many queue entries wait for room on the disk")
        checked = check_entries(entries, self.last, self._last_config, self._file_bytes)
        if self._parts.health.full is not None:
            # For those there may be room: what messages leave (R12).
            kinds = [each.control.kind for each in checked]
            first = kinds.index(EntryType.MESSAGES) if EntryType.MESSAGES in kinds else 0
            self._take(checked[:first])
            checked = checked[first:]
        self._take(checked)

    def _take(self, checked: Sequence[Checked]) -> None:
        """Write entries of another member that fit."""
        log = self._log
        try:
            for control, data in checked:
                if control.position != log.end:
                    log.roll()
                assert control.position == log.end, f"entry {control.index} is of {control.position}, not {log.end}"
                log.pieces.append(data)
                log.end += len(data)
        except OSError as error:
            self._undo(error)
            raise
        self._held.forget_offsets()
        if checked:
            self._assembler.stamp(checked[-1].control.timestamp)
            self._write(checked)

    def cut(self, last: int) -> None:
        """Remove every entry behind index `last`: nothing of it is there any more from now on.

        On the disk it is done soon, by the worker; see `cutting`. An error there ends the store. Raises OSError: it is
        over already.
        """
        assert last >= max(self.commit, self._base.index), "what is committed is never cut"
        if last >= self._last.index:
            return
        self._check_writable()
        if self.holes:
            self.mending.forget()
        mark, config = self._mark(last)
        parts = self._parts
        # In this order: what the flusher takes for synced becomes the floor, see _witness().
        self._last = mark
        parts.floor.retract()
        blot_out = parts.flusher.cut(mark.end)
        parts.worker.submit(lambda: self._cut_on_disk(mark, blot_out), lambda _: None)
        self._cache.cut(last)
        self._finder.cut(last)
        self._held.cut(last)
        parts.queues.cut_queue(RAFT_TOPIC, 0, last + 1)
        self._last_config = config
        self._assembler.moved()
        self.holes.cut(last)
        self._maimed = self._maimed and bool(self.holes)
        self._hold()
        self.durable = min(self.durable, last)
        self.settle(mark.end)

    def _cut_on_disk(self, mark: Mark, blot_out: Callable[[], None]) -> None:
        """In the worker's thread."""
        try:
            with self._parts.flusher.syncing:
                # First the floor: after a crash in between it must not promise what is gone.
                self._parts.floor.lower(mark)
                blot_out()
        except OSError as error:
            self._parts.flusher.fail(error)

    def mended(self, last: Control) -> None:
        """Take note that a damaged range was mended up to an entry, which is on disk."""
        self._last_config = max(self._last_config, last.config)
        self._hold()
        hole = self.holes.first
        if hole is None:
            self._maimed = False
        elif self._maimed and hole[0] > self.floor:
            # What is left was torn before it could be acknowledged: nobody else need have it, so nobody is asked.
            self.cut(hole[0] - 1)
        self.settle(self._log.flushed)

    def _write(self, entries: Sequence[tuple[Control, bytes | memoryview]]) -> None:
        """Write what is pending, which is these entries, and make them the log's last."""
        parts = self._parts
        kinds = {control.kind for control, _ in entries}
        lacked_room = parts.health.full is not None and EntryType.MESSAGES in kinds
        try:
            if lacked_room:
                parts.health.regain()
            self._log.secure(max([self._leaves.get(kind, 0) for kind in kinds]))
            self._log.write()
        except OSError as error:
            self._undo(error)
            raise
        if lacked_room:
            parts.health.wrote()
        hints = []
        for control, data in entries:
            self._cache.add(control, data)
            hints.append(hint_of(control))
        self._last = mark_of(control)
        self._last_config = control.config
        parts.queues.append_many(hints)
        if self._log.wants_room:
            parts.make_room()

    def _undo(self, error: OSError) -> None:
        """Take back what was to be written. Raises EntryRefused when only room was lacking."""
        health = self._parts.health
        health.undo_write(error)
        self._held.forget_offsets()
        if health.full is not None and health.failed is None:
            raise EntryRefused(health.full) from error

    def look_for_room(self) -> None:
        """Have the disk keep what messages must leave; refuse them while it cannot, and find out when it can again."""
        health = self._parts.health
        if health.waits or self.cutting or self._log.pending_bytes:
            return
        try:
            health.regain()
            self._log.secure(self._left_by_messages)
        except OSError as error:
            if not is_full(error):
                raise
            health.no_room(error)
        else:
            health.wrote()

    @property
    def full(self) -> bool:
        """Whether the disk had no room for an entry a moment ago: until it is asked again nothing is accepted."""
        health = self._parts.health
        return health.full is not None and health.closed

    @property
    def refused(self) -> str | None:
        """Why it takes no messages, None when it does; also while it is found out whether there is room again."""
        return self._parts.health.reason

    # -- durable and committed

    def sync_soon(self) -> None:
        """Have everything appended made durable; StoreEvents.flushed tells when."""
        self._parts.flusher.ask(self._log.written)

    def settle(self, position: int) -> int:
        """Take over what StoreEvents.flushed told, in the loop; return the durable index.

        What was cut meanwhile does not count, nor what was appended in its place and is not synced yet.
        """
        position = min(position, self._log.flushed)
        # What is damaged counts once it is mended, but for what was synced before it rotted: then the floor stands.
        hole = self.holes.behind(self.durable) if self.holes.ranges else None
        until = self._last.index if hole is None else hole[0] - 1
        if position >= self._last.end:
            self.durable = max(self.durable, until)
        # Not one by one: behind a hole that was filled may stand a log that was synced long ago.
        low, high = self.durable, until + 1
        while high - low > 1:
            middle = (low + high) // 2
            control = self._control(middle)
            if control is not None and control.end <= position:
                low = middle
            else:
                high = middle
        self.durable = max(self.durable, low)
        return self.durable

    def release(self, index: int) -> None:
        """Dispatch everything up to the end of an entry that is known as committed (R12), as far as it can be read.

        Nothing behind it, though more may be known as committed: whoever calls decides how much is done at once.
        Raises StoreWriteError when queues or index cannot take it: the store is over then.
        """
        assert index <= self._last.index, "what is committed here is in the log"
        self.commit = max(self.commit, index)
        self._release_readable(index)

    def _release_readable(self, index: int) -> None:
        """Dispatch what is committed up to an entry, as far as it can be read."""
        until = min(index, self.readable) if self.holes.ranges else index
        if until > self._held.released and (lost := self._held.release(until)) is not None:
            self.mark_damaged(lost, lost)

    def trimmed(self) -> None:
        """Take note that files were removed from the front of the log."""
        first = self._finder.control_at(self._log.min_position)
        if self._base.end < self._log.min_position and first is not None:
            self._base, self._base_config = base_of(first), config_before(first)
            if self.holes:
                self.mending.forget()
                self.holes.remove(0, self._base.index)
                self._hold()

    def forget_topic(self) -> None:
        """Note that a topic begins anew, behind what is held of it."""
        self._held.forget_offsets()

    def witness(self) -> tuple[int, Callable[[], None] | None]:
        """Return where the last entry ends, and what raises the floor to it once it is synced. For the flusher."""
        floor = self._parts.floor
        # In this order: after a cut, which sets them in the other one, no entry that is gone goes with the new epoch.
        epoch = floor.epoch
        last = self._last
        if last.index == self._base.index or self._is_stuck():
            # Nothing behind such a hole is acknowledged, and so it may be cut as long as the floor is below it.
            return last.end, None
        return last.end, lambda: floor.advance(last, epoch)
