"""Check points, their records, and who waits: the parts of POP that decide without I/O."""

import asyncio

import pytest

from broker.pop.check_points import WHEEL_GRACE_MS, CheckPoint, CheckPointKey, CheckPointTable, PutOff
from broker.pop.records import (
    Ack,
    BatchAckEntry,
    ack_record,
    check_point_record,
    read_handle,
    read_record,
)
from broker.pop.waiting import PopWaiting
from remoting.record import RecordError, encode_record
from remoting.topics import origin_of, pop_retry_topic
from store.types import PendingRecord

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
KEY = CheckPointKey("T", "G", 3, 10, 1000)


def point(
    start: int = 10, *, pop_ms: int = 1000, offsets: tuple[int, ...] = (10, 11, 14), queue: int = 0
) -> CheckPoint:
    return CheckPoint(KEY._replace(start=start, pop_ms=pop_ms), 500, "broker-a", queue, offsets)


def again(record: PendingRecord, queue: int = 2, at: int = 7) -> CheckPoint | Ack | PutOff:
    stored = encode_record(record.topic, record.queue_id, record.body, properties=record.properties)
    return read_record(memoryview(stored), queue, at)


def test_a_check_point_is_what_its_record_says() -> None:
    read = again(check_point_record("R", point(), HOST))
    assert isinstance(read, CheckPoint)
    assert (read.key, read.offsets, read.invisible_ms, read.broker) == (KEY, (10, 11, 14), 500, "broker-a")
    assert (read.revive_queue, read.at, read.revive_ms, read.of_wheel) == (2, 7, 1500, False)
    assert read.open_offsets() == [10, 11, 14]


def test_acknowledgements_are_what_their_records_say() -> None:
    one, several = (again(ack_record("R", point(), offsets, 1200, HOST)) for offsets in ([11], [10, 14]))
    assert (one, several) == (Ack(KEY, (11,)), Ack(KEY, (10, 14)))


@pytest.mark.parametrize(
    ("tag", "body"), [("ck", b"{"), ("ck", b'{"so":"a"}'), ("ack", b"[]"), ("other", b"{}"), ("bAck", b'{"aol":1}')]
)
def test_what_is_no_record_of_pops_is_refused(tag: str, body: bytes) -> None:
    record = PendingRecord("R", 0, 0, 0, 1, HOST, 0, 0, body, f"TAGS\x01{tag}\x02".encode())
    with pytest.raises(RecordError):
        again(record)


def test_a_table_knows_what_is_open_and_when_it_is_due() -> None:
    table = CheckPointTable()
    late, early = point(20, pop_ms=2000), point(10)
    for made in (late, early):
        table.add(made)
    assert table.next_due() == 1500
    assert table.take_due(1499) is None
    table.acknowledge(early.key, [10, 14])
    taken = table.take_due(1500)
    assert taken is early
    assert early.open_offsets() == [11]
    # It comes up again only when somebody says so.
    assert table.take_due(1501) is None
    table.again(early.key, 1600)
    assert table.take_due(1600) is early
    table.again(early.key, 1700)
    table.acknowledge(early.key, [11])
    assert (len(table), table.find(early.key), table.next_due()) == (1, None, 2500)
    table.acknowledge(early.key, [11])
    table.acknowledge(late.key, [99])
    assert late.open_offsets() == [10, 11, 14]


def test_one_that_comes_twice_is_one_and_keeps_its_acknowledgements() -> None:
    table = CheckPointTable()
    table.add(point())
    table.acknowledge(KEY, [10])
    read = point()
    read.at = 5
    assert table.low(0) is None
    table.add(read)
    found = table.find(KEY)
    assert found is not None
    assert (len(table), found.open_offsets(), table.low(0)) == (1, [11, 14], 5)
    table.acknowledge(KEY, [11, 14])
    assert table.low(0) is None


def test_what_rocketmqs_wheel_brings_waits_for_its_acknowledgements() -> None:
    table = CheckPointTable()
    made = CheckPoint(KEY, 500, "b", 0, (10,), of_wheel=True)
    table.add(made, 9000)
    assert table.next_due() == 9000 + WHEEL_GRACE_MS


def test_handles_are_read_and_others_refused() -> None:
    handle = read_handle("7 1000 500 3 1 broker-a 2 9")
    assert (handle.start, handle.pop_ms, handle.invisible_ms, handle.revive_queue) == (7, 1000, 500, 3)
    assert (handle.kind, handle.broker, handle.queue_id) == ("1", "broker-a", 2)
    assert read_handle("7 1000 500 3 0 broker-a 2") == handle._replace(kind="0")
    for text in ("", "1 2 3", "a 1000 500 3 0 b 2", "1 " * 500, "1 2 3 4 5 6 7 8 9"):
        with pytest.raises(ValueError, match=r"handle|invalid literal"):
            read_handle(text)


def test_the_bits_of_a_batch() -> None:
    def entry(bits: str, retry: str = "0") -> BatchAckEntry:
        return BatchAckEntry(c="G", t="T", so=100, q=0, rq=1, pt=1, it=1, b=bits, r=retry)

    assert entry("Bg==").offsets() == [101, 102]
    assert entry("").offsets() == []
    assert [entry("", retry).topic() for retry in "012"] == ["T", "%RETRY%G_T", "%RETRY%G+T"]
    assert pop_retry_topic("T", "G") == "%RETRY%G_T"
    assert pop_retry_topic("T", "G", v2=True) == "%RETRY%G+T"
    assert origin_of("%RETRY%G_T", "G") == origin_of("%RETRY%G+T", "G") == "T"
    assert origin_of("%RETRY%G_H_T", "G_H") == "T"
    assert origin_of("%RETRY%G", "G") == "%RETRY%G"
    for bits in ("Bg=", "!!", "A" * 10_000):
        with pytest.raises(ValueError, match="acknowledgement"):
            entry(bits).offsets()


async def test_waiters_are_woken_one_at_a_time_of_each_group() -> None:
    waiting = PopWaiting(asyncio.get_running_loop(), each=2, limit=3)
    first, second = (waiting.enter("c1", "G", ("T", "R")) for _ in range(2))
    assert waiting.enter("c1", "G", ("T", "R")) is None
    other = waiting.enter("c2", "H", ("T", "Q"))
    assert waiting.enter("c3", "I", ("T", "Q")) is None
    assert (waiting.size, waiting.count("T", "G"), waiting.count("R", "G")) == (3, 2, 2)
    assert first is not None
    assert second is not None
    assert other is not None
    waiting.arrived(["T", "nobody's"])
    assert (first.woken.done(), second.woken.done(), other.woken.done()) == (True, False, True)
    waiting.more("R", "G")
    assert second.woken.done()
    for waiter in (first, second, other):
        waiting.leave(waiter)
    assert (waiting.size, waiting.count("T", "G")) == (0, 0)
    last = waiting.enter("c2", "H", ("T",))
    assert last is not None
    waiting.drop("c2")
    assert last.woken.done()
    waiting.drop("c2")
