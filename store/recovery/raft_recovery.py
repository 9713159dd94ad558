"""Recovery of a group member's log: what store.recovery.recovery does, entry by entry, by the rules of a Raft group.

* A control record is due wherever an entry ended; a whole record of another kind there is no torn tail, and nothing is
  cut (R2). Before the first control record, and behind a group that ended, plain records stand: the base.
* Below the floor (the floor file's, and what control records know as committed) nothing is cut: damage there is told,
  and what follows it is kept, so that the member can fetch the rest from another one (R4).
* Records are not dispatched here, save those of the base: how far that may go is for release() to say (R12).
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from raft.protocol.types import EntryType, Mark
from remoting.record import RecordError
from remoting.topics import RAFT_TOPIC
from store.controlrecord import Control, ControlError, continues, is_rotten
from store.derived.consumequeue import ConsumeQueues, QueueOrderError
from store.errors import StoreDamaged
from store.files.beginning import Beginning, config_before
from store.files.checkpoint import Checkpoint
from store.files.disk import Disk
from store.files.mappedfile import LogFile, read_cold
from store.log.logscan import Found, Span, find_later_record
from store.raftlog.entryscan import EntryScan
from store.raftlog.groupscan import (
    NO_CHAIN,
    NOTHING,
    FoundEntries,
    HintedControls,
    base_of,
    hint_of,
    mark_of,
    read_control,
)
from store.recovery.recovery import BATCH_RECORDS, Recovered, Recovery
from store.types import Dispatched

_LOG = logging.getLogger(__name__)

_REWRITE_BYTES = 4 * 1024 * 1024


class GroupRecovery(Recovery):
    """One pass over a member's log. `found` tells the entries once feed() has returned."""

    def __init__(
        self,
        files: list[LogFile],
        checkpoint: Checkpoint,
        disk: Disk,
        *,
        queues: ConsumeQueues,
        floor: Mark | None,
        read: Callable[[memoryview, int], Dispatched],
        dispatch: Callable[[list[Dispatched]], None],
    ) -> None:
        super().__init__(files, checkpoint, disk, check_crc=True, read=read, dispatch=dispatch)
        self._queues = queues
        self._floor = floor if floor is not None else NOTHING
        self._hints = HintedControls(self._spans, queues)
        self._batch: list[Dispatched] = []
        # The entry before the position that is looked at; None in front of the first one.
        self._last: Control | None = None
        self._first: Control | None = None
        # Whether a control record is due; the last entry may have ended the group, which only what follows it tells.
        self._due = False
        self._commit = self._released = self._config = 0
        # Where the log begins with entries, by what was noted: the first of them may be gone.
        self._began: Mark | None = None
        self.found = FoundEntries(NOTHING, NOTHING)

    def feed(self, start: int) -> int:
        """Read the log from `start` on; return its end. Files are not touched.

        Raises QueueOrderError when the queues must be cleared and all of the log read, StoreDamaged, OSError.
        """
        self._begin(start)
        end, damage = self._scan(start)
        damaged = None
        last = self._last_mark()
        known = max(self._commit, self._floor.index)
        if self._due and last is not None and (known > last.index or damage):
            damaged, last, end = self._behind_damage(last, end, damage)
        elif last is None or not self._due:
            self._judge(end, damage)
            if self._floor.index > (last.index if last is not None else 0):
                raise StoreDamaged(self._lost_text(end))
        if self._due and last is not None and damaged is None:
            # A BLANK behind the last entry is of an entry that is not there: another may stand in its place (R11).
            end = last.end
        self._found(start, end, last, damaged)
        return end

    def _begin(self, start: int) -> None:
        first = self._files[0].start
        self._queues.delete_below(first)
        newest = self._hints.newest()
        if newest is None:
            if start > first and self._floor.index > 0:
                raise QueueOrderError(f"the queue of {RAFT_TOPIC} is empty")
            self._begin_at_base(start)
            return
        config = self._hints.get(newest.config)
        self._due = config is None or not config.is_classic
        size = self._files[0].size
        if newest.end > start or (self._due and start not in {newest.end, -(-newest.end // size) * size}):
            raise QueueOrderError(f"entry {newest.index} ends at {newest.end}, the log is read from {start}")
        self._last = newest
        self._config = newest.config
        self._first = self._hints.group_start(newest)
        # A checkpoint vouches for nothing that is not committed.
        self._commit = self._released = newest.index

    def _begin_at_base(self, start: int) -> None:
        """Have entries be due from the log's begin on, if that is where they begin and there are some."""
        beginning = self._checkpoint.beginning
        base = beginning.entries_from_start if beginning is not None else None
        if base is not None and base.end == start and self._floor.index > base.index:
            self._began, self._due = base, True
            self._commit = self._released = base.index

    def _scan(self, start: int) -> tuple[int, str]:
        scan = EntryScan(self._spans, start)
        try:
            for item in scan:
                if isinstance(item, Control):
                    if (wrong := self._take(item, start)) is not None:
                        return scan.end, wrong
                    self._last_timestamp = max(self._last_timestamp, item.timestamp)
                elif self._due and (mark := self._last_mark()) and is_rotten(item.view, item.at, mark.chain):
                    return scan.end, "a control record with a byte that changed"
                else:
                    self._take_plain(item)
        except ControlError as error:
            raise StoreDamaged(f"the CommitLog has {error} at {scan.end}: nothing was cut") from error
        except RecordError as error:
            return scan.end, str(error)
        finally:
            self._send()
        return scan.end, scan.damage

    def _last_mark(self) -> Mark | None:
        """Return the mark of the entry before the position that is looked at; None in front of the first one."""
        return mark_of(self._last) if self._last is not None else self._began

    def _take(self, control: Control, start: int) -> str | None:
        """Take an entry over; return in words why it does not continue the log."""
        last = self._last_mark()
        if self._due and last is not None:
            if (wrong := _discontinuity(control, last)) is not None:
                return wrong
        elif not self._may_begin(control):
            if start > self._files[0].start:
                raise QueueOrderError(f"entry {control.index} follows none")
            raise StoreDamaged(f"entry {control.index} at {control.position} of the CommitLog follows none")
        if self._first is None:
            self._first = control
        if not self._due:
            self._first = control
            self._released = max(self._released, control.index - 1)
        self._due = True
        self._last = control
        self._config = control.config
        self._commit = max(self._commit, control.commit)
        self._queues.append_many((hint_of(control),), rebuilding=True)
        return None

    def _may_begin(self, control: Control) -> bool:
        """Tell whether an entry may be a group's first: a CONFIG, or whatever the oldest file begins with."""
        if self._last is not None:
            return control.kind is EntryType.CONFIG and control.index == self._last.index + 1
        return control.kind is EntryType.CONFIG or control.position == self._files[0].start

    def _take_plain(self, found: Found) -> None:
        last = self._last
        if self._due and (last is None or not last.is_classic):
            raise StoreDamaged(
                f"at {found.position} of the CommitLog stands a message where an entry of the group is due: a single "
                f"broker wrote here after the group. Nothing was cut. Remove this member from the group, empty its "
                f"store and add it again; or start it alone with --force and keep what it has"
            )
        if self._due and last is not None:
            self._end_group(last)
        self._batch.append(self._read(found.view, found.at))
        self._last_timestamp = max(self._last_timestamp, found.store_timestamp)
        if len(self._batch) >= BATCH_RECORDS:
            self._send()

    def _end_group(self, last: Control) -> None:
        """Dispatch what the ended group's entries cover: all of them were committed before it could end."""
        self._due = False
        first = self._first
        assert first is not None, "a group that ended has an entry"
        begin = max(first.position, self._checkpoint.dispatched)
        for item in EntryScan(self._spans, max(begin, self._files[0].start)):
            if isinstance(item, Control) and item.index <= last.index:
                self._batch += self._covered_of(item)
            if isinstance(item, Control) and item.index >= last.index:
                break
        self._send()
        self._released = self._commit = last.index

    def _covered_of(self, control: Control) -> list[Dispatched]:
        if not control.covered_count:
            return []
        data = _span_bytes(self._spans, control.position + control.size, control.covered_bytes)
        found, at = [], 0
        for _ in range(control.covered_count):
            found.append(self._read(data, at))
            at += found[-1].size
        return found

    def _send(self) -> None:
        if self._batch:
            self._dispatch(self._batch)
            self._batch = []

    # -- damage

    def _behind_damage(self, last: Mark, end: int, damage: str) -> tuple[tuple[int, int] | None, Mark, int]:
        """Decide about a log whose intact part ends with `last` at `end`: damaged range, new last, new end."""
        begin = last.index + 1
        runs = self._runs_behind(last, end)
        known = max(self._commit, self._floor.index)
        if known <= last.index:
            _LOG.warning(
                "the CommitLog ends at %d, behind it stands %s: cut, it was never synced", end, damage or "nothing"
            )
            return None, last, end
        # The first intact stretch that reaches what is known ends the log: what is torn behind it, nobody need have.
        resumed, newest = next(((first, run) for first, run in runs if run.index >= known), (None, self._floor))
        if resumed is None or resumed.index - 1 > known == self._floor.index:
            if self._floor.index < known:
                raise StoreDamaged(self._lost_text(end))
            # Nothing intact at the floor: the floor itself tells how far the hole goes.
            newest, gap_end, resumed = self._floor, self._floor.index, None
        else:
            gap_end = resumed.index - 1
        until = newest.end
        _LOG.error(
            "entries %d to %d of the CommitLog are damaged (%s), and had been synced: nothing is cut, they are to be "
            "fetched from another member",
            begin, gap_end, damage or "zeros",
        )  # fmt: skip
        # Hints that mislead keep the place of those that are missing: whoever uses them looks at the log first.
        hints = [
            Dispatched(RAFT_TOPIC, 0, index, end + index - begin, 1, 0, 0, b"", b"", 0)
            for index in range(begin, gap_end + 1)
        ]
        self._queues.append_many(hints, rebuilding=True)
        for following in self._run(resumed) if resumed is not None else ():
            self._queues.append_many((hint_of(following),), rebuilding=True)
            self._config = following.config
        return (begin, gap_end), newest, until

    def _runs_behind(self, last: Mark, end: int) -> list[tuple[Control, Mark]]:
        """Return the intact stretches behind the damage, each by its first entry and its last one's mark."""
        found: list[tuple[Control, Mark]] = []
        newest, until = last, end
        while True:
            # At least one entry further: what calls itself the next one and stands elsewhere is none of this log.
            first = self._later_entry(until, newest.index + 1)
            if first is None:
                return found
            for following in self._run(first):
                self._commit = max(self._commit, following.commit)
                newest, until = mark_of(following), following.end
            found.append((first, newest))

    def _later_entry(self, position: int, index: int) -> Control | None:
        """Return the first intact entry behind `position` with an index above `index`."""
        while True:
            found = find_later_record(_with_data(self._spans), position)
            if found is None:
                return None
            control = read_control(self._spans, found.position)
            if control is not None and control.index > index and self._is_confirmed(control):
                return control
            position = found.position

    def _is_confirmed(self, control: Control) -> bool:
        """Whether an entry behind damage is one: its index stands in no CRC but that of the entry that follows it.

        The floor may be behind what was acknowledged: what continues it needs no other witness.
        """
        if self._floor.index and _discontinuity(control, self._floor) is None:
            return True
        scan = iter(EntryScan(self._spans, control.position))
        if not isinstance(next(scan, None), Control):
            return False
        following = next(scan, None)
        if isinstance(following, Control) and _discontinuity(following, mark_of(control)) is None:
            return True
        return mark_of(control) == self._floor

    def _run(self, first: Control) -> Iterator[Control]:
        """Yield an intact entry and those that continue it without a break."""
        mark: Mark | None = None
        for item in EntryScan(self._spans, first.position):
            if not isinstance(item, Control) or (mark is not None and _discontinuity(item, mark) is not None):
                return
            mark = mark_of(item)
            yield item

    def _lost_text(self, end: int) -> str:
        known = max(self._commit, self._floor.index)
        return (
            f"the CommitLog ends at {end}, but entries up to {known} had been synced here: put its files back, or "
            f"remove this member from the group, empty its store and add it again"
        )

    # -- the result

    def _found(self, start: int, end: int, last: Mark | None, damaged: tuple[int, int] | None) -> None:
        newest = self._last
        if last is None or (newest is None and self._began is None):
            base = Mark(0, 0, end, 0 if end == self._files[0].start == 0 else NO_CHAIN)
            self.found = FoundEntries(base, base)
            return
        ended = (
            newest is not None
            and newest.is_classic
            and (not self._due or (start >= newest.end and damaged is None))
            and last.index == newest.index
        )
        if ended and newest is not None:
            base = Mark(newest.index, newest.term, end, NO_CHAIN)
            self.found = FoundEntries(base, base, 0, newest.index, newest.index)
            return
        base, config = self._base()
        released = max(self._released, base.index)
        commit = max(released, min(self._commit, last.index))
        self.found = FoundEntries(base, last, self._config, commit, released, damaged, config)

    def _base(self) -> tuple[Mark, int]:
        """Return the mark before the first entry that is kept, or that was, and the last CONFIG there."""
        beginning: Beginning | None = self._checkpoint.beginning
        if self._began is not None and beginning is not None:
            return self._began, beginning.config
        assert self._first is not None, "an entry was found"
        return base_of(self._first), config_before(self._first)

    def settle(self, end: int) -> Recovered:
        """Make the files end at `end`, and all of it durable: see Recovery.settle.

        What lies above the floor is written again first (R5): after a sync that failed, pages may look clean in the
        cache that never reached the disk.
        """
        position = max(self._floor.end, self._files[0].start, self._checkpoint.flushed)
        for file in self._files:
            while file.start <= position < min(end, file.end):
                size = min(_REWRITE_BYTES, min(end, file.end) - position)
                file.write(read_cold(file.path, position - file.start, size), position)
                position += size
        return replace(super().settle(end), entries=self.found)


def _discontinuity(control: Control, last: Mark) -> str | None:
    if control.index != last.index + 1 or control.term < last.term:
        return f"entry {control.index} of term {control.term} behind entry {last.index} of term {last.term}"
    if not continues(control, last.chain):
        return f"entry {control.index}, which does not continue the chain"
    return None


def _span_bytes(spans: Sequence[Span], position: int, size: int) -> memoryview:
    span = next(span for span in spans if span.start <= position < span.start + span.size)
    return memoryview(read_cold(span.path, position - span.start, size))


def _with_data(spans: Sequence[Span]) -> list[Span]:
    """Return the spans without the holes at their ends: a file that is hardly begun is not read to its end."""
    found = []
    for span in spans:
        with span.path.open("rb") as file:
            end = position = 0
            while position < span.size:
                try:
                    position = os.lseek(file.fileno(), position, os.SEEK_DATA)
                except OSError:
                    break
                end = position = os.lseek(file.fileno(), position, os.SEEK_HOLE)
            found.append(Span(span.path, span.start, min(end, span.size)))
    return found
