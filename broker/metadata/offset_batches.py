"""How changes of consumer offsets get into a group's log: in cycles, one entry on its way at a time.

Consumers commit every offset they reach, with each pull. Nobody waits for most of these commits, so they are gathered
for COMMIT_SECONDS, the newest of each queue only; when somebody waits they leave at once, unless an entry is still on
its way: then together, as soon as that one is applied.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.metadata.operations import Done, Later, MetaLog, Operation, Table, Verb, answer_all
from remoting.codes import ResponseCode
from remoting.errors import CommandError

# Seconds for which commits that nobody waits for are gathered.
COMMIT_SECONDS = 0.1
# Offsets of which newer values are gathered, and requests that wait for one to be applied; beyond it SYSTEM_BUSY.
GATHERED_MAX = 100_000
WAITING_MAX = 20_000

Place = tuple[str, int]
"""topic@group and queue."""


class OffsetCycle:
    """What is proposed, and not yet applied, of the offsets of a group's leader."""

    def __init__(self, meta: MetaLog, later: Later, version: Callable[[], list[int]]) -> None:
        """`version` returns the version that the table has after the next entry; `later` sets a timer."""
        self._meta = meta
        self._later = later
        self._version = version
        # Gathered: whole operations, and behind them the commits since; (offset, whether it may go back).
        self._operations: list[Operation] = []
        self._commits: dict[Place, tuple[int, bool]] = {}
        self._waiting: list[Done] = []
        # On its way.
        self._flying: dict[Place, tuple[int, bool]] = {}
        self._flying_others = 0
        self._flying_waiting: list[Done] = []
        self._in_flight = False
        # Counts the entries: what is told of one that was given up is ignored.
        self._cycle = 0
        self._others = 0
        self._resetting: set[Place] = set()
        self._hurried = self._timed = False

    def newest(self, place: Place) -> int:
        """Return the newest offset of a queue that is not yet applied; -1 when there is none."""
        found = self._commits.get(place) or self._flying.get(place)
        return -1 if found is None else found[0]

    def pending(self, place: Place) -> bool:
        """Tell whether something is not yet applied that may change a queue's offset."""
        return self._others + self._flying_others > 0 or place in self._commits or place in self._flying

    def resets(self, place: Place) -> bool:
        """Tell whether a reset of a queue, that pulls must be told of, is not yet applied."""
        return place in self._resetting

    def commit(self, place: Place, offset: int, *, back: bool) -> None:
        """Gather a commit; `back`: it may lie before what is there. Raises CommandError at the limit."""
        earlier = self._commits.get(place)
        if earlier is None and len(self._commits) >= GATHERED_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{GATHERED_MAX} offsets are not yet agreed upon, the limit")
        self._commits[place] = (offset, back or (earlier is not None and earlier[1]))
        if not self._timed:
            self._timed = True
            self._later(COMMIT_SECONDS, self._ring)

    def add(self, verb: Verb, *what: Any) -> None:
        """Gather any other operation; it takes effect behind the commits that were gathered before it."""
        if len(self._operations) >= GATHERED_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{GATHERED_MAX} changes are not yet agreed upon, the limit")
        self._close_commits()
        self._operations.append([int(verb), int(Table.OFFSETS), None, *what])
        self._others += 1
        if verb is Verb.RESET:
            self._resetting.update((key, queue) for key, queue, _offset, tell in what[0] if tell)
        self._hurry()

    def wait(self, place: Place | None, done: Done) -> None:
        """Have `done` called when what is pending of a queue (None: of all) is applied; at once when nothing is.

        Raises CommandError when too many wait.
        """
        if len(self._waiting) + len(self._flying_waiting) >= WAITING_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests wait for offsets, the limit")
        gathered = self._others > 0 or (bool(self._commits) if place is None else place in self._commits)
        if gathered:
            self._waiting.append(done)
            self._hurry()
        elif self._in_flight:
            self._flying_waiting.append(done)
        else:
            done(ResponseCode.SUCCESS)

    def drop(self) -> None:
        """Give up what is not applied: the lead is lost."""
        waiting = [*self._flying_waiting, *self._waiting]
        self._operations, self._commits, self._waiting = [], {}, []
        self._others = 0
        self._land()
        answer_all(waiting, ResponseCode.SYSTEM_ERROR)

    def _hurry(self) -> None:
        if not self._hurried and not self._in_flight:
            self._hurried = True
            self._later(0, self.send)

    def _ring(self) -> None:
        self._timed = False
        self.send()

    def send(self) -> None:
        """Propose what is gathered, unless an entry is on its way."""
        self._hurried = False
        if self._in_flight or not (self._operations or self._commits):
            return
        commits = self._commits
        self._close_commits()
        operations, self._operations = self._operations, []
        self._flying, self._flying_others, self._others = commits, self._others, 0
        self._flying_waiting, self._waiting = self._waiting, []
        self._in_flight = True
        version = self._version()
        done = partial(self._landed, self._cycle)
        try:
            for number, operation in enumerate(operations, 1):
                operation[2] = version
                self._meta.propose(operation, done if number == len(operations) else None)
        except CommandError as error:
            # Whoever asked is told; the others commit again.
            self._landed(self._cycle, error.code)

    def _close_commits(self) -> None:
        """Make an operation of the commits that were gathered."""
        if self._commits:
            rows = [[key, queue, offset, back] for (key, queue), (offset, back) in self._commits.items()]
            self._operations.append([int(Verb.COMMIT), int(Table.OFFSETS), None, rows])
            self._commits = {}

    def _landed(self, cycle: int, code: int) -> None:
        if cycle != self._cycle:
            return
        waiting = self._flying_waiting
        self._land()
        answer_all(waiting, code)
        if self._waiting or self._operations or (self._commits and not self._timed):
            self._hurry()

    def _land(self) -> None:
        self._cycle += 1
        self._in_flight = False
        self._flying, self._flying_others, self._flying_waiting = {}, 0, []
        if not self._others:
            self._resetting.clear()
