"""Token buckets by name, in a bounded table. Pure but for the clock that is handed in.

A bucket holds what its owner may take in one span at once, and fills at that rate. Whoever has one left may take, and
however much it is: a message larger than a second's share is let in once, and what follows waits until it is paid for.
A name that is not in the table has a full bucket; so where there are more names than places, forgetting the one that
was heard of longest ago costs nobody anything, and gives that one at most a span's share anew.
"""

from collections.abc import Callable
from dataclasses import dataclass

# Names in one table, some 200 bytes each: as many as users may be (broker/metadata/users.py).
NAMES_MAX = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class TokenBuckets:
    """What each name has left."""

    def __init__(self, clock: Callable[[], float], span: float = 1.0, names_max: int = NAMES_MAX) -> None:
        """`clock` gives seconds that only grow; limits are for `span` seconds."""
        self._clock = clock
        self._span = span
        self._names_max = names_max
        # The one that was asked about last is the last.
        self._buckets: dict[str, _Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, name: str, limit: int) -> float:
        """Return in how many seconds a name whose limit is above 0 has one left; 0.0: it has now."""
        now, buckets = self._clock(), self._buckets
        bucket = buckets.pop(name, None)
        if bucket is None:
            if len(buckets) >= self._names_max:
                del buckets[next(iter(buckets))]
            bucket = _Bucket(limit, now)
        else:
            bucket.left = min(limit, bucket.left + (now - bucket.at) * limit / self._span)
            bucket.at = now
        buckets[name] = bucket
        return 0.0 if bucket.left >= 1 else (1 - bucket.left) * self._span / limit

    def take(self, name: str, amount: int) -> None:
        """Take from a name's bucket; nothing where it is not known."""
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.left -= amount
