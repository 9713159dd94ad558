import zlib

import pytest

from raft.protocol.types import EntryType
from remoting.msgid import pack_host
from remoting.record import decode_record, encode_record
from remoting.topics import RAFT_TOPIC
from store.controlrecord import (
    CLASSIC_FROM_HERE,
    Control,
    ControlDamaged,
    ControlError,
    chained,
    continues,
    control_bytes,
    control_term,
    decode_control,
    encode_control,
    is_control,
    is_rotten,
    previous_chain,
)
from store.log.dispatch import dispatched_from_record
from store.log.logscan import check_record
from tests.parts.store_tools import HOST, HOST_V6

CONFIG = chained(
    Control(
        index=7, position=4096, size=control_bytes(HOST, 5), timestamp=1_700_000_000_000, kind=EntryType.CONFIG,
        flags=CLASSIC_FROM_HERE, term=3, previous_term=2, covered_bytes=0, covered_count=0, covered_crc=0, commit=6,
        config=7, chain=0, payload=b"hello",
    ),
    0xDEADBEEF,
)  # fmt: skip
# The layout is what members of a group, and later versions, must agree on: it never changes within version 1.
GOLDEN = (
    "000000a0daa320a7381b97cc000000000000000000000000000000070000000000001000000000000000018b"
    "cfe568000a00000100002a9f0000018bcfe568000a00000100002a9f00000000000000000000000000000039"
    "01030001000000000000000300000000000000020000000000000000000000000000000000000006000000000000000710839859"
    "68656c6c6f0c524d515f5359535f524146540000"
)


def test_golden_bytes() -> None:
    assert encode_control(CONFIG, HOST).hex() == GOLDEN
    assert decode_control(bytes.fromhex(GOLDEN)) == CONFIG


def test_it_is_an_ordinary_record() -> None:
    message = decode_record(bytes.fromhex(GOLDEN), check_crc=True)
    assert (message.topic, message.queue_id, message.queue_offset) == (RAFT_TOPIC, 0, 7)
    assert (message.physical_offset, message.store_timestamp) == (4096, 1_700_000_000_000)
    assert message.properties == {}
    dispatched = dispatched_from_record(bytes.fromhex(GOLDEN))
    assert (dispatched.topic, dispatched.queue_offset, dispatched.tags_code) == (RAFT_TOPIC, 7, 3)


@pytest.mark.parametrize("host", [HOST, HOST_V6, pack_host("127.0.0.1", 65535)])
@pytest.mark.parametrize("payload", [b"", b"x", bytes(1000)])
def test_any_host_and_payload_come_back(host: bytes, payload: bytes) -> None:
    control = chained(CONFIG._replace(size=control_bytes(host, len(payload)), payload=payload), 1)
    data = encode_control(control, host)
    assert check_record(memoryview(data), 0, 4096, check_crc=True) == (len(data), control.timestamp)
    assert is_control(data, 0)
    assert decode_control(data) == control
    assert decode_control(b"before" + data, 6) == control
    assert len(data) == control.size


def test_ends_and_flags() -> None:
    entry = CONFIG._replace(kind=EntryType.MESSAGES, covered_bytes=300)
    assert entry.end == 4096 + control_bytes(HOST, 5) + 300
    assert entry.entry_bytes == entry.end - 4096
    assert CONFIG.is_classic
    assert not entry.is_classic
    assert not CONFIG._replace(flags=0).is_classic


@pytest.mark.parametrize(
    "other",
    [
        {"index": 8},
        {"term": 4},
        {"position": 0},
        {"kind": EntryType.META},
        {"timestamp": 0},
        {"covered_bytes": 1},
        {"covered_count": 1},
        {"covered_crc": 1},
        {"commit": 5},
        {"config": 6},
        {"payload": b"hellO"},
        {"flags": 0},
    ],
)
def test_R11_the_chain_tells_every_entry_from_another(other: dict[str, int]) -> None:
    assert continues(CONFIG, 0xDEADBEEF)
    assert not continues(CONFIG, 0xDEADBEEE)
    assert not continues(CONFIG._replace(**other), 0xDEADBEEF)  # type: ignore[arg-type] # fields of several types


def test_the_chain_before_can_be_computed_from_the_entry() -> None:
    chain = 0
    for index in range(1, 200):
        previous = chain
        control = chained(CONFIG._replace(index=index, payload=zlib.crc32(bytes(index)).to_bytes(4, "big")), previous)
        assert previous_chain(control) == previous
        chain = control.chain


def test_what_is_no_control_record_is_said_so() -> None:
    with pytest.raises(ControlError, match="another topic"):
        decode_control(encode_record("T", 0, bytes(60)))
    with pytest.raises(ControlError, match="the shape of another"):
        decode_control(encode_record(RAFT_TOPIC, 0, bytes(10)))
    with pytest.raises(ControlError, match="version 2"):
        decode_control(encode_record(RAFT_TOPIC, 0, b"\x02" + bytes(60)))
    with pytest.raises(ControlError, match="unknown type 4"):
        decode_control(encode_record(RAFT_TOPIC, 0, b"\x01\x04" + bytes(60)))
    assert control_term(bytes(10), 0, 10) == 0


def test_R4_no_byte_changes_unnoticed() -> None:
    data = encode_control(CONFIG, HOST)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x40
        if isinstance(check_record(memoryview(changed), 0, 4096, check_crc=True), str):
            continue
        try:
            # The index is told by the chain alone.
            assert not continues(decode_control(bytes(changed)), 0xDEADBEEF)
        except ControlDamaged:
            pass
        except ControlError:
            # The topic: what it says besides tells that it was the entry that is due here.
            assert is_rotten(bytes(changed), 0, 0xDEADBEEF)
            assert not is_rotten(bytes(changed), 0, 0xDEADBEEE)
    assert not is_rotten(encode_record("T", 0, bytes(10)), 0, 0)
