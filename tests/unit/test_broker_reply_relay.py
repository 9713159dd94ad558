"""broker/raft_group/reply_relay.py: the leader asks the others one after the other, and a member asks nobody."""

import asyncio
from typing import cast

from broker.raft_group.reply_relay import ReplyRelay
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import BacklogFull, ConnectError, ConnectionLost, InvokeError, InvokeTimeout
from remoting.headers.registry import ReplyMessageRequestHeader
from remoting.server import Connection
from tests.unit.test_broker_replies import FOR, Asker

PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
Outcome = int | InvokeError


class Members:
    """The client that asks them, and what each says."""

    def __init__(self, *says: Outcome) -> None:
        self.says = {f"10.0.0.{number}:1": said for number, said in enumerate(says)}
        self.asked: list[tuple[str, Command]] = []

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:
        assert 0 < timeout <= 10
        self.asked.append((address, request))
        said = self.says[address]
        await asyncio.sleep(0)
        if isinstance(said, InvokeError):
            raise said
        return Command.response(said)


class Member:
    """The connection of another member."""

    def __init__(self) -> None:
        self.answers: list[Command] = []

    def reply(self, _request: Command, answer: Command) -> None:
        self.answers.append(answer)


def push(client_id: str = FOR) -> Command:
    header = ReplyMessageRequestHeader(
        producerGroup="P",
        topic="R",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=1,
        bornTimestamp=1,
        flag=0,
        properties=f"REPLY_TO_CLIENT\x01{client_id}\x02",
        bornHost="10.0.0.1:1",
        storeHost="10.0.0.2:2",
        storeTimestamp=2,
    )
    return Command.request(PUSH, header, b"reply")


def relay_of(members: Members, *, connected: dict[str, Asker] | None = None, trusted: bool = True) -> ReplyRelay:
    found = connected or {}
    return ReplyRelay(members, lambda: list(members.says), found.get, lambda _connection: trusted)


NOT_HERE, OLD = int(ResponseCode.QUERY_NOT_FOUND), int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


async def test_the_first_that_knows_the_client_pushes() -> None:
    members = Members(NOT_HERE, ConnectError("down"), OLD, ResponseCode.SUCCESS, ResponseCode.SUCCESS)
    relay = relay_of(members)
    request = push()
    answer = await relay.relay(request)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert [address[:8] for address, _ in members.asked] == [f"10.0.0.{number}" for number in range(4)]
    for _, asked in members.asked:
        assert (asked.code, asked.ext, asked.body) == (PUSH, request.ext, b"reply")
    await relay.close()


async def test_a_client_that_nobody_knows_is_nowhere() -> None:
    assert await relay_of(Members(NOT_HERE, BacklogFull("busy"))).relay(push()) is None
    assert await relay_of(Members()).relay(push()) is None


async def test_what_its_client_says_is_passed_on() -> None:
    members = Members(ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS)
    answer = await relay_of(members).relay(push())
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(members.asked) == 1


async def test_nobody_else_is_asked_when_the_client_may_have_it() -> None:
    for error in (ConnectionLost("gone"), InvokeTimeout("late")):
        members = Members(error, ResponseCode.SUCCESS)
        (outcome,) = await asyncio.gather(relay_of(members).relay(push()), return_exceptions=True)
        assert outcome is error
        assert len(members.asked) == 1


async def test_a_relay_that_closes_leaves_nobody_waiting() -> None:
    relay = relay_of(Members(ResponseCode.SUCCESS))
    answer = relay.relay(push())
    await relay.close()
    await asyncio.sleep(0)
    assert answer.cancelled()


async def test_a_member_pushes_to_its_own_clients_only() -> None:
    asker, member, members = Asker(), Member(), Members(ResponseCode.SUCCESS)
    relay = relay_of(members, connected={FOR: asker})
    handler, connection = relay.table()[PUSH], cast(Connection, member)
    answer = handler(connection, push("other"))
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND

    request = push()
    for said, code in ((ResponseCode.SUCCESS, 0), (ResponseCode.SYSTEM_ERROR, 1)):
        assert handler(connection, request) is None
        (pushed,) = asker.pushed
        assert (pushed.code, pushed.ext, pushed.body) == (PUSH, request.ext, b"reply")
        assert not member.answers
        await asker.answer(said)
        assert member.answers.pop().code == code
        asker.pushed.clear()

    assert handler(connection, request) is None
    asker.answers[-1].set_exception(ConnectionLost("gone"))
    await asyncio.sleep(0)
    assert member.answers.pop().code == ResponseCode.SYSTEM_ERROR

    asker.refuses = BacklogFull("it reads nothing")
    answer = handler(connection, request)
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not members.asked


async def test_a_stranger_gets_what_other_brokers_say() -> None:
    asker = Asker()
    relay = relay_of(Members(), connected={FOR: asker}, trusted=False)
    answer = relay.table()[PUSH](cast(Connection, Member()), push())
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert not asker.pushed
