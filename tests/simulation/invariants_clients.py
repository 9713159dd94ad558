"""The invariants that clients live by: what queues hold, what readers see, what producers are told."""

from raft.protocol.types import Fate
from tests.simulation.invariant import Invariant
from tests.simulation.ledger import QUEUES, Attempt
from tests.simulation.member import Member


class QueuesAreAFunctionOfTheLog(Invariant):
    """A ConsumeQueue holds the records of the committed log and nothing else, dense and in order (4, R12)."""

    def touched(self, member: Member) -> None:
        released = member.log.released
        for queue in QUEUES:
            end = member.store.max_offset(*queue)
            due = self.ledger.end_of(queue, released)
            if end != due:
                self.check(False, f"queue {queue} of {member.name} ends at {end}, its log up to {released} makes {due}")

    def whole(self, member: Member) -> None:
        """Compare every entry of every queue."""
        for queue, places in self.ledger.queues.items():
            end = self.ledger.end_of(queue, member.log.released)
            entries = member.store.queue_entries(*queue, 0, end + 1)
            found = [(entry.physical_offset, entry.size) for entry in entries]
            self.check(found == places[:end], f"queue {queue} of {member.name} holds other entries than its log makes")
        known = {*(topic for topic, _ in self.ledger.queues), "RMQ_SYS_RAFT"}
        self.check(set(member.store.topics()) <= known, f"{member.name} has queues of {member.store.topics()}")


class ReadersSeeAllThatWasAcknowledged(Invariant):
    """Whoever serves under a lease shows everything that was acknowledged before it was asked."""

    def read(self, member: Member) -> None:
        """Ask a member that serves under a lease for the ends of queues."""
        for queue, promised in self.ledger.promised.items():
            end = member.store.max_offset(*queue)
            self.check(
                end >= promised,
                f"{member.name} (term {member.raft.term}) says that queue {queue} ends at {end}, "
                f"records up to {promised} were acknowledged",
            )


class EveryAttemptHasOneFate(Invariant):
    """Acknowledged is stored once, refused and overwritten never, nothing twice (R8)."""

    def refused(self, attempt: Attempt) -> None:
        """A proposal was refused: nothing of it is in any log."""
        self.check(attempt.index < 0 and attempt.fate is None, f"{attempt} was refused and is appended")

    def fated(self, attempt: Attempt, fate: Fate) -> None:
        """A producer is told what became of it."""
        self.check(attempt.fate is None, f"{attempt} is told {fate.name} after that")
        if fate is Fate.OVERWRITTEN:
            self.check(self._never(attempt), f"{attempt} is told OVERWRITTEN, and may be committed yet")

    def _never(self, attempt: Attempt) -> bool:
        """Whether an attempt's entry is in no log that counts: terms never fall in one."""
        if attempt.meta:
            return attempt.bodies[0] not in self.ledger.metas
        known = self.ledger.entries.get(attempt.index) or self.ledger.entries.get(self.ledger.last)
        if known is None or known.entry.index == attempt.index:
            return known is not None and known.entry.term != attempt.term
        return known.entry.term > attempt.term

    def told(self, attempt: Attempt, copies: int) -> None:
        """In the end a body stands in the log so often."""
        wanted = {Fate.COMMITTED: (1,), Fate.OVERWRITTEN: (0,)}.get(attempt.fate) if attempt.fate is not None else None
        if attempt.refused:
            wanted = (0,)
        self.check(
            copies in (wanted if wanted is not None else (0, 1)),
            f"attempt {attempt.number} at {attempt.member}, told {attempt.fate!r}, stands {copies} times in the log",
        )

    def told_whole(self, attempt: Attempt, copies: list[int]) -> None:
        """In the end its bodies stand in the log so often: all of them or none, whatever it was told."""
        self.check(
            len(set(copies)) == 1,
            f"attempt {attempt.number} at {attempt.member}, told {attempt.fate!r}, stands in part in the log: {copies}",
        )
