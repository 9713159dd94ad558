"""Whatever bytes arrive, a member says MessageError (or HelloError, ConfigRefused) and nothing else happens."""

from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.protocol.config import ConfigRefused, GroupConfig, Member
from raft.protocol.fields import CLOCK_MS_MAX, NUMBER_MAX
from raft.protocol.hello import Hello, HelloError
from raft.protocol.messages import (
    FIELDS,
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
from runtime.cbor import DEPTH_MAX, CborError, read_cbor

numbers = st.integers(0, NUMBER_MAX)
positive = st.integers(1, NUMBER_MAX)
texts = st.text(st.characters(categories=["L", "N", "P"]), max_size=40)
ids = st.binary(min_size=16, max_size=16)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | st.text() | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=12,
)

BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "term": positive,
    "ok": st.booleans(),
    "granted": st.booleans(),
    "sure": st.booleans(),
    "transfer": st.booleans(),
    "why": texts,
    "name": texts,
    "hello": st.binary(min_size=1, max_size=200),
    "group_id": ids,
    "size": st.integers(1, RANGE_BYTES_MAX),
    "crc": st.integers(0, (1 << 32) - 1),
    "first": positive,
    "last": positive,
    "clock": st.integers(0, CLOCK_MS_MAX),
}


@st.composite
def runs(draw: st.DrawFn) -> list[Entry]:
    """Entries as a log has them: dense, terms never falling, with or without gaps of filler between them."""
    index, term, position = draw(st.integers(1, 1 << 50)), draw(st.integers(1, 1 << 50)), draw(st.integers(0, 1 << 50))
    entries = []
    for data in draw(st.lists(st.binary(min_size=1, max_size=50), max_size=8)):
        entries.append(Entry(index, term, position, data))
        index, term = index + 1, term + draw(st.integers(0, 2))
        position += len(data) + draw(st.integers(0, 9))
    return entries


@st.composite
def messages(draw: st.DrawFn) -> RaftMessage:
    """A message of any kind with any fields that are allowed."""
    kind = draw(st.sampled_from(list(MessageKind)))
    entries = draw(runs()) if any(name == "entries" for name, _ in FIELDS[kind]) else []
    if kind is MessageKind.APPEND:
        first = entries[0] if entries else Entry(1, 1, 0, b"")
        last_term = entries[-1].term if entries else 1
        prev = first.index - 1, draw(st.integers(0, first.term))
        return append(draw(st.integers(last_term, NUMBER_MAX)), draw(numbers), prev, draw(numbers), entries)
    fields: dict[str, Any] = {
        name: [[e.index, e.term, e.position, len(e.data)] for e in entries]
        if name == "entries"
        else draw(BY_NAME.get(name, numbers))
        for name, _ in FIELDS[kind]
    }
    payload = tuple(entry.data for entry in entries)
    if kind in {MessageKind.RESET_MANIFEST, MessageKind.RESET_BYTES}:
        payload = tuple(draw(st.lists(st.binary(min_size=1), max_size=1)))
    return RaftMessage(kind, fields, payload)


def attempted(read: Callable[[], Any], refusal: type[ValueError]) -> Any:
    """What was read, or the words of the one refusal that is allowed; anything else that is raised fails the test."""
    try:
        return read()
    except refusal as error:
        return str(error)


@given(messages())
def test_messages_survive_their_encoding(message: RaftMessage) -> None:
    got = decode(encode_head(message), memoryview(b"".join(message.payload)))
    assert (got.kind, dict(got.fields)) == (message.kind, dict(message.fields))
    assert tuple(bytes(part) for part in got.payload) == tuple(message.payload)
    assert encode_head(got) == encode_head(message)
    if "entries" in message.fields:
        assert [e._replace(data=bytes(e.data)) for e in entries_of(got)] == entries_of(message)


