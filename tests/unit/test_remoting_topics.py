"""Names of topics and groups."""

import pytest

from remoting.topics import (
    AUTO_CREATE_TOPIC,
    check_group,
    check_topic,
    dlq_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
)


def test_retry_and_dead_letter_topics_are_the_group_with_a_prefix() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert retry_topic("%RETRY%g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert dlq_topic("%DLQ%g") == "%DLQ%g"
    assert is_retry_topic("%RETRY%g")
    assert not is_retry_topic("%DLQ%g")
    assert is_dlq_topic("%DLQ%g")
    assert not is_dlq_topic("g")


@pytest.mark.parametrize(
    "name", ["orders", "a_b-C|9", "%RETRY%g", "x" * 127, "%RETRY%" + "g" * 120, "%DLQ%" + "x" * 250]
)
def test_topics_that_are_allowed(name: str) -> None:
    assert check_topic(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "illegal characters"),
        ("a.b", "illegal characters"),
        ("ümlaut", "illegal characters"),
        ("a\n", "illegal characters"),
        ("x" * 128, "longer than topic max length 127"),
        ("%RETRY%" + "x" * 249, "longer than topic max length 255"),
    ],
)
def test_topics_that_are_refused_with_the_reason(name: str, reason: str) -> None:
    assert reason in (check_topic(name) or "")


@pytest.mark.parametrize(
    ("name", "reason"), [("", "blank"), ("a/b", "illegal characters"), ("x" * 121, "longer than group max length 120")]
)
def test_groups_that_are_refused_with_the_reason(name: str, reason: str) -> None:
    assert check_group("g" * 120) is None
    assert reason in (check_group(name) or "")


def test_a_long_bad_name_does_not_come_back_whole() -> None:
    assert len(check_topic("?" * 100_000) or "") < 400


def test_the_systems_own() -> None:
    assert is_system_topic(AUTO_CREATE_TOPIC)
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("orders")
    assert not is_system_topic("%RETRY%orders")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("orders")
