"""JSON as fastjson writes it: nearly JSON, but maps may be keyed by bare integers or by whole objects.

`{0:"10.0.0.1:10911"}` is what a Java map with integer keys becomes, and
`{{"brokerName":"b","queueId":0,"topic":"t"}:{...}}` one that is keyed by message queues. Neither is JSON; both are read
here, and the second is written here, because Java tools understand nothing else in those places.
"""

import re
from typing import Any, TypeVar

import msgspec
import orjson

from remoting.errors import HeaderError

T = TypeVar("T")

# Bytes of the dialect that are read from whoever sends them. Strict JSON is read however long it is: a hundred times as
# fast, and what official clients send beyond a few KiB.
DIALECT_BYTES_MAX = 256 * 1024

# Each object or array costs a reader some 50 to 300 bytes, whoever sends it two or three. A text may hold one for so
# many bytes of it: RocketMQ's own bodies have 40 and more. Texts up to so many bytes, and the first so many, are free.
CONTAINER_BYTES_MIN = 24
DENSE_BYTES_FREE = 8 * 1024
CONTAINERS_FREE = 2000

# What may have to be written otherwise: strings, objects that stand as keys, bare keys. Nothing here is gone back to,
# and nothing kept for each character: what takes a part of the text takes it for good.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(
    rf"""
    (?P<string>{_STRING})
    | (?P<object>\{{(?:[^{{}}"]++|{_STRING})*+\}})(?=[ \t\r\n]*+:)
    | (?P<before>[{{,][ \t\r\n]*+)(?P<key>-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|[A-Za-z_$][A-Za-z0-9_$]*+)
      (?=[ \t\r\n]*+:)
    | (?P<open>")
    """,
    re.VERBOSE | re.DOTALL,
)
# In a string these are read as they stand.
_CONTROLS = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def check_density(data: bytes | bytearray | memoryview | str, container_bytes_min: int = CONTAINER_BYTES_MIN) -> None:
    """Raise HeaderError for a text of which hardly more than objects and arrays are to be made."""
    size = len(data)
    if size <= DENSE_BYTES_FREE:
        return
    if isinstance(data, str):
        containers = data.count("{") + data.count("[")
    else:
        data = bytes(data)
        containers = data.count(b"{") + data.count(b"[")
    if containers > CONTAINERS_FREE + size // container_bytes_min:
        raise HeaderError(f"a body of {size} bytes with {containers} objects and arrays: they are too many for it")


def loads(
    data: bytes | bytearray | memoryview | str,
    dialect_bytes_max: int | None = None,
    container_bytes_min: int | None = None,
) -> Any:
    """Read a JSON text, or up to so many bytes of fastjson's dialect of it; raises HeaderError when it is neither.

    A bare key becomes the same string that a quoted one would be; so does an object that stands as a key: the string
    is its text, see object_key(). With `container_bytes_min` a text that is nearly all objects and arrays is refused,
    see check_density(); files of ours may be so.
    """
    if container_bytes_min is not None:
        check_density(data, container_bytes_min)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        strict_error = error
    if dialect_bytes_max is not None and len(data) > dialect_bytes_max:
        raise HeaderError(f"a body of {len(data)} bytes that is not JSON: {strict_error}")
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        raise HeaderError("the body is not UTF-8") from None
    if not text.strip():
        raise HeaderError("the body is empty") from strict_error
    try:
        return orjson.loads(_TOKEN.sub(_as_json, text))
    except orjson.JSONDecodeError as error:
        raise HeaderError(f"the body is not JSON: {error}") from None


def _as_json(found: re.Match[str]) -> str:
    """Write a part of the dialect as JSON."""
    kind = found.lastgroup
    if kind == "string":
        text = found.group()
        if not text.isprintable():
            for control, escape in _CONTROLS.items():
                text = text.replace(control, escape)
        return text
    if kind == "object":
        return orjson.dumps(found.group()).decode()
    if kind == "key":
        return f'{found["before"]}"{found["key"]}"'
    raise HeaderError(f"the body is not JSON: the string at character {found.start()} is not closed")


def read_strictly(data: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """Read strict JSON as a type; raises msgspec.DecodeError whatever is wrong with it."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise msgspec.DecodeError("it nests too deep") from None


def dumps_object_keyed(value: object) -> bytes:
    """Write a value whose dictionaries may be keyed by Structs (written bare, as fastjson does), ints or strings.

    None among the fields of Structs and dictionaries is left out. Keys that are ints are quoted.
    """
    pieces: list[bytes] = []
    _write(value, pieces)
    return b"".join(pieces)


def object_key(key: object) -> dict[str, Any]:
    """Return the object that stood as a key, or in a string that stood there; its text is the key."""
    if isinstance(key, str) and key.startswith("{"):
        value = loads(key)
        if isinstance(value, dict):
            return value
    raise HeaderError(f"an object was expected as key, not {str(key)[:80]!r}")


def _write(value: object, pieces: list[bytes]) -> None:
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_encode_fields__}
    if isinstance(value, dict):
        opening = b"{"
        for key, item in value.items():
            if item is None:
                continue
            pieces.append(opening)
            opening = b","
            pieces.append(msgspec.json.encode(key if isinstance(key, msgspec.Struct) else str(key), order="sorted"))
            pieces.append(b":")
            _write(item, pieces)
        pieces.append(b"{}" if opening == b"{" else b"}")
    elif isinstance(value, list | tuple | set | frozenset):
        opening = b"["
        for item in value:
            pieces.append(opening)
            opening = b","
            _write(item, pieces)
        pieces.append(b"[]" if opening == b"[" else b"]")
    else:
        pieces.append(msgspec.json.encode(value))
