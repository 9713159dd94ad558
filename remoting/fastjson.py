"""JSON as fastjson writes it: nearly JSON, but maps may be keyed by bare integers or by whole objects.

`{0:"10.0.0.1:10911"}` is what a Java map with integer keys becomes, and
`{{"brokerName":"b","queueId":0,"topic":"t"}:{...}}` one that is keyed by message queues. Neither is JSON; both are read
here, and the second is written here, because Java tools understand nothing else in those places.
"""

import json
import re
from typing import Any

import msgspec
import orjson

from remoting.errors import HeaderError

# How deep a hand-parsed body may nest; the deepest that RocketMQ writes is 7.
DEPTH_MAX = 64

# An object that stood as a key: its (name, value) pairs, sorted by name.
ObjectKey = tuple[tuple[str, Any], ...]

_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORDS: dict[str, object] = {"null": None, "true": True, "false": False}
_DIGITS_MAX = 400


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Read a JSON text or fastjson's dialect of it; raises HeaderError when it is neither.

    A bare integer key becomes the same string that a quoted one would be. An object that stands as a key becomes an
    ObjectKey: the tuple of its (name, value) pairs, sorted by name.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        strict_error = error
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        raise HeaderError("the body is not UTF-8") from None
    if not text.strip():
        raise HeaderError("the body is empty") from strict_error
    return _Reader(text).whole()


def dumps_object_keyed(value: object) -> bytes:
    """Write a value whose dictionaries may be keyed by Structs (written bare, as fastjson does), ints or strings.

    None among the fields of Structs and dictionaries is left out. Keys that are ints are quoted.
    """
    pieces: list[bytes] = []
    _write(value, pieces)
    return b"".join(pieces)


def object_key(key: object) -> dict[str, Any]:
    """Return the object that stood as a key: from an ObjectKey, or from a string that holds its JSON text."""
    if isinstance(key, tuple):
        return dict(key)
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


class _Reader:
    """A recursive-descent reader over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at != len(self._text):
            raise self._wrong("the end of the text")
        return value

    def _skip(self) -> None:
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _peek(self) -> str:
        self._skip()
        return self._text[self._at : self._at + 1]

    def _take(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._at += 1
        return True

    def _wrong(self, wanted: str) -> HeaderError:
        return HeaderError(f"the body is not JSON: {wanted} expected at character {self._at}")

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise HeaderError(f"the body nests deeper than {DEPTH_MAX}")
        mark = self._peek()
        if mark == "{":
            return self._object(depth)
        if mark == "[":
            return self._array(depth)
        if mark == '"':
            return self._string()
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            return self._number(number.group())
        if (word := _NAME.match(self._text, self._at)) and word.group() in _WORDS:
            self._at = word.end()
            return _WORDS[word.group()]
        raise self._wrong("a value")

    def _number(self, digits: str) -> int | float:
        if len(digits) > _DIGITS_MAX:
            raise self._wrong(f"a number of at most {_DIGITS_MAX} digits")
        return float(digits) if any(mark in digits for mark in ".eE") else int(digits)

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._wrong("a closed string")
        raw = match.group()
        if "\\" not in raw:
            self._at = match.end()
            return raw[1:-1]
        try:
            text = str(json.loads(raw, strict=False))
            text.encode()  # half of a surrogate pair is refused here, before it fails where the text is stored
        except ValueError:
            raise self._wrong("a string with known escapes") from None
        self._at = match.end()
        return text

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        items: list[Any] = []
        if self._take("]"):
            return items
        while True:
            items.append(self._value(depth + 1))
            if self._take("]"):
                return items
            if not self._take(","):
                raise self._wrong("',' or ']'")

    def _object(self, depth: int) -> dict[Any, Any]:
        self._at += 1
        fields: dict[Any, Any] = {}
        if self._take("}"):
            return fields
        while True:
            key = self._key(depth)
            if not self._take(":"):
                raise self._wrong("':'")
            fields[key] = self._value(depth + 1)
            if self._take("}"):
                return fields
            if not self._take(","):
                raise self._wrong("',' or '}'")

    def _key(self, depth: int) -> str | ObjectKey:
        mark = self._peek()
        if mark == '"':
            return self._string()
        if mark == "{":
            inner = self._value(depth + 1)
            if any(isinstance(item, dict | list) for item in inner.values()):
                raise self._wrong("a key without nested values")
            return tuple(sorted((str(name), item) for name, item in inner.items()))
        bare = _NUMBER.match(self._text, self._at) or _NAME.match(self._text, self._at)
        if bare is None:
            raise self._wrong("a key")
        self._at = bare.end()
        return bare.group()
