"""The face of repair: what is damaged is fetched as bytes from peers, what peers lack is read for them (R4, R18)."""

from collections.abc import Callable
from typing import Protocol

from raft.protocol.types import Mark
from store.controlrecord import Control
from store.log.commitlog import CommitLog
from store.raftlog.entryholes import Holes, Range
from store.raftlog.entryrepair import Hole, Mender
from store.worker import Worker

# Reads for peers that wait for the disk at once; beyond it a peer is told that nothing is there, and asks another one.
FETCHES_MAX = 32

Tell = Callable[[memoryview | bytes], None]


class Mended(Protocol):
    """The log of entries that holes are in: store.raftlog.entrylog.EntryLog."""

    holes: Holes

    @property
    def base(self) -> Mark:
        """The mark before the first entry that is kept."""
        ...

    @property
    def last(self) -> Mark:
        """The mark of the last entry."""
        ...

    def mended(self, last: Control) -> None:
        """Take note that a damaged range was mended up to an entry."""
        ...


class EntryMending:
    """Gives the Mender its bytes and its time. For the loop.

    StoreEvents.worked tells, in the worker's thread, when step() or finish() has something to do.
    """

    def __init__(self, mender: Mender, log: CommitLog, worker: Worker, entries: Mended, file_bytes: int) -> None:
        self._mender = mender
        self._log = log
        self._worker = worker
        self._entries = entries
        self._file_bytes = file_bytes
        self._bounds: dict[Range, Hole] = {}
        self._fetches = 0
        self.forget = mender.forget
        self.give = mender.give
        self.drop = mender.drop
        self.read_own = mender.read_own

    @property
    def busy(self) -> bool:
        """Whether the worker has something to do, or to tell of."""
        return self._worker.open > 0

    def wanted(self) -> tuple[int, int] | None:
        """Return begin and end of the bytes to be given next; None when none are, or enough wait already."""
        return self._mender.wanted(self._entries.last)

    def step(self) -> bool:
        """Do a slice of the work on what was given; tell whether there is more to do at once.

        Raises EntryRefused when what was given is not what is due: all of it is forgotten then; OSError.
        """
        self.finish()
        taken, more = self._mender.step(self._entries.last)
        if taken is not None:
            self._entries.mended(taken)
        return more

    def finish(self) -> None:
        """Tell of what the worker has done."""
        self._worker.finish()

    @property
    def contradicted(self) -> bool:
        """Whether what was refused last continues what stands before the hole, and what stands behind it does not."""
        return self._mender.contradicted

    @property
    def idle(self) -> bool:
        """Whether nothing that was checked waits to be written and taken over."""
        return self._mender.idle

    def progress(self) -> tuple[int, int]:
        """Return the bytes mended since the process began, and those with the ones that are still damaged."""
        done = self._mender.bytes_done
        return done, done + sum(hole.until - hole.before.end for hole in self._all_bounds())

    def fetch(self, position: int, size: int, tell: Tell) -> None:
        """Read up to `size` bytes for a peer: as far as they lie in one file, are written and not damaged.

        `tell` gets them, nothing when there are none; at once when they are in memory, else once they were read.
        """
        size = min(size, self._file_bytes - position % self._file_bytes, self._log.written - position)
        for hole in self._all_bounds():
            if hole.before.end <= position < hole.until:
                size = 0
            elif position < hole.before.end:
                size = min(size, hole.before.end - position)
        if size <= 0 or position < self._log.min_position or self._fetches >= FETCHES_MAX:
            tell(b"")
            return
        data = self._log.read(position, size)
        if data is not None:
            tell(data)
            return
        self._fetches += 1

        def read(found: memoryview | bytes | OSError) -> None:
            self._fetches -= 1
            tell(b"" if isinstance(found, OSError) else found)

        self._worker.submit(lambda: self._log.read_blocking(position, size), read)

    def _all_bounds(self) -> list[Hole]:
        """Return all damaged ranges with what stands around them; looked up once for each."""
        ranges = self._entries.holes.ranges
        known = self._bounds
        if known.keys() != set(ranges):
            last = self._entries.last
            self._bounds = {each: known.get(each) or self._mender.bounds(each, last) for each in ranges}
        return list(self._bounds.values())
