"""broker/messages/replies.py: pushed and stored at the same time, answered once, bounded."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

import broker.messages.replies
from broker.messages.replies import PUSHING_BYTES_PER_CLIENT_MAX, Relay, ReplyHandlers
from broker.messages.send_checks import MessageChecks
from broker.settings.config import LiveConfig, load_broker_config
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import BacklogFull, CommandError, ConnectionLost
from remoting.headers.registry import Header, SendMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.msgid import pack_host
from remoting.properties import decode_properties, encode_properties
from remoting.server import Connection
from runtime.clock import ManualClock
from tests.parts.send_parts import Log, Peer, Topics

FOR = "10.0.0.1@asker"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


class Asker:
    """The connection of who asked."""

    def __init__(self) -> None:
        self.pushed: list[Command] = []
        self.answers: list[asyncio.Future[Command]] = []
        self.refuses: Exception | None = None

    def submit(self, request: Command, timeout: float) -> "asyncio.Future[Command]":
        assert timeout == 10
        if self.refuses is not None:
            raise self.refuses
        self.pushed.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    async def answer(self, code: int = ResponseCode.SUCCESS, number: int = -1) -> None:
        self.answers[number].set_result(Command.response(code, "no"))
        await asyncio.sleep(0)


class Setting:
    def __init__(self, relay: Relay | None = None, **values: str) -> None:
        config, store_config, unknown = load_broker_config(values)
        assert not unknown
        self.live = LiveConfig(config, store_config)
        self.log, self.topics, self.peer, self.clock = Log(), Topics(), Peer(), ManualClock()
        self.asker = Asker()
        self.connected: dict[str, Asker] = {FOR: self.asker}
        self.gone: set[str] = set()
        self.awaited: list[Callable[[], None]] = []
        self.elsewhere: list[Command] = []
        group = SubscriptionGroupConfig(groupName="G")
        checks = MessageChecks(self.live, self.topics, lambda _name, _: group, self.clock, lambda below: below - 1)
        self.replies = ReplyHandlers(
            self.live,
            checks,
            self.log,
            pack_host("192.0.2.1", 10911),
            self,
            self.clock,
            lambda _peer, request: self.elsewhere.append(request),
            relay,
        )

    def reach(self, client_id: str) -> Asker | None:
        return self.connected.get(client_id)

    def lost(self, client_id: str) -> bool:
        return client_id in self.gone

    def when_back(self, client_id: str, call: Callable[[], None]) -> Callable[[], None]:
        assert client_id in self.gone
        self.awaited.append(call)
        return lambda: self.awaited.remove(call)

    def lose(self) -> None:
        """Have the asker's connection end by itself."""
        self.connected.clear()
        self.gone.add(FOR)

    def come_back(self) -> Asker:
        """Have it come with another one."""
        self.gone.clear()
        made = self.connected[FOR] = Asker()
        calls, self.awaited = self.awaited, []
        for call in calls:
            call()
        return made

    def do(
        self,
        properties: dict[str, str] | None = None,
        *,
        body: bytes = b"reply",
        oneway: bool = False,
        long: bool = False,
        queue_id: int = 1,
        topic: str = "T",
        sys_flag: int = 0,
    ) -> Command:
        named = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": FOR} if properties is None else properties
        kind: type[Header] = SendMessageRequestHeader if long else SendMessageRequestHeaderV2
        header = kind(
            producerGroup="P",
            topic=topic,
            defaultTopic="Pattern",
            defaultTopicQueueNums=4,
            queueId=queue_id,
            sysFlag=sys_flag,
            bornTimestamp=99,
            flag=7,
            properties=encode_properties(named).decode(),
            reconsumeTimes=0,
        )
        code = RequestCode.SEND_REPLY_MESSAGE if long else RequestCode.SEND_REPLY_MESSAGE_V2
        request = Command.request(code, header, body, oneway=oneway)
        request.opaque = 42
        self.replies.table()[code](cast("Connection", self.peer), request)
        return request

    def answered(self) -> tuple[int, str | None, dict[str, str]]:
        (answer,) = self.peer.answers
        self.peer.answers.clear()
        assert answer.opaque == 42
        assert self.replies.pending_bytes == 0
        assert not self.replies._bytes_of
        return answer.code, answer.remark, answer.ext


EXT = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "queueId": "1"}
STORED = {**EXT, "msgId": "C000020100002A9F0000000000001000", "queueOffset": "0"}
NOT_STORED = {**EXT, "msgId": "0", "queueOffset": "0"}


