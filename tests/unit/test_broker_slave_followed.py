"""broker/master_slave/metadata_copy.py: no table is copied but from the master whose log is followed (R16)."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.master_slave import metadata_copy as slave_meta
from broker.master_slave.ha_state import Followed
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
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.server import Connection
from tests.parts.slave_parts import MasterBroker, SlaveBroker, copying, serving

VERSION = DataVersion(3, 0, 5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_meta, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr("broker.metadata.feed.SOON_SECONDS", 0.01)
    monkeypatch.setattr("broker.metadata.feed.PROGRESS_SECONDS", 0.02)


async def test_R16_no_table_is_copied_before_the_logs_verdict_nor_after_it_is_lost(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.topics.update(TopicConfig("T"))
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        followed, slave.followed = slave.followed, None
        await asyncio.sleep(0.05)
        assert master.asked == []
        slave.followed = followed
        await slave.copied()
        slave.followed = None
        master.asked.clear()
        master.topics.update(TopicConfig("Other"))
        master.offsets.commit("g", "T", 0, 3, 100, None)
        slave.copies.hurry()
        await slave.until(lambda: not slave.copies.synced)
        await asyncio.sleep(0.05)
        assert master.copied() == set()
        assert slave.topics.get("Other") is None


ANSWERS: dict[int, bytes] = {
    21: TopicConfigTable(dataVersion=VERSION, topicConfigTable={"T": TopicConfig("T")}).encode(),
    201: SubscriptionGroupTable(VERSION, {}, {"g": SubscriptionGroupConfig("g")}).encode(),
    43: ConsumerOffsetTable(dataVersion=VERSION, offsetTable={"T@g": {0: 9}}).encode(),
    45: DelayOffsetTable(VERSION, {3: 17}).encode(),
    402: MessageRequestModeTable({"T": {"g": {"mode": "POP"}}}).encode(),
}


@pytest.mark.parametrize("code", ANSWERS)
@pytest.mark.parametrize("follows", [True, False])
async def test_R16_an_answer_of_another_process_than_the_one_compared_with_is_not_taken(
    tmp_path: Path, code: int, *, follows: bool
) -> None:
    now = "one"

    def status(_connection: Connection, _request: Command) -> Command:
        return Command.response(ResponseCode.SUCCESS, body=json.dumps({"incarnation": now}).encode())

    def late(_connection: Connection, _request: Command) -> Command:
        nonlocal now
        # The master was killed, and one that begins with nothing answers under its address; or its log comes no more.
        if follows:
            now = "two"
        else:
            slave.followed = None
        return Command.response(ResponseCode.SUCCESS, body=ANSWERS[code])

    async with AsyncExitStack() as exits:
        master = MasterBroker(tmp_path / "master", {int(ClassicCode.STATUS): status, code: late})
        await exits.enter_async_context(serving(master))
        slave = SlaveBroker(tmp_path / "slave", None)
        slave.followed = Followed(master.address, "one", 0)
        await exits.enter_async_context(copying(slave))
        await slave.until(lambda: code in master.asked)
        # It is asked again, for as long as that log seems to come.
        count = len(master.asked)
        await slave.until(lambda: not follows or len(master.asked) > count + 3)
        await asyncio.sleep(0.05)
        assert not slave.copies.synced
        assert slave.topics.get("T") is None
        assert slave.groups.get("g") is None
        assert slave.offsets.query("g", "T", 0) == -1
        assert slave.schedule.progress() == {}
        assert not (tmp_path / "slave" / "messageRequestMode.json").exists()


async def test_R16_planted_a_copy_without_a_verdict_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def believe(_copies: slave_meta.SlaveMeta) -> None:
        """Take what comes."""

    monkeypatch.setattr(slave_meta.SlaveMeta, "_still_followed", believe)
    monkeypatch.setattr(slave_meta.SlaveMeta, "_same_connection", lambda _copies: None)
    with pytest.raises((AssertionError, TimeoutError)):
        await test_R16_an_answer_of_another_process_than_the_one_compared_with_is_not_taken(tmp_path, 43, follows=False)
