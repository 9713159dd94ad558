"""broker/messages/pull_runs.py: what of a read's pulls is answered in a run, and what is served by itself."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remoting.bodies.registry import SubscriptionData, TopicConfig
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.runs import PULL_RUN
from remoting.server import Connection
from remoting.turns import ANSWER_BYTES
from tests.parts.odd_sends import framed
from tests.parts.puller import Puller, puller
from tests.parts.send_runs import needs_hotpath

pytestmark = needs_hotpath
MESSAGES = 40


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Puller]:
    async with puller(tmp_path) as made:
        for number in range(MESSAGES):
            made.parts.put("T", 0, b"%d" % number, TAGS="TagA" if number % 2 else "TagB")
        yield made


def pull(number: int, offset: int, **changed: object) -> bytes:
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": offset, "maxMsgNums": 5, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*", **changed,
    }  # fmt: skip
    header = {"code": 11, "opaque": number, "flag": 0, "extFields": {name: str(each) for name, each in fields.items()}}
    return framed(json.dumps(header, separators=(",", ":")).encode())


def alone(broker: Puller) -> list[int]:
    """Note the opaques of pulls that are served by themselves from now on."""
    served = list[int]()
    handler = broker.handlers[RequestCode.PULL_MESSAGE]

    def noted(connection: Connection, request: Command) -> object:
        served.append(request.opaque)
        return handler(connection, request)

    broker.handlers[RequestCode.PULL_MESSAGE] = noted  # type: ignore[assignment]
    return served


async def test_pulls_of_one_read_are_answered_in_a_run(broker: Puller) -> None:
    served = alone(broker)
    await broker.read(b"".join(pull(number, 5 * number) for number in range(8)))
    assert [(each.opaque, each.remark, each.ext["nextBeginOffset"]) for each in broker.commands()] == [
        (number, "FOUND", str(5 * number + 5)) for number in range(8)
    ]
    assert served == []
    totals = broker.parts.stats.totals
    assert (totals.got, totals.found, broker.setting.pulls.times.total) == (MESSAGES, 8, 8)


async def test_what_is_not_usual_is_served_by_itself_and_holds_nobody_up(broker: Puller) -> None:
    served = alone(broker)
    reads = [
        pull(0, 0), pull(1, MESSAGES, sysFlag=6, suspendTimeoutMillis=60_000), pull(2, 5), pull(3, MESSAGES + 1),
        pull(4, 0, topic="Nope"), pull(5, 10), pull(6, 0, queueId=9), pull(7, 0, consumerGroup="Closed"), pull(8, 35),
    ]  # fmt: skip
    await broker.read(b"".join(reads))
    assert served == [1, 3, 4, 6, 7]
    assert broker.setting.pulls.parked == 1
    assert [(each.opaque, int(each.code)) for each in broker.commands()] == [
        (0, 0), (2, 0), (3, 21), (4, 17), (5, 0), (6, 29), (7, 16), (8, 0)
    ]  # fmt: skip


async def test_pulls_with_a_filter_are_served_by_themselves(broker: Puller) -> None:
    served = alone(broker)
    texts = ("TagA", "TagB", "*", "TagA")
    await broker.read(b"".join(pull(number, 0, subscription=text) for number, text in enumerate(texts)))
    assert served == [0, 1, 3]
    assert [each.ext["nextBeginOffset"] for each in broker.commands()] == ["10", "9", "5", "10"]


async def test_a_turn_writes_no_more_than_its_share(broker: Puller) -> None:
    for _ in range(20):
        broker.parts.put("T", 1, bytes(20_000))
    reads = [pull(number, number, queueId=1, maxMsgNums=1) for number in range(20)]
    broker.connection.data_received(b"".join(reads))
    broker.connection.flush()
    written = len(broker.answered())
    assert 20_000 * (written - 1) <= ANSWER_BYTES < 21_000 * written
    await broker.settled()
    assert [each.opaque for each in broker.commands()] == [*range(20)]


async def test_offsets_that_come_along_are_taken_as_their_clients(broker: Puller) -> None:
    served = alone(broker)
    flag = 1 | 4
    await broker.read(
        pull(0, 0, sysFlag=flag, commitOffset=7) + pull(1, 5, commitOffset=30)
        + pull(2, 10, sysFlag=flag, commitOffset=99, consumerGroup="H")
    )  # fmt: skip
    assert served == []
    assert broker.parts.offsets.offsets("G", "T") == {0: 7}
    assert broker.parts.offsets.offsets("H", "T") == {0: MESSAGES}, "no further than the queue goes"


async def test_a_reset_is_told_by_the_pull_that_it_waits_for(broker: Puller) -> None:
    served = alone(broker)
    broker.parts.offsets.reset("G", "T", 0, 3)
    await broker.read(pull(0, 0, consumerGroup="H") + pull(1, 0) + pull(2, 3))
    assert served == [1]
    assert [(each.remark, each.ext["nextBeginOffset"]) for each in broker.commands()] == [
        ("FOUND", "5"), ("OFFSET_RESET", "3"), ("FOUND", "8")
    ]  # fmt: skip


@pytest.mark.parametrize("why", ["follows", "slaves may read", "bytes are counted"])
async def test_where_more_is_to_be_looked_at_each_is_served_by_itself(
    broker: Puller, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quota:
        counts_bytes = True

        def answered(self, _connection: Connection, size: int) -> None:
            counted.append(size)

    counted, served = list[int](), alone(broker)
    if why == "follows":
        broker.setting.role.leads = False
    elif why == "slaves may read":
        broker.parts.config.update({"slaveReadEnable": "true"})
    else:
        for each in (broker.setting.pulls, broker.setting.pulls._runs):
            monkeypatch.setattr(each, "_quota", Quota())
    await broker.read(b"".join(pull(number, number) for number in range(4)))
    assert served == [0, 1, 2, 3]
    assert len(counted) == (4 if why == "bytes are counted" else 0)


async def test_a_failure_is_told_of_the_pull_that_fails(broker: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    store = broker.parts.store

    def fails(real: Callable[..., Any], offset_at: int) -> Callable[..., Any]:
        def read(*told: Any) -> Any:
            if told[offset_at] == 2:
                raise OSError("the disk is gone")
            return real(*told)

        return read

    gathering = store.gathering()
    assert gathering is not None
    monkeypatch.setattr(gathering, "framed", fails(gathering.framed, 1))
    monkeypatch.setattr(store, "get", fails(store.get, 2))
    served = alone(broker)
    await broker.read(b"".join(pull(number, number) for number in range(5)))
    assert served == [2]
    assert [(each.opaque, int(each.code)) for each in broker.commands()] == [(0, 0), (1, 0), (2, 1), (3, 0), (4, 0)]
    assert broker.parts.stats.totals.found == 4


async def test_where_nothing_serves_runs_none_are_cut(tmp_path: Path) -> None:
    async with puller(tmp_path, runs=False) as broker:
        broker.parts.put("T", 0)
        assert PULL_RUN not in broker.handlers
        await broker.read(pull(0, 0) + pull(1, 0))
        assert [each.opaque for each in broker.commands()] == [0, 1]


async def test_what_a_group_wants_is_what_its_heartbeat_says(broker: Puller) -> None:
    group = broker.parts.clients.consumer_group("G")
    assert group is not None
    group.subscriptions["T"] = SubscriptionData(topic="T", subString="*", subVersion=1)
    served = alone(broker)
    await broker.read(pull(0, 0, sysFlag=0) + pull(1, 0, sysFlag=0, consumerGroup="H") + pull(2, 0, sysFlag=0))
    assert served == [1], "the other group has sent none"
    assert [int(each.code) for each in broker.commands()] == [0, 24, 0]


async def test_the_same_words_mean_another_filter_where_flags_or_version_say_so(broker: Puller) -> None:
    """The heartbeat's holds, but for who brings his own, or is newer than it."""
    served = alone(broker)
    own = pull(0, 0) + pull(1, 0, sysFlag=0) + pull(2, 0)
    group = broker.parts.clients.consumer_group("G")
    assert group is not None
    await broker.read(own)
    assert served == [1], "by the heartbeat it wants TagA"
    group.subscriptions["T"] = SubscriptionData(topic="T", subString="*", subVersion=1)
    changed = {"sysFlag": 0, "subscription": "TagA"}
    await broker.read(pull(3, 0, **changed) + pull(4, 0, **changed, subVersion=9) + pull(5, 0, **changed))
    assert served == [1, 4]
    assert [each.ext["nextBeginOffset"] for each in broker.commands()] == ["5", "10", "5", "5", "10", "5"]


async def test_a_queue_that_is_no_more_and_a_pull_of_no_messages(broker: Puller) -> None:
    broker.parts.put("T", 1)
    broker.parts.topics.update(TopicConfig("T", 1, 1))
    served = alone(broker)
    await broker.read(pull(0, 0, maxMsgNums=0) + pull(1, 0, queueId=1) + pull(2, 5))
    assert served == [1]
    assert [(int(each.code), each.ext.get("nextBeginOffset")) for each in broker.commands()] == [
        (0, "1"), (29, None), (0, "10")
    ]  # fmt: skip
