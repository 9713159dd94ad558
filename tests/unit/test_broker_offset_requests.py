"""Codes 14, 15 and 222 together, at a broker without a group: what RocketMQ 5.5.0 answers, and where ours is better."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.admin.offsets import AdminOffsets
from broker.leader_only import HOP_FLAG
from broker.messages.offset_handlers import RESET, OffsetHandlers
from broker.metadata.feed import SLAVE
from remoting.bodies.registry import ResetOffsetBody, SubscriptionGroupConfig, TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.server import Connection
from tests.parts.broker_parts import ADDRESS, Parts, Peer, broker_parts


class Client(Peer):
    """A connection, of a consumer or of an administrator's tool."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.attachments: dict[str, Any] = {}
        self.address = f"10.0.0.9:{port}"
        self.loop = SimpleNamespace(time=lambda: 0.0)


class Requests:
    """The handlers over a real store, and a member of the group that has come to offset 9 of 10."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.handlers = OffsetHandlers(
            parts.config, parts.offsets, parts.topics, parts.groups, parts.store, parts.clients
        )
        self.admin = AdminOffsets(parts.context(address=ADDRESS), parts.tables, parts.persist)
        self.tool = Client(1)
        self.member = Client(2)

    def query(self, topic: str = "T", queue_id: int = 0, *, group: str = "g", zero: bool | None = None) -> Command:
        header = QueryConsumerOffsetRequestHeader(
            consumerGroup=group, topic=topic, queueId=queue_id, setZeroIfNotFound=zero
        )
        made = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return self._sent(self.handlers.query, self.tool, made)

    def commit(
        self, offset: int, client: Client, *, oneway: bool = False, consumer: bool = False, passed: bool = False
    ) -> Command:
        header = UpdateConsumerOffsetRequestHeader(
            consumerGroup="g", topic="T", queueId=0, commitOffset=offset, fromConsumer=consumer or None
        )
        made = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=oneway)
        made.flag |= HOP_FLAG if passed else 0
        return self._sent(self.handlers.update, client, made)

    async def reset(self, timestamp: int) -> Command:
        header = ResetOffsetRequestHeader(group="g", topic="T", timestamp=timestamp, isForce=True)
        made = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        request = Command(code=made.code, raw_ext=dict(made.ext))
        return await self.admin.reset(cast("Connection", self.tool), request)

    def stored(self) -> int:
        return self.parts.offsets.query("g", "T", 0)

    @staticmethod
    def _sent(handler: Any, client: Client, made: Command) -> Command:
        answer = handler(cast("Connection", client), Command(made.code, made.flag, raw_ext=dict(made.ext)))
        assert isinstance(answer, Command)
        return answer


@pytest.fixture
async def requests(tmp_path: Path) -> AsyncIterator[Requests]:
    async with broker_parts(tmp_path) as parts:
        parts.topics.update(TopicConfig("T", 2, 2))
        parts.groups.update(SubscriptionGroupConfig("g"))
        for _ in range(10):
            parts.put("T", 0)
        yield Requests(parts)


def test_an_administrators_lower_commit_is_taken_while_the_group_is_connected(requests: Requests) -> None:
    requests.parts.join(requests.member, "c", "g", "T")
    requests.commit(9, requests.member)
    assert requests.commit(4, requests.tool).code == ResponseCode.SUCCESS
    assert requests.stored() == 4, "answered with success, and dropped"
    # The member goes on from where it stands, as it does with RocketMQ.
    requests.commit(10, requests.member)
    assert requests.stored() == 10


def test_an_administrators_lower_commit_leaves_a_line_and_no_other_does(
    requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    requests.parts.join(requests.member, "c", "g", "T")
    with caplog.at_level("INFO", "audit"):
        requests.commit(9, requests.member)
        requests.commit(5, requests.member)
        requests.commit(6, requests.tool)
        requests.commit(-1, requests.tool)
        requests.commit(7, requests.tool, oneway=True)
        assert caplog.messages == []
        requests.commit(4, requests.tool)
    (line,) = caplog.messages
    assert line.startswith(f"{requests.tool.address} asked for UPDATE_CONSUMER_OFFSET ")
    assert "consumerGroup=g topic=T queueId=0 commitOffset=4" in line
    assert line.endswith(": done (it was 7)")


def test_who_takes_an_offset_back_is_counted(requests: Requests) -> None:
    committers, former = requests.parts.offsets.committers, Client(3)
    requests.parts.join(requests.member, "c", "g", "T")
    requests.parts.join(former, "d", "g", "T")
    requests.commit(9, requests.member)
    requests.commit(9, requests.tool)
    assert (dict(committers.backs), committers.late) == ({"administrator": 0, "member": 0}, 0)
    requests.commit(4, requests.tool)
    for offset in (3, 2, 1):
        requests.commit(offset, requests.tool)
    requests.commit(8, requests.member)
    requests.commit(7, requests.member)
    requests.commit(2, former)
    assert (dict(committers.backs), committers.late) == ({"administrator": 4, "member": 1}, 1)


def test_behind_an_administrators_commit_a_late_one_is_still_late(requests: Requests) -> None:
    """Who committed last is the member still: another that lost the queue does not get by."""
    former = Client(3)
    requests.parts.join(requests.member, "c", "g", "T")
    requests.parts.join(former, "d", "g", "T")
    requests.commit(9, requests.member)
    requests.commit(7, requests.tool)
    requests.commit(2, former)
    assert requests.stored() == 7
    requests.commit(6, requests.member)
    assert requests.stored() == 6, "the owner may seek"


def test_a_late_commit_of_a_member_that_lost_the_queue_is_none_of_an_administrator(requests: Requests) -> None:
    former = Client(3)
    requests.parts.join(requests.member, "c", "g", "T")
    requests.parts.join(former, "d", "g", "T")
    requests.commit(9, requests.member)
    requests.commit(2, former)
    assert requests.stored() == 9
    requests.commit(2, Client(4), oneway=True)
    assert requests.stored() == 9, "official consumers ask for no answer: this one's heartbeat is still to come"


@pytest.mark.parametrize("passed", [False, True], ids=["direct", "by another member, which does not know it either"])
def test_a_consumer_that_waits_for_the_answer_is_no_administrator_before_its_heartbeat(
    requests: Requests, *, passed: bool
) -> None:
    requests.parts.join(requests.member, "c", "g", "T")
    requests.commit(9, requests.member)
    requests.commit(2, Client(4), consumer=True, passed=passed)
    assert requests.stored() == 9, "it was away, and another has the queue"
    requests.commit(10, Client(4), consumer=True, passed=passed)
    assert requests.stored() == 10, "what it has consumed counts"


def test_what_a_slave_passes_on_is_no_administrators_word(requests: Requests) -> None:
    requests.parts.join(requests.member, "c", "g", "T")
    requests.commit(9, requests.member)
    requests.tool.attachments[SLAVE] = True
    requests.commit(4, requests.tool)
    assert requests.stored() == 9


@pytest.mark.parametrize("online", [False, True])
async def test_a_reset_is_kept_until_the_groups_next_pull(requests: Requests, *, online: bool) -> None:
    """222 to 0, then 15 with 5: "Offset has been previously reset", also of a group that nobody has joined yet."""
    if online:
        requests.parts.join(requests.member, "c", "g", "T")
    answer = await requests.reset(0)
    assert answer.code == ResponseCode.SUCCESS
    assert sorted(ResetOffsetBody.decode(answer.body).offsetTable.values()) == [0, 0]
    answer = requests.commit(5, requests.member)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, RESET)
    assert requests.stored() == 0
    assert requests.query().ext["offset"] == "0"
    assert requests.parts.offsets.take_reset("g", "T", 0) == 0
    assert requests.commit(5, requests.member).remark is None
    assert requests.stored() == 5


def test_a_group_begins_an_empty_queue_of_a_known_topic_at_0(requests: Requests) -> None:
    """With 22 the client asks for the end next, and what is sent between the two questions is never read."""
    answer = requests.query(queue_id=1, group="new")
    assert (answer.code, answer.ext.get("offset")) == (ResponseCode.SUCCESS, "0")


def test_what_is_not_known_to_be_empty_is_not_found(requests: Requests) -> None:
    parts = requests.parts
    assert requests.query("none").code == ResponseCode.QUERY_NOT_FOUND
    assert requests.query("T", 2).code == ResponseCode.QUERY_NOT_FOUND, "the topic has two queues"
    assert requests.query("T", -1).code == ResponseCode.QUERY_NOT_FOUND
    assert requests.query("T", 1, group="new", zero=False).code == ResponseCode.QUERY_NOT_FOUND, "who asks so wants it"
    parts.topics.update(TopicConfig("Old", 1, 1))
    parts.put("Old", 0)
    parts.store.min_offset = lambda *_: 1  # type: ignore[method-assign] # all of its messages have expired
    assert requests.query("Old").code == ResponseCode.QUERY_NOT_FOUND
