"""raft/protocol/messages.py: every field of every kind is checked before anybody looks at it."""

from typing import Any

import cbor2
import pytest

from raft.protocol.messages import (
    ENTRIES_MAX,
    EXTRA_FIELDS,
    FIELDS,
    HEAD_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    RANGE_BYTES_MAX,
    MessageError,
    MessageKind,
    RaftMessage,
    append,
    decode,
    encode_head,
    entries_of,
)
from raft.protocol.types import Entry

GROUP_ID = b"G" * 16
ROWS = [[8, 3, 800, 3], [9, 4, 810, 2]]
PARTS = (b"abc", b"de")

EXAMPLES = (
    RaftMessage(MessageKind.HELLO, {"hello": b"h"}),
    append(4, 17, (7, 3), 6, [Entry(8, 3, 800, b"abc"), Entry(9, 4, 810, b"de")]),
    append(4, 18, (9, 4), 9, []),
    RaftMessage(
        MessageKind.APPEND_REPLY,
        {"term": 4, "seq": 17, "ok": True, "match": 9, "durable": 8, "hint_index": 0, "hint_term": 0},
    ),
    RaftMessage(MessageKind.PRE_VOTE, {"term": 5, "round": 1, "last_index": 9, "last_term": 4, "config": 1}),
    RaftMessage(MessageKind.PRE_VOTE_REPLY, {"term": 4, "round": 1, "granted": False, "why": "its log ends at 3"}),
    RaftMessage(MessageKind.VOTE, {"term": 5, "last_index": 9, "last_term": 4, "config": 1, "transfer": True}),
    RaftMessage(MessageKind.VOTE_REPLY, {"term": 5, "granted": True}),
    RaftMessage(MessageKind.TIMEOUT_NOW, {"term": 5}),
    RaftMessage(MessageKind.BEHIND, {"term": 5, "base_index": 100, "base_term": 2}),
    RaftMessage(MessageKind.ADOPT, {"group_id": GROUP_ID, "entries": [[1, 1, 0, 3]]}, (b"one",)),
    RaftMessage(MessageKind.ADOPT_REPLY, {"group_id": GROUP_ID, "ok": False, "why": "not empty"}),
    RaftMessage(MessageKind.RESET_ASK, {"token": 1}),
    RaftMessage(MessageKind.RESET_MANIFEST, {"token": 1, "ok": True, "why": ""}, (b"manifest",)),
    RaftMessage(MessageKind.RESET_READ, {"token": 1, "name": "00000000000000000000", "start": 0, "size": 1}),
    RaftMessage(
        MessageKind.RESET_BYTES,
        {"token": 1, "name": "00000000000000000000", "start": 0, "ok": True, "why": "", "crc": 7},
        (b"bytes",),
    ),
    RaftMessage(MessageKind.RESET_DONE, {"token": 1}),
    RaftMessage(MessageKind.REPAIR, {"first": 8, "last": 9}),
    RaftMessage(MessageKind.REPAIR_REPLY, {"first": 8, "entries": ROWS}, PARTS),
    RaftMessage(MessageKind.CLOCK, {"asked": 3}),
    RaftMessage(MessageKind.CLOCK_REPLY, {"asked": 3, "clock": 1_700_000_000_000}),
    RaftMessage(MessageKind.REPAIR_READ, {"start": 512, "size": 262_144}),
    RaftMessage(MessageKind.REPAIR_BYTES, {"start": 512, "kept": 0, "sure": True}, (b"bytes of the log",)),
)


def received(message: RaftMessage) -> RaftMessage:
    return decode(encode_head(message), memoryview(b"".join(message.payload)))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.kind.name)
def test_every_kind_survives_its_encoding(message: RaftMessage) -> None:
    got = received(message)
    assert (got.kind, got.fields) == (message.kind, message.fields)
    assert [bytes(part) for part in got.payload] == list(message.payload)
    assert got.size == message.size
    assert tuple(got.fields) == tuple(name for name, _ in FIELDS[message.kind])


@pytest.mark.parametrize("kind", EXTRA_FIELDS)
def test_what_only_newer_programs_say_stands_behind_the_rest(kind: MessageKind) -> None:
    """Whoever does not know it is sent the message as it was before."""
    before = example(kind)
    more = before._replace(fields={**before.fields, "clock": 1_700_000_000_000})
    assert received(more).fields == more.fields
    assert received(before).fields == before.fields
    assert cbor2.loads(encode_head(more))[:-1] == cbor2.loads(encode_head(before))
    with pytest.raises(MessageError, match="clock"):
        decode(cbor2.dumps([*cbor2.loads(encode_head(before)), "noon"]), memoryview(b"".join(before.payload)))


def test_there_is_an_example_of_every_kind() -> None:
    assert {message.kind for message in EXAMPLES} == set(MessageKind)
    assert sorted(MessageKind) == list(range(1, len(MessageKind) + 1)), "numbers on the wire never change"


def test_entries_are_views_of_what_arrived() -> None:
    payload = bytearray(b"abcde")
    message = decode(encode_head(EXAMPLES[1]), memoryview(payload))
    entries = entries_of(message)
    assert [(e.index, e.term, e.position, bytes(e.data)) for e in entries] == [(8, 3, 800, b"abc"), (9, 4, 810, b"de")]
    payload[3:] = b"DE"
    assert bytes(entries[1].data) == b"DE"


def test_the_largest_append_fits_a_head() -> None:
    top = (1 << 62) - 1
    rows = [Entry(top - ENTRIES_MAX + i, top, (1 << 61) + i, b"x") for i in range(ENTRIES_MAX)]
    message = append(top, top, (top - ENTRIES_MAX - 1, top), top, rows)
    assert len(encode_head(message)) < HEAD_BYTES_MAX
    assert received(message).fields == message.fields


