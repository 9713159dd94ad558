"""From where a pop is served: queues in turn, the highest first where there are priorities, and the retry topic."""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.pop.asking import PopChecks, PopQuestion
from broker.settings.config import BrokerConfig
from remoting.bodies.registry import TopicConfig

QUESTION = PopQuestion("G", "T", -1, 32, None, from_end=False, invisible_ms=1)


def checks(*topics: TopicConfig, **config: Any) -> PopChecks:
    known = {topic.topicName: topic for topic in topics}
    live = SimpleNamespace(broker=BrokerConfig(**config))
    context: Any = SimpleNamespace(live=live, role=None, clock=None)
    tables: Any = SimpleNamespace(topics=known)
    return PopChecks(context, tables, lambda: None)


def order(made: PopChecks, question: PopQuestion = QUESTION) -> list[tuple[str, str, list[int]]]:
    return made.sources(question)


def test_every_queue_is_the_first_one_now_and_then() -> None:
    made = checks(TopicConfig("T", 4, 4))
    firsts = {order(made)[0][2][0] for _ in range(200)}
    assert firsts == {0, 1, 2, 3}
    assert sorted(order(made)[0][2]) == [0, 1, 2, 3]
    assert order(made, QUESTION._replace(queue_id=2)) == [("T", "0", [2])]


def test_the_highest_queue_comes_first_where_there_are_priorities() -> None:
    made = checks(TopicConfig("T", 4, 4, attributes={"message.type": "PRIORITY"}))
    assert {tuple(order(made)[0][2]) for _ in range(50)} == {(3, 2, 1, 0)}


def test_the_retry_topic_is_read_too_and_sometimes_first() -> None:
    made = checks(TopicConfig("T", 1, 1), TopicConfig("%RETRY%G_T", 1, 1))
    seen = {tuple(kind for _topic, kind, _queues in order(made)) for _ in range(200)}
    assert seen == {("0", "1"), ("1", "0")}
    assert order(checks()) == []


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        # What came into being under the other setting is not left behind.
        ({}, {"0", "1", "2"}),
        ({"enableRetryTopicV2": True}, {"0", "1", "2"}),
        ({"enableRetryTopicV2": True, "retrieveMessageFromPopRetryTopicV1": False}, {"0", "2"}),
    ],
)
def test_retry_topics_of_either_form_are_read(config: dict[str, bool], kinds: set[str]) -> None:
    made = checks(TopicConfig("T", 1, 1), TopicConfig("%RETRY%G_T", 1, 1), TopicConfig("%RETRY%G+T", 1, 1), **config)
    found = order(made)
    assert {kind for _topic, kind, _queues in found} == kinds
    assert {kind: topic for topic, kind, _queues in found}["2"] == "%RETRY%G+T"
