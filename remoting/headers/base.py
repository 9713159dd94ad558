"""What every typed header has: conversion to and from the protocol's map of strings.

A request or response carries its own fields ("extFields" in the JSON header) as a flat map of strings. Each header
class names them exactly as they stand on the wire. Official clients differ in how they write values: Java sends strings
only, Node raw JSON numbers and booleans, C++ a mixture with booleans as "0" and "1". All of that is read; strings are
written.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from remoting.errors import HeaderError

# Java's int and long: what does not fit is the sender's error, found here and not when a record is packed.
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Custom fields of one header; the longest of RocketMQ's own has 20.
FIELDS_MAX = 128

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
# A misfit value is quoted in the answer, but never more of it than this many characters.
_QUOTED_CHARACTERS_MAX = 64


class Header(msgspec.Struct, gc=False):
    """Base of all typed headers: attributes are wire names, an absent optional field is None or its default.

    Each subclass says `kw_only=True` itself (msgspec does not pass it on); unknown fields are ignored. Headers and
    commands form no cycles, so the garbage collector need not walk the thousands that a busy turn makes.
    """


H = TypeVar("H", bound=Header)


def text_of(value: Any) -> str:
    """Return a JSON value as the protocol writes it in a header: true and false in lower case, numbers decimal.

    HeaderError when it nests too deep.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    try:
        # orjson reserves some hundred bytes for each value before it writes one.
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise HeaderError("a value of the header nests too deep") from None


def read_ext(value: Any) -> dict[str, str]:
    """Return the custom fields of a decoded JSON header as strings, nulls dropped; HeaderError when it is no map."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HeaderError("extFields is not a map")
    if len(value) > FIELDS_MAX:
        raise HeaderError(f"{len(value)} custom fields; up to {FIELDS_MAX} are accepted")
    return {name: field if type(field) is str else text_of(field) for name, field in value.items() if field is not None}


def encode_header(header: Header) -> dict[str, str]:
    """Return a header's fields as the wire carries them; None is left out, booleans are "true" and "false"."""
    ext = {}
    for name, value in zip(header.__struct_encode_fields__, msgspec.structs.astuple(header), strict=True):
        if value is None:
            continue
        kind = type(value)
        if kind is str:
            ext[name] = value
        elif kind is bool:
            ext[name] = "true" if value else "false"
        else:
            ext[name] = str(int(value))
    return ext


def decode_header(cls: type[H], ext: Mapping[str, str]) -> H:
    """Return the typed header that a map of strings holds; unknown names are ignored.

    Numbers are decimal text ("7", "+7", also "7.0"), booleans are true only for "true" (any case) and "1" (C++ client).
    Raises HeaderError "the custom field <name> is null" for a missing required field, RocketMQ's own words that
    tools show to people, and another text for one that does not fit.
    """
    try:
        return msgspec.convert(ext, cls, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return _decode_leniently(cls, ext)


def _decode_leniently(cls: type[H], ext: Mapping[str, str]) -> H:
    """Field by field: for what the fast way refuses, and to name the field that is at fault."""
    values: dict[str, Any] = {}
    for name, wire_name, required, (kind, minimum, maximum) in _fields_of(cls):
        value = ext.get(wire_name)
        if value is None:
            if required:
                raise HeaderError(f"the custom field <{wire_name}> is null")
            continue
        text = text_of(value)
        if kind is bool:
            values[name] = text.strip().lower() in {"true", "1"}
        elif kind is int:
            if not required and not text.strip():
                continue
            values[name] = _integer(wire_name, text, minimum, maximum)
        else:
            values[name] = text
    return cls(**values)


@cache
def _fields_of(cls: type[Header]) -> tuple[tuple[str, str, bool, tuple[type, int, int]], ...]:
    """Return each field's name, name on the wire, whether it must be there, and kind; looking costs 50 us each time."""
    fields = msgspec.structs.fields(cls)
    return tuple((each.name, each.encode_name, each.required, _kind_of(each.type)) for each in fields)


def _kind_of(annotation: Any) -> tuple[type, int, int]:
    """Return the plain type of a field and, for an integer, its range."""
    for part in getattr(annotation, "__args__", ()) or (annotation,):
        for meta in getattr(part, "__metadata__", ()):
            return int, meta.ge, meta.le
        if part is bool:
            return bool, 0, 0
    if getattr(annotation, "__metadata__", ()):
        meta = annotation.__metadata__[0]
        return int, meta.ge, meta.le
    return str, 0, 0


def _integer(name: str, text: str, minimum: int, maximum: int) -> int:
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped) and minimum <= int(stripped) <= maximum:
        return int(stripped)
    quoted = text if len(text) <= _QUOTED_CHARACTERS_MAX else text[:_QUOTED_CHARACTERS_MAX] + "…"
    raise HeaderError(f"the custom field <{name}> is not an integer from {minimum} to {maximum}: {quoted!r}")
