"""Java's String.hashCode of many keys at once, and the index's keys of a message.

The hash of units u0 … un-1 is the sum of ui·31^(n-1-i) modulo 2^32. 31 is odd, so it has an inverse there: with one
running sum of ui·31^(-i) over all keys back to back, each key's hash is a difference of two sums times a power.
"""

from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from remoting.javahash import java_hash

Hashes = npt.NDArray[np.uint32]

_BASE = 31
_INVERSE = pow(_BASE, -1, 2**32)
# Units hashed in one go; bounds the tables of powers to 8 MiB each.
_UNITS_MAX = 1 << 20
# Topics whose prefixes are remembered; beyond it all are forgotten and computed again.
_TOPICS_MAX = 65_536

_MASK = 0xFFFFFFFF


class _Powers:
    """31^i and 31^-i modulo 2^32, as far as they were needed."""

    def __init__(self) -> None:
        self.up: Hashes = np.ones(1, np.uint32)
        self.down: Hashes = np.ones(1, np.uint32)

    def reach(self, count: int) -> None:
        if count > len(self.up):
            size = 1 << count.bit_length()
            self.up = _powers(_BASE, size)
            self.down = _powers(_INVERSE, size)


def _powers(base: int, size: int) -> Hashes:
    factors = np.full(size, base, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


_POWERS = _Powers()


def hash_all(pieces: Sequence[bytes], prefixes: Hashes) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return (hash of prefix + piece, UTF-16 units of the piece) for each of the UTF-8 `pieces`.

    `prefixes` are the prefixes' hashes.
    """
    units, lengths = _units(pieces)
    if len(units) > _UNITS_MAX and len(pieces) > 1:
        half = len(pieces) // 2
        first = hash_all(pieces[:half], prefixes[:half])
        second = hash_all(pieces[half:], prefixes[half:])
        return np.concatenate((first[0], second[0])), np.concatenate((first[1], second[1]))
    _POWERS.reach(len(units) + 1)
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * _POWERS.down[: len(units)], dtype=np.uint32, out=sums[1:])
    ends = np.cumsum(lengths)
    own = (sums[ends] - sums[ends - lengths]) * _POWERS.up[np.maximum(ends - 1, 0)]
    return own + prefixes * _POWERS.up[lengths], lengths


def _units(pieces: Sequence[bytes]) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return all UTF-16 units back to back and how many each piece has."""
    joined = b"".join(pieces)
    if joined.isascii():
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return np.frombuffer(joined, np.uint8).astype(np.uint32), lengths
    encoded = [piece.decode("utf-8", "replace").encode("utf-16-le") for piece in pieces]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // 2
    return np.frombuffer(b"".join(encoded), "<u2").astype(np.uint32), lengths


def key_hash(topic: str, key: str) -> int:
    """Return what the index stores for one key of a topic."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 2**31 else value


def spread_keys(
    uniq_keys: Sequence[bytes], keys: Sequence[bytes], tags: Sequence[bytes]
) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """Return (pieces, pieces per message): a message's unique key, each word of its KEYS, its TAGS; may be empty."""
    if b" " not in b"".join(keys):
        return list(chain.from_iterable(zip(uniq_keys, keys, tags, strict=True))), np.full(len(keys), 3)
    pieces: list[bytes] = []
    counts = []
    for uniq_key, words, tag in zip(uniq_keys, keys, tags, strict=True):
        before = len(pieces)
        pieces += (uniq_key, *words.split(b" "), tag)
        counts.append(len(pieces) - before)
    return pieces, np.array(counts)


class KeyHasher:
    """Hashes pieces as keys of their topics; remembers the hashes of what stands before them."""

    def __init__(self) -> None:
        self._prefixes: dict[str, int] = {}

    def hashes(
        self, topics: Sequence[str], pieces: Sequence[bytes], counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return (what the index stores, whether there is a key at all) of each piece of spread_keys."""
        try:
            both = np.array([self._prefixes[topic] for topic in topics], np.uint64)
        except KeyError:
            both = np.array([self._prefix(topic) for topic in topics], np.uint64)
        prefixes = np.repeat(both.astype(np.uint32), counts)
        prefixes[np.cumsum(counts) - 1] = (both >> np.uint64(32)).astype(np.uint32)
        hashes, lengths = hash_all(pieces, prefixes)
        signed = np.abs(hashes.view(np.int32).astype(np.int64))
        signed[signed == 2**31] = 0
        return signed, lengths > 0

    def prefixes(self, topics: Collection[str]) -> dict[str, int]:
        """Return what _prefix() says of these topics, and of some others."""
        for topic in topics:
            self._prefix(topic)
        return self._prefixes

    def _prefix(self, topic: str) -> int:
        """Return the hash of ``topic#``, before a key, and above it that of ``topic#T#``, before a tag (5.5)."""
        found = self._prefixes.get(topic)
        if found is None:
            if len(self._prefixes) >= _TOPICS_MAX:
                self._prefixes.clear()
            found = java_hash(f"{topic}#") & _MASK | (java_hash(f"{topic}#T#") & _MASK) << 32
            self._prefixes[topic] = found
        return found
