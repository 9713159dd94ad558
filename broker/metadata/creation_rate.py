"""How fast one connection, and one address, may have topics or groups made by using them: buckets, filled at a rate.

Whoever sends to ever new names, by mistake or not, would fill the broker's tables in seconds, for everybody. A new
connection has a full bucket, so whoever connects again and again is held by that of his address, also on this machine.
What an administrator makes by request is not bounded so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from broker.leader_only import beneath
from broker.settings.config import LiveConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.listening import origin

# How many connections' worth an address may have at once: a machine with so many clients that all begin. Then all of
# them together have what one has.
ADDRESS_BURSTS = 10
# Addresses that are told apart; beyond it the one that was heard of longest ago has a full bucket again.
ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float

    def filled(self, most: int, per_second: int, now: float) -> "_Bucket":
        self.left = min(most, self.left + (now - self.at) * per_second)
        self.at = now
        return self


class CreationRate:
    """The buckets of all connections, each of which goes with its connection, and of their addresses."""

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
        # The address that was heard of last is the last.
        self._addresses: dict[str, _Bucket] = {}

    def take(self, creator: object | None, name: str) -> None:
        """Let a connection make one; None: the broker itself. Raises CommandError (SYSTEM_BUSY) when it is too fast."""
        if creator is None:
            return
        creator = beneath(creator)
        burst, per_second = self._live.broker.auto_create_bounds()
        if per_second:
            self._take(creator, name, burst, per_second)
        self._quota(creator, name)

    def _take(self, creator: object, name: str, burst: int, per_second: int) -> None:
        now = self._now()
        own = self._buckets.setdefault(creator, _Bucket(burst, now)).filled(burst, per_second, now)
        most = burst * ADDRESS_BURSTS
        address = self._of_address(creator, most, now).filled(most, per_second, now)
        for bucket, who, at_once in ((own, "this connection", burst), (address, "its address", most)):
            if bucket.left < 1:
                raise CommandError(
                    ResponseCode.SYSTEM_BUSY,
                    f"[OVERLOAD]{self._what} {name} is not created now: {who} may have {at_once} made by using them, "
                    f"then {per_second} a second (autoCreatePerSecond); try again, or create it by request",
                )
        own.left -= 1
        address.left -= 1

    def _of_address(self, creator: object, most: int, now: float) -> _Bucket:
        of = origin(getattr(creator, "peer", ("",))[0])
        bucket = self._addresses.pop(of, None)
        if bucket is None:
            bucket = _Bucket(most, now)
            if len(self._addresses) >= ADDRESSES_MAX:
                del self._addresses[next(iter(self._addresses))]
        self._addresses[of] = bucket
        return bucket
