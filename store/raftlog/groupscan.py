"""What recovery finds of a log's entries, and where it looks before it reads: the queue's hints, checked (R10)."""

from collections.abc import Sequence
from dataclasses import dataclass

from raft.protocol.types import Mark
from remoting.topics import RAFT_TOPIC
from store.controlrecord import Control, ControlError, decode_control, previous_chain
from store.derived.consumequeue import ConsumeQueues, QueueOrderError
from store.files.mappedfile import read_cold
from store.log.logscan import Span, check_record
from store.types import Dispatched

# The chain of a base whose digest nobody has asked for yet.
NO_CHAIN = -1
_new = tuple.__new__  # without the frame of the NamedTuple's own function: two for each entry
NOTHING = Mark(0, 0, 0, NO_CHAIN)


@dataclass(frozen=True)
class FoundEntries:
    """The entries of a log as recovery found it. `base` and `last` as in raft.protocol.types.Log."""

    base: Mark
    last: Mark
    last_config: int = 0
    commit: int = 0
    """What the log itself knows as committed."""
    released: int = 0
    """The entry up to which everything is dispatched."""
    damaged: tuple[int, int] | None = None
    base_config: int = 0
    """The last CONFIG before the first entry that is kept, 0 when nothing tells."""


def mark_of(control: Control) -> Mark:
    """Return the mark of an entry."""
    end = control.position + control.size + control.covered_bytes
    return _new(Mark, (control.index, control.term, end, control.chain))


def base_of(first: Control) -> Mark:
    """Return the mark before the first entry that is kept."""
    return Mark(first.index - 1, first.previous_term, first.position, previous_chain(first))


def hint_of(control: Control) -> Dispatched:
    """Return what the ConsumeQueue of RMQ_SYS_RAFT is told of an entry: its tags code is the term."""
    index, position, size = control.index, control.position, control.size
    return _new(Dispatched, (RAFT_TOPIC, 0, index, position, size, control.term, control.timestamp, b"", b"", 0, b""))


def read_control(spans: Sequence[Span], position: int) -> Control | None:
    """Return the control record that begins at a position of closed files, None when none does."""
    for span in spans:
        if span.start <= position < span.start + span.size:
            offset = position - span.start
            size = int.from_bytes(read_cold(span.path, offset, min(4, span.size - offset)), "big", signed=True)
            if not 0 < size <= span.size - offset:
                return None
            view = memoryview(read_cold(span.path, offset, size))
            if isinstance(check_record(view, 0, position, check_crc=True), str):
                return None
            try:
                return decode_control(view)
            except ControlError:
                return None
    return None


class HintedControls:
    """Control records of a log that is not open yet, found by the queue's hints and checked (R10)."""

    def __init__(self, spans: Sequence[Span], queues: ConsumeQueues) -> None:
        self._spans = spans
        self._queues = queues

    def newest(self) -> Control | None:
        """Return the last entry that the queue knows; QueueOrderError when it is not where the queue says."""
        index = self._queues.max_offset(RAFT_TOPIC, 0) - 1
        if index < self._queues.min_offset(RAFT_TOPIC, 0):
            return None
        found = self.get(index)
        if found is None:
            raise QueueOrderError(f"entry {index} is not where the queue of {RAFT_TOPIC} says")
        return found

    def get(self, index: int) -> Control | None:
        """Return an entry's control record, None when it is gone or its hint misleads."""
        for position, _, _ in self._queues.entries(RAFT_TOPIC, 0, index, 1):
            found = read_control(self._spans, position)
            if found is not None and found.index == index:
                return found
        return None

    def ends_classic(self) -> bool:
        """Tell whether a single broker may go on with this log: it has no entry, or its last CONFIG says so (R2)."""
        newest = self.newest()
        if newest is None:
            return True
        config = self.get(newest.config)
        return config is not None and config.is_classic

    def group_start(self, newest: Control) -> Control:
        """Return the first kept entry of the group that `newest` belongs to; QueueOrderError when a hint misleads."""
        kept_from = self._queues.min_offset(RAFT_TOPIC, 0)
        config = self.get(newest.config)
        while config is not None:
            before = self.get(config.index - 1)
            if before is None:
                break
            earlier = self.get(before.config)
            if earlier is None:
                # A group that ended would have its last CONFIG here: this one's is older than what is kept.
                if before.config >= kept_from:
                    raise QueueOrderError(f"entry {before.config} is not where the queue of {RAFT_TOPIC} says")
                break
            if earlier.is_classic:
                return config
            config = earlier
        return self.get(kept_from) or newest
