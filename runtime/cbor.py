"""A strict reader of CBOR (RFC 8949): the plain values that this program's own messages and entries are made of.

What the format allows beyond them costs its reader far more than its sender: a tag of twenty bytes is a regular
expression to be compiled, a number of a kilobyte, a value that contains itself. So there are integers of 64 bits, byte
strings, texts, true, false, null, arrays and maps with texts or integers as keys, of a known depth and number; all else
is CborError before anything is made of it. Time and memory grow with the bytes handed in, and with nothing else: what
is nearly all arrays and maps is CborError too.
Written is with cbor2.
"""

import struct
from typing import Any

# Arrays and maps inside one another.
DEPTH_MAX = 8
# An array of one byte takes some 80 bytes of memory, a map of three 260 and more. All of them together may take so many
# times the bytes handed in, and so many more.
_ROOM_FACTOR = 24
_ROOM_FREE = 64 * 1024
_ARRAY_BYTES, _MAP_BYTES, _KEY_BYTES = 88, 256, 32

_U16 = struct.Struct(">H").unpack_from
_U32 = struct.Struct(">I").unpack_from
_U64 = struct.Struct(">Q").unpack_from
_NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP = range(1, 6)
_SIMPLE = {0xF4: False, 0xF5: True, 0xF6: None}


class CborError(ValueError):
    """These bytes are no CBOR of the kinds above; the text says what stands where."""


def read_cbor(data: bytes | memoryview, items_max: int) -> Any:
    """Return the one value that `data` is, of at most `items_max` values in all; CborError otherwise.

    Keys of a map count as values. Byte strings are copies, none is a view of `data`.
    """
    data = bytes(data)
    try:
        value, end = _read(data, items_max)
    except (IndexError, struct.error):
        raise CborError(f"it ends after {len(data)} bytes, in the middle of a value") from None
    if end != len(data):
        raise CborError(f"{len(data) - end} bytes stand behind the value")
    return value


def _read(data: bytes, left: int) -> tuple[Any, int]:
    """Return the value that `data` begins with, and where it ends."""
    at = 0
    # The array that is being read, or what is in a map so far; how many values it lacks; those around it.
    items: list[Any] = []
    lacks = 1
    around: list[tuple[list[Any], int, bool]] = []
    is_map = False
    left -= 1
    room = _ROOM_FREE + _ROOM_FACTOR * len(data)
    while True:
        while lacks:
            lacks -= 1
            first = data[at]
            at += 1
            # Integers first: most of what members say to one another is numbers.
            if first < 24:
                items.append(first)
                continue
            size = first & 31
            if size < 24:
                argument = size
            elif size == 24:
                argument = data[at]
                at += 1
            elif size == 25:
                argument = _U16(data, at)[0]
                at += 2
            elif size == 26:
                argument = _U32(data, at)[0]
                at += 4
            elif size == 27:
                argument = _U64(data, at)[0]
                at += 8
            else:
                raise CborError(f"before {at}: a value without a length (0x{first:02x}) has no place here")
            if first < 0x20:
                items.append(argument)
                continue
            major = first >> 5
            if _ARRAY <= major <= _MAP:
                count = argument if major == _ARRAY else 2 * argument
                left -= count
                # Each has a byte at least.
                if count > len(data) - at or left < 0:
                    raise CborError(f"before {at}: {argument} values are too many here")
                room -= _MAP_BYTES + _KEY_BYTES * argument if major == _MAP and count else _ARRAY_BYTES
                if room < 0:
                    raise CborError(f"before {at}: arrays and maps of so few bytes are too many for {len(data)} bytes")
                if len(around) == DEPTH_MAX:
                    raise CborError(f"before {at}: more than {DEPTH_MAX} arrays or maps inside one another")
                around.append((items, lacks, is_map))
                items, lacks, is_map = [], count, major == _MAP
            elif major == _NEGATIVE:
                items.append(-1 - argument)
            elif first in _SIMPLE:
                items.append(_SIMPLE[first])
            elif major > _MAP:
                raise CborError(f"before {at}: a tag, a float or another value that has no place here (0x{first:02x})")
            else:
                end = at + argument
                if end > len(data):
                    raise CborError(f"before {at}: {argument} bytes are said to follow, there are {len(data) - at}")
                items.append(data[at:end] if major == _BYTES else _text(data[at:end], at))
                at = end
        if not around:
            return items[0], at
        value = _mapped(items, at) if is_map else items
        items, lacks, is_map = around.pop()
        items.append(value)


def _text(data: bytes, at: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CborError(f"at {at}: a text that is no UTF-8: {error.reason}") from None


def _mapped(items: list[Any], end: int) -> dict[Any, Any]:
    """Make a map of its keys and values."""
    keys = items[::2]
    for key in keys:
        if type(key) is not str and type(key) is not int:
            raise CborError(f"before {end}: a key is a text or an integer, not {type(key).__name__}")
    found = dict(zip(keys, items[1::2], strict=True))
    if len(found) != len(keys):
        raise CborError(f"before {end}: a key stands twice in a map")
    return found
