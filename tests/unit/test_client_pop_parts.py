"""Handles and addresses of POP consumption, without a network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.consume.popbrokers import AHEAD_MS_MAX, PopBrokers
from client.consume.pophandle import (
    BIT_MAX,
    PopHandle,
    batch_body,
    fits_batch,
    order_counts,
    pop_handles,
    read_pop_handle,
)
from client.errors import RouteError
from client.routes import Routes
from remoting.bodies.registry import BrokerData, QueueData, TopicRouteData
from remoting.errors import ConnectError, HeaderError, ResponseError
from remoting.headers.registry import PopMessageResponseHeader
from remoting.record import decode_records
from tests.parts.pop_brokers import record

NUMBERS = st.integers(0, 10**17)
HANDLES = st.builds(
    PopHandle, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from("012"), st.just("broker-a"), NUMBERS, NUMBERS
)


@given(HANDLES)
def test_a_handle_survives_as_text(handle: PopHandle) -> None:
    assert read_pop_handle(handle.text) == handle


@pytest.mark.parametrize(
    "text", ["", "1 2 3", "0 1 2 3 9 b 0 0", "a 1 2 3 0 b 0 0", "0 1 2 3 0 b 0 0 0", f"{'9' * 40} 1 2 3 0 b 0 0"]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(HeaderError):
        read_pop_handle(text)


def answer(**infos: str | None) -> PopMessageResponseHeader:
    return PopMessageResponseHeader(popTime=100, invisibleTime=7, reviveQid=2, restNum=0, **infos)


def test_messages_of_the_retry_topic_and_of_old_brokers_have_handles() -> None:
    plain, retried = record("T", 1, 5, b"x"), record("%RETRY%g+T", 1, 9, b"x")
    messages = decode_records(plain + retried + record("T", 1, 4, b"x"))
    told = answer(startOffsetInfo="0 1 4;2 1 8", msgOffsetInfo="0 1 4,5;2 1 9")
    assert [handle.text for handle in pop_handles(told, "b", messages)] == [
        "4 100 7 2 0 b 1 5", "8 100 7 2 2 b 1 9", "4 100 7 2 0 b 1 4",
    ]  # fmt: skip
    assert [handle.text for handle in pop_handles(answer(), "b", messages)] == [
        "4 100 7 2 0 b 1 5", "9 100 7 2 2 b 1 9", "4 100 7 2 0 b 1 4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("starts", "offsets"),
    [("0 0 4", "0 0 4"), ("0 1 4", ""), ("0 1 4", "0 1 4"), ("0 1", "0 1 4,5"), ("9 1 4", "0 1 4,5"),
     ("0 1 x", "0 1 4,5"), ("0 1 4;", "0 1 4,5"), ("0 1 4", "0 1 4,,5")],
)  # fmt: skip
def test_an_answer_that_does_not_say_where_messages_are_from_is_refused(starts: str, offsets: str) -> None:
    messages = decode_records(record("T", 1, 4, b"x") + record("T", 1, 5, b"x"))
    with pytest.raises(HeaderError):
        pop_handles(answer(startOffsetInfo=starts, msgOffsetInfo=offsets), "b", messages)


def test_what_fits_a_batch() -> None:
    handle = PopHandle(10, 1, 1, 1, "0", "b", 0, 10)
    for offset, fits in ((9, False), (10, True), (10 + BIT_MAX, True), (11 + BIT_MAX, False)):
        assert fits_batch(handle._replace(offset=offset)) is fits
    assert len(batch_body("b", "g", [("T", handle._replace(offset=10 + BIT_MAX))])) < 1500


class Site:
    """Routes of two topics, a clock and a time of day that stand still until they are moved."""

    def __init__(self) -> None:
        self.leader: int | None = 0
        self.asked = 0
        self.now, self.wall = 0.0, 1_000_000
        self.routes = Routes(self.ask, lambda: "nobody")
        self.brokers = PopBrokers(self.routes, lambda: self.now, lambda: self.wall)

    async def ask(self, topic: str) -> TopicRouteData | None:
        self.asked += 1
        name = "b" if topic == "T" else "other"
        addresses = {0 if number == self.leader else number + 1: f"host:{number}" for number in range(2)}
        return TopicRouteData(
            brokerDatas=[BrokerData(brokerAddrs=addresses, brokerName=name, cluster="c")],
            queueDatas=[QueueData(brokerName=name, perm=6, readQueueNums=1, writeQueueNums=1)],
        )


async def test_who_failed_is_left_alone_for_a_second_and_the_route_asked_for() -> None:
    site = Site()
    assert await site.brokers.address("T", "b") == "host:0"
    await site.brokers.failed("T", "b", "host:0", ConnectError("no"))
    assert site.asked == 2
    assert await site.brokers.address("T", "b") == "host:1"
    site.now = 1.0
    assert await site.brokers.address("T", "b") == "host:0"
    await site.brokers.failed("T", "b", "host:0", ResponseError(26, "no group", "host:0"))
    assert (await site.brokers.address("T", "b"), site.asked) == ("host:0", 2)


async def test_a_broker_that_is_gone_from_a_topic_s_route_is_found_by_another_s() -> None:
    site = Site()
    with pytest.raises(RouteError, match="other"):
        await site.brokers.address("T", "other")
    await site.routes.find("U")
    assert await site.brokers.address("T", "other") == "host:0"


def test_the_time_of_a_broker_is_learnt() -> None:
    site = Site()
    brokers = site.brokers
    assert brokers.now_ms("b") == site.wall
    brokers.heard("b", site.wall - 5_000)
    assert brokers.now_ms("b") == site.wall - 5_000
    brokers.heard("b", 0)
    assert brokers.now_ms("b") == site.wall - 5_000
    for expected in (1_000, 2_000, 4_000):
        brokers.called_late("b")
        assert brokers.now_ms("b") == site.wall + expected
    for _ in range(40):
        brokers.called_late("b")
    assert brokers.now_ms("b") == site.wall + AHEAD_MS_MAX


def counted(text: str | None) -> dict[tuple[str, int, int], int]:
    return order_counts(
        PopMessageResponseHeader(popTime=1, invisibleTime=2, reviveQid=999, restNum=0, orderCountInfo=text)
    )


def test_how_often_messages_were_taken_in_order() -> None:
    assert counted(None) == counted("") == counted("0 0 0") == {}
    assert counted("0 qo0%3 1;0 qo0%12 4;0 0 1;1 qo2%7 9") == {("0", 0, 3): 1, ("0", 0, 12): 4, ("1", 2, 7): 9}
    with pytest.raises(HeaderError, match="is no number"):
        counted("0 qo0 1")
