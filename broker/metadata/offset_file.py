"""consumerOffset.json: RocketMQ's table, with what is ours beside it.

    raftResets    in a Raft group: resets that no pull was told of yet
    slaveCommits  on a slave: offsets that were committed here and that the master may not have
    lowerings     on a master: what was set back on purpose, see broker/metadata/offset_lowered.py
    copyMark      on a slave: which state of its master's lowerings the table was copied at
    lmqSeen       which lmqConsumerOffset.json was looked at already, see broker/metadata/lmq_offsets.py

The first two are topic@group -> queue -> offset; RocketMQ ignores all of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from broker.metadata.offset_batches import Place
from broker.metadata.offset_keys import SEPARATOR
from broker.metadata.table_file import Stamp, stamped
from remoting.bodies.registry import ConsumerOffsetTable
from remoting.errors import HeaderError

_NAMES = (b'"raftResets"', b'"slaveCommits"', b'"lowerings"', b'"copyMark"', b'"lmqSeen"')
_Offsets = dict[str, dict[int, int]]


class OurOffsets(NamedTuple):
    """What is ours in the file."""

    resets: Mapping[Place, int]
    own: Mapping[Place, int]
    lowerings: dict[str, Any]
    mark: str
    lmq_seen: str


class OffsetFile(NamedTuple):
    """The file's content."""

    table: ConsumerOffsetTable
    resets: Mapping[Place, int]
    own: Mapping[Place, int]
    lowerings: dict[str, Any]
    mark: str
    lmq_seen: str


class _Ours(msgspec.Struct):
    raftResets: _Offsets = {}
    slaveCommits: _Offsets = {}
    lowerings: dict[str, Any] = {}
    copyMark: str = ""
    lmqSeen: str = ""


def decode_offsets(content: bytes) -> OffsetFile:
    """Read the file's content; raises HeaderError."""
    stored = ConsumerOffsetTable.decode(content)
    check_keys(stored)
    if not any(name in content for name in _NAMES):
        return OffsetFile(stored, {}, {}, {}, "", "")
    try:
        ours = msgspec.json.decode(content, type=_Ours)
    except msgspec.DecodeError as error:
        raise HeaderError(f"raftResets, slaveCommits, lowerings, copyMark or lmqSeen: {error}") from None
    places = _by_place(ours.raftResets), _by_place(ours.slaveCommits)
    return OffsetFile(stored, *places, ours.lowerings, ours.copyMark, ours.lmqSeen)


def encode_offsets(table: Iterator[bytes], stamp: Stamp | None, ours: OurOffsets) -> Iterator[bytes]:
    """Yield the file's content, given RocketMQ's part of it."""
    yield stamped(
        next(table),
        stamp,
        raftResets=_by_key(ours.resets),
        slaveCommits=_by_key(ours.own),
        lowerings=ours.lowerings,
        copyMark=ours.mark,
        lmqSeen=ours.lmq_seen,
    )
    yield from table


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
