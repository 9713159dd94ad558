"""Values as Java reads and compares them: a filter's answer depends on it.

A property is a text. Compared with an integer it is read as one of 32 bits, or of 64 where the literal needs them, else
as a double; what cannot be read ends the evaluation (Mismatch). Integers are Python's, of which Wide marks Java's Long.
"""

import re
from math import copysign, isnan

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
# Of ten digits not all fit 32 bits.
_SURE_DIGITS = 9
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"(?a:(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)"
    r"|(?P<decimal>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?))"
)
# What Java's String.trim() takes away.
_TRIMMED = "".join(map(chr, range(0x21)))


class Mismatch(Exception):
    """Two values cannot be compared: the evaluation ends, and the message is not delivered. Carries the text."""


class Wide(int):
    """An integer that is a Long in Java."""

    __slots__ = ()


Value = None | bool | str | int | float


def int32(text: str) -> int:
    """Read a text as Java's Integer; raises Mismatch."""
    if len(text) <= _SURE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _integer(text, INT_MAX)


def int64(text: str) -> int:
    """Read a text as Java's Long; raises Mismatch."""
    return _integer(text, LONG_MAX)


def _integer(text: str, most: int) -> int:
    # Java takes every script's digits, but looks at UTF-16 units, of which none is a digit beyond the first plane.
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff":
        raise Mismatch(text)
    try:
        number = int(text)
    except ValueError:
        # More digits than Python reads; so many zeros in front nobody writes.
        raise Mismatch(text) from None
    if not -most - 1 <= number <= most:
        raise Mismatch(text)
    return number


def double(text: str) -> float:
    """Read a text as Java's Double; raises Mismatch."""
    found = _DOUBLE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise Mismatch(text)
    sign, decimal = found["sign"], found["decimal"]
    if decimal is not None:
        return float(sign + decimal)
    if found["word"] is not None:
        return float(sign + found["word"])
    try:
        return float.fromhex(sign + found["hex"])
    except OverflowError:
        return float(sign + "inf")


def order(left: float, right: float) -> int:
    """Compare two numbers as Double.compareTo does: NaN is above all and equal to itself, 0.0 above -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and (left or isinstance(left, int)):
        return 0
    return _by_rank(_rank(left), _rank(right))


def _by_rank(left: int, right: int) -> int:
    return (left > right) - (left < right)


def _rank(number: float) -> int:
    """Order what IEEE 754 does not: the zeros, and NaN."""
    return 2 if isnan(number) else int(copysign(1, number) > 0)


def compare(left: Value, right: Value) -> int:
    """Compare two values of any kinds, neither None: below 0, 0 or above; raises Mismatch.

    Kinds that never meet are -1, which is neither equal nor greater.
    """
    if isinstance(left, bool):
        if isinstance(right, bool):
            return left - right
        if isinstance(right, str):
            # Java casts the wrong one of the two to a text, and fails.
            raise Mismatch(right)
        return -1
    if isinstance(left, str):
        if isinstance(right, str):
            return 0 if left == right else 1
        if isinstance(right, bool):
            return (left.lower() == "true") - right
        return order(_as(right, left), _number(right))
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        return order(_number(left), _as(left, right))
    return _between_numbers(_number(left), _number(right))


def _as(kind: Value, text: str) -> float:
    """Read a text as a number of the kind that it is compared with."""
    if isinstance(kind, float):
        return double(text)
    return int64(text) if isinstance(kind, Wide) else int32(text)


def _number(value: Value) -> float:
    assert isinstance(value, (int, float)), "kinds that are no numbers were told apart before"
    return value


def _between_numbers(left: float, right: float) -> int:
    """Compare two numbers: doubles when one of them is."""
    if isinstance(left, float) or isinstance(right, float):
        return order(float(left), float(right))
    return order(left, right)
