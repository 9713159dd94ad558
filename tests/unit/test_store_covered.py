import pytest

from remoting.properties import encode_properties
from remoting.record import RecordError, encode_record
from store.log.dispatch import SCHEDULE_TOPIC, dispatched_from_record
from store.raftlog.covered_records import CoveredReader, check_covered
from store.types import Dispatched
from tests.parts.store_tools import HOST, HOST_V6

START = 5000
LEVELS = (1000, 5000)


def covered() -> tuple[bytes, int]:
    data = b""
    kinds = [
        ("T", HOST, HOST, {}, 0),
        ("T", HOST_V6, HOST, {"TAGS": "a", "KEYS": "k1 k2"}, 0),
        ("long" * 40, HOST, HOST_V6, {"UNIQ_KEY": "U"}, 0x8),
        (SCHEDULE_TOPIC, HOST, HOST, {"DELAY": "2", "TAGS": "late"}, 0),
        ("Tä", HOST_V6, HOST_V6, {"TAGS": "é"}, 0x4),
        ("T", HOST, HOST, {"OTHER": "TAGS"}, 0xC),
    ]
    for number, (topic, born, stored, properties, flags) in enumerate(kinds):
        data += encode_record(
            topic,
            number,
            bytes(number * 10),
            encode_properties(properties),
            queue_offset=number + 40,
            physical_offset=START + len(data),
            sys_flag=flags,
            born_host=born,
            store_host=stored,
            store_timestamp=77_000 + number,
        )
    return data, len(kinds)


def test_the_short_way_reads_what_the_long_way_does() -> None:
    data, count = covered()
    check_covered(memoryview(data), START, count)
    expected: list[Dispatched] = []
    at = 0
    while at < len(data):
        expected.append(dispatched_from_record(data, at, LEVELS))
        at += expected[-1].size
    reader = CoveredReader(LEVELS)
    assert reader.read(data, 0, count) == expected
    assert reader.read(memoryview(b"control" + data), 7, count) == expected


def test_records_that_are_none_are_refused() -> None:
    data, count = covered()
    view = memoryview(data)
    with pytest.raises(RecordError, match="more bytes"):
        check_covered(view, START, count - 1)
    with pytest.raises(RecordError, match="fewer records"):
        check_covered(view, START, count + 1)
    with pytest.raises(RecordError, match="no record of position"):
        check_covered(view, START + 1, count)
    with pytest.raises(RecordError, match="no record of position"):
        check_covered(view[:-1], START, count)
    with pytest.raises(RecordError, match="more bytes"):
        check_covered(view, START, 0)
    check_covered(memoryview(b""), START, 0)


@pytest.mark.parametrize(
    ("at", "value"),
    # The body's length, the topic's length, the topic itself.
    [(84, b"\x7f\xff\xff\xff"), (88, b"\x7f"), (88, b"\x00"), (89, b"\xff")],
)
def test_records_that_contradict_themselves_are_refused(at: int, value: bytes) -> None:
    data = bytearray(encode_record("T", 0, b"", physical_offset=START))
    data[at : at + len(value)] = value
    with pytest.raises(RecordError):
        CoveredReader(LEVELS).read(bytes(data), 0, 1)
