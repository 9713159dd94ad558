"""Who committed a queue's offset last, and when: which commits come too late to count.

A commit that a member of a Raft group passed on may have waited: in the socket of a process that was stopped, or on its
way. What is known of when its client sent it is an interval (broker/deadlines.py). One that is surely older than what
was taken since is superseded, also when it is higher than what the same client went back to since, or than what an
administrator reset. One that may be older, and would go back, is refused: then nobody is told that it counts. A new
leader knows of nobody's commits: what may be from before its lead, and would go back, is refused as well.
"""

import logging
from collections.abc import Callable, Container
from typing import NamedTuple, Protocol

from broker.deadlines import Came
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.quiet import FewLines

# Lines about commits that were ignored, in ten seconds; all are counted.
LATE_LINES_MAX = 20

_log = logging.getLogger(__name__)

Place = tuple[str, int]
"""topic@group and queue."""


class Committer(Protocol):
    """Who commits: the connection."""

    closed: bool


class _Anybody:
    closed = True


ANYBODY: Committer = _Anybody()
ADMINISTRATOR: Committer = _Anybody()
_RESET: Committer = _Anybody()


class DoubtfulCommit(CommandError):
    """A commit that may be older than what was taken since, and would move the offset back."""

    def __init__(self) -> None:
        super().__init__(
            ResponseCode.SYSTEM_ERROR,
            "[RAFT] not taken: it came by way of another member and may be older than what was committed since;"
            " commit again",
        )


class _Last(NamedTuple):
    client: Committer
    came: Came | None


class Committers:
    """By place. Its size is that of the table of offsets."""

    def __init__(self) -> None:
        self._last: dict[Place, _Last] = {}
        self._name_of: Callable[[Committer], str | None] = lambda _client: None
        self._now: Callable[[], float] | None = None
        self._lines = FewLines(LATE_LINES_MAX)
        # When this member began to lead.
        self._since = float("-inf")
        self.backs = {"administrator": 0, "member": 0}
        """How many commits took an offset back, by whom."""
        self.late = 0
        """How many commits were ignored: their client had lost the queue, or they are of a time that is over."""

    def join(self, name_of: Callable[[Committer], str | None], now: Callable[[], float]) -> None:
        """Work in a Raft group, where commits come by several ways: with the client of a connection, and a clock."""
        self._name_of, self._now = name_of, now

    def note(self, place: Place, client: Committer | None, came: Came | None, *, back: bool = False) -> None:
        """Note a commit that counts; `back`: it is lower than what was known.

        An administrator's changes nothing about whose the queue is.
        """
        if client is None:
            return
        if back:
            self.backs["administrator" if client is ADMINISTRATOR or client is ANYBODY else "member"] += 1
        if came is None and self._now is not None:
            # Of a member whose clock is not known.
            came = Came(float("-inf"), self._now(), passed=True)
        if client is ADMINISTRATOR:
            before = self._last.get(place)
            if before is None and came is None:
                return
            client = ANYBODY if before is None else before.client
        self._last[place] = _Last(client, came)

    def reset(self, place: Place) -> None:
        """Note that an administrator set an offset: whatever was sent before that counts no more."""
        self._last.pop(place, None)
        if self._now is not None:
            now = self._now()
            self._last[place] = _Last(_RESET, Came(now, now))

    def ignored(self, place: Place, offset: int, known: int) -> None:
        """Count a commit that was late, and say so; its client is answered 0 as by RocketMQ, and cannot know."""
        self.late += 1
        if self._lines.let():
            _log.info("%s:%d: late commit %d ignored, it is at %d", *place, offset, known)

    def forget(self, place: Place) -> None:
        """Forget a place that is gone."""
        self._last.pop(place, None)

    def keep(self, keys: Container[str]) -> None:
        """Forget the places of keys that are not among these."""
        self._last = {place: last for place, last in self._last.items() if place[0] in keys}

    def led(self) -> None:
        """Note that this member leads from now on."""
        if self._now is not None:
            self._since = self._now()

    def clear(self) -> None:
        """Forget all."""
        self._last.clear()

    def is_late(self, place: Place, client: Committer | None, came: Came | None, *, back: bool) -> bool:
        """Tell whether a commit is to be ignored; `back`: it is lower than what is known. Raises DoubtfulCommit."""
        last = self._last.get(place)
        if last is None:
            if back and came is not None and came.passed and came.earliest < self._since:
                raise DoubtfulCommit
            return False
        if came is not None and last.came is not None and came.earliest < last.came.latest:
            superseded = back or last.client is _RESET or self._same(client, last.client)
            if superseded and came.latest < last.came.earliest:
                return True
            if back and came.passed:
                raise DoubtfulCommit
        return back and not self._may_go_back(client, last.client, passed=came is not None and came.passed)

    def _may_go_back(self, client: Committer | None, last: Committer, *, passed: bool) -> bool:
        """Whether a client may seek in a queue: its own, one that nobody has any more, or as an administrator."""
        if client is ANYBODY or client is ADMINISTRATOR or last.closed or self._same(client, last):
            return True
        # Of what another member passed on it is known whose it is, and not of a connection without heartbeats.
        return passed and self._name_of(last) is None

    def _same(self, client: Committer | None, last: Committer) -> bool:
        if client is last:
            return client is not ANYBODY
        if client is None:
            return False
        name = self._name_of(client)
        return name is not None and name == self._name_of(last)
