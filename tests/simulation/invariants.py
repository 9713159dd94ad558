"""What must always hold (design.md, "What must always hold"), one class each, looked at after every event.

Every check is incremental: it looks at what the event touched. Breaking one raises Violation.
"""

from collections.abc import Mapping, Sequence

from raft.protocol.hello import CLOCK_APART_MS_MAX
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import Entry, Role
from tests.simulation.invariant import Invariant, holds
from tests.simulation.invariants_clients import (
    EveryAttemptHasOneFate,
    QueuesAreAFunctionOfTheLog,
    ReadersSeeAllThatWasAcknowledged,
)
from tests.simulation.ledger import Attempt, Ledger
from tests.simulation.member import Member
from tests.simulation.simclock import EPOCH_MS

# How long messages are kept in this world: longer than any world lives.
KEPT_MS = 2 * 3_600_000
# What clocks of this world may be off without having been set.
SKEW_MS_MAX = 10_000
# How often a leader is asked what it would delete, seconds.
LOOK_SECONDS = 0.05
# More than any entry: read() gives one entry a call, or as many as fit.
READ_BYTES = 1 << 20


class CommittedBytesAreTheSameEverywhere(Invariant):
    """Whoever calls entry n committed has the same bytes at the same position (3); keeps the ledger."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        self._known: dict[str, int] = {}

    def booted(self, member: Member) -> None:
        self._known[member.name] = 0

    def committed(self, member: Member, index: int) -> None:
        at = max(self._known[member.name], member.log.base.index) + 1
        self.check(index <= member.log.last.index, f"{member.name} commits {index}, its log ends at {member.log.last}")
        while at <= index:
            found = member.log.read(at, READ_BYTES)
            if not found:
                # It is damaged, as just seen, and looked at again when it was mended.
                index = at - 1
                break
            for entry in found:
                if entry.index <= index:
                    self._compare(member, Entry(*entry))
                at = entry.index + 1
        self._known[member.name] = max(self._known[member.name], index)

    def _compare(self, member: Member, entry: Entry) -> None:
        index = entry.index
        known = self.ledger.entries.get(index)
        if known is None:
            self.check(index == self.ledger.last + 1, f"{member.name} commits {index} before {self.ledger.last + 1}")
            wrong = self.ledger.add(entry, member.raft.term)
            self.check(wrong is None, f"{member.name}: {wrong}")
            return
        self.check(
            (known.entry.term, known.entry.position, known.entry.data)
            == (entry.term, entry.position, bytes(entry.data)),
            f"{member.name} commits entry {index} of term {entry.term} at {entry.position}, "
            f"others committed one of term {known.entry.term} at {known.entry.position}",
        )


class AcknowledgedIsOnAMajoritysDisk(Invariant):
    """What is acknowledged is committed, and would survive a loss of power on a majority of the voters (1)."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        # Member → what it had said to hold: since then its disk may have been replaced, which is nobody's mistake.
        self._said: dict[str, tuple[int, int]] = {}
        self._gone: dict[str, tuple[int, int]] = {}
        # And what an accident has taken from it.
        self._spoiled: dict[str, set[tuple[int, int]]] = {}

    def sent(self, member: Member, _target: str, message: RaftMessage) -> None:
        if message.kind is MessageKind.APPEND_REPLY and message.fields["ok"]:
            held = min(message.fields["match"], message.fields["durable"])
            self._said[member.name] = max(self._said.get(member.name, (0, 0)), (message.fields["term"], held))

    def wiped(self, member: Member) -> None:
        self._gone[member.name] = self._said.pop(member.name, (0, 0))

    def spoiled(self, member: Member, entries: Sequence[Entry]) -> None:
        self._spoiled[member.name] = {(entry.index, entry.term) for entry in entries}

    def healed(self, member: Member) -> None:
        self._spoiled.pop(member.name, None)

    def acknowledged(self, member: Member, attempt: Attempt) -> None:
        if attempt.meta:
            attempt.index = self.ledger.metas.get(attempt.bodies[0], -1)
        known = self.ledger.entries.get(attempt.index)
        self.check(
            known is not None and (attempt.meta or known.entry.term == attempt.term),
            f"{member.name} acknowledges entry {attempt.index} of term {attempt.term}, which is not committed",
        )
        assert known is not None
        if not attempt.meta:
            self.check(known.bodies == attempt.bodies, f"entry {attempt.index} does not hold what was acknowledged")
        config = member.raft.config
        assert config is not None, "who acknowledges has a CONFIG"
        entry = known.entry
        gone = {name for name, (term, index) in self._gone.items() if term >= entry.term and index >= entry.index}
        gone |= {name for name, taken in self._spoiled.items() if (entry.index, entry.term) in taken}
        holding = [name for name in config.voters if name in gone or holds(self.members[name], known.entry)]
        self.check(
            config.majority(holding),
            f"{member.name} acknowledges entry {attempt.index}, which is on the disks of {holding} only, "
            f"voters are {config.voters}",
        )


