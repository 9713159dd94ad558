"""raft/protocol/fields.py: a value from elsewhere is of the right type and in its range, or it is named."""

from collections.abc import Callable
from typing import Any

import cbor2
import pytest

from raft.protocol.fields import NUMBER_MAX, FieldError, blob, flag, number, sequence, text, unpack


def test_what_is_right_comes_back_as_it_is() -> None:
    assert number(0, "n") == 0
    assert number(NUMBER_MAX, "n") == NUMBER_MAX
    assert number(7, "n", 7, 7) == 7
    assert flag(False, "f") is False
    assert text("", "t", 0) == ""
    assert text("größer als", "t", 10) == "größer als"
    assert blob(b"ab", "b", 2, 2) == b"ab"
    assert sequence([1, "x"], "s", 2) == [1, "x"]
    assert unpack(cbor2.dumps([1, b"x", "y", True]), 5, 4) == [1, b"x", "y", True]
    assert unpack(memoryview(cbor2.dumps([])), 1) == []


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: number(True, "n"), "n is no integer but bool"),
        (lambda: number(1.0, "n"), "n is no integer but float"),
        (lambda: number(-1, "n"), "n is -1 outside"),
        (lambda: number(NUMBER_MAX + 1, "n"), "n is far outside"),
        (lambda: number(-(10**5000), "n"), "n is far outside"),
        (lambda: number(8, "n", 0, 7), r"n is 8 outside 0\.\.7"),
        (lambda: flag(1, "f"), "f is neither true nor false but int"),
        (lambda: text(b"x", "t", 9), "t is no text but bytes"),
        (lambda: text("xx", "t", 1), "t has 2 characters, 1 are allowed"),
        (lambda: text("a\x1b[0m", "t", 9), r"t holds characters that cannot be printed: 'a\\x1b\[0m'"),
        (lambda: text("\ud800", "t", 9), "cannot be printed"),
        (lambda: blob("x", "b", 0, 9), "b is no byte string but str"),
        (lambda: blob(b"x", "b", 2, 3), "b has 1 bytes, 2 to 3"),
        (lambda: sequence((1,), "s", 9), "s is no list but tuple"),
        (lambda: sequence([1, 2], "s", 1), "s has 2 items, 1 are allowed"),
        (lambda: unpack(cbor2.dumps([1]), 9, 2), "1 fields where 2 are due"),
        (lambda: unpack(cbor2.dumps({1: 2}), 9, 1), "not a CBOR array but dict"),
        (lambda: unpack(cbor2.dumps([1]) + b"x", 9), "1 bytes stand behind"),
        (lambda: unpack(b"\x9a\xff\xff\xff\xff", 9), "not CBOR"),
        (lambda: unpack(b"\xc5\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01", 9), "a tag"),
    ],
)
def test_what_is_wrong_is_named(check: Callable[[], Any], said: str) -> None:
    with pytest.raises(FieldError, match=said):
        check()
