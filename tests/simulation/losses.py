"""What goes from a member's disk while its process is down: a file of the log, queues; and starts that are killed."""

import random
from collections.abc import Callable, Iterable

from raft.protocol.types import Entry
from remoting.topics import RAFT_TOPIC
from tests.simulation.invariant import holds
from tests.simulation.member import FILE_BYTES, Member
from tests.simulation.world import World

# A start is killed behind so many batches of entries at most: most starts build fewer.
BATCHES_MAX = 60


class Losses:
    """Takes things away, and kills the starts that follow, now and then."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng

    def lose_file(self, member: Member) -> list[Entry]:
        """End a member's process and take a log file from it that others have; return what stood in it, if any did."""
        ledger = self._world.watch.ledger
        placed: dict[int, list[Entry]] = {}
        for made in ledger.entries.values():
            placed.setdefault(made.entry.position // FILE_BYTES, []).append(made.entry)
        floor = member.filed_floor
        # The newest one may hold what nobody else has.
        numbers = [
            number
            for number, entries in placed.items()
            if number < max(placed) and all(entry.index <= floor and holds(member, entry) for entry in entries)
        ]
        if not numbers:
            return []
        number = self._rng.choice(numbers)
        self._end(member)
        member.lose_file(number)
        self._starts(member)
        return placed[number]

    def take_queues(self, member: Member) -> None:
        """End a member's process and take its queues away, or some of them."""
        self._end(member)
        topics = member.disk.folders("consumequeue")
        taken = self._rng.choice([topics, [RAFT_TOPIC], self._rng.sample(topics, min(1, len(topics)))])
        self._world.say(lambda: f"{member.name} loses its queues of {taken}")
        for topic in taken:
            member.disk.take_away(f"consumequeue/{topic}")
        self._starts(member)

    def harry(self, member: Member, healthy: Callable[[], bool], done: Callable[[], None]) -> None:
        """Until a member is healthy, kill it now and then, as it starts and as it runs."""
        if member.alive and healthy():
            done()
            return
        if member.alive and not member.paused and self._rng.random() < 0.1:
            # What its first seconds would write: only then does a start look as if it had been whole.
            self._world.run_on(member, member.idle)
            self._world.kill(member)
            self._starts(member)
        self._world.after(0.1, lambda: self.harry(member, healthy, done))

    def _end(self, member: Member) -> None:
        if self._rng.random() < 0.5:
            self._world.stop(member)
        else:
            self._world.kill(member)

    def _starts(self, member: Member) -> None:
        if self._rng.random() < 0.5:
            member.boot_kill = self._rng.randrange(BATCHES_MAX)
        self._world.after(0.02 + self._rng.random(), lambda: self._world.start(member))


def all_held(member: Member, entries: Iterable[Entry]) -> bool:
    """Whether a member can read its log, and has these entries on its disk."""
    return member.log.whole and all(holds(member, entry) for entry in entries)
