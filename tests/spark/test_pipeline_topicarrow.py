import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from client.api import decode_messages
from client.compression import Codec, compress, compressed_flag
from pipeline.spark.topic.arrow import PullBodyError, PulledRecords, record_starts
from pipeline.spark.topic.source import TopicDataSource
from remoting.message import MessageExt
from remoting.record import encode_record

SCHEMA = to_arrow_schema(TopicDataSource({"namesrv": "x:1", "topic": "T"}).schema(), timezone="UTC")
V4, V6 = bytes([10, 0, 0, 7, 0, 0, 0, 99]), bytes(range(20))


def valid(data: bytes, topic: str = "T", tags: frozenset[str] = frozenset()) -> pa.RecordBatch:
    constants = {"topic": topic, "queueId": 3, "brokerName": "broker-a"}
    batch = PulledRecords(data).batch(SCHEMA, None, constants, tags)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    return batch


def rows(data: bytes, topic: str = "T", tags: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = valid(data, topic, tags).to_pylist()
    return found


def expected(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "brokerName": "broker-a",
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "keys": message.properties.get("KEYS"),
        "tags": message.tags,
        "properties": message.properties,
        "body": message.body,
        "msgId": message.msg_id,
    }


def compared(data: bytes, topic: str = "T") -> list[dict[str, Any]]:
    """Assert that the columns are what the ordinary client reads; returns them."""
    found = rows(data, topic)
    told = [
        row
        | {name: round(row[name].timestamp() * 1000) for name in ("bornTimestamp", "storeTimestamp")}
        | {"properties": dict(row["properties"])}
        for row in found
    ]
    assert told == [expected(message) for message in decode_messages(data, "broker-a")]
    assert all(len(row["properties"]) == len(dict(row["properties"])) for row in found)
    return found


def record(offset: int, body: bytes = b"body", properties: bytes = b"", topic: str = "T", **more: Any) -> bytes:
    more.setdefault("born_timestamp", 1_700_000_000_123 + offset)
    more.setdefault("store_timestamp", 1_700_000_001_456 + offset)
    return encode_record(topic, 3, body, properties, queue_offset=offset, physical_offset=1000 + offset, **more)


PROPERTIES: Sequence[bytes] = (
    b"",
    b"UNIQ_KEY\x01A1\x02WAIT\x01true\x02TAGS\x01red\x02KEYS\x01k1 k2\x02",
    b"UNIQ_KEY\x01A2\x02TAGS\x01blue",  # the last separator left out
    "TAGS\x01grün\x02鍵\x01値\x02".encode(),
    b"KEYS\x01\x02TAGSX\x01no\x02XTAGS\x01no\x02",  # an empty value, names that hold another
    b"UNIQ_KEY\x01\x02",
)
FORGIVEN: Sequence[bytes] = (
    b"TAGS\x01old\x02TAGS\x01new\x02",
    b"\x01\x02TAGS\x01a\x02",
    b"nonsense\x02TAGS\x01a\x02",
    b"\x02\x02",
    b"TAGS\x01a\x01b\x02",
    b"TAGS\x01\xff\xfe\x02KEYS\x01\x80k\x02",
    b"no separator at all",
)


def test_the_columns_are_what_the_client_reads() -> None:
    random_ = random.Random(7)
    hosts = (V4, V6)
    data = b"".join(
        record(
            offset,
            random_.randbytes(random_.choice([0, 1, 100, 5000])),
            random_.choice(PROPERTIES),
            born_host=random_.choice(hosts),
            store_host=random_.choice(hosts),
        )
        for offset in range(300)
    )
    assert len(compared(data)) == 300


@pytest.mark.parametrize("properties", [*PROPERTIES, *FORGIVEN])
def test_whatever_properties_a_writer_leaves(properties: bytes) -> None:
    compared(record(1, properties=properties))
    compared(record(1, properties=PROPERTIES[1]) + record(2, properties=properties) + record(3) + record(4))


def test_wide_topics_and_mixed_layouts() -> None:
    topic = "T" * 200
    compared(record(1, topic=topic) + record(2, topic=topic, store_host=V6), topic)


@pytest.mark.parametrize("codec", Codec)
def test_packed_bodies_are_unpacked(codec: Codec) -> None:
    body = b"again and again " * 500
    packed = record(2, compress(body, codec), sys_flag=compressed_flag(codec))
    found = compared(record(1) + packed + record(3))
    assert [row["body"] for row in found] == [b"body", body, b"body"]


def test_a_damaged_packed_body_stays_as_it_came() -> None:
    found = compared(record(1, b"no zlib", sys_flag=compressed_flag(Codec.ZLIB)))
    assert found[0]["body"] == b"no zlib"


def test_only_wanted_tags_and_rows_are_kept() -> None:
    data = b"".join(record(number, properties=b"TAGS\x01%b\x02" % tag) for number, tag in enumerate([b"a", b"b", b"c"]))
    data += record(3)
    assert [row["tags"] for row in rows(data, tags=frozenset({"a", "c"}))] == ["a", "c"]
    narrow = pa.schema([SCHEMA.field("queueOffset")])
    batch = PulledRecords(data).batch(narrow, [True, True, False, False], {}, frozenset({"b", "c"}))
    assert batch.to_pylist() == [{"queueOffset": 1}]


def test_nothing_is_no_rows() -> None:
    assert len(PulledRecords(b"")) == 0
    assert len(record_starts(b"")) == 0


def test_damaged_answers_are_refused_whatever_byte_it_is() -> None:
    good = record(1, b"x" * 20, PROPERTIES[1]) + record(2)
    for cut in range(1, len(good)):
        if cut != len(good) - len(record(2)):
            with pytest.raises(PullBodyError):
                PulledRecords(good[:cut])
    random_ = random.Random(11)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(good)
        damaged[random_.randrange(len(good))] ^= 1 << random_.randrange(8)
        try:
            valid(bytes(damaged))
        except PullBodyError:
            refused += 1
    assert refused > 200
