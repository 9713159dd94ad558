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


class CheckPoint:
    """Messages of one queue that were taken together; `open` holds a bit for each that is not acknowledged."""

    __slots__ = ("at", "broker", "invisible_ms", "key", "of_wheel", "offsets", "open", "revive_queue")

    def __init__(
        self,
        key: CheckPointKey,
        invisible_ms: int,
        broker: str,
        revive_queue: int,
        offsets: tuple[int, ...],
        *,
        of_wheel: bool = False,
    ) -> None:
        """`of_wheel`: RocketMQ's timer brought it, and its acknowledgements come later."""
        self.key = key
        self.invisible_ms = invisible_ms
        self.broker = broker
        self.revive_queue = revive_queue
        self.offsets = offsets
        self.of_wheel = of_wheel
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

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[CheckPoint]:
        return iter(self._open.values())

    def find(self, key: CheckPointKey) -> CheckPoint | None:
        """Return an open one."""
        return self._open.get(key)

    def add(self, made: CheckPoint, now_ms: int = 0) -> None:
        """Take one that was stored, or was read from its queue; the same one comes both ways, in either order."""
        known = self._open.get(made.key)
        if known is None:
            self._open[made.key] = known = made
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

    def use(self, key: CheckPointKey) -> None:
        """Have fresh() keep away from a key."""
        self._used.add(key)

    def fresh(self, keys: Iterable[CheckPointKey]) -> list[CheckPointKey]:
        """Return the keys of one pop, a little later where one of them is used."""
        made = list(keys)
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
