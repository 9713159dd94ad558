"""Message properties as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.properties import decode_properties, encode_properties, find_property, indexed_properties

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
VALUES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12)


def test_bytes_are_rocketmqs() -> None:
    assert encode_properties({"KEYS": "a b", "TAGS": "é"}) == b"KEYS\x01a b\x02TAGS\x01\xc3\xa9\x02"
    assert encode_properties({}) == b""


def test_the_last_separator_may_be_missing() -> None:
    """4.9 clients leave it out."""
    assert decode_properties(b"A\x01b\x02C\x01d") == decode_properties(b"A\x01b\x02C\x01d\x02") == {"A": "b", "C": "d"}


def test_pairs_that_are_none_are_skipped() -> None:
    assert decode_properties(b"\x02\x01\x02lonely\x02A\x01\x02") == {"A": ""}


def test_the_last_value_of_a_name_counts() -> None:
    assert decode_properties(b"A\x01b\x02A\x01c\x02") == {"A": "c"}
    assert find_property(b"A\x01b\x02A\x01c\x02", b"A\x01") == b"c"


@pytest.mark.parametrize("bad", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": "\x01"}])
def test_separators_inside_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="U\\+0001"):
        encode_properties(bad)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_what_was_written_is_read(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "MYTAGS", "A"]), VALUES), st.booleans())
def test_the_short_ways_find_what_the_long_one_finds(properties: dict[str, str], cut: bool) -> None:
    data = encode_properties(properties)
    if cut:
        data = data.removesuffix(b"\x02")
    wanted = [properties.get(name, "").encode() for name in ("TAGS", "UNIQ_KEY", "KEYS")]
    assert [find_property(data, name) for name in (b"TAGS\x01", b"UNIQ_KEY\x01", b"KEYS\x01")] == wanted
    assert list(indexed_properties(data)) == wanted


def test_values_that_read_like_names_are_values() -> None:
    data = encode_properties({"A": "TAGS", "TAGS": "x", "B": "KEYS"})
    assert indexed_properties(data) == (b"x", b"", b"")
    assert indexed_properties(b"lonely\x02TAGS\x01x\x02") == (b"x", b"", b"")
    assert indexed_properties(b"TAGS") == (b"", b"", b"")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_something(data: bytes) -> None:
    decode_properties(data)
    indexed_properties(data)
