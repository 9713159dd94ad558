"""A whole group in one process: one queue of events in the order of simulated time, everything random from one seed.

Nothing here knows what should happen; `invariants` looks on after each event, and `Failure` names the seed.
"""

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from raft.protocol.messages import RaftMessage
from raft.protocol.settings import Peer, RaftSettings
from store.errors import StoreError
from tests.simulation.clients import Clients
from tests.simulation.invariant import Violation
from tests.simulation.invariants import Invariants
from tests.simulation.member import Member, Parts
from tests.simulation.network import Network, Weather
from tests.simulation.simclock import DRIFT_MAX

Event = tuple[float, int, Callable[[], object], Member | None, int]


class Failure(AssertionError):
    """Something that must hold did not; the text says what, when, and how to see it again."""


@dataclass(frozen=True)
class Shape:
    """What kind of world a seed gets."""

    voters: int = 3
    # Machines that run and belong to nobody yet.
    spares: int = 0
    weather: Weather = field(default_factory=Weather)
    # Clocks differ by up to so many seconds, and run up to DRIFT_MAX too fast or slow.
    clock_skew: float = 0.0
    drift: bool = False
    fsync_s: float = 0.002
    # Bytes of entries in one append.
    append_bytes: int = 64 * 1024


class World:
    """The machines, the network between them, and the time."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        shape: Shape | None = None,
        *,
        parts: Parts | None = None,
        trace: Callable[[str], None] | None = None,
        replay: str | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.shape = shape or Shape()
        self.parts = parts or Parts()
        self.now = 0.0
        self.events_done = 0
        self._replay = replay
        self._trace = trace
        self._queue: list[Event] = []
        self._seq = 0
        names = [f"n{number}" for number in range(self.shape.voters + self.shape.spares)]
        self.peers = tuple(Peer(name, f"10.0.0.{number + 1}", 40911) for number, name in enumerate(names))
        self.members: dict[str, Member] = {}
        self.watch = Invariants(self.members)
        self.network = Network(self, self.members, names, self.shape.weather, self._dice())
        for number, name in enumerate(names):
            # A spare machine is told of itself and the first ones, as a person would configure it.
            known = self.peers[: self.shape.voters]
            peers = known if number < self.shape.voters else (*known, self.peers[number])
            settings = RaftSettings(name, "g", peers, ae_bytes_max=self.shape.append_bytes)
            member = Member(self, self.parts, settings, folder / name, self._dice())
            member.fsync_s = self.shape.fsync_s
            member.clock.offset = (self.rng.random() - 0.5) * 2 * self.shape.clock_skew
            member.clock.rate = 1 + (self.rng.random() - 0.5) * 2 * DRIFT_MAX if self.shape.drift else 1.0
            self.members[name] = member
        self.clients = Clients(self.watch, self.say, self._dice())

    def _dice(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # -- time

    def after(self, delay: float, event: Callable[[], object], *, on: Member | None = None) -> None:
        """Have something happen in a while; with `on` in that member's present life only."""
        self._seq += 1
        heapq.heappush(self._queue, (self.now + delay, self._seq, event, on, on.life if on is not None else 0))

    def step(self) -> None:
        """Let the next event happen."""
        moment, _, event, on, life = heapq.heappop(self._queue)
        self.now = max(self.now, moment)
        self.events_done += 1
        try:
            if on is None:
                event()
            elif on.life == life:
                self.run_on(on, event)
        except Failure:
            raise
        except Exception as error:
            if self.watch.ledger.broken:
                self.fail(self.watch.ledger.broken[0], error)
            what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
            self.fail(what, error)
        if self.watch.ledger.broken:
            self.fail(self.watch.ledger.broken[0])

    def fail(self, what: str, cause: BaseException | None = None) -> None:
        """Raise the Failure that names this moment and the way back to it."""
        replay = self._replay or f"python -m tests.simulation.run {self.seed}"
        raise Failure(f"seed {self.seed}, {self.now:.4f} s: {what}\nreplay: {replay}") from cause

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.step()
        self.now = until

    def run_until(self, what: str, true: Callable[[], bool], within: float = 10.0) -> None:
        """Let time pass until something is true; Failure when that takes too long."""
        until = self.now + within
        while not true():
            if not self._queue or self._queue[0][0] > until:
                self.now = until
                self.fail(f"not within {within} s: {what}")
            self.step()

    def run_on(self, member: Member, event: Callable[[], object]) -> None:
        """Let something happen inside a member's process, and look at it afterwards."""
        if not member.alive:
            return
        if member.paused:
            member.inbox.append(event)
            return
        try:
            event()
        except Violation:
            raise
        except Exception as error:
            # A process whose power went has done nothing more, whatever it tried; one whose disk fails may end.
            if not member.disk.dead and not (member.disk.failed and isinstance(error, OSError | StoreError)):
                raise
            member.fatal = error
        if member.disk.dead:
            self.say(lambda: f"{member.name} has lost power in the middle of something")
            self.power(member)
        elif member.fatal is not None:
            if not member.disk.failed or not isinstance(member.fatal, OSError | StoreError):
                raise Violation(f"{member.name} ended without a fault: {member.fatal!r}") from member.fatal
            self.kill(member)
        elif member.alive:
            member.settle()
            self.watch.touched(member)

    def carry(self, source: str, target: str, message: RaftMessage) -> bool:
        """Send a message; False when there is no link."""
        return self.network.send(source, target, message)

    def say(self, text: Callable[[], str]) -> None:
        """Tell whoever traces."""
        if self._trace is not None:
            self._trace(f"{self.now:9.4f} {text()}")

    # -- what can be done to machines

    def start_all(self) -> None:
        """Start every machine."""
        for member in self.members.values():
            self.start(member)

    def start(self, member: Member) -> None:
        """Start the process of a machine."""
        if member.alive:
            return
        self.say(lambda: f"{member.name} starts")
        try:
            member.boot()
        except Exception as error:
            cut = member.power_cut
            if not member.disk.failed and not cut and not member.killed_in_start:
                raise
            self.say(lambda error=error: f"{member.name} cannot start: {error!r}")  # type: ignore[misc]  # a bound default
            if cut:
                member.disk.lose_power()
            return
        for other in self.members.values():
            if other is not member:
                # What was connected to the process before notices now at the latest.
                self.network.drop(other.name, member.name)
                self.network.dial(other.name, member.name)
                self.network.dial(member.name, other.name)

    def kill(self, member: Member) -> None:
        """End the process; its machine goes on."""
        if member.alive:
            self.say(lambda: f"{member.name} is killed")
            member.end(power=False)
            self.network.gone(member.name, noticed=True)

    def stop(self, member: Member) -> None:
        """Stop the process in good order; its machine goes on."""
        if member.alive:
            self.say(lambda: f"{member.name} stops in good order")
            member.stop()
            self.network.gone(member.name, noticed=True)

    def power(self, *members: Member) -> None:
        """Take the power from machines."""
        for member in members:
            if member.alive:
                self.say(lambda member=member: f"{member.name} loses power")  # type: ignore[misc]  # a bound default
                member.end(power=True)
                self.network.gone(member.name, noticed=False)

    def wipe(self, member: Member) -> None:
        """Put an empty disk into a machine, whose process ends."""
        self.kill(member)
        self.say(lambda: f"{member.name} gets an empty disk")
        member.disk.wipe()
        self.watch.wiped(member)

    def pause(self, member: Member) -> None:
        """Stop a process as SIGSTOP does; what is sent to it waits."""
        if member.alive and not member.paused:
            self.say(lambda: f"{member.name} is stopped")
            member.paused = True

    def resume(self, member: Member, *, tick_first: bool = False) -> None:
        """Let it go on, with all that waited."""
        if not member.alive or not member.paused:
            return
        self.say(lambda: f"{member.name} goes on")
        member.paused = False
        waiting, member.inbox = member.inbox, []
        life = member.life
        if tick_first:
            member.wake()
        for event in waiting:
            self.after(0.0, event, on=member)
        assert member.life == life
        member.wake()

    def isolate(self, *members: Member, notice_s: float | None = None) -> None:
        """Cut these machines off from all others, both ways; among themselves they talk."""
        inside = {member.name for member in members}
        for name in sorted(inside):
            for other in self.members:
                if other not in inside:
                    self.network.cut(name, other, notice_s=notice_s)
                    self.network.cut(other, name, notice_s=notice_s)

    def shut(self) -> None:
        """End every process, for good."""
        for member in self.members.values():
            if member.alive:
                member.end(power=False)

    # -- what can be asked

    def living(self) -> list[Member]:
        """Return the members whose process runs and is not stopped."""
        return [member for member in self.members.values() if member.alive and not member.paused]

    def leader(self) -> Member | None:
        """Return the serving leader of the highest term, None when there is none."""
        leading = [member for member in self.living() if member.raft.serving]
        return max(leading, key=lambda member: member.raft.term, default=None)

    def settled(self, names: Iterable[str] | None = None) -> bool:
        """Whether a leader serves, and all members of its CONFIG that run have its log, all of it committed."""
        leader = self.leader()
        if leader is None or leader.raft.commit_index != leader.log.last.index or leader.raft.config is None:
            return False
        wanted = names if names is not None else [member.id for member in leader.raft.config.members]
        return all(
            self.members[name].alive
            and self.members[name].raft.commit_index == leader.raft.commit_index
            and self.members[name].log.last == leader.log.last
            and self.members[name].log.durable == leader.log.last.index
            for name in wanted
        )
