"""What two members tell each other first, and whether they may go on (R1, R6, R15, R17).

Encoded as a CBOR array in the order of Hello's fields. `judge` decides on a link. Clocks that differ are no reason not
to be linked: what follows from them is raft/core/clocks.py's.
"""

from typing import Any, NamedTuple

import cbor2

from raft.protocol.config import ADDRESS_CHARS_MAX, ID_BYTES, ConfigRefused, GroupConfig, member_number
from raft.protocol.fields import CLOCK_MS_MAX, FieldError, blob, flag, number, sequence, text, unpack
from raft.protocol.fixed_heads import FIXED_HEADS
from raft.protocol.messages import HELLO_BYTES_MAX

# Of the protocol between members. A program talks to those that know its own version, back to OLDEST (R15).
VERSION = 1
VERSION_OLDEST = 1
VERSION_MAX = 65_535
# What this program can do beyond the least of its version; a member uses with another what both name (R15).
# "clocks": appends and their answers carry the sender's wall clock, and CLOCK is answered (raft/core/clocks.py).
CLOCKS = "clocks"
# REPAIR_READ is answered (raft/core/repair.py).
REPAIR_BY_BYTES = "repair-by-bytes"
# Heads of fixed form are read (raft/protocol/fixed_heads.py).
FEATURES: tuple[str, ...] = (CLOCKS, REPAIR_BY_BYTES, FIXED_HEADS)
# Said beside them as long as it is so: the member's log takes no messages (raft/core/room.py). A word, for members of
# older programs pass over those that they do not know.
NO_ROOM = "no-room"
FEATURES_MAX = 64
FEATURE_CHARS_MAX = 32
GROUP_CHARS_MAX = 127
PEERS_MAX = 64
# Values in a Hello: its fields, features and peers.
_ITEMS_MAX = 40 + FEATURES_MAX + PEERS_MAX
# Milliseconds that two members' wall clocks may differ (R17): beyond it retention and delays go wrong for good.
CLOCK_APART_MS_MAX = 30_000


class HelloError(ValueError):
    """Bytes that are no Hello; the text names the field."""


class Hello(NamedTuple):
    """What a member says of itself. Indexes and terms are 0, ids empty, where it has none."""

    group: str
    """The group's name, as configured."""
    self_id: str
    store_id: bytes
    group_id: bytes
    """Of the group it is in, b"" while it is in none."""
    last_index: int
    last_term: int
    base_index: int
    """Of the group: what its CONFIG says, not what retention has left (R1). Of a member that is to come to a group
    with what it has (R16): where that ends."""
    base_position: int
    empty: bool
    """Its log holds not one record."""
    has_log: bool
    """Its log holds a control record (R1). Without a group id: of a group that has ended (R2)."""
    log_file_bytes: int
    """Size of one CommitLog file; equal in a group."""
    flush_sync: bool
    """Acknowledges only what is on disk; equal in a group."""
    clock_ms: int
    """Its wall clock as it says this, milliseconds since the epoch."""
    version: int = VERSION
    version_oldest: int = VERSION_OLDEST
    features: tuple[str, ...] = FEATURES
    broker_address: str = ""
    """Where its clients' port is, "host:port"."""
    base_digest: int = 0
    """CRC over what stands before base_position."""
    config_index: int = 0
    """Index of its last CONFIG entry, 0 when it has none."""
    peer_ids: tuple[str, ...] = ()
    """Whom its configuration names, itself included, for the beginning of a group."""

    @property
    def base(self) -> tuple[int, int, int]:
        """What the group's log begins behind: index, position, and the CRC over the bytes."""
        return self.base_index, self.base_position, self.base_digest

    def encode(self) -> bytes:
        """Return the bytes that decode() reads."""
        data = cbor2.dumps([list(value) if isinstance(value, tuple) else value for value in self])
        assert len(data) <= HELLO_BYTES_MAX, f"a hello has {len(data)} bytes"
        return data

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "Hello":
        """Read a Hello, every field checked; HelloError otherwise."""
        if len(data) > HELLO_BYTES_MAX:
            raise HelloError(f"a hello has {len(data)} bytes, {HELLO_BYTES_MAX} are allowed")
        try:
            hello = cls._checked(dict(zip(cls._fields, unpack(data, _ITEMS_MAX, len(cls._fields)), strict=True)))
        except (FieldError, ConfigRefused) as error:
            raise HelloError(f"hello: {error}") from error
        return hello

    @classmethod
    def _checked(cls, said: dict[str, Any]) -> "Hello":
        numbers = ("last_index", "last_term", "base_index", "base_position", "config_index")
        values: dict[str, Any] = {name: number(said[name], name) for name in numbers}
        values |= {name: flag(said[name], name) for name in ("empty", "has_log", "flush_sync")}
        values |= {
            "group": text(said["group"], "group", GROUP_CHARS_MAX),
            "self_id": text(said["self_id"], "self_id", 4),
            "store_id": blob(said["store_id"], "store_id", ID_BYTES, ID_BYTES),
            "group_id": blob(said["group_id"], "group_id", 0, ID_BYTES),
            "log_file_bytes": number(said["log_file_bytes"], "log_file_bytes", 1),
            "clock_ms": number(said["clock_ms"], "clock_ms", 0, CLOCK_MS_MAX),
            "version": number(said["version"], "version", 1, VERSION_MAX),
            "version_oldest": number(said["version_oldest"], "version_oldest", 1, VERSION_MAX),
            "features": _texts(said["features"], "features", FEATURES_MAX, FEATURE_CHARS_MAX),
            "broker_address": text(said["broker_address"], "broker_address", ADDRESS_CHARS_MAX),
            "base_digest": number(said["base_digest"], "base_digest", 0, (1 << 32) - 1),
            "peer_ids": _texts(said["peer_ids"], "peer_ids", PEERS_MAX, 4),
        }
        hello = cls(**values)
        member_number(hello.self_id)
        if len(hello.group_id) not in {0, ID_BYTES}:
            raise FieldError(f"group_id has {len(hello.group_id)} bytes, 0 or {ID_BYTES} are allowed")
        if hello.group_id and not hello.has_log:
            raise FieldError("has_log and group_id do not agree")
        if hello.empty and hello.has_log:
            raise FieldError("empty and has_log do not agree")
        return hello


