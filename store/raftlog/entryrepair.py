"""Fills holes of a member's log with bytes of its peers, from the front, checked entry by entry against the chain (R4).

Bytes at equal positions are equal on every member, so what is asked for and handed in are positions and bytes. Each
byte is touched once: given, checked in slices of the loop's time, written and synced by the worker, taken over in
slices. Only what is synced counts as mended, so a kill in between begins again where the disk says.
"""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from raft.protocol.types import EntryRefused, Mark
from remoting.record import BLANK, BLANK_MAGIC
from remoting.topics import RAFT_TOPIC
from store.controlrecord import Control, continues
from store.derived.consumequeue import ConsumeQueues
from store.log.commitlog import CommitLog
from store.raftlog.entrycheck import Checked
from store.raftlog.entryfinder import EntryFinder
from store.raftlog.entryholes import Holes, Range
from store.raftlog.givenentries import GivenEntries
from store.worker import Worker

# One slice of work in the loop: about 3 ms of entries of 1 KiB, 1 ms of large ones. An entry is never divided.
SLICE_BYTES = 256 * 1024
SLICE_ENTRIES = 64
# Bytes given and not yet checked, and checked and not yet taken over: more than the largest entry. Beyond it no more is
# wanted.
GIVEN_BYTES_MAX = 16 * 1024 * 1024
CHECKED_BYTES_MAX = 8 * 1024 * 1024
# Bytes read at once of this member's own disk.
OWN_BYTES = 1024 * 1024

_NO_END = 1 << 63


class Hole(NamedTuple):
    """A damaged range: what stands before it and behind it is intact."""

    range: Range
    before: Mark
    before_config: int
    behind: Control | None
    """The entry behind it; None when the hole reaches up to the end of the log."""
    end: Mark
    """The end of the log: of the last damaged entry when nothing is behind it."""

    @property
    def until(self) -> int:
        """The position behind it."""
        return self.behind.position if self.behind is not None else self.end.end

    @property
    def term(self) -> int:
        """The term that none of its entries can be above: that of the first intact one behind it."""
        return self.behind.term if self.behind is not None else self.end.term


