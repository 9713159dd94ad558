"""The topic table: who is created from what, what survives a restart, what is refused at the limits."""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import broker.metadata.topics
from broker.metadata.operations import LocalMeta
from broker.metadata.table_file import MetadataError
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.bodies.registry import TopicConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime import durable
from runtime.clock import ManualClock
from store.config import StoreConfig


def live(**values: Any) -> LiveConfig:
    return LiveConfig(dataclasses.replace(BrokerConfig(brokerName="broker-a"), **values), StoreConfig())


def table(tmp_path: Path, on_change: Callable[[], None] = lambda: None, **values: Any) -> TopicTable:
    return TopicTable(tmp_path / "config" / "topics.json", live(**values), ManualClock(), on_change=on_change)


async def test_R15_the_epoch_of_a_promotion_is_on_disk_before_the_broker_serves(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"

    def on_disk() -> dict[str, int]:
        version: dict[str, int] = json.loads(path.read_bytes())["dataVersion"]
        return version

    TopicTable(path, live(), ManualClock())
    before = on_disk()
    assert before["stateVersion"] == 0
    meta = LocalMeta()
    for term, kept in ((3, 3), (3, 3), (1, 3)):
        meta.term = term
        assert TopicTable(path, live(), ManualClock(), meta).data_version.stateVersion == kept
        assert on_disk() == {**before, "counter": before["counter"] + 1, "stateVersion": 3}


async def test_system_topics_exist_from_the_start_and_are_on_disk(tmp_path: Path) -> None:
    topics = table(tmp_path)
    on_disk = json.loads((tmp_path / "config" / "topics.json").read_bytes())["topicConfigTable"]
    expected = {
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "TBW102": (8, 7),
    }
    assert {name: (topic["writeQueueNums"], topic["perm"]) for name, topic in on_disk.items()} == expected
    assert set(topics.tables) == set(expected)


async def test_the_pattern_topic_exists_only_where_topics_are_created_by_themselves(tmp_path: Path) -> None:
    topics = table(tmp_path, autoCreateTopicEnable=False, traceTopicEnable=True)
    assert topics.get("TBW102") is None
    assert topics.get("RMQ_SYS_TRACE_TOPIC") is not None
    assert topics.create_for_send("T", "TBW102", 4) is None


async def test_a_send_creates_a_topic_after_its_pattern(tmp_path: Path) -> None:
    changes: list[int] = []
    topics: TopicTable = table(tmp_path, lambda: changes.append(topics.data_version.counter))
    before = topics.data_version.counter
    created = topics.create_for_send("T", "TBW102", 4)
    assert created is not None
    assert (created.readQueueNums, created.writeQueueNums, created.perm) == (4, 4, 6)
    assert changes == [before + 1]
    assert topics.create_for_send("T", "TBW102", 16) is created
    assert changes == [before + 1]
    wide = topics.create_for_send("W", "TBW102", 16)
    assert wide is not None
    assert wide.writeQueueNums == 8, "never more than the pattern has"
    await topics.close()


async def test_no_topic_without_a_pattern_that_lets_inherit(tmp_path: Path) -> None:
    topics = table(tmp_path)
    assert topics.create_for_send("T", "defaultTopic", 4) is None
    assert topics.create_for_send("T", "BenchmarkTest", 4) is None
    assert topics.get("T") is None


async def test_auto_creation_can_be_switched_off_while_running(tmp_path: Path) -> None:
    config = live()
    topics = TopicTable(tmp_path / "topics.json", config, ManualClock())
    config.update({"autoCreateTopicEnable": "false"})
    assert topics.create_for_send("T", "TBW102", 4) is None


async def test_a_saved_change_survives_a_restart(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("T", 3, 5, 4, attributes={"message.type": "FIFO"}, order=True))
    await topics.save()
    again = table(tmp_path)
    assert again.get("T") == TopicConfig("T", 3, 5, 4, attributes={"message.type": "FIFO"}, order=True)
    assert again.data_version == topics.data_version
    await topics.close()


async def test_an_auto_created_topic_reaches_the_disk_without_being_asked(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.create_for_send("T", "TBW102", 4)
    await topics.close()
    assert table(tmp_path).get("T") is not None


async def test_many_changes_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = table(tmp_path)
    writes = 0
    real = durable.replace_file

    def counted(path: Path, content: bytes, mode: int = 0o644) -> None:
        nonlocal writes
        writes += 1
        real(path, content, mode)

    monkeypatch.setattr("broker.metadata.table_file.replace_file", counted)
    for number in range(2000):
        topics.create_for_send(f"T{number}", "TBW102", 4)
        if number % 100 == 0:
            await asyncio.sleep(0)
    await topics.close()
    assert writes <= 5
    assert len(table(tmp_path).tables) == len(topics.tables)


async def test_save_waits_for_the_change_that_came_during_a_writing(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("A"))
    first = asyncio.ensure_future(topics.save())
    await asyncio.sleep(0)
    topics.update(TopicConfig("B"))
    await topics.save()
    await first
    assert {"A", "B"} <= set(table(tmp_path).tables)
    await topics.close()


async def test_a_disk_that_refuses_is_told_to_who_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = table(tmp_path)

    def full(path: Path, content: bytes, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.metadata.table_file.replace_file", full)
    topics.update(TopicConfig("T"))
    with pytest.raises(OSError, match="No space left"):
        await topics.save()
    monkeypatch.undo()
    await topics.close()
    assert table(tmp_path).get("T") is not None, "closing writes what could not be written before"


async def test_deleted_topics_are_gone_after_a_restart(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("A"), TopicConfig("B"))
    assert topics.delete("A", "never") == ["A"]
    await topics.save()
    assert "A" not in table(tmp_path).tables
    assert "B" in table(tmp_path).tables
    await topics.close()


async def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("A"))
    await topics.save()
    topics.update(TopicConfig("B"))
    await topics.close()
    path = tmp_path / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:50])
    again = table(tmp_path)
    assert "A" in again.tables
    assert "topics.json" in caplog.text


