"""What the members of each broker group left behind, side by side, and the one log that they agree on.

Merged as etcd's robustness tests do: for each index the entry that most members hold. Members that differ above what
is known as committed are as Raft allows; those that differ below it are what check B1 reports.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from pipeline.history.rows import UNKNOWN, Look, Op
from pipeline.logs.member_files import Artefact
from pipeline.logs.rows import EntryRow, MessageRow
from pipeline.plain.evidence import Attempt, HeldMessage, History, MergedLog


class ReplicaGroup:
    """A broker group: its members' artefacts and what is known about them all. Computed when first asked for."""

    def __init__(self, name: str, members: tuple[str, ...], logs: Sequence[Artefact], history: History) -> None:
        self.name = name
        self.members = members
        self.logs = tuple(logs)
        self._history = history

    @cached_property
    def missing(self) -> list[str]:
        """Members whose store folder was not read."""
        there = {log.member for log in self.logs}
        return [member for member in self.members if member not in there]

    @cached_property
    def is_raft(self) -> bool:
        """Whether these are the logs of a Raft group."""
        return any(log.is_raft for log in self.logs)

    @cached_property
    def majority(self) -> int:
        """How many members are a majority."""
        return max(len(self.members), len(self.logs)) // 2 + 1

    @cached_property
    def looks(self) -> list[Look]:
        """What these members said of themselves, in order of time."""
        return sorted((look for look in self._history.looks if look.member in self.members), key=lambda look: look.at)

    @cached_property
    def acknowledged(self) -> list[Op]:
        """Sends of this group that were told where they stand."""
        return [op for op in self._history.acknowledged if self._history.group_of(op) in {"", self.name}]

    @cached_property
    def known(self) -> dict[str, int]:
        """Member → the highest index that it knew as committed, by its own log or by what it said."""
        said = {log.member: max((entry.commit for entry in log.entries), default=0) for log in self.logs}
        for look in self.looks if self.is_raft else ():
            said[look.member] = max(said.get(look.member, 0), look.commit)
        return said

    @cached_property
    def entries(self) -> dict[int, EntryRow]:
        """Index → the entry that most members hold there; of as many, that of the highest term."""
        held: dict[int, list[EntryRow]] = {}
        for log in self.logs:
            for entry in log.entries:
                # How it follows is each log's own matter.
                held.setdefault(entry.index, []).append(entry if entry.follows else entry._replace(follows=True))
        return {index: _held_most(held[index]) for index in sorted(held)}

    @cached_property
    def copies(self) -> Counter[tuple[int, int, int]]:
        """(index, term, CRC) of an entry → how many members hold it."""
        return Counter((entry.index, entry.term, entry.crc) for log in self.logs for entry in log.entries)

    def holders(self, index: int, term: int) -> int:
        """Return how many members hold the entry of an index as most do, and of that term."""
        entry = self.entries.get(index)
        return 0 if entry is None or entry.term != term else self.copies[index, term, entry.crc]

    @cached_property
    def on_majority(self) -> frozenset[tuple[int, int]]:
        """(index, term) of the entries that a majority of the members hold as most do."""
        entries = self.entries.items()
        return frozenset(
            (index, entry.term) for index, entry in entries if self.holders(index, entry.term) >= self.majority
        )

    @cached_property
    def by_attempt(self) -> dict[str, dict[Attempt, MessageRow]]:
        """Member → recorded attempt → the last record of it."""
        return {
            log.member: {(row.writer, row.counter, row.attempt): row for row in log.messages if row.writer != UNKNOWN}
            for log in self.logs
        }

    @cached_property
    def by_position(self) -> dict[str, dict[int, MessageRow]]:
        """Member → position → the record there."""
        return {log.member: {row.position: row for row in log.messages} for log in self.logs}

    @cached_property
    def committed(self) -> int:
        """The highest index known as committed: a member says so, a client was told so, or all members hold it."""
        everywhere = (
            index
            for index, entry in (self.entries.items() if not self.missing else ())
            if self.copies[index, entry.term, entry.crc] == len(self.logs)
        )
        known = max(chain(self.known.values(), everywhere), default=0)
        told = {(op.position, op.writer, op.counter, op.attempt) for op in self.acknowledged}
        acknowledged = (
            row.index
            for log in self.logs
            for row in log.messages
            if row.index > known and (row.position, row.writer, row.counter, row.attempt) in told and self.agrees(row)
        )
        return max(acknowledged, default=known)

    def agrees(self, row: MessageRow) -> bool:
        """Tell whether a record is one of the merged log's: its entry is, or it stands before the first."""
        if row.index == UNKNOWN:
            return True
        entry = self.entries[row.index]
        return entry.position <= row.position < entry.end and entry.term == row.term

    @cached_property
    def messages(self) -> list[MessageRow]:
        """The records of the merged log, in its order: of a Raft group the committed ones."""
        found: dict[int, MessageRow] = {}
        if not self.is_raft:
            # The longest log is the master's: nobody else appends.
            for log in sorted(self.logs, key=lambda log: log.end):
                found.update((row.position, row) for row in log.messages)
            return [found[position] for position in sorted(found)]
        for log in self.logs:
            for row in log.messages:
                # A row like the one that another log brought has been looked at.
                if found.get(row.position) != row and row.index <= self.committed and self.agrees(row):
                    found[row.position] = row
        return [found[position] for position in sorted(found)]

    @cached_property
    def placed(self) -> dict[Attempt, list[MessageRow]]:
        """Where each recorded attempt stands in the merged log."""
        found: dict[Attempt, list[MessageRow]] = {}
        for row in self.messages:
            if row.writer != UNKNOWN:
                found.setdefault((row.writer, row.counter, row.attempt), []).append(row)
        return found

    @cached_property
    def end(self) -> int:
        """The position behind what is committed; of a pair, up to where all members have the log."""
        if not self.is_raft:
            return min((log.end for log in self.logs), default=0)
        held = [entry.end for index, entry in self.entries.items() if index <= self.committed]
        return max(held, default=0)

    @cached_property
    def complete(self) -> bool:
        """Whether all members were read from the first byte to one common end."""
        ends = {(log.last, log.end) for log in self.logs}
        whole = all(log.begin == 0 and not any(gap.start < log.end for gap in log.gaps) for log in self.logs)
        decided = not self.is_raft or all(log.last <= self.committed for log in self.logs)
        return bool(self.logs) and not self.missing and len(ends) == 1 and whole and decided


