"""Java's String.hashCode: what RocketMQ filters tags and indexes keys by."""

from functools import lru_cache

# Tags recur: as many hashes are kept, of texts up to this length, so some 4 MB at most.
_CACHED_HASHES_MAX = 16_384
_CACHED_LENGTH_MAX = 64


def java_hash(text: str | bytes) -> int:
    """Return ``String.hashCode()`` of `text` as a signed 32-bit number.

    Java hashes UTF-16 code units: a character outside the Basic Multilingual Plane counts as two. Bytes are taken as
    UTF-8; what is no UTF-8 counts as U+FFFD, as Java's decoder has it.
    """
    return _cached_hash(text) if len(text) <= _CACHED_LENGTH_MAX else _hash(text)


def _hash(text: str | bytes) -> int:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    units = text.encode() if text.isascii() else memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


_cached_hash = lru_cache(maxsize=_CACHED_HASHES_MAX)(_hash)


def tags_code(tags: str | None) -> int:
    """Return the number that a ConsumeQueue entry carries for the TAGS property; 0 when there is none."""
    return java_hash(tags) if tags else 0
