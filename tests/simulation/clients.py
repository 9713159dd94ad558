"""Producers and readers: what they tried, what they were told, and whether the end agrees with it."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from raft.protocol.types import Fate, Refusal
from remoting.properties import encode_properties
from store.errors import StoreWriteError
from store.types import PendingRecord, PutStatus
from tests.simulation.invariants import Invariants
from tests.simulation.ledger import QUEUES, Attempt
from tests.simulation.member import HOST, Member

RECORDS_MAX = 4
BODY_BYTES_MAX = 1500


class Clients:
    """All producers together. A record's body names its attempt, so that every copy of it can be counted."""

    def __init__(self, watch: Invariants, say: Callable[[Callable[[], str]], None], rng: random.Random) -> None:
        self._watch = watch
        self._say = say
        self._rng = rng
        self._numbers: Iterator[int] = count(1)
        self.attempts: list[Attempt] = []
        # A gateway that is asked what to do with a fate; planted bugs put a worse one here.
        self.on_fate: Callable[[Member, Attempt, Fate], None] = _accept

    # -- writing

    def send(self, member: Member, *, records: int | None = None, bodies: tuple[bytes, ...] | None = None) -> Attempt:
        """Have records stored as one entry at a member, whoever leads."""
        rng = self._rng
        number = next(self._numbers)
        if bodies is None:
            wanted = records or rng.randint(1, RECORDS_MAX)
            bodies = tuple(self._body(number, part) for part in range(wanted))
        attempt = Attempt(number, member.name, bodies, rng.choice(QUEUES))
        self.attempts.append(attempt)
        pending = [self._record(attempt, body) for body in bodies]
        # Some as a batch, the others as messages that came in one turn: both are one entry.
        batch = len(pending) > 1 and number % 2 == 0

        def append(term: int, commit: int) -> int:
            try:
                index, results = member.log.append_records([pending] if batch else pending, term, commit)
            except StoreWriteError:
                return -1
            if batch:
                (results,) = results
            assert index < 0 or all(result.status is PutStatus.PUT_OK for result in results), "records are in order"
            attempt.index, attempt.term = index, term
            return index

        refusal = member.raft.propose(append, lambda fate: self._fated(member, attempt, fate))
        self._proposed(member, attempt, refusal)
        return attempt

    def send_again(self, member: Member, attempt: Attempt) -> Attempt:
        """Have the same records stored elsewhere, because they were told to be in no log (R8)."""
        return self.send(member, bodies=attempt.bodies)

    def send_meta(self, member: Member) -> Attempt:
        """Propose a META entry."""
        number = next(self._numbers)
        attempt = Attempt(number, member.name, (self._body(number, 0),), ("", 0), meta=True)
        self.attempts.append(attempt)
        refusal = member.raft.propose_meta(attempt.bodies[0], lambda fate: self._fated(member, attempt, fate))
        self._proposed(member, attempt, refusal)
        return attempt

    def _body(self, number: int, part: int) -> bytes:
        padding = self._rng.choice((0, 20, 200, BODY_BYTES_MAX))
        return f"{number}.{part} ".encode() + bytes([number % 251]) * padding

    @staticmethod
    def _record(attempt: Attempt, body: bytes) -> PendingRecord:
        topic, queue_id = attempt.queue
        return PendingRecord(topic, queue_id, 0, 0, 1000, HOST, 0, 0, body, encode_properties({"TAGS": "t"}))

    def _proposed(self, member: Member, attempt: Attempt, refusal: Refusal | None) -> None:
        if refusal is not None:
            attempt.refused = True
            self._watch.refused(attempt)
        self._say(
            lambda: (
                f"{member.name} is sent attempt {attempt.number}: "
                + (refusal.name if refusal is not None else f"entry {attempt.index} of term {attempt.term}")
            )
        )

    def _fated(self, member: Member, attempt: Attempt, fate: Fate) -> None:
        if member.disk.dead:
            # Nobody hears it.
            return
        self._say(lambda: f"{member.name} tells attempt {attempt.number}: {fate.name}")
        self._watch.fated(attempt, fate)
        attempt.fate = fate
        if fate is Fate.COMMITTED:
            self._watch.acknowledged(member, attempt)
        self.on_fate(member, attempt, fate)

    # -- reading

    def read(self, member: Member) -> bool:
        """Ask a member what the queues hold; False when it sends the reader elsewhere."""
        if not member.alive or member.paused or not member.raft.serving or not member.raft.has_lease():
            return False
        self._watch.readers.read(member)
        return True

    # -- the end

    def stored(self) -> Counter[bytes]:
        """Return how often each body stands in the committed log."""
        return Counter(
            body for made in self._watch.ledger.entries.values() for body in (*made.bodies, made.control.payload)
        )

    def check(self) -> None:
        """Hold what was told against what is stored: acknowledged once, refused and overwritten never."""
        stored = self.stored()
        for attempt in self.attempts:
            for body in attempt.bodies:
                self._watch.told(attempt, stored[body])
            self._watch.told_whole(attempt, [stored[body] for body in attempt.bodies])


def _accept(_member: Member, _attempt: Attempt, _fate: Fate) -> None:
    """Do nothing more than being told."""