@given(st.binary(max_size=300), st.binary(max_size=40))
def test_arbitrary_bytes_raise_nothing_but_MessageError(head: bytes, payload: bytes) -> None:
    assert attempted(lambda: decode(head, payload), MessageError)


@given(messages(), st.data())
def test_bytes_that_changed_on_the_way_raise_nothing_but_MessageError(
    message: RaftMessage, data: st.DataObject
) -> None:
    head = bytearray(encode_head(message))
    for _ in range(data.draw(st.integers(1, 4))):
        head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(head)))
    got = attempted(lambda: decode(bytes(head[:cut]), b"".join(message.payload)), MessageError)
    assert encode_head(got) if isinstance(got, RaftMessage) else got


@given(st.sampled_from(list(MessageKind)), st.data())
def test_fields_of_any_type_raise_nothing_but_MessageError(kind: MessageKind, data: st.DataObject) -> None:
    fields = [
        data.draw(anything | BY_NAME.get(name, numbers)) if name != "entries" else data.draw(anything)
        for name, _ in FIELDS[kind]
    ]
    head = cbor2.dumps([int(kind), *fields])
    payload = data.draw(st.binary(max_size=20))
    got = attempted(lambda: decode(head, payload), MessageError)
    assert (
        list(got.fields.values()) == fields if isinstance(got, RaftMessage) else kind.name in got or "not CBOR" in got
    )


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_hello_and_no_config(data: bytes) -> None:
    with pytest.raises(HelloError):
        Hello.decode(data)
    with pytest.raises(ConfigRefused):
        GroupConfig.decode(data)


@given(st.lists(anything, min_size=8, max_size=8))
def test_configs_of_any_types_are_refused_in_words(fields: list[Any]) -> None:
    got = attempted(lambda: GroupConfig.decode(cbor2.dumps([1, *fields[1:]])), ConfigRefused)
    assert GroupConfig.decode(got.encode()) == got if isinstance(got, GroupConfig) else got


@given(st.lists(anything, min_size=len(Hello._fields), max_size=len(Hello._fields)))
def test_hellos_of_any_types_are_refused_in_words(fields: list[Any]) -> None:
    with pytest.raises(HelloError, match="hello: "):
        Hello.decode(cbor2.dumps(fields))


@given(st.sets(st.integers(0, 999), min_size=1, max_size=31), ids, numbers, numbers, st.data())
def test_configs_survive_their_encoding(
    members: set[int], group_id: bytes, position: int, index: int, data: st.DataObject
) -> None:
    voters = {min(members), *(number for number in members if data.draw(st.booleans()))}
    config = GroupConfig(
        group_id,
        tuple(Member(f"n{n}", f"host-{n}:{n + 1}", n.to_bytes(16), n in voters) for n in sorted(members)),
        position,
        index,
        data.draw(numbers),
        data.draw(st.integers(0, (1 << 32) - 1)),
        len(members) == 1 and data.draw(st.booleans()),
    )
    assert GroupConfig.decode(config.encode()) == config
    assert config.majority(config.voters)
    assert not config.majority(config.learners)


PLAIN = st.recursive(
    st.integers(-(1 << 64), (1 << 64) - 1) | st.binary(max_size=40) | st.text(max_size=20) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5) | st.integers(-9, 1 << 40), inner, max_size=4)
    ),
    max_leaves=30,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max((depth(each) for each in inner), default=0)


@given(PLAIN)
def test_what_cbor2_writes_of_plain_values_is_read_back(value: Any) -> None:
    got = attempted(lambda: read_cbor(cbor2.dumps(value), 1000), CborError)
    assert "inside one another" in got if depth(value) > DEPTH_MAX else repr(got) == repr(value)


@given(st.binary(max_size=60))
def test_what_is_read_of_any_bytes_is_what_cbor2_reads(data: bytes) -> None:
    try:
        got = read_cbor(data, 1000)
    except CborError:
        return
    assert repr(cbor2.loads(data)) == repr(got)
