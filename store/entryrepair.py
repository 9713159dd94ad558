"""Puts a peer's bytes into a damaged range of the log: entries below the floor, which are never cut (R4)."""

from collections.abc import Sequence
from typing import NamedTuple

from remoting.record import BLANK, BLANK_MAGIC
from remoting.topics import RAFT_TOPIC
from store.commitlog import CommitLog
from store.consumequeue import ConsumeQueues
from store.controlrecord import Control, continues
from store.entrycheck import SentEntry, check_entries
from store.errors import EntryRefused
from store.floorfile import Mark
from store.groupscan import hint_of
from store.types import Dispatched


class Hole(NamedTuple):
    """A damaged range: what stands before it and behind it is intact."""

    before: Mark
    before_config: int
    last: int
    """The last damaged entry."""
    behind: Control | None
    """The entry behind it; None when the hole reaches up to the end of the log."""
    end: Mark
    """The end of the log: of the last damaged entry when nothing is behind it."""


class HoleMender:
    """Fills holes, piece by piece, from the front."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, file_bytes: int) -> None:
        self._log = log
        self._queues = queues
        self._file_bytes = file_bytes
        # What was filled in: the queue of RMQ_SYS_RAFT learns it when the hole is closed.
        self._filled: list[Control] = []

    def fill(self, entries: Sequence[SentEntry], hole: Hole) -> Control:
        """Write entries into the beginning of a hole, durably; return the last one's control record.

        They must continue what stands before the hole, and the hole's last must be continued by what stands behind it.
        Raises EntryRefused: then nothing was written; OSError.
        """
        wanted = [entry for entry in entries if entry.index <= hole.last]
        checked = check_entries(wanted, hole.before, hole.before_config, self._file_bytes)
        if not checked:
            raise EntryRefused(f"no entry for the hole from {hole.before.index + 1} to {hole.last}")
        last = checked[-1].control
        limit = hole.behind.position if hole.behind is not None else hole.end.end
        if last.end > limit:
            raise EntryRefused(f"entry {last.index} ends at {last.end}, behind the hole's end at {limit}")
        if last.index == hole.last:
            _check_end(last, hole, self._file_bytes)
        end = hole.before.end
        for control, data in checked:
            self._fill_file(end, control.position)
            self._log.overwrite(control.position, data)
            end = control.end
        if last.index == hole.last:
            self._fill_file(end, limit)
        self._log.sync(hole.before.end, max(end, limit if last.index == hole.last else end))
        self._filled += [control for control, _ in checked]
        return last

    def finish(self) -> None:
        """Tell the queue of RMQ_SYS_RAFT of what was filled in, if it does not know."""
        filled, self._filled = self._filled, []
        first, behind = filled[0].index, filled[-1].index + 1
        hints = self._queues.entries(RAFT_TOPIC, 0, first, len(filled))
        # Not only where they begin: that of a hole's first entry was known, but neither its size nor its term.
        if hints != [(control.position, control.size, control.term) for control in filled]:
            # What stands behind is known already, and comes back as it was.
            later = self._queues.entries(RAFT_TOPIC, 0, behind, self._queues.max_offset(RAFT_TOPIC, 0) - behind)
            self._queues.cut_queue(RAFT_TOPIC, 0, first)
            self._queues.append_many([hint_of(control) for control in filled])
            self._queues.append_many(
                [Dispatched(RAFT_TOPIC, 0, behind + at, *hint, 0, b"", b"", 0) for at, hint in enumerate(later)]
            )

    def _fill_file(self, end: int, position: int) -> None:
        """Write the BLANK behind an entry that is the last of its file."""
        if position != end:
            self._log.overwrite(end, BLANK.pack(position - end, BLANK_MAGIC))


def _check_end(last: Control, hole: Hole, file_bytes: int) -> None:
    behind = hole.behind
    if behind is None:
        fits = (last.term, last.end, last.chain) == hole.end[1:]
    else:
        following = last.end + file_bytes - last.end % file_bytes
        fits = continues(behind, last.chain) and behind.position in {last.end, following}
    if not fits:
        raise EntryRefused(f"entry {last.index} is not the one that stood there")