class LeadersHaveAllThatIsCommitted(Invariant):
    """Everything committed in earlier terms stands in every later leader's log, at its place (1)."""

    def role(self, member: Member, role: Role, term: int) -> None:
        # One whose election was decided long ago, and who hears of it now, owes nothing to the terms since.
        due = self.ledger.last_before(term) if role == Role.LEADER else 0
        if not due:
            return
        # The chain over all entries is in the last one's bytes.
        known = self.ledger.entries[due]
        self.check(
            member.log.last.index >= due,
            f"{member.name} leads term {term}, its log ends at {member.log.last.index} of {due}",
        )
        found = member.log.read(due, 1)[0]
        self.check(
            bytes(found.data) == known.entry.data and found.position == known.entry.position,
            f"{member.name} leads term {term} with another entry {due} than the committed one",
        )


class OneLeaderATerm(Invariant):
    """A term has at most one leader (2)."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        self._leaders: dict[int, tuple[str, int]] = {}

    def role(self, member: Member, role: Role, term: int) -> None:
        if role == Role.LEADER:
            who = self._leaders.setdefault(term, (member.name, member.life))
            self.check(who == (member.name, member.life), f"{member.name} leads term {term}, so does {who[0]}")

    def touched(self, member: Member) -> None:
        if member.raft.role == Role.LEADER:
            self.role(member, Role.LEADER, member.raft.term)


class TermsAndVotesNeverGoBack(Invariant):
    """A disk's term only grows, and it votes once in each, over any crash (2)."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        self._seen: dict[str, tuple[int, str]] = {}
        # (member, term) → who got its vote; a vote that left the machine binds, whatever the disk says later.
        self._given: dict[tuple[str, int], str] = {}

    def wiped(self, member: Member) -> None:
        self._seen.pop(member.name, None)

    def booted(self, member: Member) -> None:
        self.touched(member)

    def touched(self, member: Member) -> None:
        term, vote = member.votes.term, member.votes.voted_for
        old_term, old_vote = self._seen.get(member.name, (0, ""))
        if (term, vote) == (old_term, old_vote):
            return
        self.check(term >= old_term, f"the term of {member.name} goes back from {old_term} to {term}")
        self.check(
            term > old_term or old_vote in {"", vote},
            f"{member.name} voted for {old_vote} in term {term}, and now for {vote or 'nobody'}",
        )
        self._seen[member.name] = (term, vote)

    def sent(self, member: Member, target: str, message: RaftMessage) -> None:
        if message.kind is MessageKind.VOTE_REPLY and message.fields["granted"]:
            self._vote(member, message.fields["term"], target)
        elif message.kind is MessageKind.VOTE:
            self._vote(member, message.fields["term"], member.name)

    def _vote(self, member: Member, term: int, target: str) -> None:
        before = self._given.setdefault((member.name, term), target)
        self.check(before == target, f"{member.name} votes for {target} in term {term}, it had voted for {before}")


class CommitNeverGoesBack(Invariant):
    """In the life of a process its commit point only grows, and never lies behind the log's end."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        self._seen: dict[str, int] = {}

    def booted(self, member: Member) -> None:
        self._seen[member.name] = 0

    def touched(self, member: Member) -> None:
        commit = member.raft.commit_index
        before = self._seen[member.name]
        if not before <= commit <= member.log.last.index:
            self.check(commit >= before, f"the commit point of {member.name} goes back from {before} to {commit}")
            self.check(False, f"{member.name} commits {commit} of {member.log.last.index}")
        self._seen[member.name] = commit


class OneLeaseAtATime(Invariant):
    """Two members never both hold a lease, and nobody holds one who is behind a later leader's commit (R7)."""

    def touched(self, member: Member) -> None:
        if not member.raft.has_lease():
            return
        term = member.raft.term
        committed = self.ledger.entries.get(self.ledger.last)
        self.check(
            committed is None or committed.entry.term <= term,
            f"{member.name} holds a lease in term {term}, committed is entry {self.ledger.last} of a later term",
        )
        for other in self.members.values():
            if other is not member and other.alive and not other.paused and other.raft.role == Role.LEADER:
                self.check(
                    not other.raft.has_lease(),
                    f"{member.name} (term {term}) and {other.name} (term {other.raft.term}) hold a lease at once",
                )


