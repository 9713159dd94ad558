"""What an invariant is: something that looks on at everything, and raises when what must hold does not."""

from collections.abc import Mapping, Sequence

from raft.protocol.messages import RaftMessage
from raft.protocol.types import Entry, Role
from tests.simulation.ledger import Attempt, Ledger
from tests.simulation.member import FILE_BYTES, Member


class Violation(AssertionError):
    """An invariant is broken; the text says which, where, and how."""


def holds(member: Member, entry: Entry) -> bool:
    """Tell whether an entry would survive a loss of power of this machine, whatever is torn."""
    start = entry.position - entry.position % FILE_BYTES
    return member.disk.holds(member.disk.root / "commitlog" / f"{start:020d}", entry.position - start, entry.data)


class Invariant:
    """One thing that must hold. It is told of everything; most methods do nothing here."""

    def __init__(self, members: Mapping[str, Member], ledger: Ledger) -> None:
        self.members = members
        self.ledger = ledger

    def check(self, holds: bool, what: str) -> None:
        """Raise Violation unless it holds."""
        if not holds:
            self.ledger.broken.append(f"{type(self).__name__}: {what}")
            raise Violation(self.ledger.broken[-1])

    def booted(self, member: Member) -> None:
        """A process has read its disk."""

    def wiped(self, member: Member) -> None:
        """A machine has an empty disk."""

    def spoiled(self, member: Member, entries: Sequence[Entry]) -> None:
        """An accident has taken entries from a disk that held them."""

    def healed(self, member: Member) -> None:
        """What an accident had taken is there again."""

    def committed(self, member: Member, index: int) -> None:
        """A member's commit point moves."""

    def role(self, member: Member, role: Role, term: int) -> None:
        """A member's role changes."""

    def sent(self, member: Member, target: str, message: RaftMessage) -> None:
        """A member sends a message."""

    def cut(self, member: Member, last: int) -> None:
        """A member is about to cut its log."""

    def acknowledged(self, member: Member, attempt: Attempt) -> None:
        """A producer is told that its records are stored."""

    def touched(self, member: Member) -> None:
        """Something happened in a member's process."""
