"""Message properties: ``name 0x01 value 0x02`` repeated (wire.md of RocketMQ's protocol; UTF-8).

Some writers leave the last 0x02 out, others write it; both are read. Nothing escapes the two separators, so they cannot
occur in a name or a value.
"""

from collections.abc import Iterable, Mapping, Sequence

NAME_END = b"\x01"
PAIR_END = b"\x02"
# PROPLEN in a record is a signed 16-bit number.
PROPERTIES_BYTES_MAX = 32767

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT = "WAIT"
PROPERTY_DELAY = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_BUYER_ID = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIME = "CONSUME_START_TIME"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_TTL = "TTL"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_ORIGIN_GROUP = "ORIGIN_GROUP"
PROPERTY_PRIORITY = "_SYS_MSG_PRIORITY_"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
# All bytes but the two separators and the one that stands between messages when they are compared.
_NO_SEPARATORS = bytes(range(3, 256))
# Messages whose properties are compared with one another at a time.
_ALIKE_MAX = 64
_TAGS = PROPERTY_TAGS.encode()
_UNIQ_KEY = PROPERTY_UNIQ_KEY.encode()
_KEYS = PROPERTY_KEYS.encode()
# KEYS holds several keys separated by this.
KEY_SEPARATOR = " "


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Write `properties` in their order, a 0x02 behind the last; ValueError when one holds a separator."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    count = len(properties)
    if text.count("\x01") != count or text.count("\x02") != count:
        raise ValueError("a property's name or value must not contain the characters U+0001 and U+0002")
    return text.encode("utf-8", "replace")


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """Read properties; empty pairs and pairs without a separator are skipped, the last of a name counts."""
    result: dict[str, str] = {}
    for pair in str(data, "utf-8", "replace").split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator and (name or value):
            result[name] = value
    return result


def find_property(properties: bytes, name_end: bytes) -> bytes:
    r"""Return one property's value without decoding the others, b"" when it is absent.

    `name_end` is the name with its 0x01 behind it (``b"TAGS\x01"``): made once by the caller, this is the hot path.
    """
    at = properties.rfind(name_end)
    while at > 0 and properties[at - 1] != 2:
        at = properties.rfind(name_end, 0, at)
    if at < 0:
        return b""
    start = at + len(name_end)
    end = properties.find(PAIR_END, start)
    return properties[start:end] if end >= 0 else properties[start:]


def indexed_columns(properties: Sequence[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return what indexed_properties() does of many messages, as three lists: TAGS, UNIQ_KEY and KEYS.

    Those of one producer mostly have the same properties in the same order, and one look at their names serves all.
    """
    tags: list[bytes] = []
    uniq_keys: list[bytes] = []
    keys: list[bytes] = []
    for start in range(0, len(properties), _ALIKE_MAX):
        part = properties[start : start + _ALIKE_MAX]
        columns = _alike(part) or zip(*map(indexed_properties, part), strict=True)
        for whole, column in zip((tags, uniq_keys, keys), columns, strict=True):
            whole.extend(column)
    return tags, uniq_keys, keys


def _alike(properties: Sequence[bytes]) -> tuple[Iterable[bytes], ...] | None:
    """Return the columns of messages with the same names in the same places, None when they are not so alike."""
    count = len(properties)
    pairs = properties[0].count(PAIR_END)
    joined = b"\0".join(properties)
    # Nothing but the separators is left, with one between two messages: they stand at the same places in all of them.
    if joined.translate(None, _NO_SEPARATORS) != b"\0".join([b"\x01\x02" * pairs] * count):
        return None
    # What stood after a message's last separator would become part of the next one's first name.
    if joined.count(b"\x02\0") != count - 1:
        return None
    fields = b"".join(properties).replace(NAME_END, PAIR_END).split(PAIR_END)
    width = 2 * pairs
    names = fields[:width:2]
    if not pairs or len(set(names)) != pairs:
        return None
    for at, name in enumerate(names):
        if fields[2 * at : -1 : width] != [name] * count:
            return None
    absent = [b""] * count
    return tuple(
        fields[2 * names.index(name) + 1 :: width] if name in names else absent for name in (_TAGS, _UNIQ_KEY, _KEYS)
    )


def indexed_properties(properties: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the values of TAGS, UNIQ_KEY and KEYS, each b"" when it is absent: what queues and index are made of.

    Called once per message: half the time of three times find_property(), with the same results for properties that
    are well-formed and hold no name twice.
    """
    fields = properties.replace(NAME_END, PAIR_END).split(PAIR_END)
    tags = uniq_key = keys = b""
    # Names stand at even places; what stands elsewhere is a value that reads like one.
    if _TAGS in fields:
        at = fields.index(_TAGS) + 1
        tags = fields[at] if at & 1 and at < len(fields) else find_property(properties, _TAGS + NAME_END)
    if _UNIQ_KEY in fields:
        at = fields.index(_UNIQ_KEY) + 1
        uniq_key = fields[at] if at & 1 and at < len(fields) else find_property(properties, _UNIQ_KEY + NAME_END)
    if _KEYS in fields:
        at = fields.index(_KEYS) + 1
        keys = fields[at] if at & 1 and at < len(fields) else find_property(properties, _KEYS + NAME_END)
    return tags, uniq_key, keys
