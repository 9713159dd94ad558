"""How fast one connection may have topics or groups made by using them: a bucket of so many, filled at a rate.

Whoever sends to ever new names, by mistake or not, would fill the broker's tables in seconds, for everybody. What an
administrator makes by request is not bounded so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from broker.settings.config import LiveConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class CreationRate:
    """The buckets of all connections; each goes with its connection."""

    def __init__(
        self,
        what: str,
        live: LiveConfig,
        now: Callable[[], float],
        quota: Callable[[object, str], None] = lambda _creator, _name: None,
    ) -> None:
        """Bound what is called `what`, by the configuration in force; `now` gives seconds that only grow.

        `quota` counts what a connection makes by name, and may raise CommandError too.
        """
        self._what = what
        self._live = live
        self._now = now
        self._quota = quota
        self._buckets: WeakKeyDictionary[object, _Bucket] = WeakKeyDictionary()

    def take(self, creator: object | None, name: str) -> None:
        """Let a connection make one; None: the broker itself. Raises CommandError (SYSTEM_BUSY) when it is too fast."""
        if creator is None:
            return
        burst, per_second = self._live.broker.auto_create_bounds()
        if per_second:
            self._take(creator, name, burst, per_second)
        self._quota(creator, name)

    def _take(self, creator: object, name: str, burst: int, per_second: int) -> None:
        now = self._now()
        bucket = self._buckets.get(creator)
        if bucket is None:
            bucket = self._buckets[creator] = _Bucket(burst, now)
        bucket.left = min(burst, bucket.left + (now - bucket.at) * per_second)
        bucket.at = now
        if bucket.left < 1:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{self._what} {name} is not created now: this connection may have {burst} made by using "
                f"them, then {per_second} a second (autoCreatePerSecond); try again, or create it by request",
            )
        bucket.left -= 1
