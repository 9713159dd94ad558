"""metadata_copy.py and table_requests.py: a slave's tables are its master's, and nothing committed here goes back."""

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.master_slave import metadata_copy as slave_meta
from broker.master_slave import table_requests as slave_copy
from broker.master_slave.ha_state import Followed
from broker.metadata.consumer_groups import GROUPS_MAX
from broker.metadata.operations import Table
from broker.metadata.topics import TOPICS_MAX
from remoting.bodies.registry import (
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler
from tests.parts.slave_parts import NEVER_MS, MasterBroker, SlaveBroker, Tables, copying, serving

VERSION = DataVersion(3, 0, 5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_meta, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr("broker.metadata.feed.SOON_SECONDS", 0.01)
    monkeypatch.setattr("broker.metadata.feed.PROGRESS_SECONDS", 0.02)


async def pair(
    exits: AsyncExitStack,
    folder: Path,
    handlers: dict[int, Handler] | None = None,
    *,
    news: bool = True,
    period_ms: int = NEVER_MS,
) -> tuple[MasterBroker, SlaveBroker]:
    """Start a master and a slave; with the master's own handlers only, the slave has copied everything then."""
    master = await exits.enter_async_context(serving(MasterBroker(folder / "master", handlers, news=news)))
    slave = await exits.enter_async_context(copying(SlaveBroker(folder / "slave", master.address, period_ms)))
    if not handlers:
        await slave.copied()
    return master, slave


def answer(body: bytes, **ext: str) -> Handler:
    """Return a handler that always says the same."""
    return lambda _connection, _request: Command.response(ResponseCode.SUCCESS, body=body, ext=ext)


def same(master: Tables, slave: Tables) -> bool:
    return (
        slave.topics.tables == master.topics.tables
        and slave.topics.data_version == master.topics.data_version
        and slave.groups.page(0, GROUPS_MAX) == master.groups.page(0, GROUPS_MAX)
        and json.loads(slave.offsets.encode()) == json.loads(master.offsets.encode())
        and slave.schedule.encode() == master.schedule.encode()
    )


async def test_everything_is_copied_with_its_version_and_stands_in_the_files(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.topics.update(*(TopicConfig(f"T{number}") for number in range(4500)))
        master.groups.update(*(SubscriptionGroupConfig(f"g{number}", retryMaxTimes=3) for number in range(2500)))
        master.groups.set_readable("g1", "T1", readable=False)
        master.offsets.commit("g1", "T1", 3, 44, 100, None)
        master.schedule.take_over(DelayOffsetTable(VERSION, {3: 17}))
        master.modes.take_over(MessageRequestModeTable({"T1": {"g1": {"mode": "POP"}}}))
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        await slave.copied()
        assert same(master, slave)
        assert not slave.groups.readable("g1", "T1")
        assert slave.schedule.progress() == {3: 17}
        assert slave.copies.status()["refused"] == {}
    again = Tables(tmp_path / "slave", leads=False)
    assert again.topics.tables == master.topics.tables
    assert again.topics.data_version == master.topics.data_version
    assert again.groups.page(0, GROUPS_MAX) == master.groups.page(0, GROUPS_MAX)
    assert again.offsets.query("g1", "T1", 3) == 44
    written = json.loads((tmp_path / "slave" / "delayOffset.json").read_bytes())
    assert written["offsetTable"] == {"3": 17}, "not cut down to what this log has of it so far"
    modes = json.loads((tmp_path / "slave" / "messageRequestMode.json").read_bytes())
    assert modes == {"messageRequestModeMap": {"T1": {"g1": {"mode": "POP"}}}}


async def test_a_change_comes_at_once_and_only_the_table_that_changed(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path)
        master.copied()
        master.topics.update(TopicConfig("A"))
        await slave.until(lambda: slave.topics.get("A") is not None)
        assert master.copied() == {RequestCode.GET_ALL_TOPIC_CONFIG}
        master.offsets.commit("g", "A", 0, 7, 100, None)
        await slave.until(lambda: slave.offsets.query("g", "A", 0) == 7)
        assert master.copied() == {RequestCode.GET_ALL_CONSUMER_OFFSET}
        master.groups.update(SubscriptionGroupConfig("g"))
        await slave.until(lambda: slave.groups.get("g") is not None)
        master.groups.delete("g")
        master.topics.delete("A")
        master.offsets.remove_topic("A")
        await slave.until(lambda: same(master, slave))


async def test_a_java_master_is_polled(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path, news=False, period_ms=10)
        assert slave.copies.status()["news"] is False
        master.topics.update(TopicConfig("A"))
        master.offsets.commit("g", "A", 0, 7, 100, None)
        await slave.until(lambda: slave.topics.get("A") is not None and slave.offsets.query("g", "A", 0) == 7)
        master.copied()
        await slave.until(lambda: master.asked.count(RequestCode.GET_ALL_CONSUMER_OFFSET) > 1)
        assert ClassicCode.AWAIT_METADATA not in master.asked, "it was asked once what it does not know"


async def test_a_master_of_before_5_answers_whole_tables(tmp_path: Path) -> None:
    topics = TopicConfigTable(VERSION, topicConfigTable={f"T{n}": TopicConfig(f"T{n}") for n in range(3000)})
    groups = SubscriptionGroupTable(VERSION, {}, {"g": SubscriptionGroupConfig("g")})
    async with AsyncExitStack() as exits:
        _, slave = await pair(exits, tmp_path, {21: answer(topics.encode()), 201: answer(groups.encode())}, news=False)
        await slave.copied()
        assert slave.topics.tables == topics.topicConfigTable
        assert slave.topics.data_version == VERSION
        assert list(slave.groups.tables) == ["g"]


async def test_a_slave_makes_nothing_of_its_own(tmp_path: Path) -> None:
    slave = SlaveBroker(tmp_path, None)
    assert not slave.topics.tables
    assert not slave.groups.tables
    assert slave.groups.find("g") is not None, "what the master would create"
    assert slave.groups.get("g") is None
    assert slave.topics.create_for_send("T", "TBW102", 4) is None
    async with copying(slave):
        assert not slave.copies.synced


async def test_what_was_committed_here_wins_and_gets_to_the_master(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path)
        master.topics.update(TopicConfig("T"))
        master.groups.update(SubscriptionGroupConfig("g"))
        for queue, offset in ((0, 10), (1, 10), (2, 10)):
            master.offsets.commit("g", "T", queue, offset, 100, None)
        await slave.until(lambda: same(master, slave))
        followed, slave.followed = slave.followed, None
        slave.copies.hurry()
        await slave.until(lambda: not slave.copies.synced)
        slave.offsets.commit("g", "T", 0, 50, 100, None)
        slave.offsets.commit("g", "T", 1, 30, 100, None)
        master.offsets.commit("g", "T", 1, 40, 100, None)
        master.offsets.commit("g", "T", 2, 60, 100, None)
        assert slave.copies.status()["ownCommits"] == 2
        slave.followed = followed
        slave.copies.hurry()
        await slave.copied()
        for tables in (master, slave):
            assert tables.offsets.offsets("g", "T") == {0: 50, 1: 40, 2: 60}
        assert slave.copies.status()["ownCommits"] == 0


async def test_what_was_committed_here_survives_a_restart_and_a_master_that_lost_it(tmp_path: Path) -> None:
    async with copying(SlaveBroker(tmp_path / "slave", None)) as alone:
        alone.offsets.commit("g", "T", 0, 50, 100, None)
        alone.offsets.commit("h", "Gone", 0, 9, 100, None)
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.topics.update(TopicConfig("T"))
        master.store.ends["T", 0] = 42
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        assert slave.copies.status()["ownCommits"] == 2
        await slave.copied()
        assert master.offsets.query("g", "T", 0) == 42, "its queue ends there"
        assert slave.offsets.offsets("g", "T") == {0: 42}
        assert slave.offsets.query("h", "Gone", 0) == -1, "the master has no such topic"
        assert slave.copies.status()["ownCommits"] == 0


async def test_a_commit_that_the_master_cannot_take_now_is_not_given_up(tmp_path: Path) -> None:
    refused = 0

    def busy(_connection: Connection, _request: Command) -> Command:
        nonlocal refused
        refused += 1
        raise CommandError(ResponseCode.SYSTEM_BUSY, "later")

    async with copying(SlaveBroker(tmp_path / "slave", None)) as alone:
        alone.offsets.commit("g", "T", 0, 50, 100, None)
    async with AsyncExitStack() as exits:
        _, slave = await pair(exits, tmp_path, {15: busy})
        await slave.until(lambda: "OFFSETS" in slave.copies.status()["refused"])
        assert slave.offsets.query("g", "T", 0) == 50
        assert slave.copies.status()["ownCommits"] == 1
        assert not slave.copies.synced
        assert refused


async def test_a_consumer_may_seek_where_a_slave_told_the_offset(tmp_path: Path) -> None:
    async with copying(SlaveBroker(tmp_path / "slave", None)) as alone:
        alone.offsets.commit("g", "T", 0, 50, 100, None)
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.topics.update(TopicConfig("T"))
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        await slave.copied()
        consumer = Connected()
        master.offsets.commit("g", "T", 0, 20, 100, consumer)
        assert master.offsets.query("g", "T", 0) == 20, "the slave is not the queue's owner, though still connected"


class Connected:
    closed = False


async def test_progress_counts_when_the_log_holds_what_was_delivered(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path)
        master.store.written = 5000
        master.schedule.take_over(DelayOffsetTable(VERSION, {1: 8}))
        master.meta.noted(Table.DELAY)
        await slave.until(lambda: RequestCode.GET_ALL_DELAY_OFFSET in master.copied())
        await slave.until(lambda: ClassicCode.AWAIT_METADATA in master.asked)
        assert slave.schedule.progress() == {}
        slave.end = 5000
        await slave.until(lambda: slave.schedule.progress() == {1: 8})


async def test_queues_of_a_deleted_topic_go_when_the_log_is_as_far(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path)
        master.topics.update(TopicConfig("A"), TopicConfig("B"))
        await slave.until(lambda: slave.topics.get("B") is not None)
        master.store.written = 2000
        master.topics.delete("A", "B")
        await slave.until(lambda: slave.topics.get("B") is None)
        assert slave.dropped == []
        master.topics.update(TopicConfig("B"))
        await slave.until(lambda: slave.topics.get("B") is not None)
        slave.end = 2000
        await slave.until(lambda: bool(slave.dropped))
        assert slave.dropped == [("A", 2000)], "the other one was made anew"


async def test_state_versions_never_fall_and_a_deposed_master_is_not_copied(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path)
        slave.topics.take_over(dict(slave.topics.tables), DataVersion(1, 9, 1))
        master.topics.update(TopicConfig("A"))
        await slave.until(lambda: "deposed" in slave.copies.status()["trouble"])
        assert slave.topics.get("A") is None
        assert slave.topics.data_version.stateVersion == 9
        assert not slave.copies.synced


async def test_a_java_master_of_a_lower_state_version_is_copied_and_ours_stays(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master", news=False)))
        slave = SlaveBroker(tmp_path / "slave", master.address)
        slave.topics.take_over({}, DataVersion(1, 9, 1))
        await exits.enter_async_context(copying(slave))
        await slave.copied()
        assert slave.topics.tables == master.topics.tables
        assert slave.topics.data_version.stateVersion == 9


async def test_a_table_that_changes_between_two_pages_is_begun_anew(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.topics.update(*(TopicConfig(f"T{number}") for number in range(4500)))
        page, pages = master.topics.page, 0

        def changing(begin: int, count: int) -> dict[str, TopicConfig]:
            nonlocal pages
            pages += 1
            if pages == 3:
                master.topics.delete("T0")
            return page(begin, count)

        master.topics.page = changing  # type: ignore[method-assign] # the moment between two pages
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        await slave.copied()
        assert same(master, slave)
        assert slave.topics.get("T0") is None


def topics(*names: str, **fields: Any) -> bytes:
    return TopicConfigTable(VERSION, topicConfigTable={name: TopicConfig(name, **fields) for name in names}).encode()


BAD: list[tuple[str, int, Callable[[], Handler], str]] = [
    ("TOPICS", 21, lambda: answer(b"{"), "cannot be read"),
    ("TOPICS", 21, lambda: answer(topics("T", readQueueNums=-1)), "readQueueNums"),
    ("TOPICS", 21, lambda: answer(topics("T"), totalTopicNum=str(TOPICS_MAX + 1)), "limit"),
    ("TOPICS", 21, lambda: answer(topics("T"), totalTopicNum="many"), "no number"),
    ("TOPICS", 21, lambda: answer(topics(), totalTopicNum="5"), "ends after 0 of 5"),
    ("GROUPS", 201, lambda: answer(b"[]"), "cannot be read"),
    ("GROUPS", 201, lambda: answer(groups_with("bad name!")), "bad name!"),
    ("OFFSETS", 43, lambda: answer(b'{"offsetTable":{"T@g":{"0":"x"}}}'), "cannot be read"),
    ("OFFSETS", 43, lambda: answer(b'{"offsetTable":{"Tg":{"0":1}}}'), "lacks"),
    ("OFFSETS", 43, lambda: answer(b'{"offsetTable":{"T@g":{"-1":1}}}'), "queue"),
    ("DELAY", 45, lambda: answer(b'{"offsetTable":{"0":1}}'), "below"),
    ("DELAY", 45, lambda: answer(delays_of(slave_copy.DELAY_LEVELS_MAX + 1)), "limit"),
    ("MODES", 402, lambda: answer(b"nothing"), "cannot be read"),
]


def groups_with(name: str) -> bytes:
    return SubscriptionGroupTable(VERSION, {}, {name: SubscriptionGroupConfig(name)}).encode()


def delays_of(count: int) -> bytes:
    return DelayOffsetTable(VERSION, dict.fromkeys(range(1, count + 1), 1)).encode()


@pytest.mark.parametrize(("table", "code", "handler", "why"), BAD, ids=[f"{row[0]} {row[3]}" for row in BAD])
async def test_a_bad_answer_is_refused_and_the_others_are_copied(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    table: str,
    code: int,
    handler: Callable[[], Handler],
    why: str,
) -> None:
    before = ConsumerOffsetTable(VERSION, offsetTable={"T@g": {0: 5}})
    (tmp_path / "slave").mkdir()
    (tmp_path / "slave" / "consumerOffset.json").write_bytes(before.encode())
    kept = TopicConfigTable(DataVersion(1, 0, 1), topicConfigTable={"Kept": TopicConfig("Kept")})
    (tmp_path / "slave" / "topics.json").write_bytes(kept.encode())
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path, {code: handler()})
        await slave.until(lambda: slave.copies.status()["copiedSecondsAgo"] is not None)
        refused = slave.copies.status()["refused"]
        assert list(refused) == [table]
        assert why in refused[table]
        assert not slave.copies.synced
        assert (slave.topics.get("Kept") is not None) == (table == "TOPICS")
        assert slave.offsets.query("g", "T", 0) == (5 if table == "OFFSETS" else -1)
        assert (slave.groups.get("TOOLS_CONSUMER") is None) == (table == "GROUPS")
        master.topics.update(TopicConfig("Later"))
        await slave.until(lambda: slave.topics.get("Later") is not None or table == "TOPICS")
    assert [record for record in caplog.records if record.levelname == "ERROR" and why in record.getMessage()]


async def test_more_request_modes_than_a_slave_keeps_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_copy, "MODES_MAX", 2)
    modes = {"T": {"g1": {"mode": "POP"}, "g2": {"mode": "POP"}}, "U": {"g1": {"mode": "POP"}}}
    async with AsyncExitStack() as exits:
        _master, slave = await pair(exits, tmp_path, {402: answer(MessageRequestModeTable(modes).encode())})
        await slave.until(lambda: "it has 3 request modes, the limit is 2" in str(slave.copies.status()))


async def test_endless_pages_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_copy, "PAGES_MAX", 7)
    async with AsyncExitStack() as exits:
        master, slave = await pair(exits, tmp_path, {21: answer(topics("T"), totalTopicNum="1000")})
        await slave.until(lambda: "pages" in slave.copies.status()["refused"].get("TOPICS", ""))
        assert master.asked.count(21) == 7


async def test_a_master_that_comes_back_is_copied_anew(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        slave = SlaveBroker(tmp_path / "slave", None)
        async with serving(MasterBroker(tmp_path / "one")) as first:
            slave.followed = Followed(first.address, "", 0)
            await exits.enter_async_context(copying(slave))
            await slave.copied()
        await slave.until(lambda: not slave.copies.synced)
        assert slave.topics.tables == first.topics.tables, "what was copied stays"
        second = await exits.enter_async_context(serving(MasterBroker(tmp_path / "two")))
        second.topics.update(TopicConfig("New"))
        slave.followed = Followed(second.address, "", 0)
        await slave.until(lambda: slave.topics.get("New") is not None)
        await slave.copied()
        assert same(second, slave)
        assert slave.copies.status()["trouble"] == ""
