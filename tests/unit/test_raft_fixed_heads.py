"""raft/protocol/fixed_heads.py: the short form says what CBOR says, is checked as that is, and goes to who reads it."""

import contextlib
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raft.protocol.fields import NUMBER_MAX
from raft.protocol.fixed_heads import APPEND, FIXED_HEADS, REPLY, ROWS_MAX
from raft.protocol.hello import FEATURES
from raft.protocol.messages import MessageError, MessageKind, RaftMessage, append, decode, encode_head
from raft.protocol.types import Entry

NUMBERS = st.integers(0, NUMBER_MAX)


@st.composite
def appends(draw: st.DrawFn) -> RaftMessage:
    count = draw(st.integers(0, ROWS_MAX + 2))
    prev, term = draw(st.integers(0, 1 << 40)), draw(st.integers(1, 1 << 40))
    position, entries = draw(st.integers(0, 1 << 40)), []
    for at in range(count):
        data = draw(st.binary(min_size=1, max_size=5))
        entries.append(Entry(prev + 1 + at, term, position, data))
        position += len(data)
    return append(term, draw(NUMBERS), (prev, term), draw(NUMBERS), entries)


@given(appends())
def test_an_append_reads_the_same_in_either_form(message: RaftMessage) -> None:
    payload = b"".join(bytes(part) for part in message.payload)
    short = encode_head(message, fixed=True)
    assert (short[0] == MessageKind.APPEND) == (len(message.payload) <= ROWS_MAX)
    found, expected = decode(short, payload), decode(encode_head(message), payload)
    assert (found.kind, found.fields, found.payload) == (expected.kind, expected.fields, expected.payload)


@given(st.lists(NUMBERS, min_size=6, max_size=6), st.booleans())
def test_a_reply_reads_the_same_in_either_form(values: list[int], ok: bool) -> None:
    names = ("term", "seq", "match", "durable", "hint_index", "hint_term")
    message = RaftMessage(MessageKind.APPEND_REPLY, {**dict(zip(names, values, strict=True)), "ok": ok})
    assert decode(encode_head(message, fixed=True)) == decode(encode_head(message))
    assert encode_head(message, fixed=True)[0] == MessageKind.APPEND_REPLY


def test_what_tells_the_time_is_in_cbor() -> None:
    message = append(1, 1, (0, 0), 0, [])
    timed = message._replace(fields={**message.fields, "clock": 5})
    assert encode_head(timed, fixed=True) == encode_head(timed)


def test_members_say_that_they_read_them() -> None:
    assert FIXED_HEADS in FEATURES


HEAD = encode_head(append(3, 9, (7, 2), 5, [Entry(8, 3, 100, b"ab")]), fixed=True)


@pytest.mark.parametrize(
    "head",
    [
        HEAD[:-1],
        HEAD + b"\0",
        HEAD[:1],
        b"\x01" + HEAD[1:],
        HEAD[:1] + b"\x02" + HEAD[2:],
        HEAD[:2] + b"\xff" * 8 + HEAD[10:],
        # The entry before the first one would be of a term above the leader's.
        HEAD[:26] + (4).to_bytes(8, "big") + HEAD[34:],
        encode_head(RaftMessage(MessageKind.APPEND_REPLY, dict.fromkeys(
            ("term", "seq", "match", "durable", "hint_index", "hint_term"), 1) | {"ok": True}), fixed=True)
        .replace(b"\x03\x01", b"\x03\x02", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_costs_its_sender_the_link(head: bytes) -> None:
    with pytest.raises(MessageError):
        decode(head, b"ab")


@given(st.binary(min_size=1, max_size=120), st.binary(max_size=4))
def test_any_bytes_are_a_message_or_refused(head: bytes, payload: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode(head, payload)


EDGES = st.sampled_from([0, 1, 2, 3, 5, 6, NUMBER_MAX, NUMBER_MAX + 1, (1 << 64) - 1])


@given(
    st.sampled_from([APPEND, REPLY, 1]),
    st.integers(0, 2),
    st.lists(EDGES | st.integers(0, (1 << 64) - 1), min_size=8, max_size=8),
    st.integers(0, 3),
    st.integers(0, 3),
)
@example(APPEND, 1, [3, 9, 7, 2, 5, 8, 3, 100], 2, 2)
@example(APPEND, 1, [3, 9, 7, 2, 5, 8, 1, 100], 2, 2)
@example(APPEND, 1, [3, 9, 7, 3, 5, 8, 4, 100], 2, 2)
@example(APPEND, 1, [3, 9, 7, 0, 5, 8, 0, 100], 2, 2)
@example(APPEND, 1, [3, 9, NUMBER_MAX, 0, 5, NUMBER_MAX + 1, 1, 100], 2, 2)
@example(REPLY, 1, [3, 9, 7, 3, 5, 8, 0, 0], 0, 0)
@example(REPLY, 1, [3, 9, 7, 3, 5, 8, 0, 0], 0, 1)
def test_what_is_read_the_short_way_is_what_the_general_way_says(
    kind: int, flag: int, values: list[int], size: int, payload: int
) -> None:
    if kind == APPEND:
        head = struct.pack(">BB8QI", kind, flag, *values, size)
    else:
        head = struct.pack(">BB6Q", kind, flag, *values[:6])

    def read() -> object:
        try:
            message = decode(head, b"x" * payload)
        except MessageError as error:
            return str(error)
        return message, tuple(map(type, message.fields.values())), tuple(map(type, message.payload))

    short = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("raft.protocol.messages.read_usual", lambda _head, _bytes: None)
        assert short == read()


def test_what_comes_all_the_time_is_read_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = dict.fromkeys(("term", "seq", "match", "durable", "hint_index", "hint_term"), 1) | {"ok": True}
    answer = encode_head(RaftMessage(MessageKind.APPEND_REPLY, reply), fixed=True)
    monkeypatch.setattr("raft.protocol.messages.read_fixed", None)
    assert decode(HEAD, b"ab").payload == (b"ab",)
    assert decode(answer).fields == reply
