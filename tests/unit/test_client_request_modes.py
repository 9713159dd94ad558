"""Whether a topic is pulled or popped: asked of brokers now and then, said once, and kept while nobody can tell."""

import logging
from types import SimpleNamespace
from typing import cast

import pytest

from client.consume.request_modes import ASK_S, ReadingModes
from client.instance import ClientInstance
from client.routes import TopicRoute
from remoting.errors import ConnectError, ResponseError

ROUTE = TopicRoute("T", (), (), {"a": {0: "a:1"}, "b": {0: "b:1"}})


class Brokers:
    """Answer as they are told to: a mode, None, or an error."""

    def __init__(self) -> None:
        self.says: dict[str, str | Exception | None] = {"a:1": None, "b:1": None}
        self.asked: list[str] = []
        self.now = 0.0

    async def request_mode(self, address: str, group: str, client_id: str, topic: str) -> str | None:
        assert (group, client_id, topic) == ("G", "me", "T")
        self.asked.append(address)
        said = self.says[address]
        if isinstance(said, Exception):
            raise said
        return said

    def modes(self) -> ReadingModes:
        instance = SimpleNamespace(api=self, client_id="me")
        return ReadingModes("G", cast("ClientInstance", instance), lambda: self.now)


async def test_what_is_popped_is_not_pulled_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    modes = brokers.modes()
    brokers.says["a:1"] = "POP"
    for _ in range(3):
        assert not await modes.pulls(ROUTE)
        brokers.now += ASK_S
    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert "raftmq group mode G T --pull" in said.getMessage()
    brokers.says["a:1"] = "PULL"
    assert await modes.pulls(ROUTE)
    assert "pulled again" in caplog.records[-1].getMessage()


async def test_an_answer_holds_for_a_while() -> None:
    brokers = Brokers()
    modes = brokers.modes()
    assert await modes.pulls(ROUTE)
    brokers.now += ASK_S / 2
    assert await modes.pulls(ROUTE)
    assert brokers.asked == ["a:1"]
    # Its retry topic is always pulled.
    assert await modes.pulls(TopicRoute("%RETRY%G", (), (), {"a": {0: "a:1"}}))
    brokers.now += ASK_S
    await modes.pulls(ROUTE)
    assert brokers.asked == ["a:1", "a:1"]


@pytest.mark.parametrize("says", [None, ResponseError(3, "not supported", "a:1"), ConnectError("away")])
async def test_what_nobody_can_tell_stays_as_it_was(says: Exception | None) -> None:
    brokers = Brokers()
    modes = brokers.modes()
    brokers.says["a:1"] = "POP"
    assert not await modes.pulls(ROUTE)
    brokers.now += ASK_S
    brokers.says["a:1"] = says
    assert not await modes.pulls(ROUTE)


async def test_another_broker_is_asked_and_nobody_there_is_an_error() -> None:
    brokers = Brokers()
    modes = brokers.modes()
    brokers.says = {"a:1": ConnectError("away"), "b:1": "POP"}
    assert not await modes.pulls(ROUTE)
    brokers.says["b:1"] = ConnectError("away")
    with pytest.raises(ConnectError):
        await brokers.modes().pulls(ROUTE)
