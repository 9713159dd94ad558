"""Directed schedules: a world in which nothing happens by chance but what the test lets happen."""

from collections.abc import Callable
from pathlib import Path

from raft.protocol.config import Member as Listed
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import Fate, OnFate, Refusal
from tests.simulation.books import check_books
from tests.simulation.faults import SETTLE_SECONDS
from tests.simulation.ledger import Attempt
from tests.simulation.member import Member, Parts
from tests.simulation.network import Weather
from tests.simulation.run import scratch
from tests.simulation.world import Failure, Shape, World

STORY_LINES = 40
# So that a schedule can lose one entry and let the one before it through.
APPEND_BYTES = 1024
BIG = b"x" * 1500
Schedule = Callable[["Script"], None]


class Script:
    """A group of `voters`, begun and led by n0, in calm weather; `parts` may hold a planted bug."""

    def __init__(self, folder: Path, parts: Parts, name: str, *, voters: int = 3, spares: int = 0) -> None:
        weather = Weather(delay=0.001, jitter=0.0)
        self.told: list[str] = []
        self.world = World(
            folder,
            1,
            Shape(voters=voters, spares=spares, weather=weather, append_bytes=APPEND_BYTES),
            parts=parts,
            trace=self.told.append,
            replay=f"pytest tests/simulation -k {name}",
        )

    def member(self, name: str) -> Member:
        return self.world.members[name]

    def run(self, seconds: float) -> None:
        self.world.run(seconds)

    def until(self, what: str, true: Callable[[], bool], within: float = 10.0) -> None:
        self.world.run_until(what, true, within)

    def begin(self, leader: str = "n0") -> Member:
        """Start everybody, and have one lead with everything settled."""
        self.world.start_all()
        self.until("the group begins", self.world.settled, 15.0)
        return self.lead(leader)

    def lead(self, name: str) -> Member:
        """Have a member lead, by transfer, and everything settled."""
        member = self.member(name)
        leader = self.world.leader()
        assert leader is not None, "somebody leads"
        if leader is not member:
            self.world.run_on(leader, lambda: leader.raft.transfer(name))
            self.until(f"{name} leads", lambda: member.alive and member.raft.serving)
        self.until("all is settled", self.world.settled)
        return member

    def await_leader(self, *names: str, within: float = 10.0) -> Member:
        """Let time pass until one of these serves as leader."""
        self.until(
            f"one of {names} serves",
            lambda: any(self.member(name).alive and self.member(name).raft.serving for name in names),
            within,
        )
        return next(self.member(name) for name in names if self.member(name).raft.serving)

    def send(self, name: str, body: bytes | None = None, *, records: int = 1) -> Attempt:
        """Propose one record at a member, or several, and let nothing happen yet."""
        member = self.member(name)
        sent: list[Attempt] = []
        bodies = None if body is None else (body,)
        self.world.run_on(member, lambda: sent.append(self.world.clients.send(member, records=records, bodies=bodies)))
        return sent[0]

    def write(self, name: str, *bodies: bytes) -> Attempt:
        """Store records at the leader, each acknowledged; one of any content if none is given."""
        for body in bodies or (None,):
            attempt = self.send(name, body)
            self.until(f"attempt {attempt.number} is acknowledged", lambda a=attempt: a.fate is Fate.COMMITTED)  # type: ignore[misc]  # a bound default
        return attempt

    def read(self, name: str) -> bool:
        """Read at a member, if it serves under a lease."""
        try:
            return self.world.clients.read(self.member(name))
        except AssertionError as error:
            self.world.fail(str(error), error)
            raise

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass in one direction; the link stays up, as far as anybody can tell."""
        self.world.network.cut(source, target)

    def isolate(self, *names: str) -> None:
        """Cut members off from the others, both ways."""
        self.world.isolate(*(self.member(name) for name in names))

    def heal(self) -> None:
        self.world.network.heal()

    def drop(self, wanted: Callable[[str, str, RaftMessage], bool]) -> None:
        """Lose every message that is wanted lost, from now on."""
        self.world.network.tap = lambda source, target, message: not wanted(source, target, message)

    def drop_kind(self, *kinds: MessageKind, source: str | None = None, target: str | None = None) -> None:
        """Lose messages of some kinds, of one sender or to one receiver."""
        self.drop(
            lambda one, other, message: message.kind in kinds and source in {None, one} and target in {None, other}
        )

    def drop_nothing(self) -> None:
        self.drop(lambda *_: False)

    def kill(self, name: str) -> None:
        self.world.kill(self.member(name))

    def power(self, *names: str) -> None:
        self.world.power(*(self.member(name) for name in names))

    def rot(self, name: str, index: int) -> None:
        """Spoil an entry on a member's disk."""
        entry = self.world.watch.ledger.entries[index].entry
        self.member(name).spoil(entry.position + len(entry.data) // 2)

    def start(self, *names: str) -> None:
        for name in names:
            self.world.after(0.0, lambda name=name: self.world.start(self.member(name)))  # type: ignore[misc]  # a bound default
            self.run(0.0)

    def replace(self, name: str) -> None:
        """Do what a person does for a member with a new disk: remove it, add it, promote it."""
        member = self.member(name)
        address = self.world.peers[int(name[1:])].address
        listed = Listed(name, address, member.votes.store_id, voter=False)
        self._change(lambda leader, fate: leader.raft.remove(name, fate))
        self._change(lambda leader, fate: leader.raft.add_learner(listed, fate))
        self.until(f"{name} votes", lambda: self._votes(name))

    def _change(self, change: Callable[[Member, OnFate], Refusal | None]) -> None:
        """Change the membership, again and again until the leader takes it, and wait until it is committed."""
        fates: list[Fate] = []
        asked: list[Refusal | None] = [Refusal.NOT_LEADER]
        while asked[-1] is not None:
            self.until("a leader serves", lambda: self.world.leader() is not None)
            leader = self.world.leader()
            assert leader is not None
            self.world.run_on(leader, lambda leader=leader: asked.append(change(leader, fates.append)))  # type: ignore[misc]  # a bound default
            self.run(0.05)
        self.until("the change is committed", lambda: fates == [Fate.COMMITTED])

    def _votes(self, name: str) -> bool:
        leader = self.world.leader()
        return leader is not None and leader.raft.config is not None and leader.raft.config.is_voter(name)

    def finish(self) -> None:
        """Heal everything, wait until all is whole, and check the books."""
        self.drop_nothing()
        self.heal()
        for member in self.world.members.values():
            self.world.resume(member)
            member.fsync_s = self.world.shape.fsync_s
        self.start(*self.world.members)
        self.until("a leader serves and all have its log", self.world.settled, SETTLE_SECONDS)
        try:
            check_books(self.world)
        except AssertionError as error:
            self.world.fail(str(error), error)


def play(
    schedule: Schedule, parts: Parts | None = None, *, voters: int = 3, spares: int = 0, finish: bool = True
) -> None:
    """Play a schedule and, with `finish`, heal and check the books; Failure when anything that must hold does not."""
    with scratch() as folder:
        name = getattr(schedule, "__name__", "schedule")
        script = Script(Path(folder), parts or Parts(), name, voters=voters, spares=spares)
        try:
            schedule(script)
            if finish:
                script.finish()
        except Failure as failure:
            # What led to it, for whoever has to understand it.
            failure.add_note("\n".join(script.told[-STORY_LINES:]))
            raise
        finally:
            script.world.shut()
