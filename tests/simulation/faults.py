"""A random life for a world: load, faults, changes of membership; then everything heals and the books are closed."""

from collections.abc import Callable
from pathlib import Path

from raft.protocol.config import Member as Listed
from raft.protocol.types import Entry, Fate
from tests.simulation.books import check_books
from tests.simulation.invariant import holds
from tests.simulation.ledger import Attempt
from tests.simulation.losses import Losses, all_held
from tests.simulation.member import Member, Parts
from tests.simulation.network import Weather
from tests.simulation.world import Shape, World

# Seconds of load and faults; then as long as it takes to be whole again, up to SETTLE_SECONDS.
STORM_SECONDS = 7.0
SETTLE_SECONDS = 30.0
START_SECONDS = 20.0


class Storm:
    """What a seed does to a group of three or five."""

    def __init__(
        self, folder: Path, seed: int, *, parts: Parts | None = None, trace: Callable[[str], None] | None = None
    ) -> None:
        self.world = World(folder, seed, shape_of(seed), parts=parts, trace=trace)
        rng = self.rng = self.world.rng
        weather = self.world.network.weather
        kind = rng.randrange(4)
        if kind:
            weather.jitter = rng.choice((0.002, 0.02, 0.1))
            weather.loss = rng.choice((0.0, 0.01, 0.1))
            weather.double = rng.choice((0.0, 0.05))
            weather.late = rng.choice((0.0, 0.02, 0.1))
        self.send_gap = rng.choice((0.02, 0.05, 0.15))
        self.fault_gap = rng.choice((0.15, 0.4, 0.8))
        self._raging = True
        self._last: list[Attempt] = []
        # The one machine whose disk was replaced and which is not a whole voter again.
        self._renewing: Member | None = None
        # Whose clock is set wrong: never two, for what a majority says the time is, is the time.
        self._set: Member | None = None
        # Spoiled, or a part of its disk gone, and not yet whole again.
        self._rotten: Member | None = None
        self._losses = Losses(self.world, rng)

    # -- the whole run

    def run(self) -> None:
        """Live through it; Failure when anything that must hold does not."""
        world, rng = self.world, self.rng
        for member in world.members.values():
            world.after(rng.random() * 0.5, lambda member=member: world.start(member))  # type: ignore[misc]  # a bound default
        world.run_until("the first leader serves", lambda: world.leader() is not None, START_SECONDS)
        world.after(0.0, self._send)
        world.after(0.0, self._read)
        world.after(rng.random(), self._fault)
        world.after(1.0, self._upkeep)
        world.run(STORM_SECONDS)
        self._raging = False
        self.close()

    def close(self) -> None:
        """Heal everything, wait until all are whole and equal, close the books."""
        world = self.world
        world.network.heal()
        world.network.weather = Weather()
        for member in world.members.values():
            world.resume(member)
            member.fsync_s = world.shape.fsync_s
            member.disk.fuse = None
            member.disk.failing_syncs = 0
            member.disk.full = False
            member.boot_fuse = None
            member.clock.ahead = 0.0
            if not member.alive:
                world.start(member)
        world.run_until("a leader serves and all have its log", self._whole, SETTLE_SECONDS)
        self._send_last()
        world.run_until("one more record is acknowledged", self._last_is_stored, SETTLE_SECONDS)
        world.run_until("all have it", self._whole, SETTLE_SECONDS)
        try:
            check_books(world)
        except AssertionError as error:
            world.fail(str(error), error)

    def _send_last(self) -> None:
        """Send until one is acknowledged: the leader may be about to hand over."""
        world = self.world
        leader = world.leader()
        if leader is not None and not self._last_is_stored():
            world.run_on(leader, lambda: self._last.append(world.clients.send(leader, records=1)))
        if not self._last_is_stored():
            world.after(0.2, self._send_last)

    def _last_is_stored(self) -> bool:
        return any(attempt.fate is Fate.COMMITTED for attempt in self._last)

    def _whole(self) -> bool:
        return self._renewing is None and self.world.settled()

    # -- load

    def _send(self) -> None:
        if not self._raging:
            return
        world, rng = self.world, self.rng
        living = world.living()
        if living:
            member = rng.choice(living)
            leading = [one for one in living if one.leads]
            if leading and rng.random() < 0.95:
                member = rng.choice(leading)
            event = world.clients.send_meta if rng.random() < 0.1 else world.clients.send
            world.run_on(member, lambda: event(member))
        world.after(self.send_gap * rng.random() * 2, self._send)

    def _read(self) -> None:
        if not self._raging:
            return
        for member in list(self.world.living()):
            self.world.clients.read(member)
        self.world.after(0.02 + self.rng.random() * 0.1, self._read)

    def _upkeep(self) -> None:
        for member in self.world.members.values():
            if not member.alive:
                self.world.start(member)
            elif not member.paused:
                self.world.run_on(member, member.idle)
        self.world.after(1.0, self._upkeep)

    # -- faults

    def _fault(self) -> None:
        if not self._raging:
            return
        kinds: list[tuple[int, Callable[[], None]]] = [
            (6, self._kill), (4, self._power), (1, self._power_all), (4, self._pause), (3, self._cut_one_way),
            (4, self._isolate), (3, self._transfer), (2, self._fail_sync), (4, self._light_fuse), (3, self._slow_disk),
            (2, self._cut_leader), (3, self._rot), (2, self._renew), (4, self._set_clock),
            (3, self._lose_file), (3, self._take_queues), (3, self._fill_disk),
        ]  # fmt: skip
        self.rng.choices([event for _, event in kinds], [weight for weight, _ in kinds])[0]()
        self.world.after(self.fault_gap * (0.2 + self.rng.random() * 1.6), self._fault)

    def _pick(self) -> Member | None:
        living = self.world.living()
        if not living:
            return None
        leading = [one for one in living if one.leads]
        return self.rng.choice(leading if leading and self.rng.random() < 0.4 else living)

    def _back(self, member: Member, most: float = 2.0) -> None:
        if self.rng.random() < 0.1:
            # The power goes again while it starts.
            member.boot_fuse = self.rng.randint(1, 20)
        self.world.after(0.02 + self.rng.random() * most, lambda: self.world.start(member))

    def _kill(self) -> None:
        member = self._pick()
        if member is not None:
            self.world.kill(member)
            self._back(member)

    def _power(self) -> None:
        member = self._pick()
        if member is not None:
            self.world.power(member)
            self._back(member)

    def _power_all(self) -> None:
        members = [member for member in self.world.members.values() if member.alive]
        self.world.power(*members)
        for member in members:
            self._back(member, 0.5)

    def _pause(self) -> None:
        member = self._pick()
        if member is not None:
            self.world.pause(member)
            seconds = self.rng.choice((0.1, 0.5, 1.2, 2.5)) * (0.5 + self.rng.random())
            first = self.rng.random() < 0.5
            self.world.after(seconds, lambda: self.world.resume(member, tick_first=first))

    def _notice(self) -> float | None:
        return self.rng.choice((None, 0.1, 1.0))

    def _heal_soon(self) -> None:
        self.world.after(0.1 + self.rng.random() * 2.5, self.world.network.heal)

    def _cut_one_way(self) -> None:
        if len(self.world.members) < 2:
            return
        source, target = self.rng.sample(sorted(self.world.members), 2)
        self.world.say(lambda: f"{source}→{target} cut")
        self.world.network.cut(source, target, notice_s=self._notice())
        self._heal_soon()

    def _isolate(self) -> None:
        members = list(self.world.members.values())
        if len(members) < 2:
            return
        chosen = self.rng.sample(members, self.rng.randint(1, len(members) // 2))
        self.world.say(lambda: f"{[member.name for member in chosen]} cut off")
        self.world.isolate(*chosen, notice_s=self._notice())
        self._heal_soon()

    def _cut_leader(self) -> None:
        leader = self.world.leader()
        if leader is None:
            return
        self.world.say(lambda: f"nothing leaves {leader.name}")
        inwards = self.rng.random() < 0.5
        for name in self.world.members:
            if name != leader.name:
                pair = (name, leader.name) if inwards else (leader.name, name)
                self.world.network.cut(*pair, notice_s=self._notice())
        self._heal_soon()

    def _transfer(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            target = self.rng.choice([None, *sorted(self.world.members)])
            if target != leader.name:
                self.world.say(lambda: f"{leader.name} hands over to {target}")
                self.world.run_on(leader, lambda: leader.raft.transfer(target))

    def _fail_sync(self) -> None:
        member = self._pick()
        if member is not None:
            self.world.say(lambda: f"the next fdatasync of {member.name} fails")
            member.disk.failing_syncs = 1

    def _light_fuse(self) -> None:
        member = self._pick()
        if member is not None:
            operations = member.disk.fuse = self.rng.randint(1, 30)
            self.world.say(lambda: f"the power of {member.name} goes in {operations} operations")

    def _fill_disk(self) -> None:
        """Fill the disk of one, or of all but a new one: a member cannot begin without any room.

        For so long now and then that the lead moves, and others are elected meanwhile.
        """
        member = self._pick()
        if member is None:
            return
        members = list(self.world.members.values()) if self.rng.random() < 0.2 else [member]
        members = [each for each in members if each is not self._renewing]
        for each in members:
            self.world.say(lambda each=each: f"the disk of {each.name} is full")  # type: ignore[misc]  # a bound default
            each.disk.full = True
            seconds = 0.1 + self.rng.random() * self.rng.choice((1, 3, 6))
            self.world.after(seconds, lambda each=each: self._drain(each))  # type: ignore[misc]

    def _drain(self, member: Member) -> None:
        self.world.say(lambda: f"the disk of {member.name} has room")
        member.disk.full = False

    def _slow_disk(self) -> None:
        member = self._pick()
        if member is not None:
            member.fsync_s = self.rng.choice((0.03, 0.2, 0.6))
            self.world.after(self.rng.random() * 2, lambda: setattr(member, "fsync_s", self.world.shape.fsync_s))

    def _set_clock(self) -> None:
        """Set one machine's wall clock wrong, and right again after a while; a group of one has nobody to ask."""
        member = self._pick() if len(self.world.members) > 1 else None
        if member is None or self._set is not None:
            return
        self._set = member
        ahead = member.clock.ahead = self.rng.choice((1, -1)) * self.rng.choice((20.0, 45.0, 3600.0, 80 * 3600.0))
        self.world.say(lambda: f"the clock of {member.name} is set by {ahead:+.0f} s")
        self.world.after(0.2 + self.rng.random() * 4, lambda: self._set_right(member))

    def _set_right(self, member: Member) -> None:
        self.world.say(lambda: f"the clock of {member.name} is set right")
        member.clock.ahead = 0.0
        self._set = None

    def _rot(self) -> None:
        """Spoil an entry that a member had on its disk, while its process is down."""
        member = self._pick() if len(self.world.members) > 1 else None
        if member is None or self._rotten is not None or self._renewing is not None:
            return
        # What a start reads again: what lies before the checkpoint is looked at by nobody then.
        floor, read_from = member.filed_floor, member.store._keeper.checkpoint.dispatched
        entries = self.world.watch.ledger.entries.items()
        known = [
            made
            for index, made in entries
            if index <= floor and made.entry.position >= read_from and holds(member, made.entry)
        ]
        if not known:
            return
        entry = self.rng.choice(known).entry
        self.world.kill(member)
        self.world.say(lambda: f"{member.name}: entry {entry.index} rots")
        member.spoil(entry.position + self.rng.randrange(len(entry.data)))
        self.world.watch.spoiled(member, [entry])
        self._rotten = member
        self._back(member)
        self._await_health(member, entry)

    def _await_health(self, member: Member, entry: Entry) -> None:
        if member.alive and member.log.whole and holds(member, entry):
            self._healed(member)
        else:
            self.world.after(0.1, lambda: self._await_health(member, entry))

    def _lose_file(self) -> None:
        """Take a file of the log from a member, and kill the repair now and then."""
        member = self._pick() if len(self.world.members) > 1 else None
        if member is None or self._rotten is not None or self._renewing is not None:
            return
        entries = self._losses.lose_file(member)
        if entries:
            self._rotten = member
            self.world.watch.spoiled(member, entries)
            self._losses.harry(member, lambda: all_held(member, entries), lambda: self._healed(member))

    def _take_queues(self) -> None:
        """Take queues from a member, and kill the rebuild now and then."""
        member = self._pick()
        if member is None or self._rotten is not None or self._renewing is not None:
            return
        self._rotten = member
        self._losses.take_queues(member)
        self._losses.harry(member, lambda: True, lambda: self._healed(member))

    def _healed(self, member: Member) -> None:
        self._rotten = None
        self.world.watch.healed(member)

    # -- a new disk: remove, add, promote

    def _renew(self) -> None:
        member = self._pick() if len(self.world.members) > 1 else None
        if member is None or self._rotten is not None or self._renewing is not None:
            return
        self._renewing = member
        self.world.wipe(member)
        self._back(member, 0.5)
        self.world.after(0.3, lambda: self._renew_on(member))

    def _renew_on(self, member: Member) -> None:
        """Take the next step whenever the last one is committed, like a patient administrator."""
        leader = self.world.leader()
        if leader is not None and member.alive and not member.paused:
            config = leader.raft.config
            assert config is not None
            listed = config.member(member.name)
            if listed is not None and listed.store_id != member.votes.store_id:
                self.world.run_on(leader, lambda: leader.raft.remove(member.name, _ignore))
            elif listed is None:
                address = self.world.peers[int(member.name[1:])].address
                entry = Listed(member.name, address, member.votes.store_id, voter=False)
                self.world.run_on(leader, lambda: leader.raft.add_learner(entry, _ignore))
            elif listed.voter and leader.raft.commit_index >= leader.raft.config_index and self._has_all(member):
                self._renewing = None
                return
        self.world.after(0.1, lambda: self._renew_on(member))

    def _has_all(self, member: Member) -> bool:
        """Whether its new disk has what was acknowledged with the help of the old one: only then may another one go."""
        ledger = self.world.watch.ledger
        return holds(member, ledger.entries[ledger.last].entry)


def shape_of(seed: int) -> Shape:
    """Return the kind of world that a seed gets: mostly three members, some five, some alone."""
    voters = 5 if seed % 7 == 3 else 1 if seed % 29 == 5 else 3
    return Shape(voters=voters, clock_skew=(0.0, 5.0)[seed % 2], drift=seed % 3 == 0)


def _ignore(_fate: Fate) -> None:
    """An administrator looks at the list of members, not at answers."""
