"""The table of half messages that are neither committed nor rolled back.

Everything in it follows from the half queue and the op queue from the offsets on that group CID_RMQ_SYS_TRANS has
committed there. Below the half queue's offset every half is over or has a later copy; below the op queue's offset no op
message speaks of a half at or above the other offset.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from broker.transactions.records import HalfView

# Transactions whose outcome is remembered, so that a request that comes twice needs no look into the index.
REMEMBERED_MAX = 10_000

Wake = Callable[[], None]


class Half(msgspec.Struct, eq=False):
    """An undecided transaction: its newest copy, and what must be known without reading it."""

    root: int
    offset: int
    position: int
    checks: int
    immunity_ms: int
    born_ms: int
    since_ms: int
    """When it was first stored, as far as that is known."""
    stored_ms: int
    """When the newest copy was."""
    group: str
    topic: str
    queue_id: int
    key: str
    fresh: bool
    """Stored by this process since it leads: it cannot have been committed by a write that was torn."""
    given_up: bool = False
    """Discarded, and asked about or ended all the same."""
    waiting: list[Wake] | None = None
    """Set while something about it is being written: what happens then."""

    @classmethod
    def of(cls, root: int, view: HalfView, *, fresh: bool = False) -> "Half":
        """Return the transaction of which this is the newest copy."""
        first = view.root < 0 and not view.checks
        return cls(
            root, view.offset, view.position, view.checks, view.immunity_ms, view.born_ms,
            view.stored_ms if first else view.born_ms, view.stored_ms, view.group, view.topic,
            view.queue_id, view.key, fresh,
        )  # fmt: skip

    @property
    def busy(self) -> bool:
        """Whether something about it is being written."""
        return self.waiting is not None

    def offsets(self, *more: int) -> list[int]:
        """Return all that an op message names, so that RocketMQ finds it by any copy that may still be looked at."""
        return sorted({self.root, self.offset, *more})


class Landed:
    """Up to where a queue is known without a hole, when its messages are acknowledged in any order."""

    def __init__(self, start: int) -> None:
        self.end = start
        self._ahead: list[int] = []

    def note(self, offset: int) -> None:
        """Note a message that is stored."""
        if offset < self.end:
            return
        heapq.heappush(self._ahead, offset)
        while self._ahead and self._ahead[0] <= self.end:
            self.end = max(self.end, heapq.heappop(self._ahead) + 1)


class HalfTable:
    """All undecided transactions of one broker, by root."""

    def __init__(self, half_start: int, op_start: int) -> None:
        self.pending: dict[int, Half] = {}
        self.halves, self.ops = Landed(half_start), Landed(op_start)
        # Of each op message that may still be needed: its offset, and the highest half that it names.
        self._named: deque[tuple[int, int]] = deque()
        # Copies that RocketMQ wrote do not name their root: by offset.
        self._roots: dict[int, int] = {}
        self._foreign: dict[tuple[str, str], int] = {}
        self._outcomes: OrderedDict[int, bool] = OrderedDict()

    def root_of(self, view: HalfView) -> int:
        """Return which transaction a copy belongs to."""
        return view.root if view.root >= 0 else self._roots.get(view.offset, view.offset)

    def stored(self, view: HalfView, *, fresh: bool) -> Half:
        """Take a half, or a later copy of one, that stands in the queue."""
        self.halves.note(view.offset)
        root = self._root_of_new(view, fresh=fresh)
        known = self.pending.get(root)
        if known is not None:
            known.offset, known.position = view.offset, view.position
            known.checks, known.stored_ms = view.checks, view.stored_ms
            return known
        made = self.pending[root] = Half.of(root, view, fresh=fresh)
        return made

    def named(self, op_offset: int, offsets: Iterable[int]) -> None:
        """Note an op message that is stored."""
        self.ops.note(op_offset)
        self._named.append((op_offset, max(offsets, default=-1)))

    def end(self, half: Half, *, committed: bool) -> None:
        """Take a transaction that is over out of the table."""
        self.pending.pop(half.root, None)
        self.remember(half.root, committed=committed)

    def remember(self, root: int, *, committed: bool) -> None:
        """Remember how a transaction ended."""
        self._outcomes[root] = committed
        if len(self._outcomes) > REMEMBERED_MAX:
            self._outcomes.popitem(last=False)

    def forget(self, root: int) -> None:
        """Let a transaction begin anew that was given up."""
        self._outcomes.pop(root, None)

    def outcome(self, root: int) -> bool | None:
        """Return whether a transaction was committed (True) or rolled back, None when that is not remembered."""
        return self._outcomes.get(root)

    def take_out(self, done: Mapping[int, int]) -> None:
        """Take out, when all is read, what an op message says is over by any of its copies.

        `done` has the position of the last op message that names an offset: one that stands before the newest copy
        says that the half was discarded, and somebody had it resumed since.
        """
        copies: dict[int, set[int]] = {}
        for offset, root in self._roots.items():
            copies.setdefault(root, set()).add(offset)
        for root, half in list(self.pending.items()):
            named = {root, half.offset} | copies.get(root, set())
            if max([done.get(offset, -1) for offset in named]) > half.position:
                del self.pending[root]
        self._foreign.clear()

    def progress(self) -> tuple[int, int]:
        """Return the offsets below which nothing of the half queue and of the op queue is needed any more."""
        low = min([half.offset for half in self.pending.values()], default=self.halves.end)
        low = min(low, self.halves.end)
        while self._named and self._named[0][1] < low:
            self._named.popleft()
        if self._roots:
            self._roots = {offset: root for offset, root in self._roots.items() if root in self.pending}
        return low, min(self._named[0][0] if self._named else self.ops.end, self.ops.end)

    def _root_of_new(self, view: HalfView, *, fresh: bool) -> int:
        """Return the root of what is read or stored; a copy of RocketMQ's is told by its key and checks."""
        if fresh:
            return self.root_of(view)
        if view.root >= 0:
            self._roots[view.offset] = view.root
            return view.root
        who = (view.group, view.key)
        root = self._foreign.get(who) if view.checks and view.key else None
        if root is None:
            root = view.offset
        else:
            self._roots[view.offset] = root
        if view.key:
            self._foreign[who] = root
        return root