@pytest.mark.parametrize("pushed_first", [True, False])
@pytest.mark.parametrize("long", [True, False])
async def test_answered_when_both_have_ended(*, long: bool, pushed_first: bool) -> None:
    setting = Setting()
    setting.do(long=long)
    (push,) = setting.asker.pushed
    assert (push.code, bytes(push.body), push.is_oneway) == (PUSH, b"reply", False)
    (record,) = setting.log.records
    assert decode_properties(record.properties).keys() == {"MSG_TYPE", "REPLY_TO_CLIENT", "MSG_REGION", "TRACE_ON"}
    if pushed_first:
        await setting.asker.answer()
        assert not setting.peer.answers
        setting.log.answers[0](ResponseCode.SUCCESS)
    else:
        setting.log.answers[0](ResponseCode.SUCCESS)
        assert not setting.peer.answers
        await setting.asker.answer()
    assert setting.answered() == (ResponseCode.SUCCESS, None, STORED)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ResponseCode.NOT_LEADER_FOR_QUEUE, STORED),
        (ResponseCode.FLUSH_DISK_TIMEOUT, STORED),
    ],
)
async def test_a_pushed_reply_is_a_success_whatever_became_of_the_record(code: int, told: dict[str, str]) -> None:
    setting = Setting()
    setting.do()
    await setting.asker.answer()
    setting.log.answers[0](code)
    assert setting.answered() == (ResponseCode.SUCCESS, None, told)
    assert not setting.elsewhere


async def test_a_reply_that_is_not_stored_and_not_pushed_goes_on_to_the_leader() -> None:
    setting = Setting()
    setting.connected.clear()
    request = setting.do()
    setting.log.answers[0](ResponseCode.NOT_LEADER_FOR_QUEUE)
    assert setting.elsewhere == [request]
    assert not setting.peer.answers
    assert setting.replies.pending_bytes == 0


async def test_a_reply_to_who_lost_its_connection_is_pushed_when_it_is_back() -> None:
    setting = Setting()
    setting.lose()
    setting.do()
    setting.log.answers[0](ResponseCode.SUCCESS)
    assert not setting.peer.answers
    assert setting.replies.pending_bytes > 0
    asker = setting.come_back()
    assert len(asker.pushed) == 1
    await asker.answer()
    assert setting.answered()[:2] == (ResponseCode.SUCCESS, None)
    assert setting.replies.outcomes == {"pushed": 1, "absent": 0, "failed": 0}
    assert setting.replies.pending_bytes == 0


async def test_a_connection_that_ends_under_a_reply_has_it_pushed_to_the_next_one_for_a_moment_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is pushed to the next connection must not be a matter of how soon this test goes on.
    monkeypatch.setattr(broker.messages.replies, "KEPT_SECONDS", 1.0)
    setting = Setting()
    setting.do()
    setting.log.answers[0](ResponseCode.SUCCESS)
    setting.lose()
    setting.asker.answers[-1].set_exception(ConnectionLost("gone"))
    while not setting.awaited:
        await asyncio.sleep(0)
    asker = setting.come_back()
    assert decode_properties(asker.pushed[0].ext["properties"].encode())["REPLY_TO_CLIENT"] == FOR
    setting.lose()
    asker.answers[-1].set_exception(ConnectionLost("gone"))
    async with asyncio.timeout(5):
        while not setting.peer.answers:
            await asyncio.sleep(0.01)
    assert setting.answered()[0] == ResponseCode.SYSTEM_ERROR
    assert not setting.awaited
    assert setting.replies.pending_bytes == 0


