"""The record layout, byte for byte, and what damaged bytes are answered with."""

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.record import (
    FIXED_BYTES,
    MAGIC_AT,
    RecordError,
    decode_record,
    decode_records,
    encode_batch,
    encode_record,
    split_batch,
    topic_field,
)

V4 = pack_host("10.1.2.3", 40001)
V6 = pack_host("fd00::7", 40002)


def record(**changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "topic": "T",
        "queue_id": 3,
        "body": b"hello",
        "properties": encode_properties({"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "AB"}),
        "queue_offset": 17,
        "physical_offset": 4096,
        "flag": -5,
        "born_timestamp": 1_700_000_000_001,
        "born_host": V4,
        "store_timestamp": 1_700_000_000_002,
        "store_host": pack_host("10.1.2.4", 10911),
        "reconsume_times": 2,
        "prepared_transaction_offset": 99,
    }
    return encode_record(**(arguments | changes))


def test_layout_is_rocketmqs() -> None:
    """Written out by hand from the table of the format."""
    body, properties = b"hello", b"A\x01b\x02"
    wanted = bytes.fromhex(
        "00000065daa320a7" + f"{zlib.crc32(body) & 0x7FFFFFFF:08x}" + "0000000300000007"
        "0000000000000011000000000000100000000000000000000000000a0a01020300009c41000000000000000b"
        "0a01020400002a9f00000002000000000000006300000005"
    ) + body + b"\x01T" + b"\x00\x04" + properties  # fmt: skip
    made = record(body=body, properties=properties, flag=7, born_timestamp=10, store_timestamp=11)
    assert made == wanted
    assert len(made) == FIXED_BYTES + len("T") + len(body) + len(properties)


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("stored", [V4, V6])
def test_hosts_of_both_kinds(born: bytes, stored: bytes) -> None:
    # Wrong host bits are put right.
    made = record(born_host=born, store_host=stored, sys_flag=0x31)
    found = decode_record(made, check_crc=True)
    assert found.born_host == (("10.1.2.3", 40001) if born is V4 else ("fd00::7", 40002))
    assert found.store_host == (("10.1.2.3", 40001) if stored is V4 else ("fd00::7", 40002))
    assert found.sys_flag == 1 | (0x10 if born is V6 else 0) | (0x20 if stored is V6 else 0)
    assert found.size == len(made)


@pytest.mark.parametrize(
    ("length", "magic"), [(1, "daa320a7"), (127, "daa320a7"), (128, "daa320ab"), (300, "daa320ab")]
)
def test_long_topics_take_version_two(length: int, magic: str) -> None:
    made = record(topic="t" * length)
    assert made[MAGIC_AT : MAGIC_AT + 4].hex() == magic
    assert decode_record(made).topic == "t" * length


def test_every_field_comes_back() -> None:
    found = decode_record(record())
    assert (found.topic, found.queue_id, found.queue_offset, found.physical_offset) == ("T", 3, 17, 4096)
    assert (found.flag, found.born_timestamp, found.store_timestamp) == (-5, 1_700_000_000_001, 1_700_000_000_002)
    assert (found.reconsume_times, found.prepared_transaction_offset, found.body) == (2, 99, b"hello")
    assert (found.tags, found.keys, found.msg_id) == ("TagA", ["k1", "k2"], "AB")
    assert found.offset_msg_id == "0A01020400002A9F0000000000001000"
    assert decode_record(record(properties=b"")).msg_id == found.offset_msg_id


def test_records_back_to_back() -> None:
    made = [record(queue_offset=number, body=bytes(number)) for number in range(5)]
    assert [found.queue_offset for found in decode_records(memoryview(b"".join(made)))] == list(range(5))
    assert decode_records(b"") == []


def test_every_cut_is_noticed() -> None:
    made = record()
    for length in range(len(made)):
        with pytest.raises(RecordError):
            decode_record(made[:length])


def test_a_changed_body_is_noticed() -> None:
    made = bytearray(record())
    made[90] ^= 1
    with pytest.raises(RecordError, match="CRC"):
        decode_record(bytes(made), check_crc=True)
    assert decode_record(bytes(made)).body != b"hello"


@given(st.binary(max_size=200), st.integers(0, 250), st.binary(min_size=1, max_size=8))
def test_any_bytes_are_a_record_or_an_error(noise: bytes, at: int, change: bytes) -> None:
    made = bytearray(record())
    made[at : at + len(change)] = change
    for data in (noise, bytes(made)):
        try:
            decode_record(data)
        except RecordError:
            continue


@pytest.mark.parametrize("bad", [{"queue_id": 1 << 31}, {"flag": 1 << 40}, {"topic": ""}, {"properties": bytes(32768)}])
def test_what_does_not_fit_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        record(**bad)


def test_a_topic_has_a_length_limit() -> None:
    assert topic_field(b"t" * 32767)[1][:2] == b"\x7f\xff"
    with pytest.raises(RecordError, match="32767"):
        topic_field(b"t" * 32768)


ELEMENTS = st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=40), st.binary(max_size=40))


@given(st.lists(ELEMENTS, max_size=5))
def test_batches_come_back(elements: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(elements)
    assert [(flag, bytes(part), properties) for flag, part, properties in split_batch(body)] == elements


def test_batch_layout_is_rocketmqs() -> None:
    body = bytes.fromhex("0000001a00000000000000000000000900000002") + b"hi" + b"\x00\x02" + b"pp"
    assert encode_batch([(9, b"hi", b"pp")]) == body
    for length in range(1, len(body)):
        with pytest.raises(RecordError):
            list(split_batch(body[:length]))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_batch_or_an_error(data: bytes) -> None:
    try:
        list(split_batch(data))
    except RecordError:
        return
