"""One quota each, of addresses or of users: a rate, or a number of connections; who is over it, and in which words."""

from collections import Counter
from collections.abc import Callable, Mapping

from auth.buckets import TokenBuckets
from auth.quota_keys import KEY_ENDS, Quota

# Characters of a name that an answer shows.
NAME_SHOWN_MAX = 100
# Seconds that an answer tells are not less, and from which on they are whole.
_SOON = 0.001
_LONG = 10.0


class QuotaBound:
    """How much each name may have. `on`: somebody has a quota."""

    def __init__(self, prefix: str, quota: Quota) -> None:
        """`prefix` is that of its key: of addresses, or of users."""
        self.quota = quota
        self.of = prefix.removeprefix("quota").lower()
        self.on = False
        self._key = prefix + KEY_ENDS[quota]
        self._limit = 0
        self._others: Mapping[str, int] = {}

    def set(self, limit: int, others: Mapping[str, int]) -> None:
        """Go by this limit from now on, and by `others` for some; 0: none."""
        self._limit, self._others = limit, others
        self.on = bool(limit) or any(others.values())

    def limit(self, name: str) -> int:
        """Return what a name may have; 0: as much as it likes."""
        return self._others.get(name, self._limit) if self._others else self._limit

    def words(self, name: str, of_what: str, then: str) -> str:
        """Return what is said to who is over it."""
        key = f"{self._key}, quotaUsers" if name in self._others else self._key
        who = name if len(name) <= NAME_SHOWN_MAX else name[:NAME_SHOWN_MAX] + "…"
        return f"[OVERLOAD]{self.of} {who}: {self.limit(name)} {of_what} are the quota ({key}); {then}"


class RateBound(QuotaBound):
    """So much in a span: `what` names it, as in "sends a second"."""

    def __init__(self, prefix: str, quota: Quota, what: str, clock: Callable[[], float], span: float = 1.0) -> None:
        super().__init__(prefix, quota)
        self._what = what
        self._buckets = TokenBuckets(clock, span)

    def wait(self, name: str) -> float:
        """Return in how many seconds a name may have more; 0.0: now."""
        limit = self.limit(name)
        return self._buckets.wait(name, limit) if limit else 0.0

    def take(self, name: str, amount: int) -> None:
        """Take from what a name has left; nothing from one without a quota, which later has none to pay for."""
        if self.limit(name):
            self._buckets.take(name, amount)

    def __len__(self) -> int:
        return len(self._buckets)

    def refusal(self, name: str, wait: float, what: str = "") -> str:
        """Return why a name may not have more now; `what` is said besides."""
        told = f"{max(wait, _SOON):.3f}" if wait < _LONG else f"{wait:.0f}"
        return self.words(name, self._what, f"{what}try again in {told} s")


class PlaceBound(QuotaBound):
    """So many connections at a time."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix, Quota.CONNECTIONS)
        self._taken: Counter[str] = Counter()

    def enter(self, name: str) -> bool:
        """Count a connection in; False when the name has as many as it may."""
        limit = self.limit(name)
        if limit and self._taken[name] >= limit:
            return False
        self._taken[name] += 1
        return True

    def leave(self, name: str) -> None:
        """Count a connection out that was counted in."""
        self._taken[name] -= 1
        if self._taken[name] <= 0:
            del self._taken[name]

    def refusal(self, name: str) -> str:
        """Return why a name may not have one more."""
        return self.words(name, "connections at a time", "this one is closed")
