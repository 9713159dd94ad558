"""How RocketMQ's Java reads and compares values in a SQL92 filter: a dumb twin of broker/filters/values.py.

A value carries the name of its Java class. Nothing of broker/filters is used, and nothing is done as it is done there:
integers are read a digit at a time, doubles are compared by their bits.
"""

import struct
import unicodedata
from typing import Any

# (Java class, value), or None for null.
Java = tuple[str, Any] | None
INT, LONG = 2**31, 2**63


class Broken(Exception):
    """RocketMQ throws when it evaluates the expression over this message."""


def java_integer(text: str, bound: int) -> int:
    """Integer.valueOf and Long.valueOf, a UTF-16 unit at a time."""
    digits, negative = text, False
    if text[:1] in {"+", "-"}:
        digits, negative = text[1:], text[0] == "-"
    if not digits:
        raise Broken
    total = 0
    for char in digits:
        if ord(char) > 0xFFFF:
            raise Broken
        digit = unicodedata.decimal(char, None)
        if digit is None:
            raise Broken
        total = total * 10 + digit
        if total > bound:
            raise Broken
    total = -total if negative else total
    if total >= bound:
        raise Broken
    return total


def java_double(text: str) -> float:
    """Double.valueOf of the kinds of texts that the maker writes: no hexadecimal ones."""
    while text and text[0] <= " ":
        text = text[1:]
    while text and text[-1] <= " ":
        text = text[:-1]
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest in {"NaN", "Infinity"}:
        return sign * float(rest)
    if rest[-1:] in {"f", "F", "d", "D"}:
        rest = rest[:-1]
    mantissa, mark, exponent = rest.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    figures = whole + fraction
    power = exponent[1:] if exponent[:1] in {"+", "-"} else exponent
    if not figures or not set(figures) <= set("0123456789") or mantissa.count(".") > 1:
        raise Broken
    if (mark and not power) or not set(power) <= set("0123456789"):
        raise Broken
    return sign * float(f"{whole or '0'}.{fraction or '0'}e{exponent or '0'}")


def bits(number: float) -> int:
    return int(struct.unpack(">q", struct.pack(">d", number))[0])


def compare_doubles(left: float, right: float) -> int:
    """Double.compare, by the bits as Java documents it."""
    if left < right:
        return -1
    if left > right:
        return 1
    nan = bits(float("nan"))
    one, other = (nan if left != left else bits(left)), (nan if right != right else bits(right))  # noqa: PLR0124
    return (one > other) - (one < other)


def compare(left: tuple[str, Any], right: tuple[str, Any]) -> int:
    """ComparisonExpression.__compare."""
    (left_class, one), (right_class, other) = left, right
    if left_class == right_class:
        return compare_doubles(one, other) if left_class == "Double" else int(one > other) - int(one < other)
    if left_class == "Boolean":
        if right_class == "String":
            raise Broken  # a ClassCastException
        return -1
    if left_class == "String":
        if right_class == "Boolean":
            return compare(("Boolean", one.lower() == "true"), right)
        return compare((right_class, read(one, right_class)), right)
    if right_class == "String":
        return compare(left, (left_class, read(other, left_class)))
    if right_class == "Boolean":
        return -1
    if "Double" in {left_class, right_class}:
        return compare_doubles(float(one), float(other))
    return int(one > other) - int(one < other)


def read(text: str, kind: str) -> Any:
    if kind == "Double":
        return java_double(text)
    return java_integer(text, INT if kind == "Integer" else LONG)