async def test_damage_without_a_backup_stops_the_start_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_bytes(b'{"topicConfigTable":{"T":')
    with pytest.raises(MetadataError, match=r"topics\.json"):
        table(tmp_path)
    path.write_bytes(b'{"topicConfigTable":{"T":{"perm":"six"}}}')
    with pytest.raises(MetadataError, match=r"topics\.json"):
        table(tmp_path)
    assert path.read_bytes() == b'{"topicConfigTable":{"T":{"perm":"six"}}}', "what was there is not overwritten"


async def test_a_backup_alone_is_enough(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update(TopicConfig("A"))
    await topics.close()
    path = tmp_path / "config" / "topics.json"
    path.replace(path.with_name("topics.json.bak"))
    assert "A" in table(tmp_path).tables


async def test_retry_topics_have_the_queues_asked_for(tmp_path: Path) -> None:
    topics = table(tmp_path)
    created = topics.create_for_retry("%RETRY%g", 3)
    assert (created.topicName, created.writeQueueNums, created.perm) == ("%RETRY%g", 3, 6)
    assert topics.create_for_retry("%RETRY%g", 1) is created
    await topics.close()


@pytest.mark.parametrize(
    "topic",
    [TopicConfig("T", -1, 4), TopicConfig("T", 4, 100_000), TopicConfig("T", perm=8), TopicConfig("T", perm=-1)],
)
async def test_numbers_without_sense_are_refused(tmp_path: Path, topic: TopicConfig) -> None:
    topics = table(tmp_path)
    with pytest.raises(CommandError) as refused:
        topics.update(TopicConfig("good"), topic)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert topics.get("good") is None, "all or none"


async def test_the_limit_of_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = table(tmp_path)
    monkeypatch.setattr(broker.metadata.topics, "TOPICS_MAX", len(topics.tables) + 1)
    assert topics.create_for_send("A", "TBW102", 4) is not None
    assert topics.create_for_send("B", "TBW102", 4) is None
    with pytest.raises(CommandError, match="at most"):
        topics.create_for_retry("%RETRY%g", 1)
    with pytest.raises(CommandError, match="at most"):
        topics.update(TopicConfig("C"))
    topics.update(TopicConfig("A", 2, 2))
    await topics.close()


async def test_queues_without_a_topic_are_adopted(tmp_path: Path) -> None:
    topics = table(tmp_path)
    assert topics.adopt({"lost": [0, 3], "TBW102": [0], "RMQ_SYS_RAFT": [0], "empty": []}) == ["lost"]
    found = table(tmp_path).get("lost")
    assert found is not None
    assert found.writeQueueNums == 4
    assert topics.adopt({"lost": [0, 9]}) == []


async def test_only_what_was_stored_since_the_last_change_that_was_kept_gives_a_delayed_message_its_topic(
    tmp_path: Path,
) -> None:
    """A topic that was deleted while messages waited for it stays deleted."""
    clock = ManualClock()
    first = TopicTable(tmp_path / "topics.json", live(), clock)
    clock.advance(5)
    first.update(TopicConfig("deleted"))
    first.delete("deleted")
    await first.close()
    kept_ms = clock.now_ms()
    clock.advance(60)
    second = TopicTable(tmp_path / "topics.json", live(), clock)
    second.adopt_awaited("deleted", 0, kept_ms - 1)
    assert second.get("deleted") is None
    second.adopt_awaited("lost", 1, kept_ms)
    found = second.get("lost")
    assert found is not None
    assert (found.writeQueueNums, found.readQueueNums) == (2, 2)
    # Others of them wait for further queues: none must be hidden. Who says how many there are is believed.
    second.adopt_awaited("lost", 3, kept_ms)
    second.adopt_awaited("lost", 0, kept_ms)
    found = second.get("lost")
    assert found is not None
    assert (found.writeQueueNums, found.readQueueNums) == (4, 4)
    second.update(TopicConfig("lost", 3, 3))
    second.adopt_awaited("lost", 7, kept_ms)
    found = second.get("lost")
    assert found is not None
    assert found.readQueueNums == 3
    await second.close()
    third = TopicTable(tmp_path / "topics.json", live(), clock)
    found = third.get("lost")
    assert found is not None
    assert found.readQueueNums == 3
    await third.close()


async def test_pages_cover_the_table_once(tmp_path: Path) -> None:
    topics = table(tmp_path)
    names: list[str] = []
    while page := topics.page(len(names), 5):
        names.extend(page)
    assert names == list(topics.tables)
