"""client/consume/filters.py: which brokers are asked about which filters, and what comes of their answers."""

import logging
from typing import Any, cast

import pytest

from client.consume.filters import check_filters
from client.consume.subscription import subscribe_to
from client.errors import ConsumeError
from client.instance import ClientInstance
from client.routes import TopicRoute
from remoting.bodies.registry import SubscriptionData
from remoting.errors import InvokeError, ResponseError

BROKERS = {"a": {0: "a:1", 1: "a:2"}, "b": {0: "b:1"}, "away": {1: "c:2"}}


class Brokers:
    """Stands for an instance: routes that are known after a refresh, and brokers that answer as told."""

    def __init__(self, answers: dict[str, Exception]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, str, SubscriptionData]] = []
        self.refreshed: list[str] = []
        self._known: dict[str, TopicRoute] = {}
        self.routes, self.api, self.client_id = self, self, "me"

    def cached(self, topic: str) -> TopicRoute | None:
        return self._known.get(topic)

    async def refresh(self, topic: str, *_: Any, **__: Any) -> TopicRoute | None:
        self.refreshed.append(topic)
        if topic != "unknown":
            self._known[topic] = TopicRoute(topic, (), (), BROKERS)
        return self._known.get(topic)

    async def check_subscription(self, address: str, client_id: str, group: str, data: SubscriptionData) -> None:
        self.asked.append((address, client_id, group, data))
        if address in self.answers:
            raise self.answers[address]


async def check(answers: dict[str, Exception], *filters: str | None, topic: str = "T") -> Brokers:
    brokers = Brokers(answers)
    wanted = [subscribe_to(topic, "*", sql, number) for number, sql in enumerate(filters)]
    await check_filters(cast("ClientInstance", cast("object", brokers)), "G", wanted)
    return brokers


async def test_the_masters_are_asked_once_for_each_filter() -> None:
    brokers = await check({}, "a = 1", None, "a = 1", "b = 2")
    assert [(address, data.subString) for address, _, _, data in brokers.asked] == [
        ("a:1", "a = 1"),
        ("b:1", "a = 1"),
        ("a:1", "b = 2"),
        ("b:1", "b = 2"),
    ]
    assert {asked[1:3] for asked in brokers.asked} == {("me", "G")}
    assert {data.expressionType for _, _, _, data in brokers.asked} == {"SQL92"}
    assert brokers.refreshed == ["T"]


async def test_by_tags_nobody_is_asked() -> None:
    assert (await check({}, None)).asked == []


async def test_of_a_topic_without_a_route_nobody_is_asked() -> None:
    assert (await check({}, "a = 1", topic="unknown")).asked == []


@pytest.mark.parametrize(
    ("code", "match"),
    [(23, "broker b does not take the filter of topic T: why$"), (1, r"why \(see its key enablePropertyFilter\)$")],
)
async def test_what_a_broker_refuses_is_an_error(code: int, match: str) -> None:
    with pytest.raises(ConsumeError, match=match):
        await check({"b:1": ResponseError(code, "why", "b:1")}, "a = 1")


@pytest.mark.parametrize("error", [InvokeError("no way there"), ResponseError(3, "not supported", "a:1")])
async def test_who_cannot_tell_is_passed_over(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        brokers = await check({"a:1": error}, "a = 1")
    assert [address for address, *_ in brokers.asked] == ["a:1", "b:1"]
    assert "the filter of T was not checked" in caplog.text
