"""Until when a request's fate must be decided: one moment for all hops and fates, fixed where it first came in (R8).

It is the bound of the member that a client asked (ForwardLimits.deadline_seconds): no request says how long its client
waits, and official clients wait for 3 s. A request that is passed on says how much of that is left and what the
sender's wall clock showed; so the leader knows also how long it was on its way, as far as it knows that clock
(raft/core/clocks.py). Times are seconds of a clock that counts suspension.

What waited in a socket while this process was stopped says nothing of how long. A beat tells: what is read right after
a pause counts as come when the pause began. The worst that may follow is a refusal, and the client tries again.
"""

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.leader_only import AGE, AT, FROM, HOP_FLAG, LEFT, READ
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError

# How often it is noted that this process is awake; a pause of more than two is one.
BEAT_SECONDS = 0.25


class DatedMember(Protocol):
    """What a forwarded request says of the member that passes it on, and what that one knows of others."""

    name: str

    def monotonic(self) -> float:
        """Return seconds on a clock that counts suspension."""
        ...

    def clock_ms(self) -> int:
        """Return what its wall clock shows."""
        ...

    def age_seconds(self, member: str, clock_ms: int) -> tuple[float, float]:
        """Return how long ago another member's wall clock showed that, at least and at most; 0 and inf: who knows."""
        ...


class Came(NamedTuple):
    """When a request came from its client, at the earliest and at the latest; whether another member passed it on."""

    earliest: float
    latest: float
    passed: bool = False


class Deadlines:
    """Must be made inside a loop."""

    def __init__(self, seconds: float, member: DatedMember | None = None) -> None:
        """Without a member nothing is known of clocks, and the loop's own counts."""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._member = member
        self.now: Callable[[], float] = self._loop.time if member is None else member.monotonic
        self._awake_at = self.now()
        # Of the last pause: what is read until the next beat may have come when it began.
        self._paused_at: float | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(BEAT_SECONDS, self._beat)

    def close(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def came_at(self) -> float:
        """Return when a request that is read now has come, at the earliest."""
        return self._came_at(self.now())

    def _came_at(self, now: float) -> float:
        if now - self._awake_at > 2 * BEAT_SECONDS:
            return self._awake_at
        return now if self._paused_at is None else self._paused_at

    def of(self, request: Command) -> float:
        """Return until when a request's fate must be decided; fixed when this is first asked."""
        if not request.until:
            self._fix(request, self.now())
        return request.until

    def _fix(self, request: Command, now: float) -> None:
        left = self._left(request) if request.flag & HOP_FLAG else self._seconds - request.waited
        request.read_at = now - request.waited
        request.until = self._came_at(now) + left

    def over(self, request: Command) -> bool:
        """Whether nothing may be begun any more for a request."""
        # Of every request, so that one look at the clock does.
        now = self.now()
        if not request.until:
            self._fix(request, now)
        return request.until <= now

    def came(self, request: Command) -> Came | None:
        """Return when a request came from its client; None of one that was passed on by a member of unknown clock."""
        until, now = self.of(request), self.now()
        if not request.flag & HOP_FLAG:
            # It may have waited here since it was read, while nobody led.
            return Came(until - self._seconds, request.read_at)
        if self._member is None or AGE not in request.ext:
            return None
        low, high = self._member.age_seconds(request.ext.get(FROM, ""), _number(request, AT))
        if high == float("inf"):
            return None
        return Came(now - high - _number(request, AGE) / 1000, now - low - _number(request, READ) / 1000, passed=True)

    def said(self, request: Command) -> dict[str, str]:
        """Return what a request of a client says of its deadline when it is passed on now."""
        now = self.now()
        said = {
            LEFT: str(max(1, round((self.of(request) - now) * 1000))),
            AGE: str(math.ceil((now + self._seconds - request.until) * 1000)),
            READ: str(math.floor((now - request.read_at) * 1000)),
        }
        if self._member is not None:
            said |= {FROM: self._member.name, AT: str(self._member.clock_ms())}
        return said

    def _left(self, request: Command) -> float:
        """Return how much another member left of its deadline, less the time on the way."""
        if LEFT not in request.ext:
            # A member of an older version, which says nothing of it.
            return self._seconds - request.waited
        left = min(_number(request, LEFT) / 1000, self._seconds)
        if self._member is None:
            return left - request.waited
        # How old it is tells of both: the way here, and the wait for its turn.
        age = self._member.age_seconds(request.ext.get(FROM, ""), _number(request, AT))[0]
        return left - max(age, request.waited)

    def _beat(self) -> None:
        now = self.now()
        self._paused_at = self._awake_at if now - self._awake_at > 2 * BEAT_SECONDS else None
        self._awake_at = now
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)


def _number(request: Command, field: str) -> int:
    try:
        return int(request.ext.get(field, "0"))
    except ValueError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"{field}: {error}") from None