async def test_replies_kept_for_one_client_are_bounded() -> None:
    setting = Setting()
    setting.lose()
    for _ in range(PUSHING_BYTES_PER_CLIENT_MAX // (1 << 20)):
        setting.do(body=bytes(1 << 20))
        setting.log.answers[-1](ResponseCode.SUCCESS)
    assert len(setting.peer.answers) == 1, "one more than there is room for is told that nobody is there"
    setting.come_back()


async def test_without_storeReplyMessageEnable_it_is_only_pushed() -> None:
    setting = Setting(storeReplyMessageEnable="false")
    setting.do()
    assert not setting.log.records
    await setting.asker.answer()
    assert setting.answered() == (ResponseCode.SUCCESS, None, NOT_STORED)
    setting.connected.clear()
    setting.do()
    remark = f"push reply message fail, channel of <{FOR}> not found."
    assert setting.answered() == (ResponseCode.SYSTEM_ERROR, remark, NOT_STORED)
    assert setting.replies.outcomes == {"pushed": 1, "absent": 1, "failed": 0}


async def test_who_is_not_there_or_does_not_take_it_is_told() -> None:
    setting = Setting()
    setting.do({"MSG_TYPE": "reply"})
    setting.log.answers[-1](ResponseCode.SUCCESS)
    remark = "reply message properties[REPLY_TO_CLIENT] is null"
    assert setting.answered()[:2] == (ResponseCode.SYSTEM_ERROR, remark)

    setting.do()
    setting.log.answers[-1](ResponseCode.SUCCESS)
    await setting.asker.answer(ResponseCode.SYSTEM_ERROR)
    remark = f"push reply message to {FOR}fail."
    assert setting.answered()[:2] == (ResponseCode.SYSTEM_ERROR, remark)

    setting.do()
    setting.log.answers[-1](ResponseCode.SUCCESS)
    setting.asker.answers[-1].set_exception(ConnectionLost("gone"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert setting.answered()[:2] == (ResponseCode.SYSTEM_ERROR, remark)

    setting.do()
    setting.log.answers[-1](ResponseCode.SUCCESS)
    setting.asker.answers[-1].cancel()
    await asyncio.sleep(0)
    assert setting.answered()[:2] == (ResponseCode.SYSTEM_ERROR, remark)

    setting.asker.refuses = BacklogFull("it reads nothing")
    setting.do()
    setting.log.answers[-1](ResponseCode.SUCCESS)
    assert setting.answered()[:2] == (ResponseCode.SYSTEM_ERROR, remark)
    assert setting.replies.outcomes == {"pushed": 0, "absent": 0, "failed": 5}


async def test_a_one_way_reply_is_pushed_and_not_answered() -> None:
    setting = Setting()
    setting.do(oneway=True)
    await setting.asker.answer()
    setting.log.answers[0](ResponseCode.SUCCESS)
    assert not setting.peer.answers
    assert setting.replies.pending_bytes == 0


async def test_a_client_that_hangs_is_pushed_only_so_much() -> None:
    setting = Setting(storeReplyMessageEnable="false")
    other = setting.connected["other"] = Asker()
    body = bytes(3 * 1024 * 1024)
    fit = PUSHING_BYTES_PER_CLIENT_MAX // len(body) - 1
    for _ in range(fit):
        setting.do(body=body)
    assert not setting.peer.answers
    for _ in range(3):
        setting.do(body=body)
    assert [answer.code for answer in setting.peer.answers] == [ResponseCode.SYSTEM_ERROR] * 3
    assert "bytes of replies to answer" in (setting.peer.answers[0].remark or "")
    assert len(setting.asker.pushed) == fit
    # The others are served as ever; and it is too, once it has answered.
    setting.do({"REPLY_TO_CLIENT": "other"}, body=body)
    assert len(other.pushed) == 1
    await other.answer()
    for number in range(fit):
        await setting.asker.answer(number=number)
    setting.peer.answers.clear()
    setting.do(body=body)
    await setting.asker.answer()
    assert setting.answered()[0] == ResponseCode.SUCCESS


async def test_all_together_wait_with_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.messages.replies, "PUSHING_BYTES_MAX", 10_000)
    setting = Setting(storeReplyMessageEnable="false")
    setting.do(body=bytes(8000))
    with pytest.raises(CommandError, match="replies wait for clients") as refused:
        setting.do(body=bytes(8000))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert refused.value.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    await setting.asker.answer()
    setting.peer.answers.clear()
    setting.do(body=bytes(8000))
    await setting.asker.answer()
    assert setting.answered()[0] == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
        ({"body": bytes(5 << 20)}, ResponseCode.MESSAGE_ILLEGAL),
        ({"properties": {"REPLY_TO_CLIENT": FOR, "x": "y" * 40_000}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"properties": {"REPLY_TO_CLIENT": FOR, "DELAY": "soon"}}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_wrong_reply_is_refused_before_it_is_pushed(wrong: dict[str, object], code: int) -> None:
    setting = Setting()
    with pytest.raises(CommandError) as refused:
        setting.do(**wrong)  # type: ignore[arg-type] # any of its arguments
    assert refused.value.code == code
    assert refused.value.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert not setting.asker.pushed
    assert not setting.log.records
    assert setting.replies.pending_bytes == 0


async def test_the_client_learns_that_the_body_is_compressed() -> None:
    setting = Setting()
    setting.do(sys_flag=0x301)
    assert setting.asker.pushed[0].ext["sysFlag"] == str(0x301)
    assert setting.log.records[0].sys_flag == 0x301


async def test_who_is_not_here_is_asked_for_elsewhere() -> None:
    asked: list[Command] = []
    answers: list[asyncio.Future[Command | None]] = []

    def relay(request: Command) -> "asyncio.Future[Command | None]":
        asked.append(request)
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    setting = Setting(relay)
    setting.do()
    assert not asked
    await setting.asker.answer()
    setting.log.answers[-1](ResponseCode.SUCCESS)
    setting.answered()
    setting.connected.clear()
    for found, remark in (
        (Command.response(ResponseCode.SUCCESS), None),
        (None, f"push reply message fail, channel of <{FOR}> not found."),
        (Command.response(ResponseCode.SYSTEM_ERROR), f"push reply message to {FOR}fail."),
    ):
        setting.do()
        setting.log.answers[-1](ResponseCode.SUCCESS)
        answers[-1].set_result(found)
        await asyncio.sleep(0)
        assert setting.answered()[1] == remark
    assert [request.code for request in asked] == [PUSH] * 3
