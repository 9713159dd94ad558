"""Values that another process, or a disk, says: taken apart and checked one by one before anything is done with them.

What is ours alone is a CBOR array of known length. Nothing here converts: a value is of the right type and in its
range, or FieldError names it.
"""

from typing import Any

from runtime.cbor import CborError, read_cbor

# Indexes, terms, positions, sequences: what fits a signed 64-bit field of a control record, with room for a "+ 1".
NUMBER_MAX = (1 << 62) - 1
# Wall clocks, milliseconds since the epoch.
CLOCK_MS_MAX = 1 << 53


class FieldError(ValueError):
    """A value is of the wrong type or out of its range; the text names the field."""


def unpack(data: bytes | memoryview, items_max: int, length: int | None = None) -> list[Any]:
    """Return the items of the one CBOR array that `data` is, `length` of them; nothing may stand behind it.

    `items_max` bounds all values in it together, those in arrays inside it too.
    """
    try:
        items = read_cbor(data, items_max)
    except CborError as error:
        raise FieldError(f"not CBOR of ours: {error}") from error
    if type(items) is not list:
        raise FieldError(f"not a CBOR array but {type(items).__name__}")
    if length is not None and len(items) != length:
        raise FieldError(f"{len(items)} fields where {length} are due")
    return items


def number(value: Any, name: str, low: int = 0, high: int = NUMBER_MAX) -> int:
    """Return an integer from `low` to `high`."""
    # bool is an int in Python; in a message it is another thing.
    if type(value) is not int:
        raise FieldError(f"{name} is no integer but {type(value).__name__}")
    if not low <= value <= high:
        raise FieldError(f"{name} is {value if abs(value) <= NUMBER_MAX else 'far'} outside {low}..{high}")
    return value


def flag(value: Any, name: str) -> bool:
    """Return a truth value."""
    if type(value) is not bool:
        raise FieldError(f"{name} is neither true nor false but {type(value).__name__}")
    return value


def text(value: Any, name: str, chars_max: int) -> str:
    """Return a printable text of at most `chars_max` characters; it may be empty."""
    if type(value) is not str:
        raise FieldError(f"{name} is no text but {type(value).__name__}")
    if len(value) > chars_max:
        raise FieldError(f"{name} has {len(value)} characters, {chars_max} are allowed")
    if not value.isprintable():
        raise FieldError(f"{name} holds characters that cannot be printed: {value[:80]!a}")
    return value


def blob(value: Any, name: str, low: int, high: int) -> bytes:
    """Return from `low` to `high` bytes."""
    if type(value) is not bytes:
        raise FieldError(f"{name} is no byte string but {type(value).__name__}")
    if not low <= len(value) <= high:
        raise FieldError(f"{name} has {len(value)} bytes, {low} to {high} are allowed")
    return value


def sequence(value: Any, name: str, length_max: int) -> list[Any]:
    """Return a list of at most `length_max` items, which are not looked at."""
    if type(value) is not list:
        raise FieldError(f"{name} is no list but {type(value).__name__}")
    if len(value) > length_max:
        raise FieldError(f"{name} has {len(value)} items, {length_max} are allowed")
    return value
