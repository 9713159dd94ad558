"""Recent keys: where in the log the records of the last sends stand, found by a hash of their unique key.

Compact arrays, some 40 bytes a key. Keys come in the order of the log, into the newest of a few segments; each segment
is a hash table with chains, whose entries never move. The oldest segment is forgotten as a whole, so nothing is ever
deleted from a chain. Segments are as large as all before them together, so that a table of many keys has few.

Most look-ups are of keys that are not here, and segments are several: so one byte for each of many remainders of hashes
says whether any key has that one. Bytes are never taken back, but all of them made anew now and then.

A hash proves nothing: whoever finds positions here compares the records that stand there. That makes cuts harmless,
too: what was cut from the log is not there any more, or is another record.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

# The smallest segment: so many keys are kept for nothing by a broker that had one idempotent send.
SEGMENT_KEYS_MIN = 4096
# At the bound so many segments hold all keys: by the last part of this the table forgets at once.
SEGMENTS = 4
# Bytes of those for each key, at least, when they are made anew; they serve for as many keys more. So at most one
# look-up of four finds a byte that is another key's.
BYTES_PER_KEY = 8
_NONE: tuple[int, ...] = ()


class _Segment:
    """Some of the keys, in the order in which they came."""

    __slots__ = ("capacity", "count", "hashes", "heads", "links", "mask", "newest_ms", "positions")

    def __init__(self, capacity: int) -> None:
        # Twice as many buckets as keys, at least: a look-up meets no key in most of them.
        buckets = 2 << (capacity - 1).bit_length()
        self.capacity, self.mask = capacity, buckets - 1
        # Bucket → the newest entry in it; entry → the one before it in its bucket; 0 is none.
        self.heads = array("I", bytes(4 * buckets))
        self.links = array("I", (0,))
        self.hashes = array("q", (0,))
        self.positions = array("q", (0,))
        self.count = 0
        self.newest_ms = 0


class RecentKeys:
    """Key → positions of its records. For one thread."""

    def __init__(
        self,
        keys_max: int,
        window_ms: int,
        *,
        segment_keys: int = SEGMENT_KEYS_MIN,
        hash_of: Callable[[bytes], int] = hash,
    ) -> None:
        """Remember what was stored in the last `window_ms` before the newest key, and never more than `keys_max`.

        At the bound the oldest SEGMENTS-th part of it is forgotten. `hash_of` gives 64 bits; Python's own is seeded
        anew for each process, so that nobody can choose collisions.
        """
        self._keys_max = keys_max
        self._window_ms = window_ms
        self._largest = max(1, keys_max // SEGMENTS)
        self._smallest = min(segment_keys, self._largest)
        self._hash = hash_of
        self._segments: deque[_Segment] = deque()
        self._count = 0
        self._seen, self._seen_mask = bytearray(1), 0
        # How many keys more those bytes take.
        self._seen_left = 0

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return self._count

    @property
    def memory_bytes(self) -> int:
        """Memory that the keys take."""
        arrays = (array for one in self._segments for array in (one.heads, one.links, one.hashes, one.positions))
        return len(self._seen) + sum([array.buffer_info()[1] * array.itemsize for array in arrays])

    def add(self, key: bytes, position: int, timestamp_ms: int) -> None:
        """Remember that a record with this key stands at a position, behind all that are known."""
        segments = self._segments
        segment = segments[0] if segments else None
        if segment is None or segment.count >= segment.capacity:
            segment = _Segment(min(max(self._count, self._smallest), self._largest))
            segments.appendleft(segment)
        hashed = self._hash(key)
        bucket = hashed & segment.mask
        segment.count = number = segment.count + 1
        segment.hashes.append(hashed)
        segment.positions.append(position)
        segment.links.append(segment.heads[bucket])
        segment.heads[bucket] = number
        segment.newest_ms = timestamp_ms
        self._count += 1
        self._seen_left -= 1
        if self._seen_left < 0:
            self._see_all()
        else:
            self._seen[hashed & self._seen_mask] = 1
        if number == 1 or self._count > self._keys_max:
            self._forget(timestamp_ms)

    def add_many(self, keys: Sequence[bytes], positions: Sequence[int], timestamps_ms: Sequence[int]) -> None:
        """Do what add() does with each, in a third of its time."""
        at = 0
        while at < len(keys):
            segment = self._segments[0] if self._segments else None
            room = 0 if segment is None else min(segment.capacity - segment.count, self._keys_max - self._count)
            if segment is None or room <= 0:
                # Here something may have to be forgotten.
                self.add(keys[at], positions[at], timestamps_ms[at])
                at += 1
                continue
            until = min(at + room, len(keys))
            hashes = [self._hash(key) for key in keys[at:until]]
            segment.hashes.extend(hashes)
            segment.positions.extend(positions[at:until])
            heads, link, mask, number = segment.heads, segment.links.append, segment.mask, segment.count
            for bucket in [hashed & mask for hashed in hashes]:
                number += 1
                link(heads[bucket])
                heads[bucket] = number
            segment.count = number
            segment.newest_ms = timestamps_ms[until - 1]
            self._count += until - at
            self._seen_left -= until - at
            if self._seen_left < 0:
                self._see_all()
            else:
                seen, mask = self._seen, self._seen_mask
                for hashed in hashes:
                    seen[hashed & mask] = 1
            at = until

    def find(self, key: bytes) -> tuple[int, ...]:
        """Return where records with this key may stand, the oldest first."""
        hashed = self._hash(key)
        found = _NONE
        if not self._seen[hashed & self._seen_mask]:
            return found
        for segment in self._segments:
            number = segment.heads[hashed & segment.mask]
            while number:
                if segment.hashes[number] == hashed:
                    found = (segment.positions[number], *found)
                number = segment.links[number]
        return found

    def find_many(self, keys: Sequence[bytes]) -> list[tuple[int, tuple[int, ...]]]:
        """Return the numbers of those keys of which find() finds something, each with that."""
        seen, mask = self._seen, self._seen_mask
        maybe = [at for at, hashed in enumerate(map(self._hash, keys)) if seen[hashed & mask]]
        return [(at, found) for at in maybe if (found := self.find(keys[at]))]

    def _see_all(self) -> None:
        """Make the bytes anew: of the keys that are known now, with room for as many more."""
        size = BYTES_PER_KEY << (max(self._count, 1) - 1).bit_length()
        self._seen, self._seen_mask = bytearray(size), size - 1
        self._seen_left = size // BYTES_PER_KEY
        seen = np.frombuffer(self._seen, np.uint8)
        for segment in self._segments:
            seen[np.frombuffer(segment.hashes, np.int64)[1:] & self._seen_mask] = 1

    def _forget(self, now_ms: int) -> None:
        """Forget segments that are too old, or too many keys; the newest one stays."""
        segments = self._segments
        while len(segments) > 1 and (self._count > self._keys_max or segments[-1].newest_ms < now_ms - self._window_ms):
            self._count -= segments.pop().count
