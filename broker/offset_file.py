"""consumerOffset.json: RocketMQ's table, with what is ours beside it.

    raftResets    in a Raft group: resets that no pull was told of yet
    slaveCommits  on a slave: offsets that were committed here and that the master may not have

Both are topic@group -> queue -> offset; RocketMQ ignores them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from broker.configfile import Stamp, stamped
from broker.meta_offsets import Place
from remoting.bodies import ConsumerOffsetTable
from remoting.errors import HeaderError

SEPARATOR = "@"

_Offsets = dict[str, dict[int, int]]


class OffsetFile(NamedTuple):
    """The file's content."""

    table: ConsumerOffsetTable
    resets: Mapping[Place, int]
    own: Mapping[Place, int]


class _Ours(msgspec.Struct):
    raftResets: _Offsets = {}
    slaveCommits: _Offsets = {}


def decode_offsets(content: bytes) -> OffsetFile:
    """Read the file's content; raises HeaderError."""
    stored = ConsumerOffsetTable.decode(content)
    check_keys(stored)
    if b'"raftResets"' not in content and b'"slaveCommits"' not in content:
        return OffsetFile(stored, {}, {})
    try:
        ours = msgspec.json.decode(content, type=_Ours)
    except msgspec.DecodeError as error:
        raise HeaderError(f"raftResets or slaveCommits: {error}") from None
    return OffsetFile(stored, _by_place(ours.raftResets), _by_place(ours.slaveCommits))


def encode_offsets(table: bytes, stamp: Stamp | None, resets: Mapping[Place, int], own: Mapping[Place, int]) -> bytes:
    """Return the file's content, given RocketMQ's part of it."""
    return stamped(table, stamp, raftResets=_by_key(resets), slaveCommits=_by_key(own))


def check_keys(table: ConsumerOffsetTable) -> None:
    """Raise HeaderError when a key is no topic@group."""
    for key in table.offsetTable:
        if SEPARATOR not in key:
            raise HeaderError(f"{key!r} lacks the {SEPARATOR!r} between topic and group")


def _by_key(offsets: Mapping[Place, int]) -> _Offsets:
    found: _Offsets = {}
    for (key, queue_id), offset in offsets.items():
        found.setdefault(key, {})[queue_id] = offset
    return found


def _by_place(offsets: _Offsets) -> dict[Place, int]:
    return {(key, queue_id): offset for key, queues in offsets.items() for queue_id, offset in queues.items()}


def is_of(key: str, topic: str, group: str) -> bool:
    """Tell whether a key is of a topic and a group; "" for either is of all."""
    return (not topic or key.startswith(topic + SEPARATOR)) and (not group or key.endswith(SEPARATOR + group))


def parts_of(key: str) -> tuple[str, str]:
    """Return the topic and the group of a key."""
    topic, _, group = key.rpartition(SEPARATOR)
    return topic, group
