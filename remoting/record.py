"""The message record: CommitLog layout and pull-response layout are the same bytes (RocketMQ's, all big-endian).

======================= ====== =================================================
TOTALSIZE               4      whole record
MAGICCODE               4      V1; V2 when the topic takes more than 127 bytes
BODYCRC                 4      CRC-32 of the body, sign bit cleared
QUEUEID, FLAG           4 + 4
QUEUEOFFSET             8      0 for prepared and rolled-back messages
PHYSICALOFFSET          8      the record's own position
SYSFLAG                 4      0x10: born host is IPv6, 0x20: store host is
BORNTIMESTAMP           8      ms
BORNHOST                8|20   address, port as int32
STORETIMESTAMP          8      ms
STOREHOST               8|20
RECONSUMETIMES          4
PREPAREDTRANSACTIONOFFSET 8
BODYLEN, BODY           4 + n
TOPICLEN, TOPIC         1|2 + n  two bytes in V2
PROPLEN, PROPERTIES     2 + n
======================= ====== =================================================

A CommitLog file ends in a blank: int32 remaining size, int32 BLANK_MAGIC.
"""

import struct
from collections.abc import Iterable, Iterator

from remoting.message import MessageExt
from remoting.msgid import unpack_host
from remoting.properties import PROPERTIES_BYTES_MAX, decode_properties
from runtime.crc import crc32

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194

BORNHOST_V6 = 0x10
STOREHOST_V6 = 0x20

# Offsets of fields that are read alone; all stand before the first field of variable length.
MAGIC_AT = 4
QUEUEOFFSET_AT = 20
SYSFLAG_AT = 36
BORNHOST_AT = 48

# Everything but body, topic and properties of a V1 record with IPv4 hosts.
FIXED_BYTES = 91
# A topic's length is a signed byte in V1 and a signed short in V2.
TOPIC_V1_BYTES_MAX = 127
TOPIC_V2_BYTES_MAX = 32767
# int32 size, int32 magic.
BLANK_BYTES = 8

BLANK = struct.Struct(">iI")
# Up to BODYLEN, for the four combinations of hosts: key = sysFlag & (BORNHOST_V6 | STOREHOST_V6).
HEADS = {
    0: struct.Struct(">iIIiiqqiq8sq8siqi"),
    BORNHOST_V6: struct.Struct(">iIIiiqqiq20sq8siqi"),
    STOREHOST_V6: struct.Struct(">iIIiiqqiq8sq20siqi"),
    BORNHOST_V6 | STOREHOST_V6: struct.Struct(">iIIiiqqiq20sq20siqi"),
}
_SIZE = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SIZE_AND_MAGIC = struct.Struct(">iI")
_SYSFLAG = struct.Struct(">i")
_SHORT = struct.Struct(">h")
# A client batch's element (request code 320): total size, magic 0, CRC 0, flag, body length; then the body, int16
# length of the properties, the properties.
_BATCH_HEAD = struct.Struct(">iiiii")


class RecordError(Exception):
    """The bytes are no record; the text says which rule they break."""


def topic_field(topic: bytes) -> tuple[int, bytes]:
    """Return (magic, TOPICLEN + TOPIC); RecordError when the topic is empty or longer than V2 can say."""
    size = len(topic)
    if not 0 < size <= TOPIC_V2_BYTES_MAX:
        raise RecordError(f"a topic takes 1 to {TOPIC_V2_BYTES_MAX} bytes, not {size}")
    if size <= TOPIC_V1_BYTES_MAX:
        return MAGIC_V1, bytes([size]) + topic
    return MAGIC_V2, _SHORT.pack(size) + topic