def _texts(value: Any, name: str, count_max: int, chars_max: int) -> tuple[str, ...]:
    return tuple(text(item, name, chars_max) for item in sequence(value, name, count_max))


def judge(own: Hello, other: Hello, config: GroupConfig | None) -> str | None:
    """Return in words why these two must not be linked, None when they may.

    `config` is this member's CONFIG in force, None while it has none.
    """
    return _strangers(own, other) or _other_group(own, other) or _other_disk(own, other, config) or _unlike(own, other)


def _strangers(own: Hello, other: Hello) -> str | None:
    if own.version < other.version_oldest or other.version < own.version_oldest:
        return (
            f"{other.self_id} speaks version {other.version} (back to {other.version_oldest}) of the peer protocol,"
            f" this member {own.version} (back to {own.version_oldest}): upgrade in steps"
        )
    if own.group != other.group:
        return f"{other.self_id} belongs to the group {other.group!r}, this member to {own.group!r}: see dLegerGroup"
    if own.self_id == other.self_id:
        return f"two members call themselves {own.self_id}: see dLegerSelfId"
    if own.store_id == other.store_id:
        return (
            f"{other.self_id} and {own.self_id} have the same store id, so one folder is a copy of the other:"
            " empty the copy and add that member as a learner"
        )
    return None


def _other_group(own: Hello, other: Hello) -> str | None:
    if not (own.group_id and other.group_id):
        return None
    if own.group_id != other.group_id:
        return (
            f"{other.self_id} has the log of another group ({other.group_id.hex()}) than this member"
            f" ({own.group_id.hex()}): to join, one of them must begin with an empty store folder (R1)"
        )
    if own.base != other.base:
        return (
            f"the group's log begins at index {other.base_index}, position {other.base_position} in {other.self_id}"
            f" and at index {own.base_index}, position {own.base_position} here, or behind other bytes: one of the"
            " stores was damaged (R1)"
        )
    return None


def _other_disk(own: Hello, other: Hello, config: GroupConfig | None) -> str | None:
    member = config.member(other.self_id) if config is not None else None
    if member is None or member.store_id == other.store_id:
        return None
    if own.group_id == other.group_id and other.config_index > own.config_index:
        # It was removed and added again, and this member has not yet received that; it may even lead.
        return None
    return (
        f"{other.self_id} comes with another disk ({other.store_id.hex()}) than the member of that name"
        f" ({member.store_id.hex()}): it does not know what it voted and acknowledged. Remove it from the group, then"
        " add it again as a learner (R6)"
    )


def _unlike(own: Hello, other: Hello) -> str | None:
    if own.log_file_bytes != other.log_file_bytes:
        return (
            f"{other.self_id} has mappedFileSizeCommitLog={other.log_file_bytes}, this member {own.log_file_bytes}:"
            " members of a group need the same (R17)"
        )
    if own.flush_sync != other.flush_sync:
        modes = {True: "SYNC_FLUSH", False: "ASYNC_FLUSH"}
        return (
            f"{other.self_id} has flushDiskType={modes[other.flush_sync]}, this member {modes[own.flush_sync]}:"
            " members of a group need the same (R17)"
        )
    return None