class Mender:
    """Works at the first hole. For the loop."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        finder: EntryFinder,
        holes: Holes,
        worker: Worker,
        file_bytes: int,
        mark: Callable[[int], tuple[Mark, int]],
    ) -> None:
        """`mark` tells of an entry, which can be read, its mark and the last CONFIG there; LookupError."""
        self._log = log
        self._queues = queues
        self._finder = finder
        self._holes = holes
        self._worker = worker
        self._file_bytes = file_bytes
        self._mark = mark
        self._hole: Hole | None = None
        # What was given, and read up to the last entry that was checked.
        self._given = GivenEntries(file_bytes)
        # Bytes from here on are not known as committed: of them nothing is written before the hole's end proves them.
        # And up to where the others were checked.
        self._sure = _NO_END
        self._sure_cursor = (self._given.cursor, 0)
        self._waiting: list[Checked] = []
        # (entry that it goes with, position, bytes)
        self._blanks: list[tuple[int, int, bytes]] = []
        self._written: deque[Checked] = deque()
        self._unmended = 0
        self._writing = False
        self._in_hand: list[Checked] = []
        self._failure: OSError | None = None
        # Moved by forget(): what the worker had in hand before it is nobody's any more.
        self._epoch = 0
        self.contradicted = False
        """Whether what was refused last continues what stands before the hole, and what stands behind it does not."""
        self.bytes_done = 0
        """Bytes mended since the process began."""

    # -- what is missing

    def wanted(self, last: Mark) -> tuple[int, int] | None:
        """Return begin and end of the bytes to be given next; None when none are, or enough wait already.

        `last` is the mark of the log's last entry.
        """
        hole = self._open(last)
        if hole is None or self._given.bytes.size >= GIVEN_BYTES_MAX:
            return None
        begin = max(self._given.bytes.end, self._given.at)
        return (begin, hole.until) if begin < hole.until else None

    def bounds(self, found: Range, last: Mark) -> Hole:
        """Return a damaged range with what stands around it; it grows where that cannot be read either."""
        first, until = found
        while True:
            try:
                before, config = self._mark(first - 1)
            except LookupError:
                first -= 1
                continue
            behind = self._finder.control(until + 1) if until < last.index else None
            if until >= last.index or behind is not None:
                break
            until += 1
        if (first, until) != found:
            self._holes.add(first, until)
        return Hole((first, until), before, config, behind, last)

    def _open(self, last: Mark) -> Hole | None:
        """Return the hole that is worked at: the first one, from where it is mended."""
        found = self._holes.first
        hole = self._hole
        if found is None or (hole is not None and (self._unmended or found[1] == hole.range[1])):
            if found is None:
                self._hole = None
            return self._hole
        self._hole = hole = self.bounds(found, last)
        self._rewind()
        return hole

    def _rewind(self) -> None:
        """Begin to check behind the last entry that is mended."""
        assert self._hole is not None, "one is worked at"
        assert not self._unmended, "what is checked is taken over first"
        before, config = self._hole.before, self._hole.before_config
        self._given.begin(before, config)
        self._sure_cursor = before, config
        self.drop()

    # -- bytes in

    def give(self, position: int, data: bytes | memoryview, *, sure: bool = True) -> None:
        """Take bytes that follow those given before; what is not wanted is passed over. They must stay as they are.

        `sure`: the group has committed them.
        """
        begin = max(self._given.bytes.end, self._given.at)
        if self._hole is None or not position <= begin < position + len(data):
            return
        if not sure:
            self._sure = min(self._sure, begin)
        self._given.bytes.put(begin, memoryview(data)[begin - position :])

    def drop(self) -> None:
        """Forget what was given and is not checked yet, or not sure."""
        cursor, config = self._given.cursor, self._given.config
        if cursor.end > self._sure:
            cursor, config = self._sure_cursor
            self._waiting = [each for each in self._waiting if each.control.index <= cursor.index]
            self._blanks = [blank for blank in self._blanks if blank[0] <= cursor.index]
            self._unmended = self._sure_bytes()
        self._sure = _NO_END
        self._given.begin(cursor, config)

    def read_own(self) -> None:
        """Give what stands here: beyond what is damaged for sure a hole may hold intact entries."""
        assert self._hole is not None, "one is worked at"
        begin = self._given.at
        until = min(begin + OWN_BYTES, self._hole.until)
        # The first piece may be no more than the blank at the end of a file.
        cuts = [begin, *range(begin + self._file_bytes - begin % self._file_bytes, until, self._file_bytes), until]

        def read() -> bytes:
            return b"".join([
                self._log.read_blocking(at, following - at) for at, following in pairwise(cuts) if at < following
            ])  # fmt: skip

        epoch = self._epoch

        def tell(data: bytes | OSError) -> None:
            if not isinstance(data, OSError) and epoch == self._epoch:
                self.give(begin, data)

        self._worker.submit(read, tell)

    # -- slices of work

    def step(self, last: Mark) -> tuple[Control | None, bool]:
        """Do one slice: take over what is on disk, or check what was given; have the worker write.

        Returns the last entry that was taken over, and whether there is more to do at once. Raises EntryRefused when
        what was given is not what is due: nothing of that is kept; OSError.
        """
        if self._failure is not None:
            raise self._failure
        if self._open(last) is None:
            return None, False
        taken = self._take_over() if self._written else None
        if taken is None and self._unmended < CHECKED_BYTES_MAX:
            self._check()
        self._write()
        more = bool(self._written) or (self._hole is not None and self._unmended < CHECKED_BYTES_MAX and self._ready())
        return taken, more

    def _ready(self) -> bool:
        """Whether enough was given for the next entry to be looked at."""
        assert self._hole is not None, "one is worked at"
        return self._given.ready and self._given.cursor.index < self._hole.range[1]

    def _check(self) -> None:
        """Check a slice of what was given."""
        checked_bytes = entries = 0
        hole, given = self._hole, self._given
        assert hole is not None, "one is worked at"
        self.contradicted = False
        try:
            while checked_bytes < SLICE_BYTES and entries < SLICE_ENTRIES and given.cursor.index < hole.range[1]:
                end = given.cursor.end
                checked = given.next(hole.until)
                if checked is None:
                    return
                control = checked.control
                if control.index == hole.range[1]:
                    self._check_end(control, hole)
                elif control.term > hole.term:
                    self.contradicted = True
                    raise EntryRefused(f"entry {control.index} is of term {control.term}, {hole.term} follows")
                if control.position != end:
                    self._fill_file(control.index, end, control.position)
                given.take(control)
                self._waiting.append(checked)
                size = len(checked.data)
                self._unmended += size
                end = given.cursor.end
                if control.index == hole.range[1]:
                    self._sure = _NO_END
                    if end != hole.until:
                        self._fill_file(control.index, end, hole.until)
                if end <= self._sure:
                    self._sure_cursor = given.cursor, given.config
                elif self._unmended >= CHECKED_BYTES_MAX:
                    raise EntryRefused(f"entries up to {control.index} are not known as committed, and too many")
                checked_bytes += size
                entries += 1
        except EntryRefused:
            self.contradicted = self.contradicted or given.beyond
            self.drop()
            raise

    def _fill_file(self, index: int, end: int, position: int) -> None:
        """Have the BLANK written behind an entry that is the last of its file."""
        self._blanks.append((index, end, BLANK.pack(position - end, BLANK_MAGIC)))

    def _check_end(self, last: Control, hole: Hole) -> None:
        behind = hole.behind
        if behind is None:
            fits = (last.term, last.end, last.chain) == hole.end[1:]
        else:
            following = last.end + self._file_bytes - last.end % self._file_bytes
            fits = continues(behind, last.chain) and behind.position in {last.end, following}
        self.contradicted = not fits
        if not fits:
            raise EntryRefused(f"entry {last.index} is not the one that stood there")

    def _write(self) -> None:
        """Have everything checked written and synced; what comes meanwhile waits for the next time."""
        if self._writing or not self._waiting:
            return
        batch = [each for each in self._waiting if each.control.end <= self._sure]
        if not batch:
            return
        self._waiting = self._waiting[len(batch) :]
        last = batch[-1].control.index
        runs: list[tuple[int, bytes | memoryview]] = [(each.control.position, each.data) for each in batch]
        runs += [blank[1:] for blank in self._blanks if blank[0] <= last]
        self._blanks = [blank for blank in self._blanks if blank[0] > last]
        assert all(at + len(data) <= self._log.written for at, data in runs), "behind the end is nothing to mend"
        self._writing, self._in_hand, epoch = True, batch, self._epoch

        def tell(error: OSError | None) -> None:
            if epoch != self._epoch:
                # Its file may have left the log meanwhile.
                if error is not None and not isinstance(error, FileNotFoundError):
                    self._failure = error
                return
            self._writing, self._in_hand = False, []
            if error is None:
                self._written += batch
            else:
                self._failure = error

        self._worker.submit(lambda: self._log.mend(_joined(runs)), tell)

    def _take_over(self) -> Control:
        """Take over a slice of what is on disk: it can be read from here on."""
        taken: list[Control] = []
        size = 0
        while self._written and size < SLICE_BYTES and len(taken) < SLICE_ENTRIES:
            control, data = self._written.popleft()
            self._finder.mended(control, data)
            taken.append(control)
            size += control.entry_bytes
        self._queues.replace(
            RAFT_TOPIC, 0, taken[0].index, [(control.position, control.size, control.term) for control in taken]
        )
        self._unmended -= size
        self.bytes_done += size
        self._holes.remove(taken[0].index, taken[-1].index)
        return taken[-1]

    def _sure_bytes(self) -> int:
        return sum(each.control.entry_bytes for each in (*self._waiting, *self._in_hand, *self._written))

    @property
    def idle(self) -> bool:
        """Whether nothing that was checked waits to be written and taken over."""
        return not self._unmended

    def forget(self) -> None:
        """Begin anew with whatever holes there are now: the log was cut. Nobody waits for what the disk is doing."""
        self._epoch += 1
        self._hole = None
        self._writing, self._in_hand = False, []
        self._waiting, self._blanks, self._unmended = [], [], 0
        self._written.clear()
        self.drop()


def _joined(runs: list[tuple[int, bytes | memoryview]]) -> list[tuple[int, bytes | memoryview]]:
    """Return the same bytes in as few runs as can be; no two files touch, for a blank is between their entries."""
    joined: list[tuple[int, bytes | memoryview]] = []
    parts: list[bytes | memoryview] = []
    begin = end = -1
    for position, data in runs:
        if position != end:
            if parts:
                joined.append((begin, b"".join(parts)))
            begin, parts = position, []
        parts.append(data)
        end = position + len(data)
    joined.append((begin, b"".join(parts)))
    return joined
