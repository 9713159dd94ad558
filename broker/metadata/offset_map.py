"""Consumer offsets in memory, "topic@group" → queue → offset: found by topic and by group, and copied at no cost.

A snapshot for the file is a copy of the outer map alone. While it is being encoded, in a thread and in portions, so
that nobody waits for 100,000 pairs, what is about to be changed is copied first: the file holds what there was when it
was asked for, as a stamp of a Raft group's log demands.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from broker.metadata.offset_keys import parts_of
from remoting.bodies.registry import DataVersion

# Pairs of topic and group that are encoded at once, a millisecond or two: as long nothing else of the process runs.
PORTION = 500


def encoded(table: Mapping[str, dict[int, int]], version: DataVersion) -> Iterator[bytes]:
    """Yield a table in RocketMQ's JSON form, in portions."""
    begin = b'{"dataVersion":' + msgspec.json.encode(version) + b',"offsetTable":{'
    pairs = iter(table.items())
    while portion := dict(islice(pairs, PORTION)):
        yield begin + msgspec.json.encode(portion)[1:-1]
        begin = b","
    yield (b"" if begin == b"," else begin) + b"}}"


class OffsetMap(dict[str, dict[int, int]]):
    """Read it as the map that it is; change it by `of`, `drop` and assignment only."""

    __slots__ = ("_of_group", "_of_topic", "_shared")

    def __init__(self, table: Iterable[tuple[str, dict[int, int]]] = ()) -> None:
        """Begin with these keys and their offsets."""
        super().__init__(table)
        self._of_topic: dict[str, dict[str, None]] = {}
        self._of_group: dict[str, dict[str, None]] = {}
        # What a snapshot holds that is being encoded.
        self._shared: dict[str, dict[int, int]] | None = None
        for key in self:
            self._index(key)

    def __setitem__(self, key: str, offsets: dict[int, int]) -> None:
        if key not in self:
            self._index(key)
        super().__setitem__(key, offsets)

    def of(self, key: str) -> dict[int, int]:
        """Return the offsets of a key, to be changed at once and not kept."""
        offsets, shared = self.get(key), self._shared
        if offsets is None:
            offsets = self[key] = {}
        elif shared is not None and shared.get(key) is offsets:
            offsets = self[key] = dict(offsets)
        return offsets

    def drop(self, key: str) -> dict[int, int]:
        """Take a key out, and return its offsets."""
        for by_name, name in zip((self._of_topic, self._of_group), parts_of(key), strict=True):
            keys = by_name[name]
            del keys[key]
            if not keys:
                del by_name[name]
        return self.pop(key)

    def keys_of(self, topic: str, group: str) -> list[str]:
        """Return the keys of a topic and a group; "" for either is of all."""
        if topic and group:
            ofs = self._of_group.get(group, {})
            return [key for key in self._of_topic.get(topic, ()) if key in ofs]
        return list(self._of_topic.get(topic, ()) if topic else self._of_group.get(group, ()) if group else self)

    def snapshot(self, version: DataVersion) -> Iterator[bytes]:
        """Return what encodes the whole table as it is now, in any thread; one at a time."""
        shared = self._shared = dict(self)

        def encode() -> Iterator[bytes]:
            yield from encoded(shared, version)
            if self._shared is shared:
                self._shared = None

        return encode()

    def _index(self, key: str) -> None:
        topic, group = parts_of(key)
        self._of_topic.setdefault(topic, {})[key] = None
        self._of_group.setdefault(group, {})[key] = None
