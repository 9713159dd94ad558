"""client_handlers.py: what a member of a group that follows takes note of, and what only a leader makes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from broker.admin.client_handlers import ClientHandlers
from broker.messages.tag_filter import EXPRESSION_CHARS_MAX
from remoting import topics as names
from remoting.bodies.registry import (
    CheckClientConfigBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection
from tests.parts.broker_parts import Parts, Peer, broker_parts


class Role:
    def __init__(self) -> None:
        self.leads, self.term, self.broker_id = False, 0, 2
        self.leader_address: str | None = None
        self.callbacks: list[Callable[[], None]] = []

    def lease(self) -> bool:
        return self.leads

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def become(self, *, leads: bool, term: int) -> None:
        self.leads, self.term = leads, term
        for callback in self.callbacks:
            callback()


class Setting:
    def __init__(self, parts: Parts) -> None:
        self.parts, self.role, self.peer = parts, Role(), Peer()
        handlers = ClientHandlers(parts.config, parts.clients, parts.topics, parts.groups, self.role)
        self.table = handlers.table()

    def beat(self, group: str) -> Command:
        data = HeartbeatData(
            clientID="c",
            consumerDataSet=[ConsumerData(groupName=group, subscriptionDataSet=[SubscriptionData(topic="T")])],
        )
        return self.ask(RequestCode.HEART_BEAT, data.encode())

    def ask(self, code: int, body: bytes) -> Command:
        answer = self.table[code](cast("Connection", self.peer), Command(code, body=body))
        assert isinstance(answer, Command)
        return answer


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with broker_parts(tmp_path) as parts:
        yield Setting(parts)


async def test_an_expression_longer_than_one_may_be_is_refused_with_the_heartbeat(setting: Setting) -> None:
    wanted = SubscriptionData(topic="T", subString="a" * (EXPRESSION_CHARS_MAX + 1))
    data = HeartbeatData(clientID="c", consumerDataSet=[ConsumerData(groupName="G", subscriptionDataSet=[wanted])])
    with pytest.raises(CommandError, match="group G, topic T: an expression has at most 4096 characters, not 4097"):
        setting.ask(RequestCode.HEART_BEAT, data.encode())
    assert setting.parts.clients.consumer_group("G") is None


@pytest.mark.parametrize(
    ("kind", "expression", "code", "match"),
    [
        ("TAG", "a || b", 0, ""),
        ("TAG", "||", 23, "names no tag"),
        ("SQL92", "a > 3 AND b IS NULL", 0, ""),
        ("SQL92", "a > > 3", 23, "unexpected '>' at line 1, column 5"),
        ("SQL92", "", 23, "the expression is empty"),
        ("SQL93", "a > 3", 23, "of the types TAG and SQL92"),
    ],
)
async def test_a_filter_is_checked_before_it_is_used(
    setting: Setting, kind: str, expression: str, code: int, match: str
) -> None:
    subscription = SubscriptionData(topic="T", subString=expression, expressionType=kind)
    body = CheckClientConfigBody(clientId="c", group="G", subscriptionData=subscription).encode()

    def check() -> tuple[int, str]:
        try:
            answer = setting.ask(RequestCode.CHECK_CLIENT_CONFIG, body)
        except CommandError as error:
            return error.code, error.remark or ""
        return answer.code, answer.remark or ""

    if kind != "TAG":
        assert check() == (1, f"The broker does not support consumer to filter message by {kind}")
    setting.parts.config.update({"enablePropertyFilter": "true"})
    found, said = check()
    assert found == code
    assert match in said


async def test_a_heartbeat_brings_filters_whatever_they_are(setting: Setting) -> None:
    """As RocketMQ takes them: a pull says what is wrong."""
    wanted = SubscriptionData(topic="T", subString="a > > 3", expressionType="SQL92")
    data = HeartbeatData(clientID="c", consumerDataSet=[ConsumerData(groupName="G", subscriptionDataSet=[wanted])])
    assert setting.ask(RequestCode.HEART_BEAT, data.encode()).code == 0


async def test_a_follower_knows_the_consumers_and_makes_nothing(setting: Setting) -> None:
    assert setting.beat("New").code == 0
    assert setting.parts.clients.consumer_ids("New") == ["c"]
    assert setting.parts.groups.get("New") is None
    assert setting.parts.topics.get(names.retry_topic("New")) is None
    setting.beat("no group name")
    assert setting.parts.clients.consumer_ids("no group name") == []


async def test_a_leader_makes_the_group_and_its_retry_topic(setting: Setting) -> None:
    setting.role.become(leads=True, term=1)
    setting.beat("New")
    assert setting.parts.clients.consumer_ids("New") == ["c"]
    assert setting.parts.groups.get("New") is not None
    assert setting.parts.topics.get(names.retry_topic("New")) is not None
