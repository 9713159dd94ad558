"""client_handlers.py: what a member of a group that follows takes note of, and what only a leader makes."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from broker.admin.client_handlers import ClientHandlers
from broker.messages.tag_filter import EXPRESSION_CHARS_MAX
from remoting import topics as names
from remoting.bodies.registry import (
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
        handlers = ClientHandlers(parts.clients, parts.topics, parts.groups, self.role)
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