class TheFloorIsNeverCut(Invariant):
    """What a member said is on its disk is there after any crash, or the member knows that it is not whole (R4)."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        # Member → the last entry that it told a leader, or as leader counted, as durable: (index, term).
        self._told: dict[str, tuple[int, int]] = {}

    def wiped(self, member: Member) -> None:
        self._told.pop(member.name, None)

    def sent(self, member: Member, _target: str, message: RaftMessage) -> None:
        if message.kind is MessageKind.APPEND_REPLY and message.fields["ok"]:
            index = min(message.fields["match"], message.fields["durable"])
            term = member.log.term(index)
            self.check(term is not None, f"{member.name} acknowledges entry {index} and does not have it")
        elif message.kind is MessageKind.APPEND:
            index = member.log.durable
            term = member.log.term(index)
        else:
            return
        if term is not None and index > self._told.get(member.name, (0, 0))[0]:
            self._told[member.name] = (index, term)

    def booted(self, member: Member) -> None:
        index, term = self._told.get(member.name, (0, 0))
        if member.log.whole and index:
            self.check(
                member.log.term(index) == term,
                f"{member.name} starts with {member.log.last}, it had acknowledged entry {index} of term {term}",
            )
            # No world here forgets what is old.
            self.check(
                member.log.base.index == 0,
                f"{member.name} calls itself whole and begins behind entry {member.log.base.index}",
            )

    def cut(self, member: Member, last: int) -> None:
        told = self._told.get(member.name, (0, 0))[0]
        if last < told:
            self._told[member.name] = (last, member.log.term(last) or 0)
        # What was torn by a power cut before anybody was told of it is cut with all behind it, as it is at a start: of
        # that others may have committed some without this member.
        until = member.log.last.index if member.log.whole else told
        for gone in range(last + 1, until + 1):
            known = self.ledger.entries.get(gone)
            self.check(
                known is None or known.entry.term != member.log.term(gone),
                f"{member.name} cuts entry {gone}, which is committed",
            )


class NothingIsStampedOrDeletedByAWrongClock(Invariant):
    """No message is of a time that has not come, and none is given up as old that is not (R17).

    It would be so for good: store times never fall in a log, so that delays wait and searches miss until that time.
    """

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        super().__init__(members, ledger)
        self._seen = 0
        self._look_at: dict[str, float] = {}

    def committed(self, member: Member, _index: int) -> None:
        # Clocks that agree may differ by the bound; those of this world run a little wrong beside.
        latest = EPOCH_MS + member.world.now * 1000 + CLOCK_APART_MS_MAX + SKEW_MS_MAX
        while self._seen < self.ledger.last:
            self._seen += 1
            stamped = self.ledger.entries[self._seen].control.timestamp
            self.check(stamped <= latest, f"entry {self._seen} is of a time {(stamped - latest) / 1000:.0f} s too late")

    def touched(self, member: Member) -> None:
        if not member.raft.serving or member.world.now < self._look_at.get(member.name, 0.0):
            return
        self._look_at[member.name] = member.world.now + LOOK_SECONDS
        old = member.expires(KEPT_MS)
        self.check(old == 0, f"{member.name} gives {old} entries up as older than {KEPT_MS / 3_600_000:.0f} h")


class Invariants:
    """All of them, told of everything."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.ledger = Ledger()
        self.members = members
        self.queues = QueuesAreAFunctionOfTheLog(members, self.ledger)
        self.attempts = EveryAttemptHasOneFate(members, self.ledger)
        self.readers = ReadersSeeAllThatWasAcknowledged(members, self.ledger)
        # The first one keeps the ledger, so it comes first.
        self.all: list[Invariant] = [
            CommittedBytesAreTheSameEverywhere(members, self.ledger),
            AcknowledgedIsOnAMajoritysDisk(members, self.ledger),
            LeadersHaveAllThatIsCommitted(members, self.ledger),
            OneLeaderATerm(members, self.ledger),
            TermsAndVotesNeverGoBack(members, self.ledger),
            CommitNeverGoesBack(members, self.ledger),
            OneLeaseAtATime(members, self.ledger),
            TheFloorIsNeverCut(members, self.ledger),
            NothingIsStampedOrDeletedByAWrongClock(members, self.ledger),
            self.queues,
            self.attempts,
            self.readers,
        ]
        # What is told most goes only to those that do something with it.
        self._touched = [one.touched for one in self.all if type(one).touched is not Invariant.touched]
        self._sent = [one.sent for one in self.all if type(one).sent is not Invariant.sent]
        self.refused = self.attempts.refused
        self.fated = self.attempts.fated
        self.told = self.attempts.told
        self.told_whole = self.attempts.told_whole

    def booted(self, member: Member) -> None:
        for invariant in self.all:
            invariant.booted(member)

    def wiped(self, member: Member) -> None:
        for invariant in self.all:
            invariant.wiped(member)

    def spoiled(self, member: Member, entries: Sequence[Entry]) -> None:
        for invariant in self.all:
            invariant.spoiled(member, entries)

    def healed(self, member: Member) -> None:
        for invariant in self.all:
            invariant.healed(member)

    def committed(self, member: Member, index: int) -> None:
        for invariant in self.all:
            invariant.committed(member, index)

    def role(self, member: Member, role: Role, term: int) -> None:
        for invariant in self.all:
            invariant.role(member, role, term)

    def sent(self, member: Member, target: str, message: RaftMessage) -> None:
        for sent in self._sent:
            sent(member, target, message)

    def cut(self, member: Member, last: int) -> None:
        for invariant in self.all:
            invariant.cut(member, last)

    def acknowledged(self, member: Member, attempt: Attempt) -> None:
        for invariant in self.all:
            invariant.acknowledged(member, attempt)
        if not attempt.meta:
            end = self.ledger.end_of(attempt.queue, attempt.index)
            self.ledger.promised[attempt.queue] = max(end, self.ledger.promised.get(attempt.queue, 0))
        self.ledger.acknowledged.append(attempt)

    def touched(self, member: Member) -> None:
        for touched in self._touched:
            touched(member)
