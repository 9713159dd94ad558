"""A batch as columns is stored, told of and indexed as its records are, one by one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.properties import encode_properties, indexed_columns, indexed_properties
from store.recordbatch import RecordBatch
from store.types import PendingRecord, PutStatus
from tests.parts.entry_tools import Node, lead, open_node
from tests.parts.store_tools import HOST, HOST_V6

ALIKE = [encode_properties({"UNIQ_KEY": f"{n:032X}", "TAGS": f"t{n % 3}", "WAIT": "true"}) for n in range(70)]
MIXED = [
    b"",
    encode_properties({"TAGS": "a", "KEYS": "k1 k2"}),
    encode_properties({"OTHER": "TAGS", "UNIQ_KEY": "U"}),
    encode_properties({"MY_KEYS": "v", "TAGS": "é"}),
]


@pytest.fixture(params=[HOST, HOST_V6])
def batch_host(request: pytest.FixtureRequest) -> bytes:
    host: bytes = request.param
    return host


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    made = open_node(tmp_path / "columns"), open_node(tmp_path / "records")
    for node in made:
        lead(node, 1)
    yield made
    for node in made:
        node.store.close()


def batch(
    properties: list[bytes], host: bytes, topic: str = "T", sys_flag: int = 0, body_bytes: int = 9
) -> RecordBatch:
    count = len(properties)
    bodies = [bytes([65 + n % 26]) * (n % body_bytes) for n in range(count)]
    return RecordBatch(topic, 3, sys_flag, (77_000, host), (list(range(count)), bodies, properties))


@pytest.mark.parametrize("properties", [ALIKE, MIXED, MIXED[1:2], [b""], ALIKE[:5] + MIXED])
def test_the_same_bytes_and_the_same_places(
    nodes: tuple[Node, Node], properties: list[bytes], batch_host: bytes
) -> None:
    told = []
    for node, records in zip(nodes, (batch(properties, batch_host), list(batch(properties, batch_host))), strict=True):
        for _ in range(2):
            index, results = node.log.append_records([records], 1, node.log.commit)
            node.log.release(index)
        told.append((node.content, results, node.told))
    assert told[0] == told[1]
    assert [result.status for result in told[0][1][0]] == [PutStatus.PUT_OK] * len(properties)


@pytest.mark.parametrize(
    ("changes", "properties", "status"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, [encode_properties({"DELAY": "3"})], PutStatus.PUT_OK),
        ({"topic": "T\0"}, ALIKE, PutStatus.MESSAGE_ILLEGAL),
        ({"topic": "x" * 40_000}, ALIKE, PutStatus.MESSAGE_ILLEGAL),
        ({"sys_flag": 0x4}, ALIKE, PutStatus.PUT_OK),
        ({"sys_flag": 1 << 40}, ALIKE, PutStatus.MESSAGE_ILLEGAL),
        ({}, [*ALIKE[:3], b"p" * 32_768], PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_what_is_not_plain_gets_the_same_verdict(
    nodes: tuple[Node, Node], changes: dict[str, int], properties: list[bytes], status: PutStatus
) -> None:
    told = []
    records = batch(properties, HOST, **changes)  # type: ignore[arg-type] # a topic is a text
    for node, asked in zip(nodes, (records, list(records)), strict=True):
        index, results = node.log.append_records([asked], 1, node.log.commit)
        if index >= 0:
            node.log.release(index)
        told.append((node.content, results, node.told))
    assert told[0] == told[1]
    assert told[0][1][0][0].status is status


def test_it_is_a_sequence_of_records() -> None:
    records = batch(ALIKE[:3], HOST)
    made = list(records)
    assert len(records) == 3
    assert [type(one) for one in made] == [PendingRecord] * 3
    for number, one in enumerate(made):
        for field in PendingRecord.__struct_fields__:
            assert getattr(records[number], field) == getattr(one, field)
    assert [one.body for one in records[1:]] == [one.body for one in made[1:]]
    assert records.content_bytes == sum(len(one.body) + len(one.properties) for one in made)


@pytest.mark.parametrize(
    "properties",
    [
        ALIKE,
        MIXED,
        [b"TAGS\x01x\x02TAGS\x01y\x02"] * 2,
        [b"a\x02TAGS\x01b\x01c\x01d\x02", b"TAGS\x01c\x02d\x01e\x02"],
        [b"a\x01TAGS\x02b\x01c\x02", b"TAGS\x01c\x02b\x01e\x02"],
        [b"a\x01c\x02", b"b\x012\x02a\x013\x02b\x014\x02"],
        [b"UNIQ_KEY\x01u\x02\x02\x01", b"UNIQ_KEY\x01u\x02\x01\x02"],
        [b"KEYS\x01KEYS\x02"],
        [b"a\x01b\x02TAGS"] * 2,
        [b"TAGS\x01b\x02j", b"TAGS\x01c\x02"],
        [b"TAGS\x01b\x02", b"TAGS\x01c"],
        [b"KEYS\x02", b"\x01KEYS\x02"],
        [b"TAGS\x01x\x02T", b"AGS\x01y\x02"],
    ],
)
def test_columns_are_what_one_message_after_the_other_gives(properties: list[bytes]) -> None:
    one_by_one = [list(column) for column in zip(*map(indexed_properties, properties), strict=True)]
    assert [list(column) for column in indexed_columns(properties)] == one_by_one
    assert [list(column) for column in indexed_columns([])] == [[], [], []]


PIECES = st.sampled_from([b"TAGS", b"UNIQ_KEY", b"KEYS", b"T", b"AGS", b"\x01", b"\x02", b"\0", b"x"])
PROPERTIES = st.lists(PIECES, max_size=7).map(b"".join)
ONE_SHAPE = st.tuples(PROPERTIES, st.lists(PIECES, max_size=3)).map(lambda found: [found[0] + one for one in found[1]])


@given(st.lists(PROPERTIES, max_size=4) | ONE_SHAPE)
def test_columns_of_whatever_is_put_together_from_the_pieces(properties: list[bytes]) -> None:
    one_by_one = [list(column) for column in zip(*map(indexed_properties, properties), strict=True)] or [[], [], []]
    assert [list(column) for column in indexed_columns(properties)] == one_by_one