def encode_record(
    topic: str,
    queue_id: int,
    body: bytes | memoryview,
    properties: bytes = b"",
    *,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: bytes = bytes(8),
    store_timestamp: int = 0,
    store_host: bytes = bytes(8),
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return one whole record. The host bits of `sys_flag` are set from the lengths of the hosts (8 or 20 bytes).

    Raises RecordError when a field does not fit. (The store writes the same bytes from the parts above, without the
    intermediate copy: see store/log/commitlog.py.)
    """
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise RecordError(f"properties take at most {PROPERTIES_BYTES_MAX} bytes, not {len(properties)}")
    magic, named = topic_field(topic.encode("utf-8"))
    sys_flag = host_flags(sys_flag, born_host, store_host)
    head = HEADS[sys_flag & (BORNHOST_V6 | STOREHOST_V6)]
    total = head.size + len(body) + len(named) + 2 + len(properties)
    try:
        packed = head.pack(
            total, magic, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, physical_offset, sys_flag,
            born_timestamp, born_host, store_timestamp, store_host, reconsume_times, prepared_transaction_offset,
            len(body),
        )  # fmt: skip
    except struct.error as error:
        raise RecordError(f"a field does not fit its place in the record: {error}") from error
    return b"".join((packed, body, named, _SHORT.pack(len(properties)), properties))


def host_flags(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """Return `sys_flag` with the two IPv6 bits as the hosts have it."""
    return (
        sys_flag & ~(BORNHOST_V6 | STOREHOST_V6)
        | (BORNHOST_V6 if len(born_host) == 20 else 0)
        | (STOREHOST_V6 if len(store_host) == 20 else 0)
    )


def decode_record(view: bytes | memoryview, position: int = 0, *, check_crc: bool = False) -> MessageExt:
    """Decode the record that starts at `position`; RecordError when it is damaged or cut short."""
    head_size, total = _frame(view, position)
    (_, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born_ms, born_host, store_ms, store_host,
     reconsume, prepared, body_size) = HEADS[_host_bits(view, position)].unpack_from(view, position)  # fmt: skip
    end = position + total
    body_at = position + head_size
    topic_at = body_at + body_size
    wide = magic == MAGIC_V2
    if body_size < 0 or topic_at + (4 if wide else 3) > end:
        raise RecordError(f"the body's length {body_size} does not fit into the record's {total} bytes")
    body = bytes(view[body_at:topic_at])
    if check_crc and crc32(body) & 0x7FFFFFFF != crc & 0x7FFFFFFF:
        raise RecordError("the body does not match its CRC")
    topic_size = int.from_bytes(view[topic_at : topic_at + (2 if wide else 1)], "big")
    topic_at += 2 if wide else 1
    properties_at = topic_at + topic_size
    if properties_at + 2 > end:
        raise RecordError(f"the topic's length {topic_size} does not fit into the record's {total} bytes")
    properties_size = int.from_bytes(view[properties_at : properties_at + 2], "big")
    if properties_at + 2 + properties_size != end:
        raise RecordError(f"the properties' length {properties_size} does not end where the record ends")
    try:
        topic = str(view[topic_at:properties_at], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError("the topic is not UTF-8") from error
    properties = decode_properties(view[properties_at + 2 : end])
    return MessageExt(
        topic, queue_id, queue_offset, physical, flag, sys_flag, born_ms, unpack_host(born_host), store_ms,
        unpack_host(store_host), reconsume, prepared, body, crc, properties, total,
    )  # fmt: skip


def decode_records(view: bytes | memoryview, *, check_crc: bool = False) -> list[MessageExt]:
    """Decode records that stand back to back (the body of a pull response); RecordError when one is damaged."""
    messages = []
    position = 0
    while position < len(view):
        message = decode_record(view, position, check_crc=check_crc)
        messages.append(message)
        position += message.size
    return messages


def peek(view: bytes | memoryview, position: int) -> tuple[int, int, memoryview]:
    """Return (total size, queue offset, encoded properties) of the record at `position`: all that filters look at.

    Raises RecordError when it does not add up.
    """
    head_size, total = _frame(view, position)
    body_at = position + head_size
    topic_at = body_at + _SIZE.unpack_from(view, body_at - _SIZE.size)[0]
    end = position + total
    wide = _SIZE_AND_MAGIC.unpack_from(view, position)[1] == MAGIC_V2
    if not body_at <= topic_at <= end - (4 if wide else 3):
        raise RecordError("the record's body does not fit its size")
    named_at = topic_at + (2 + _SHORT.unpack_from(view, topic_at)[0] if wide else 1 + view[topic_at])
    if not topic_at < named_at <= end - _SHORT.size:
        raise RecordError("the record's topic does not fit its size")
    properties_at = named_at + _SHORT.size
    properties_end = properties_at + _SHORT.unpack_from(view, named_at)[0]
    if not properties_at <= properties_end <= end:
        raise RecordError("the record's properties do not fit its size")
    queue_offset: int = _LONG.unpack_from(view, position + QUEUEOFFSET_AT)[0]
    return total, queue_offset, memoryview(view)[properties_at:properties_end]


def _host_bits(view: bytes | memoryview, position: int) -> int:
    bits: int = _SYSFLAG.unpack_from(view, position + SYSFLAG_AT)[0] & (BORNHOST_V6 | STOREHOST_V6)
    return bits


def _frame(view: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return (bytes before the body, total size) after checking that the record lies whole in `view`."""
    room = len(view) - position
    if position < 0 or room < FIXED_BYTES:
        raise RecordError(f"{room} bytes are too few for a record")
    total, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        raise RecordError(f"no record starts here: magic {magic:#010x}")
    head_size = HEADS[_host_bits(view, position)].size
    if not head_size + 3 <= total <= room:
        raise RecordError(f"the record's size {total} does not fit: {room} bytes are here")
    return head_size, total


def encode_batch(elements: Iterable[tuple[int, bytes | memoryview, bytes]]) -> bytes:
    """Return the body of a batch send (request code 320) of (flag, body, properties) elements."""
    pieces: list[bytes | memoryview] = []
    for flag, body, properties in elements:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise RecordError(f"properties take at most {PROPERTIES_BYTES_MAX} bytes, not {len(properties)}")
        total = _BATCH_HEAD.size + len(body) + 2 + len(properties)
        pieces += (_BATCH_HEAD.pack(total, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    return b"".join(pieces)


def batch_columns(body: bytes, count_max: int) -> tuple[list[int], list[bytes], list[bytes]] | None:
    """Return the flags, bodies and properties of a batch send's body of at most `count_max` messages.

    None when something does not add up: what that is split_batch() tells. In one loop, for it is what every message of
    a batch costs.
    """
    flags: list[int] = []
    bodies: list[bytes] = []
    all_properties: list[bytes] = []
    unpack, head_size = _BATCH_HEAD.unpack_from, _BATCH_HEAD.size
    at, end = 0, len(body)
    try:
        while at < end:
            total, _, _, flag, body_size = unpack(body, at)
            body_at, after = at + head_size, at + total
            split = body_at + body_size
            properties_at = split + 2
            size = after - properties_at
            if (
                body_size < 0
                or after > end
                or not 0 <= size <= PROPERTIES_BYTES_MAX
                or size != body[split] << 8 | body[split + 1]
                or len(flags) == count_max
            ):
                return None
            flags.append(flag)
            bodies.append(body[body_at:split])
            all_properties.append(body[properties_at:after])
            at = after
    except struct.error:
        return None
    return flags, bodies, all_properties


def split_batch(body: bytes | memoryview) -> Iterator[tuple[int, memoryview, bytes]]:
    """Yield (flag, body, properties) of a batch send's body; RecordError when an element does not add up."""
    view = memoryview(body)
    position = 0
    while position < len(view):
        if len(view) - position < _BATCH_HEAD.size + 2:
            raise RecordError(f"{len(view) - position} bytes behind the last element of the batch")
        total, _, _, flag, body_size = _BATCH_HEAD.unpack_from(view, position)
        body_at = position + _BATCH_HEAD.size
        properties_at = body_at + body_size + 2
        end = position + total
        if body_size < 0 or end > len(view) or properties_at > end:
            raise RecordError(f"the batch element at {position} says {total} bytes with {body_size} of body")
        properties_size = _SHORT.unpack_from(view, properties_at - 2)[0]
        if properties_size < 0 or properties_at + properties_size != end:
            raise RecordError(f"the properties of the batch element at {position} do not end where it ends")
        yield flag, view[body_at : properties_at - 2], bytes(view[properties_at:end])
        position = end
