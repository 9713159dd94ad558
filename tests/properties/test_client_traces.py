"""Traces against a dumb twin that splits and joins by hand; and whatever the bytes are, reading them ends well."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from client.trace.records import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_traces,
    encode_trace,
    joined,
)

texts = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda text: text != "null")
maybe = st.none() | texts
numbers = st.integers(-(2**31), 2**63 - 1)
flags = st.booleans()
records = st.one_of(
    st.builds(
        Pub, numbers, texts, texts, texts, texts, maybe, maybe, texts, numbers, numbers, numbers, maybe, flags, maybe
    ),
    st.builds(SubBefore, numbers, texts, texts, texts, texts, numbers, maybe, maybe),
    st.builds(SubAfter, texts, texts, numbers, flags, maybe, numbers, numbers, texts),
    st.builds(SubAfter, texts, texts, numbers, flags, maybe, numbers),
    st.builds(EndTransaction, numbers, texts, texts, texts, texts, maybe, maybe, texts, numbers, texts, texts, flags),
    st.builds(Recall, numbers, texts, texts, texts, texts, flags),
)


def java(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value]
        if value is None or value is True or value is False
        else str(value)
    )


def twin(record: TraceRecord) -> str:
    values = [getattr(record, name) for name in record.__slots__]
    trailing = {Pub: 13, SubBefore: 7, SubAfter: 6}.get(type(record), len(values))
    while len(values) > trailing and values[-1] is None:
        values.pop()
    return "\x01".join([type(record).__name__, *map(java, values)]) + "\x02"


@given(st.lists(records, max_size=5))
def test_what_is_written_reads_the_same_and_is_what_the_twin_writes(some: list[TraceRecord]) -> None:
    assert decode_traces(joined(some)) == some
    assert [encode_trace(record) for record in some] == [twin(record) for record in some]


@given(st.binary(max_size=200) | st.lists(records, max_size=3).map(lambda some: joined(some)[:-3]))
def test_whatever_comes_is_read_without_an_error(body: bytes) -> None:
    for record in decode_traces(body):
        assert decode_traces(encode_trace(record)) == [record]


def test_what_separates_fields_cannot_come_in_by_one() -> None:
    record = Recall(1, "r", "g", "t\x02Pub\x01", "id", True)
    assert decode_traces(encode_trace(record)) == [Recall(1, "r", "g", "t Pub ", "id", True)]


def test_a_trace_of_an_old_client_has_no_offset_id() -> None:
    old = "Pub\x011\x01r\x01g\x01t\x01id\x01tag\x01key\x01host\x016\x018\x010\x01true\x02"
    (record,) = decode_traces(old)
    assert isinstance(record, Pub)
    assert (record.offset_msg_id, record.success) == (None, True)
