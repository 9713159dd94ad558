"""String.hashCode: values that Java itself gives."""

import pytest

from remoting.javahash import java_hash, tags_code


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("hello", 99162322),
        # Overflows: 31-bit arithmetic wraps, and the smallest number there is has a text of its own.
        ("polygenelubricants", -2147483648),
        ("The quick brown fox jumps over the lazy dog", -609428141),
        ("é", 233),
        ("中文", 646394),
        # Two UTF-16 code units.
        ("\U0001f600", 1772899),
    ],
)
def test_hash_is_javas(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert java_hash(text.encode()) == value


def test_long_texts_hash_like_short_ones() -> None:
    """Beyond the length that is cached."""
    value = 0
    for _ in range(500):
        value = (31 * value + ord("x")) & 0xFFFFFFFF
    assert java_hash("x" * 500) == value - (value >> 31 << 32)


def test_bytes_that_are_no_text_hash_as_replacement_characters() -> None:
    assert java_hash(b"\xff") == 0xFFFD


def test_no_tags_is_code_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919
