"""The follower's side of replication: takes a leader's entries, cuts only what differs, says what it holds.

The library's own append path deletes everything behind the previous entry, even what is identical and acknowledged,
and its answers carry neither term nor sequence. This one replaces it: entries that are present with the same term are
skipped, a cut happens only at the first one that differs and never at or below the commit index, and an answer names
term, sequence, how far the log is verified to be the leader's, how far it is on disk, and where to go on if it differs.
"""

import logging
from collections.abc import Sequence

from raft.protocol.messages import MessageKind, RaftMessage, entries_of
from raft.protocol.types import Entry, EntryRefused, Log

_log = logging.getLogger(__name__)

_REPLY = MessageKind.APPEND_REPLY
_new = tuple.__new__  # without the frame of the NamedTuple's own function


def newest_not_above(log: Log, index: int, term: int) -> int:
    """Return the last entry up to `index` whose term is not above `term`, at least the base: terms never fall.

    Both sides skip whole terms with it: no entry behind it can be the same in a log whose entry has that term there.
    """
    low, high = log.base.index, min(index, log.last.index)
    while low < high:
        middle = (low + high + 1) // 2
        if (log.term(middle) or 0) <= term:
            low = middle
        else:
            high = middle - 1
    return low


class Follower:
    """One member's log against that of the leader it follows; begins anew with every leader and term."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._leader: str | None = None
        self._term = 0
        self.verified = 0
        """The last entry known to be the leader's, in this term."""
        self.cuts = 0
        """How often something was cut."""
        self._seq = 0
        self._leader_commit = 0
        self._reported = 0
        # Why entries were refused last: said once.
        self._refused = ""
        self.owes = False
        """Whether the last append is acknowledged later, by acknowledge()."""

    @property
    def leader(self) -> str | None:
        """Whose appends were taken last."""
        return self._leader

    def follow(self, leader: str, term: int) -> None:
        """Begin anew unless this leader is followed in this term already."""
        if (leader, term) != (self._leader, self._term):
            self._leader, self._term = leader, term
            self.verified = self._seq = self._leader_commit = self._reported = 0

    def append(self, message: RaftMessage, commit: int) -> RaftMessage | None:
        """Take an APPEND of the leader followed and return the answer, None when it is better to be silent.

        What it brings is acknowledged once it is on the disk, which then says all of it at once (`owes`). `commit` is
        this member's commit index. Raises OSError when the disk fails.
        """
        fields = message.fields
        self._seq = max(self._seq, fields["seq"])
        self.owes = False
        prev = self._step_over_base(fields["prev_index"], fields["prev_term"])
        if prev is None:
            at = newest_not_above(self._log, fields["prev_index"], fields["prev_term"])
            return self._answer(fields["seq"], at)
        entries = entries_of(message)
        try:
            if not self._take(entries, commit):
                return self.unready(fields["seq"])
        except EntryRefused as error:
            # No answer: the leader sends again when it has waited; an answer would make both spin.
            if str(error) != self._refused:
                self._refused = str(error)
                _log.warning("entries %s.. of %s are refused: %s", fields["prev_index"] + 1, self._leader, error)
            return None
        if entries:
            self._refused = ""
        verified = max(prev, entries[-1].index if entries else prev)
        self.verified = max(self.verified, verified)
        self._leader_commit = max(self._leader_commit, fields["commit"])
        self.owes = bool(entries) and self.on_disk() < self.verified
        return None if self.owes else self._answer(fields["seq"], None)

    def append_damaged(self, message: RaftMessage, commit: int) -> RaftMessage:
        """Take of an APPEND what is known in front of damaged entries, and return the answer. Raises OSError.

        A leader that holds another entry there ends the damage: nobody can fill a hole behind entries that only this
        member has. Where the two logs part is found as with a whole one; then the leader sends what contradicts them.
        All else waits for the repair: at the last entry in front of the hole, or where the logs agree behind it.
        """
        fields = message.fields
        self._seq = max(self._seq, fields["seq"])
        prev, readable = fields["prev_index"], self._log.readable
        if prev > self._log.last.index:
            return self.unready(fields["seq"])
        if prev >= self._log.base.index and self._log.term(prev) != fields["prev_term"]:
            at = newest_not_above(self._log, min(prev, readable), fields["prev_term"])
            return self._answer(fields["seq"], at)
        if not self._log.base.index <= prev < readable:
            return self._answer(fields["seq"], max(prev, self._log.base.index))
        entries = [entry for entry in entries_of(message) if entry.index <= readable]
        for entry in entries:
            if not self.matches(entry):
                self._cut(entry.index - 1, commit)
                return self.unready(fields["seq"])
        self.verified = max(self.verified, entries[-1].index if entries else prev)
        self._leader_commit = max(self._leader_commit, fields["commit"])
        return self.unready(fields["seq"]) if entries else self._answer(fields["seq"], None)

    def hear(self, commit: int) -> None:
        """Take note of the leader's commit index while nothing can be taken."""
        self._leader_commit = max(self._leader_commit, commit)

    def lacks_base(self, message: RaftMessage) -> bool:
        """Whether an empty log is offered entries that stand behind bytes it does not have."""
        entries = message.fields["entries"]
        return bool(
            entries
            and self._log.last.index == self._log.last.end == 0
            and entries[0][0] == 1
            and entries[0][2] > 0
        )  # fmt: skip

    def acknowledge(self) -> RaftMessage | None:
        """Return the answer that is due because more is on disk now, None when there is nothing new to say."""
        if self._leader is None or self.ackable() <= self._reported:
            return None
        return self._answer(self._seq, None)

    def refusal(self, term: int, seq: int) -> RaftMessage:
        """Return the answer to an APPEND of an older term: its sender leads no more."""
        return self._message(term, seq, hint=self._log.last.index, ok=False)

    def unready(self, seq: int) -> RaftMessage:
        """Return the answer of a member that hears its leader and can take nothing yet."""
        return self._message(self._term, seq, hint=self._log.last.index, ok=False)

    def ackable(self) -> int:
        """Return the last entry that may be acknowledged: the leader's, and on this disk (R5)."""
        return min(self.verified, self.on_disk())

    def on_disk(self) -> int:
        """Return the last entry that a power loss does not take."""
        return self._log.durable

    def committed(self) -> int:
        """Return what may count as committed here: committed by the leader, and verified to be its entries."""
        return min(self._leader_commit, self.verified, self._log.durable)

    def matches(self, entry: Entry) -> bool:
        """Whether this very entry is in the log already: the same index and term mean the same entry."""
        return self._log.term(entry.index) == entry.term

    def _step_over_base(self, prev_index: int, prev_term: int) -> int | None:
        """Return the previous entry if it is here, else None. All up to the base was committed once."""
        if prev_index <= self._log.base.index:
            return prev_index
        return prev_index if self._log.term(prev_index) == prev_term else None

    def _take(self, entries: Sequence[Entry], commit: int) -> bool:
        """Take what is not there yet; False when that must wait for a cut, which is not on the disk at once (R11)."""
        base, last = self._log.base.index, self._log.last.index
        for place, entry in enumerate(entries):
            if entry.index <= base or (entry.index <= last and self.matches(entry)):
                continue
            if entry.index <= last:
                self._cut(entry.index - 1, commit)
                if self._log.cutting:
                    return False
            self._log.accept(entries[place:])
            return True
        return True

    def give_up(self, last: int, commit: int) -> None:
        """Cut what is behind `last`: the leader's own entries contradict it."""
        self._cut(last, commit)

    def _cut(self, last: int, commit: int) -> None:
        assert last >= commit, f"entry {last + 1} differs from the leader's, and entries up to {commit} are committed"
        assert last >= self.verified, f"entry {last + 1} was verified in this term, and now differs"
        self._log.cut(last)
        self.cuts += 1
        self._reported = min(self._reported, last)

    def _answer(self, seq: int, hint: int | None) -> RaftMessage:
        if hint is None:
            self._reported = self.ackable()
        return self._message(self._term, seq, hint=hint or 0, ok=hint is None)

    def _message(self, term: int, seq: int, *, hint: int, ok: bool) -> RaftMessage:
        fields = {
            "term": term,
            "seq": seq,
            "ok": ok,
            "match": self.verified if ok else 0,
            "durable": self.on_disk() if ok else 0,
            "hint_index": hint,
            "hint_term": 0 if ok else self._log.term(hint) or 0,
        }
        return _new(RaftMessage, (_REPLY, fields, ()))
