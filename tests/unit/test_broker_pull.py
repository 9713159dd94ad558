"""broker/messages/pull.py and pullcheck.py: the order of the checks, the answers, and who is parked until when."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from remoting.bodies.registry import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ROCKETMQ
from remoting.record import decode_records
from remoting.server import Connection
from store.types import GetResult, GetStatus
from tests.parts.broker_parts import Peer
from tests.parts.pulling import Setting, pulling, turn


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with pulling(tmp_path) as made:
        yield made


@pytest.mark.parametrize("kind", [0, ROCKETMQ])
async def test_found(setting: Setting, kind: int) -> None:
    for number in range(3):
        setting.parts.put("T", 0, b"%d" % number)
    setting.pull(1, kind=kind)
    answer = setting.last
    assert (answer.code, answer.remark, answer.opaque) == (0, "FOUND", 42)
    assert answer.ext == {
        "suggestWhichBrokerId": "0",
        "groupSysFlag": "0",
        "nextBeginOffset": "3",
        "maxOffset": "3",
        "minOffset": "0",
        "topicSysFlag": "0",
    }
    body = b"".join(answer.parts) if answer.parts else bytes(answer.body)
    assert [message.body for message in decode_records(memoryview(body))] == [b"1", b"2"]
    assert (setting.parts.stats.totals.got, setting.parts.stats.totals.found) == (2, 1)


async def test_numbers_without_sense_cost_nobody_anything(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.pull(0, maxMsgNums=0, maxMsgBytes=-1)
    assert setting.last.code == 0
    setting.pull(-5, maxMsgNums=-1)
    assert (setting.last.code, setting.last.remark) == (21, "OFFSET_TOO_SMALL")


async def test_nothing_there(setting: Setting) -> None:
    setting.pull(0)
    assert (setting.last.code, setting.last.remark) == (19, "NO_MATCHED_LOGIC_QUEUE")
    setting.pull(7)
    assert setting.last.code == 21
    setting.parts.put("T", 0)
    setting.pull(1)
    assert (setting.last.code, setting.last.remark) == (19, "OFFSET_OVERFLOW_ONE")
    setting.pull(5)
    assert (setting.last.code, setting.last.remark) == (21, "OFFSET_OVERFLOW_BADLY")
    assert setting.last.ext["nextBeginOffset"] == "1"
    assert setting.parts.stats.totals.missed == 4


async def test_the_checks(setting: Setting) -> None:
    parts = setting.parts
    parts.groups.update(SubscriptionGroupConfig(groupName="Closed", consumeEnable=False))
    parts.topics.update(TopicConfig("WriteOnly", 4, 4, 2), TopicConfig("Narrow", 1, 8))
    setting.refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such", consumerGroup="no such")
    setting.refused(ResponseCode.NO_PERMISSION, "Closed", consumerGroup="Closed")
    setting.refused(ResponseCode.TOPIC_NOT_EXIST, "Nope", topic="Nope")
    setting.refused(ResponseCode.NO_PERMISSION, "WriteOnly", topic="WriteOnly")
    setting.refused(ResponseCode.INVALID_PARAMETER, "queueId", topic="Narrow", queueId=1)
    setting.refused(ResponseCode.INVALID_PARAMETER, "queueId", queueId=-1)
    setting.refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "names no tag", tags="||")
    setting.refused(ResponseCode.SYSTEM_ERROR, "filter message by SQL92", expressionType="SQL92", tags="a > 1")
    setting.refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "group info", tags=None)
    parts.groups.set_readable("G", "T", readable=False)
    setting.refused(ResponseCode.NO_PERMISSION, "T")


async def test_what_the_configuration_forbids(setting: Setting) -> None:
    live = setting.parts.config
    live.update({"litePullMessageEnable": "false"})
    setting.refused(ResponseCode.NO_PERMISSION, "lite pull", by=RequestCode.LITE_PULL_MESSAGE)
    live.update({"rejectPullConsumerEnable": "true"})
    setting.refused(ResponseCode.NO_PERMISSION, "push")
    live.update({"brokerPermission": "2"})
    setting.refused(ResponseCode.NO_PERMISSION, "pulling message is forbidden")


async def test_the_heartbeats_subscription(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    setting.parts.put("T", 0, b"b", TAGS="TagB")
    setting.parts.put("T", 0, b"a", TAGS="TagA")
    setting.pull(tags=None)
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"a"]
    setting.refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "subscription", tags=None, topic="BenchmarkTest")
    # The consumer is newer than its heartbeat: its own word, where it gives one, else what is known.
    setting.pull(tags=None, subVersion=9)
    assert setting.last.code == 0
    setting.pull(tags=None, subVersion=9, subscription="TagB")
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"b"]


def subscribe(setting: Setting, expression: str, version: int) -> None:
    group = setting.parts.clients.consumer_group("G")
    assert group is not None
    group.subscriptions["T"] = SubscriptionData(topic="T", subString=expression, subVersion=version)


async def test_a_parked_pull_is_run_again_with_the_groups_present_subscription(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    setting.pull(suspend_ms=60_000, tags=None)
    assert setting.pulls.parked == 1
    subscribe(setting, "TagB", 2)
    setting.parts.put("T", 0, b"b", TAGS="TagB")
    setting.parts.put("T", 0, b"a", TAGS="TagA")
    await turn()
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"b"]


async def test_what_only_the_present_subscription_wants_comes_with_the_next_sweep(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    setting.pull(suspend_ms=60_000, tags=None)
    subscribe(setting, "TagB", 2)
    setting.parts.put("T", 0, b"b", TAGS="TagB")
    await turn()
    assert setting.pulls.parked == 1
    setting.pulls.sweep()
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"b"]


async def test_a_parked_pull_that_brought_its_own_filter_keeps_it(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    setting.pull(suspend_ms=60_000, tags="TagA")
    subscribe(setting, "TagB", 2)
    setting.parts.put("T", 0, b"b", TAGS="TagB")
    setting.parts.put("T", 0, b"a", TAGS="TagA")
    await turn()
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"a"]


async def test_what_is_forbidden_meanwhile_a_parked_pull_is_told(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    setting.pull(suspend_ms=60_000, tags=None)
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="G", consumeEnable=False))
    setting.parts.put("T", 0, b"a", TAGS="TagA")
    await turn()
    assert (setting.last.code, setting.last.remark) == (
        ResponseCode.NO_PERMISSION,
        "subscription group no permission, G",
    )
    assert setting.pulls.parked == 0


async def test_broadcasting_may_be_forbidden(setting: Setting) -> None:
    setting.parts.join(Peer(), "c", "G", "T")
    group = setting.parts.clients.consumer_group("G")
    assert group is not None
    group.message_model = "BROADCASTING"
    setting.pull(tags=None)
    setting.parts.groups.update(SubscriptionGroupConfig(groupName="G", consumeBroadcastEnable=False))
    setting.refused(ResponseCode.NO_PERMISSION, "broadcast", tags=None)


async def test_parked_until_the_wanted_message_arrives(setting: Setting) -> None:
    setting.pull(0, suspend_ms=60_000, tags="TagA")
    assert setting.pulls.parked == 1
    setting.parts.put("T", 0, TAGS="TagB")
    setting.parts.put("T", 1, TAGS="TagA")
    await turn()
    assert setting.consumer.answers == []
    setting.parts.put("T", 0, b"wanted", TAGS="TagA")
    await turn()
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"wanted"]
    assert setting.pulls.parked == 0


class Held(bytearray):
    """Bytes of which a test knows when nobody has them any more."""


@pytest.mark.parametrize("kind", [0, ROCKETMQ])
async def test_a_parked_pull_keeps_nothing_of_its_body(setting: Setting, kind: int) -> None:
    body = Held(1 << 20)
    there = weakref.ref(body)
    setting.pull(0, suspend_ms=60_000, kind=kind, body=memoryview(body))
    assert setting.pulls.parked == 1
    del body
    gc.collect()
    assert there() is None
    setting.parts.put("T", 0, b"wanted")
    await turn()
    assert (setting.last.code, setting.last.opaque) == (0, 42)
    answer = b"".join(setting.last.parts) if setting.last.parts else bytes(setting.last.body)
    assert [message.body for message in decode_records(memoryview(answer))] == [b"wanted"]


async def test_parked_until_the_deadline(setting: Setting) -> None:
    setting.pull(0, suspend_ms=10)
    async with asyncio.timeout(20):
        while not setting.consumer.answers:
            await asyncio.sleep(0.005)
    assert setting.last.code == 19
    assert setting.pulls.parked == 0


async def test_short_polling(setting: Setting) -> None:
    setting.parts.config.update({"longPollingEnable": "false", "shortPollingTimeMills": "10"})
    setting.pull(0, suspend_ms=60_000)
    async with asyncio.timeout(20):
        while not setting.consumer.answers:
            await asyncio.sleep(0.005)
    assert setting.last.code == 19


async def test_the_sweep_moves_on_who_skips_everything(setting: Setting) -> None:
    setting.pull(0, suspend_ms=60_000, tags="TagA")
    setting.parts.put("T", 0, TAGS="TagB")
    await turn()
    setting.pulls.sweep()
    assert (setting.last.code, setting.last.ext["nextBeginOffset"]) == (20, "1")


async def test_who_has_gone_is_not_answered(setting: Setting) -> None:
    setting.pull(0, suspend_ms=60_000)
    setting.pulls.on_close(cast("Connection", setting.consumer))
    assert setting.pulls.parked == 0
    setting.pull(0, suspend_ms=60_000)
    setting.consumer.closed = True
    setting.parts.put("T", 0)
    await turn()
    assert setting.consumer.answers == []


async def test_a_stop_answers_everybody(setting: Setting) -> None:
    setting.pull(0, suspend_ms=60_000)
    setting.pulls.stop()
    assert setting.last.code == 19


async def test_a_topic_deleted_under_a_parked_pull(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.pull(1, suspend_ms=60_000)
    setting.parts.store.delete_topic("T")
    setting.pulls.stop()
    assert setting.last.code == 21


async def test_the_offset_that_comes_with_a_pull(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.pull(1, sysFlag=5, commitOffset=1)
    assert setting.parts.offsets.query("G", "T", 0) == 1
    setting.pull(1, sysFlag=5, commitOffset=99)
    assert setting.parts.offsets.query("G", "T", 0) == 1


async def test_an_administrators_reset_is_told_once(setting: Setting) -> None:
    for _ in range(3):
        setting.parts.put("T", 0)
    setting.parts.offsets.reset("G", "T", 0, 1)
    setting.pull(3)
    assert (setting.last.code, setting.last.remark) == (21, "OFFSET_RESET")
    assert setting.last.ext["nextBeginOffset"] == "1"
    setting.pull(1)
    assert setting.last.code == 0


async def test_who_waits_learns_of_a_reset_by_the_sweep(setting: Setting) -> None:
    setting.parts.put("T", 0)
    setting.pull(1, suspend_ms=60_000)
    setting.parts.offsets.reset("G", "T", 0, 0)
    setting.pulls.sweep()
    assert (setting.last.code, setting.last.ext["nextBeginOffset"]) == (21, "0")


async def test_cold_pages_are_read_by_a_thread(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting.parts.put("T", 0, b"old")
    warm = setting.parts.store.get("T", 0, 0, 32)
    cold = GetResult(GetStatus.FOUND, 1, 0, 1)
    cold.cold = True
    store = setting.parts.store
    monkeypatch.setattr(store, "get", lambda *_: cold)
    monkeypatch.setattr(store, "read_cold", lambda _: warm)
    setting.pull(0)
    assert setting.consumer.answers == []
    async with asyncio.timeout(20):
        while not setting.consumer.answers:
            await asyncio.sleep(0.005)
    assert [message.body for message in decode_records(memoryview(setting.last.body))] == [b"old"]

    def failing(_result: GetResult) -> GetResult:
        raise OSError("the disk is gone")

    monkeypatch.setattr(store, "read_cold", failing)
    setting.pull(0)
    async with asyncio.timeout(20):
        while len(setting.consumer.answers) < 2:
            await asyncio.sleep(0.005)
    assert setting.last.code == ResponseCode.SYSTEM_ERROR
    assert "the disk is gone" in (setting.last.remark or "")
