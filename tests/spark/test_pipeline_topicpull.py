"""The range puller against a broker made of a list: what it asks, and what it makes of every kind of answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.routes import TopicRoute
from pipeline.spark.topic.client import TopicError
from pipeline.spark.topic.options import topic_options
from pipeline.spark.topic.pull import DataLoss, RangePuller
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import ConnectionLost
from remoting.headers.registry import PullMessageRequestHeader, PullMessageResponseHeader

QUEUE = MessageQueue("T", "broker-a", 0)
ROUTE = TopicRoute("T", (QUEUE,), (QUEUE,), {"broker-a": {0: "127.0.0.1:1"}})


class Broker:
    """Has the offsets from `first` up to `end`, and gives at most `gives` at a time; every body names its offset.

    `trouble` may answer or fail in its place: it is told the number of the request, from 0, and its header.
    """

    def __init__(self, first: int, end: int, gives: int = 32) -> None:
        self.first, self.end, self.gives = first, end, gives
        self.asked: list[tuple[int, int]] = []
        self.refreshed = 0
        self.matches: Callable[[int], bool] = lambda _offset: True
        self.trouble: Callable[[int, PullMessageRequestHeader], Command | Exception | None] = lambda _n, _h: None

    # What stands in for remoting and routes.

    def submit(self, _address: str, request: Command, _timeout: float) -> "asyncio.Future[Command]":
        header = request.header(PullMessageRequestHeader)
        answer = self.trouble(len(self.asked), header) or self._answer(header)
        self.asked.append((header.queueOffset, header.maxMsgNums))
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    async def find(self, _topic: str) -> TopicRoute:
        return ROUTE

    async def refresh(self, _topic: str) -> TopicRoute:
        self.refreshed += 1
        return ROUTE

    def answer(self, code: ResponseCode, reached: int, body: bytes = b"") -> Command:
        header = PullMessageResponseHeader(
            suggestWhichBrokerId=0, nextBeginOffset=reached, minOffset=self.first, maxOffset=self.end
        )
        return Command.response(code, code.name, header, body)

    def _answer(self, header: PullMessageRequestHeader) -> Command:
        start = header.queueOffset
        if not self.first <= start <= self.end:
            return self.answer(ResponseCode.PULL_OFFSET_MOVED, self.first if start < self.first else self.end)
        if start == self.end:
            return self.answer(ResponseCode.PULL_NOT_FOUND, start)
        found = [offset for offset in range(start, min(start + 100, self.end)) if self.matches(offset)]
        found = found[: min(header.maxMsgNums, self.gives)]
        if not found:
            return self.answer(ResponseCode.PULL_RETRY_IMMEDIATELY, min(start + 100, self.end))
        return self.answer(ResponseCode.SUCCESS, found[-1] + 1, b"".join(b"%d;" % offset for offset in found))


def puller(broker: Broker, start: int, end: int, expression: str = "*", **options: str) -> RangePuller:
    given = {"namesrv": "x:1", "topic": "T", "retryTimeoutMs": "20000", **options}

    class Instance:
        remoting = routes = broker

    class Client:
        instance = Instance()

    client: Any = Client()
    client.options = topic_options(given)
    return RangePuller(client, QUEUE, start, end, expression)


async def pulled(one: RangePuller, end: int, bytes_wanted: int = 1000) -> list[int]:
    found: list[int] = []
    while one.position < end:
        piece = await one.pull(bytes_wanted)
        offsets = [int(text) for text in b"".join(bytes(body) for body in piece.bodies).split(b";")[:-1]]
        if one._expression == "*" and offsets:
            assert offsets == list(range(piece.start, piece.next))
        found += offsets
    await one.close()
    return found


@pytest.mark.parametrize("gives", [1, 7, 32, 5000])
@pytest.mark.parametrize("bytes_wanted", [1, 100, 10**6])
async def test_everything_comes_in_order_whatever_a_broker_gives(gives: int, bytes_wanted: int) -> None:
    broker = Broker(0, 900, gives)
    assert await pulled(puller(broker, 3, 811), 811, bytes_wanted) == list(range(3, 811))
    # The first answer tells how many go together: nothing is asked for twice after that.
    assert len(broker.asked) <= -(-808 // min(gives, 100)) + 1
    assert len(set(broker.asked)) == len(broker.asked)


async def test_a_lost_connection_is_asked_again() -> None:
    broker = Broker(0, 500)
    broker.trouble = lambda number, _header: ConnectionLost("gone") if number % 5 == 3 else None
    assert await pulled(puller(broker, 0, 500), 500) == list(range(500))
    assert broker.refreshed


async def test_a_leader_that_was_just_elected_is_waited_for() -> None:
    broker = Broker(0, 100)
    early = [Broker(0, 40).answer(ResponseCode.PULL_NOT_FOUND, 32)] * 2
    broker.trouble = lambda _number, header: early.pop() if header.queueOffset == 32 and early else None
    assert await pulled(puller(broker, 0, 100), 100) == list(range(100))


async def test_a_reset_of_the_group_moves_nothing() -> None:
    broker = Broker(0, 100)
    reset = [broker.answer(ResponseCode.PULL_OFFSET_MOVED, 90)]
    broker.trouble = lambda number, _header: reset.pop() if number == 2 and reset else None
    assert await pulled(puller(broker, 0, 100), 100) == list(range(100))


async def test_the_retry_time_is_bounded() -> None:
    broker = Broker(0, 100)
    broker.trouble = lambda _number, _header: ConnectionLost("the broker is gone")
    # Well below what it tries for otherwise; on a machine at work the last try may come a second late.
    with pytest.raises(TopicError, match=r"offset 0 cannot be read: the broker is gone \(tried for \d\.\d s"):
        await pulled(puller(broker, 0, 100, retryTimeoutMs="300"), 100)


async def test_a_refusal_is_said_at_once() -> None:
    broker = Broker(0, 100)
    broker.trouble = lambda _number, _header: Command.response(ResponseCode.NO_PERMISSION, "pulling is forbidden")
    with pytest.raises(TopicError, match="pulling is forbidden"):
        await pulled(puller(broker, 0, 100, retryTimeoutMs="60000"), 100)
    assert len(broker.asked) == 1


async def test_expired_messages_are_lost_or_passed_over() -> None:
    broker = Broker(40, 100)
    with pytest.raises(DataLoss, match="from offset 10 to 39 are gone"):
        await pulled(puller(broker, 10, 100), 100)
    assert await pulled(puller(broker, 10, 100, failOnDataLoss="false"), 100) == list(range(40, 100))
    # Of a range that is gone altogether nothing is left.
    assert await pulled(puller(broker, 10, 30, failOnDataLoss="false"), 30) == []


async def test_a_queue_that_ends_too_early_is_lost() -> None:
    broker = Broker(0, 50)
    with pytest.raises(DataLoss, match="from offset 60 to 99 are gone"):
        await pulled(puller(broker, 60, 100), 100)
    assert await pulled(puller(broker, 60, 100, failOnDataLoss="false"), 100) == []


async def test_a_filter_passes_over_what_does_not_match() -> None:
    broker = Broker(0, 1000)
    broker.matches = lambda offset: offset in {5, 6, 700, 950}
    assert await pulled(puller(broker, 0, 900, "t"), 900) == [5, 6, 700]
    broker.matches = lambda _offset: False
    assert await pulled(puller(broker, 0, 900, "t"), 900) == []
    # One question for each stretch that the broker scans.
    assert len(broker.asked) < 40
