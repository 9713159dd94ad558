"""The dispatcher: what a record tells, who hears of it, and that a part of the log may come twice."""

from pathlib import Path

import pytest

from remoting.javahash import java_hash
from remoting.properties import encode_properties
from remoting.record import RecordError, encode_record
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.log.dispatch import (
    SCHEDULE_TOPIC,
    Dispatcher,
    dispatched_from_record,
    is_hidden,
    parse_delay_levels,
    queue_code,
)
from store.types import Dispatched

ALWAYS = (0, 1 << 62)
V6 = bytes(19) + b"\x01"


def record(topic: str = "T") -> bytes:
    return encode_record(topic, 3, b"body")


@pytest.fixture
def parts(tmp_path: Path) -> tuple[ConsumeQueues, MessageIndex, Dispatcher]:
    queues = ConsumeQueues(tmp_path / "consumequeue", file_bytes=2000)
    index = MessageIndex(tmp_path / "index", slots=50, entries=100)
    return queues, index, Dispatcher(queues, index)


def test_a_record_tells_what_is_dispatched() -> None:
    properties = {"KEYS": "a b", "TAGS": "TagA", "UNIQ_KEY": "U", "x": "KEYS"}
    data = encode_record(
        "主题",
        3,
        b"body",
        encode_properties(properties),
        queue_offset=5,
        physical_offset=1000,
        sys_flag=8,
        store_timestamp=77,
    )
    told = dispatched_from_record(b"..." + data + b"...", 3)
    assert told == Dispatched("主题", 3, 5, 1000, len(data), java_hash("TagA"), 77, b"U", b"a b", 8, b"TagA")


@pytest.mark.parametrize("hosts", [(bytes(8), V6), (V6, bytes(8)), (V6, V6)])
def test_wide_hosts_and_long_topics_are_understood(hosts: tuple[bytes, bytes]) -> None:
    data = encode_record(
        "t" * 200, 0, b"", encode_properties({"TAGS": "x"}), born_host=hosts[0], store_host=hosts[1], store_timestamp=9
    )
    told = dispatched_from_record(memoryview(data))
    assert (told.topic, told.size, told.store_timestamp, told.tags) == ("t" * 200, len(data), 9, b"x")


def test_lengths_that_contradict_each_other_are_an_error() -> None:
    data = bytearray(record())
    data[84:88] = (1000).to_bytes(4, "big")
    with pytest.raises(RecordError, match="body"):
        dispatched_from_record(bytes(data))
    data = bytearray(record())
    data[92] = 100
    with pytest.raises(RecordError, match="topic"):
        dispatched_from_record(bytes(data))
    data = bytearray(record("TT"))
    data[93:95] = b"\xff\xfe"
    with pytest.raises(RecordError, match="UTF-8"):
        dispatched_from_record(bytes(data))


def test_delayed_messages_carry_their_due_time() -> None:
    def code(level: str, topic: str = SCHEDULE_TOPIC) -> int:
        return queue_code(topic, b"TagA", encode_properties({"DELAY": level, "TAGS": "TagA"}), 1_000_000)

    assert [code(level) for level in ("1", "2", "18", "99")] == [1_001_000, 1_005_000, 8_200_000, 8_200_000]
    # Elsewhere, and without a level, the tags count.
    assert code("1", "T") == code("0") == code("x") == code("") == java_hash("TagA")
    assert queue_code("T", b"", b"", 5) == 0


def test_delay_levels_are_parsed_or_refused() -> None:
    assert parse_delay_levels("1s 5m  2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)
    for wrong in ("5", "s", "1x", "-1s"):
        with pytest.raises(ValueError, match="messageDelayLevel"):
            parse_delay_levels(wrong)


def test_unfinished_transactions_stand_in_no_queue(parts: tuple[ConsumeQueues, MessageIndex, Dispatcher]) -> None:
    queues, index, dispatcher = parts
    batch = [
        Dispatched("T", 0, 0 if flag else n, n * 100, 100, 0, 1, b"u%d" % n, b"", flag)
        for n, flag in enumerate((0, 0x4, 0xC))
    ]
    batch.append(Dispatched("T", 0, 1, 300, 100, 0, 1, b"u3", b"", 0x8 | 0x10))
    dispatcher.dispatch(batch)
    assert queues.entries("T", 0, 0, 10) == [(0, 100, 0), (300, 100, 0)]
    # The index knows the prepared one, so that it can be found, but not the one that was rolled back.
    assert [index.query("T", f"u{n}", 5, *ALWAYS) for n in range(4)] == [[0], [100], [], [300]]
    assert [is_hidden(flag) for flag in (0, 0x4, 0x8, 0xC, 0x14, 0x18)] == [False, True, False, True, True, False]
    queues.close()
    index.close()


def test_dispatching_again_changes_nothing(parts: tuple[ConsumeQueues, MessageIndex, Dispatcher]) -> None:
    queues, index, dispatcher = parts
    batch = [Dispatched("T", n % 2, n // 2, n * 100, 100, n, 1, b"u%d" % n, b"k", 0, b"tag") for n in range(10)]
    dispatcher.dispatch(batch[:6])
    dispatcher.dispatch(batch)
    dispatcher.dispatch(batch[4:], rebuilding=True)
    assert queues.entries("T", 1, 0, 10) == [(n * 100, 100, n) for n in range(1, 10, 2)]
    assert index.query("T", "k", 100, *ALWAYS) == [n * 100 for n in reversed(range(10))]
    queues.close()
    index.close()


def test_without_an_index_the_queues_are_fed(tmp_path: Path) -> None:
    queues = ConsumeQueues(tmp_path / "consumequeue", file_bytes=2000)
    Dispatcher(queues, None).dispatch([Dispatched("T", 0, 0, 0, 100, 0, 1, b"u", b"", 0)])
    assert queues.max_offset("T", 0) == 1
    queues.close()