def _held_most(held: list[EntryRow]) -> EntryRow:
    """Return the row that stands there most often; of as many, that of the highest term."""
    if held.count(held[0]) == len(held):
        return held[0]
    return max(Counter(held).items(), key=lambda one: (one[1], one[0].term, one[0]))[0]


@dataclass(frozen=True)
class Replicas:
    """A run's evidence with the artefacts: `earlier` are those of moments before the end, oldest first."""

    history: History
    artefacts: Sequence[Artefact]
    earlier: Sequence[Sequence[Artefact]] = ()

    @cached_property
    def groups(self) -> list[ReplicaGroup]:
        """The broker groups that something was read of; without a list of members, all are one group."""
        return self.grouped(self.artefacts)

    def resolved(self) -> "Replicas":
        """Return the same with the merged log in the history: what is known about the groups already stays known."""
        found = Replicas(replace(self.history, merged=self.merged), self.artefacts, self.earlier)
        vars(found)["groups"] = self.groups
        return found

    def grouped(self, artefacts: Sequence[Artefact]) -> list[ReplicaGroup]:
        """Sort some artefacts into broker groups."""
        listed = self.history.promises.group_members or {"": tuple(log.member for log in artefacts)}
        logs = {name: [log for log in artefacts if log.member in members] for name, members in listed.items()}
        return [ReplicaGroup(name, members, logs[name], self.history) for name, members in listed.items() if logs[name]]

    @cached_property
    def merged(self) -> MergedLog | None:
        """What the checks of the client history resolve unknown ends with; None without artefacts."""
        if not self.groups:
            return None
        rows = [
            HeldMessage(
                group.name, row.topic, row.queue, row.offset, row.position, row.writer, row.counter, row.attempt,
                row.digest, row.term, row.index, row.transaction,
            )
            for group in self.groups
            for row in group.messages
        ]  # fmt: skip
        names = self.history.promises.group_members
        return MergedLog(rows, all(group.complete for group in self.groups) and len(self.groups) >= len(names))
