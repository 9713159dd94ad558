"""Which check points are open: a pure table, by key, by when they are due, and by where they stand."""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# RocketMQ's timer brings a check point and its acknowledgements a second apart, and a busy broker later.
WHEEL_GRACE_MS = 5000


class CheckPointKey(NamedTuple):
    """What a check point is known by."""

    topic: str
    group: str
    queue_id: int
    start: int
    pop_ms: int


class TakenInOrder(NamedTuple):
    """What a check point says besides whose messages were taken in the order of their queue."""

    attempt: str
    """Who names the same one has the same messages again; "": nobody has."""
    times: tuple[int, ...]
    """By message: how often it had been taken before."""


class PutOff(NamedTuple):
    """That a message which was taken in order is to be had again at another time than the others of its check point."""

    key: CheckPointKey
    offset: int
    number: int
    """The changes of a check point are numbered: a later one counts, in whatever order they are read."""
    until_ms: int


class CheckPoint:
    """Messages of one queue that were taken together; `open` holds a bit for each that is not acknowledged."""

    __slots__ = (
        "at", "broker", "changes", "invisible_ms", "key", "of_wheel", "offsets", "open", "order", "put_off",
        "revive_queue", "settling",
    )  # fmt: skip

    def __init__(
        self,
        key: CheckPointKey,
        invisible_ms: int,
        broker: str,
        revive_queue: int,
        offsets: tuple[int, ...],
        *,
        of_wheel: bool = False,
        order: TakenInOrder | None = None,
    ) -> None:
        """`of_wheel`: RocketMQ's timer brought it, and its acknowledgements come later."""
        self.key = key
        self.invisible_ms = invisible_ms
        self.broker = broker
        self.revive_queue = revive_queue
        self.offsets = offsets
        self.of_wheel = of_wheel
        self.order = order
        # By offset, the number and the time of the last change; and how many changes there were.
        self.put_off: dict[int, tuple[int, int]] = {}
        self.changes = 0
        # Requests about it that are being stored.
        self.settling = 0
        self.open = (1 << len(offsets)) - 1
        # Its offset in the revive queue, -1 until it is read from there.
        self.at = -1

    @property
    def revive_ms(self) -> int:
        """When what is not acknowledged by then is to be had again, ms."""
        return self.key.pop_ms + self.invisible_ms

    def open_offsets(self) -> list[int]:
        """Return the offsets of the messages that are not acknowledged."""
        return [offset for place, offset in enumerate(self.offsets) if self.open >> place & 1]

    def until_ms(self, offset: int) -> int:
        """Return until when a message is whoever's who took it, ms."""
        changed = self.put_off.get(offset)
        return self.revive_ms if changed is None else changed[1]


class CheckPointTable:
    """All that are open."""

    def __init__(self) -> None:
        self._open: dict[CheckPointKey, CheckPoint] = {}
        # (due, number, key); what is closed by then is passed over.
        self._due: list[tuple[int, int, CheckPointKey]] = []
        self._number = 0
        # What was known before this table and is not older: no new check point is to be taken for it.
        self._used: set[CheckPointKey] = set()
        # By revive queue, those that were read from it, in its order.
        self._placed: dict[int, dict[CheckPointKey, int]] = {}
        # By topic, group and queue, what was taken in order; and what of it was over before it was read.
        self._in_order: dict[tuple[str, str, int], dict[CheckPointKey, CheckPoint]] = {}
        self._over: set[CheckPointKey] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[CheckPoint]:
        return iter(self._open.values())

    def find(self, key: CheckPointKey) -> CheckPoint | None:
        """Return an open one."""
        return self._open.get(key)

    def add(self, made: CheckPoint, now_ms: int = 0) -> None:
        """Take one that was stored, or was read from its queue; the same one comes both ways, in either order."""
        if made.at >= 0 and made.key in self._over:
            # Read late: to be open for a moment would hold up its queue, or give again what is acknowledged.
            self._over.discard(made.key)
            return
        known = self._open.get(made.key)
        if known is None:
            self._open[made.key] = known = made
            if made.order is not None:
                self._in_order.setdefault(made.key[:3], {})[made.key] = made
            due = max(made.revive_ms, now_ms) + WHEEL_GRACE_MS if made.of_wheel else made.revive_ms
            self.again(made.key, due)
        if made.at >= 0:
            known.at = made.at
            self._placed.setdefault(known.revive_queue, {})[made.key] = made.at

    def again(self, key: CheckPointKey, due_ms: int) -> None:
        """Have an open one come up at a time."""
        self._number += 1
        heapq.heappush(self._due, (due_ms, self._number, key))

    def acknowledge(self, key: CheckPointKey, offsets: Iterable[int]) -> None:
        """Note what was acknowledged; what is not known is over already."""
        known = self._open.get(key)
        if known is None:
            return
        gone = frozenset(offsets)
        for place, offset in enumerate(known.offsets):
            if offset in gone:
                known.open &= ~(1 << place)
        if not known.open:
            del self._open[key]
            placed = self._placed.get(known.revive_queue)
            if placed is not None:
                placed.pop(key, None)
            if known.order is not None:
                self._end_in_order(known)

    def _end_in_order(self, known: CheckPoint) -> None:
        place = known.key[:3]
        of_queue = self._in_order[place]
        del of_queue[known.key]
        if not of_queue:
            del self._in_order[place]
        if known.at < 0:
            self._over.add(known.key)

    def in_order(self, topic: str, group: str, queue_id: int) -> list[CheckPoint]:
        """Return the open ones of a queue that were taken in order: one, but for what a kill cut in two."""
        return list(self._in_order.get((topic, group, queue_id), {}).values())

    def put_off(self, change: PutOff) -> None:
        """Have a message that was taken in order be whoever's who has it until another time."""
        known = self._open.get(change.key)
        if known is None:
            return
        known.changes = max(known.changes, change.number)
        if change.number > known.put_off.get(change.offset, (0, 0))[0]:
            known.put_off[change.offset] = (change.number, change.until_ms)
            self.again(change.key, change.until_ms)

    def use(self, key: CheckPointKey) -> None:
        """Have fresh() keep away from a key."""
        self._used.add(key)

    def fresh(self, keys: Iterable[CheckPointKey]) -> list[CheckPointKey]:
        """Return the keys of one pop, a little later where one of them is used.

        What is taken in order anew is so later than it was: the time alone tells one handle from the other.
        """
        made = list(keys)
        before = [point.key.pop_ms for key in made for point in self.in_order(*key[:3])]
        if made and before and made[0].pop_ms <= max(before):
            made = [key._replace(pop_ms=max(before) + 1) for key in made]
        while not self._used.isdisjoint(made):
            made = [key._replace(pop_ms=key.pop_ms + 1) for key in made]
        return made

    def next_due(self) -> int | None:
        """Return when the next one is due, ms; None when none is open."""
        while self._due and self._due[0][2] not in self._open:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def take_due(self, now_ms: int) -> CheckPoint | None:
        """Return one that is due, which comes up again only when again() says so."""
        due = self.next_due()
        if due is None or due > now_ms:
            return None
        return self._open[heapq.heappop(self._due)[2]]

    def low(self, revive_queue: int) -> int | None:
        """Return where the first open one stands that was read from a queue, None when none was."""
        return next(iter(self._placed.get(revive_queue, {}).values()), None)
