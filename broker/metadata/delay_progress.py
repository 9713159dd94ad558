"""How far each delay level has been delivered: delayOffset.json, in RocketMQ's form, and in a group an agreed table.

A broker without a group writes down what it has reached. In a Raft group the leader proposes it, at most once in
PROGRESS_SECONDS, and every member applies it: a new leader goes on from there. What was delivered since is found in the
end of the log (broker/messages/delay_tail.py).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from broker.metadata.operations import MetaLog, Operation, Table, Verb
from broker.metadata.table_file import Chunks, ConfigFile, MetadataError, Stamp, stamped
from broker.metadata.versions import next_version, packed, unpacked
from remoting.bodies.registry import DataVersion, DelayOffsetTable
from remoting.errors import CommandError
from runtime.clock import Clock

# Seconds for which progress is gathered before it is proposed.
PROGRESS_SECONDS = 1.0


class DelayProgress:
    """Level → the offset before which everything has been delivered."""

    routes: tuple[Table, ...] = (Table.DELAY,)

    def __init__(self, path: Path, clock: Clock, meta: MetaLog, reached: Callable[[], Mapping[int, int]]) -> None:
        """Read the file; `reached` returns what the levels have come to. Raises MetadataError."""
        self._clock = clock
        self._meta = meta
        self._reached = reached
        self._timed = False
        self.file = ConfigFile(path, self._snapshot)
        loaded = self.file.load(DelayOffsetTable.decode)
        # What the file said at the start, and in a group what is applied since.
        self.offsets: dict[int, int] = dict(loaded.offsetTable) if loaded is not None else {}
        self.version = loaded.dataVersion if loaded is not None else DataVersion(0, 0, clock.now_ms())
        self._prepared = self.encode(self.offsets)
        meta.attach(self)

    @property
    def shared(self) -> bool:
        """Whether a group agrees on it."""
        return self._meta.shared

    def encode(self, offsets: Mapping[int, int]) -> bytes:
        """Return progress in RocketMQ's JSON form."""
        return DelayOffsetTable(dataVersion=self.version, offsetTable=dict(offsets)).encode()

    def prepare(self, offsets: Mapping[int, int]) -> None:
        """Take what the next writing of the file is to hold, in a broker without a group."""
        self.version = next_version(self.version, self._clock.now_ms(), self._meta.term)
        self._prepared = self.encode(offsets)
        self.file.touch()

    def correct(self, offsets: Mapping[int, int]) -> None:
        """Write the file at once, before the broker serves. Raises OSError."""
        self._prepared = self.encode(offsets)
        self.file.write_now()

    def take_over(self, copied: DelayOffsetTable) -> None:
        """Become equal to the master's progress, on a slave."""
        version = unpacked(packed(copied.dataVersion), self.version)
        if (version, copied.offsetTable) != (self.version, self.offsets):
            self.version, self.offsets = version, dict(copied.offsetTable)
            self._prepared = self.encode(self.offsets)
            self.file.disown()
            self.file.touch()

    def note(self) -> None:
        """Have the group agree on new progress soon."""
        later = self._meta.later
        if later is None:
            self._meta.noted(Table.DELAY)
        elif not self._timed:
            self._timed = True
            later(PROGRESS_SECONDS, self._ring)

    def propose(self) -> None:
        """Propose what the levels have come to, where it is more than what is applied."""
        rows = [[level, offset] for level, offset in self._reached().items() if offset > self.offsets.get(level, 0)]
        if rows and self._meta.leads:
            self._meta.propose(self._operation(Verb.PUT, rows))

    def apply(self, operation: Operation, *, own: bool) -> None:  # noqa: ARG002 # nothing is shown before it is applied
        """Do what an operation says; see MetaTable."""
        verb = operation[0]
        if verb == Verb.PUT:
            for level, offset in operation[3]:
                self.offsets[level] = max(offset, self.offsets.get(level, 0))
        elif verb == Verb.CLEAR:
            self.offsets.clear()
        else:
            raise MetadataError(f"operation {verb!r} on delay levels is unknown: upgrade this member")
        self.version = unpacked(operation[2], self.version)
        self._prepared = self.encode(self.offsets)
        self.file.touch()

    def drop(self) -> None:
        """Nothing is shown before it is applied; see MetaTable."""

    def lead(self, *, first: bool) -> None:
        """Propose everything where the group's log has nothing of it; see MetaTable."""
        if first:
            self._meta.propose(self._operation(Verb.CLEAR))
            self._meta.propose(self._operation(Verb.PUT, [[level, offset] for level, offset in self.offsets.items()]))

    def _ring(self) -> None:
        self._timed = False
        try:
            self.propose()
        except CommandError:
            # Too much is pending: the next progress comes with it.
            self.note()

    def _operation(self, verb: Verb, *what: object) -> Operation:
        version = next_version(self.version, self._clock.now_ms(), self._meta.term)
        return [int(verb), int(Table.DELAY), packed(version), *what]

    def _snapshot(self, stamp: Stamp | None) -> Callable[[], Chunks]:
        content = stamped(self.encode(self.offsets) if self._meta.shared else self._prepared, stamp)
        return lambda: (content,)