def spoiled(message: RaftMessage, **changes: Any) -> bytes:
    """The head of a message with fields that its sender should not have let through."""
    return cbor2.dumps([int(message.kind), *{**message.fields, **changes}.values()])


def example(kind: MessageKind) -> RaftMessage:
    return next(message for message in EXAMPLES if message.kind is kind)


WRONG: dict[str, tuple[Any, ...]] = {
    "term": (-1, 1 << 62, True, 1.0, "4", None, b""),
    "seq": (-1, None),
    "prev_index": (-1, 6, 8, "7"),
    "prev_term": (-1, 5, 4),
    "commit": (-1, []),
    "match": (-1, "9"),
    "durable": (1 << 62,),
    "hint_index": (-1,),
    "hint_term": (None,),
    "round": (-1,),
    "last_index": (-1, 2.0),
    "last_term": (-1,),
    "config": (-1,),
    "granted": (1, None, "yes"),
    "ok": (0, None),
    "transfer": (1,),
    "why": (7, "x" * 1001, "line\nbreak", None),
    "hello": (b"", "text", bytes(8 * 1024 + 1)),
    "base_index": (-1,),
    "base_term": (-1,),
    "group_id": (b"", b"G" * 15, "G" * 16),
    "token": (-1,),
    "name": (b"x", "\0"),
    "start": (-1,),
    "kept": (-1,),
    "sure": (0, None),
    "size": (0, RANGE_BYTES_MAX + 1),
    "crc": (1 << 32, -1),
    "asked": (-1, "1"),
    "clock": (-1, 1.5, None, 1 << 54),
    "first": (0,),
    "last": (0,),
    "entries": (
        None,
        {},
        [7],
        [[1, 1, 0]],
        [[8, 3, 800, "3"]],
        [[0, 3, 800, 5]],
        [[8, 0, 800, 5]],
        [[8, 3, -1, 5]],
        [[8, 3, 800, 0]],
        [[8, 3, 800, PAYLOAD_BYTES_MAX + 1]],
        [[8, 3, 800, 3], [10, 3, 810, 2]],
        [[8, 3, 800, 3], [9, 2, 810, 2]],
        [[8, 3, 800, 3], [9, 3, 802, 2]],
        [[8 + i, 3, 800 + i, 1] for i in range(ENTRIES_MAX + 1)],
    ),
}


@pytest.mark.parametrize("kind", MessageKind)
def test_every_field_of_every_kind_is_checked(kind: MessageKind) -> None:
    message = example(kind)
    payload = b"".join(message.payload)
    for name in message.fields:
        wrong = list(WRONG[name])
        assert wrong, name
        for value in wrong:
            # What is no value that we write is refused before the kind is looked at.
            with pytest.raises(MessageError, match=f"{kind.name}|not CBOR of ours"):
                decode(spoiled(message, **{name: value}), payload)


@pytest.mark.parametrize("kind", MessageKind)
def test_fields_are_neither_missing_nor_too_many(kind: MessageKind) -> None:
    message = example(kind)
    items = cbor2.loads(encode_head(message))
    for wrong in (items[:-1], [*items, *[0 for _ in EXTRA_FIELDS.get(kind, ())], 0]):
        with pytest.raises(MessageError, match="fields where"):
            decode(cbor2.dumps(wrong), b"".join(message.payload))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (MessageKind.APPEND, b"abcd"),
        (MessageKind.APPEND, b"abcdef"),
        (MessageKind.REPAIR_REPLY, b""),
        (MessageKind.VOTE, b"x"),
        (MessageKind.APPEND_REPLY, b"x"),
        (MessageKind.RESET_BYTES, bytes(RANGE_BYTES_MAX + 1)),
    ],
)
def test_a_payload_that_does_not_fit_its_head_is_refused(kind: MessageKind, payload: bytes) -> None:
    with pytest.raises(MessageError, match=f"{kind.name}: a payload of {len(payload)} bytes"):
        decode(encode_head(example(kind)), payload)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"", "0 bytes"),
        (bytes(HEAD_BYTES_MAX + 1), "65536 bytes"),
        (b"\xff", "not CBOR of ours"),
        (b"\x01", "not a CBOR array"),
        (cbor2.dumps([]), "unknown kind"),
        (cbor2.dumps([0]), "unknown kind 0"),
        (cbor2.dumps([99]), "unknown kind 99"),
        (cbor2.dumps([True]), "unknown kind True"),
        (cbor2.dumps(["APPEND"]), "unknown kind"),
        (encode_head(EXAMPLES[0]) + b"\0", "1 bytes stand behind"),
        (b"\x5b\x00\x00\x10\x00\x00\x00\x00\x00", "not CBOR"),
        (b"\x81" * 60_000, "not CBOR"),
        (b"\xd8\x1c\x81\xd8\x1d\x00", "not CBOR of ours: before 2: a tag"),
    ],
)
def test_bytes_that_are_no_message(head: bytes, text: str) -> None:
    with pytest.raises(MessageError, match=text):
        decode(head)


def test_a_payload_has_a_limit() -> None:
    with pytest.raises(MessageError, match="payload has"):
        decode(encode_head(EXAMPLES[0]), bytes(PAYLOAD_BYTES_MAX + 1))


def test_what_is_sent_has_the_fields_of_its_kind() -> None:
    with pytest.raises(AssertionError, match="TIMEOUT_NOW"):
        encode_head(RaftMessage(MessageKind.TIMEOUT_NOW, {}))
    with pytest.raises(AssertionError, match="TIMEOUT_NOW"):
        encode_head(RaftMessage(MessageKind.TIMEOUT_NOW, {"term": 1, "seq": 2}))
