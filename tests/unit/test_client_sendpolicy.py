import random

import pytest

from client.produce.latency import LatencyTable
from client.produce.sendpolicy import UNREACHABLE_S, QueuePicker
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from remoting.errors import ConnectError, ConnectionLost, InvokeTimeout, ResponseError
from runtime.clock import ManualClock

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]


def test_round_robin_uses_every_queue_alike() -> None:
    picker = QueuePicker(start=random.Random(1))
    picked = [picker.pick("T", QUEUES) for _ in range(8)]
    assert sorted(picked) == sorted(QUEUES * 2)
    assert picked[:4] == picked[4:]


def test_a_broker_that_failed_is_avoided_while_there_is_another() -> None:
    picker = QueuePicker()
    assert {picker.pick("T", QUEUES, avoid="a").brokerName for _ in range(8)} == {"b"}
    assert {picker.pick("T", QUEUES[:2], avoid="a").brokerName for _ in range(4)} == {"a"}


@pytest.mark.parametrize(
    "error", [ConnectError("x"), ConnectionLost("x"), ResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave")]
)
def test_a_group_without_a_master_is_left_alone_by_the_next_messages_too(error: Exception) -> None:
    clock = ManualClock()
    picker = QueuePicker(clock=clock.monotonic)
    picker.failed("a", error)
    assert {picker.pick("T", QUEUES).brokerName for _ in range(8)} == {"b"}
    assert {picker.pick("T", QUEUES[:2]).brokerName for _ in range(4)} == {"a"}
    clock.advance(UNREACHABLE_S)
    assert {picker.pick("T", QUEUES).brokerName for _ in range(8)} == {"a", "b"}


@pytest.mark.parametrize("error", [InvokeTimeout("x"), ResponseError(ResponseCode.SYSTEM_BUSY, "x")])
def test_one_failed_attempt_of_a_master_that_is_there_says_nothing_about_the_next(error: Exception) -> None:
    picker = QueuePicker(clock=ManualClock().monotonic)
    picker.failed("a", error)
    assert {picker.pick("T", QUEUES).brokerName for _ in range(8)} == {"a", "b"}


def test_slow_brokers_are_left_alone_for_a_while() -> None:
    clock = ManualClock()
    latency = LatencyTable(clock)
    picker = QueuePicker(latency)
    latency.answered("a", 600)
    assert {picker.pick("T", QUEUES).brokerName for _ in range(8)} == {"b"}
    clock.advance(2.1)
    assert {picker.pick("T", QUEUES).brokerName for _ in range(8)} == {"a", "b"}


def test_when_all_are_slow_the_one_that_did_not_fail_is_used() -> None:
    latency = LatencyTable(ManualClock())
    latency.failed("a")
    latency.failed("b")
    assert QueuePicker(latency).pick("T", QUEUES, avoid="a").brokerName == "b"


# RocketMQ's steps.
@pytest.mark.parametrize(
    ("latency_ms", "avoided_s"),
    [(40, 0), (100, 0), (549, 0), (550, 2), (1800, 5), (3000, 6), (5000, 10), (14_999, 10), (15_000, 30)],
)
def test_how_long_a_slow_broker_is_avoided(latency_ms: float, avoided_s: float) -> None:
    clock = ManualClock()
    table = LatencyTable(clock)
    table.answered("a", latency_ms)
    if avoided_s:
        clock.advance(avoided_s - 0.01)
        assert not table.available("a")
        clock.advance(0.02)
    assert table.available("a")


def test_a_good_answer_ends_the_avoidance() -> None:
    table = LatencyTable(ManualClock())
    table.failed("a")
    table.answered("a", 5)
    assert table.available("a")
