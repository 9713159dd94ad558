"""What a send that failed says of its message: stored or not, an earlier attempt may know more than the last."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from client.errors import ClientClosed, RouteError, SendFailed
from client.message import Message
from client.produce.outgoing import Outgoing
from client.produce.producer import Producer
from client.routes import TopicRoute
from remoting.command import Command
from remoting.errors import ConnectError, HeaderError, InvokeTimeout
from remoting.server import Connection, Reply
from tests.parts.pair_of_masters import Pair

TIMED_OUT, REFUSED = InvokeTimeout("no answer"), ConnectError("refused")
UNROUTED = RouteError("no NameServer answered", retriable=True)


class Unreadable(Pair):
    """Stores, and answers so that nobody can read where."""

    def _send(self, connection: Connection, request: Command) -> Reply:
        super()._send(connection, request)
        return Command.response(0)


async def knowing(pair: Pair, producer: Producer) -> Producer:
    """Let a producer know the route, so that its next send begins without a task."""
    await producer.queues("T")
    assert producer.instance.routes.cached("T") is not None
    return producer


def ends_with(monkeypatch: pytest.MonkeyPatch, producer: Producer, *errors: Exception) -> list[Exception]:
    """Have the attempts of a producer end with these errors, the last one again and again; returns which they were."""
    met: list[Exception] = []

    def each() -> Iterator[Exception]:
        yield from errors
        while True:
            yield errors[-1]

    coming = each()

    def submit(_address: str, _request: Command, _timeout: float = 3.0) -> asyncio.Future[Command]:
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        met.append(next(coming))
        answer.set_exception(met[-1])
        return answer

    monkeypatch.setattr(producer._remoting, "submit", submit)
    return met


async def failed_send(producer: Producer, **options: Any) -> BaseException:
    async with asyncio.timeout(20):
        (told,) = await asyncio.gather(producer.send(Message("T", b"x"), **options), return_exceptions=True)
    assert isinstance(told, BaseException)
    return told


async def test_an_unknown_outcome_is_not_forgotten_when_later_attempts_reach_nobody(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer("p", pair.namesrv, send_timeout=3) as producer:
        await knowing(pair, producer)
        met = ends_with(monkeypatch, producer, TIMED_OUT, REFUSED)
        told = await failed_send(producer)
        assert met[0] is TIMED_OUT
        assert met[-1] is told.__cause__ is REFUSED
        assert isinstance(told, SendFailed)
        assert told.sent
        assert "may have been stored all the same" in str(told)
        # The same without the first one.
        ends_with(monkeypatch, producer, REFUSED)
        told = await failed_send(producer)
        assert isinstance(told, SendFailed)
        assert not told.sent
        assert "was not stored" in str(told)


async def test_an_unknown_outcome_is_not_forgotten_when_there_is_no_route_any_more(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unrouted(_out: Outgoing) -> TopicRoute:
        raise UNROUTED

    async with Producer("p", pair.namesrv, send_timeout=3) as producer:
        await knowing(pair, producer)
        monkeypatch.setattr(producer._news, "in_time", unrouted)
        met = ends_with(monkeypatch, producer, TIMED_OUT)
        told = await failed_send(producer)
        assert met == [TIMED_OUT]
        assert told.__cause__ is UNROUTED
        assert isinstance(told, SendFailed)
        assert told.sent
        # The same without the first one: the route error itself, which says whom was asked.
        ends_with(monkeypatch, producer, REFUSED)
        assert await failed_send(producer) is UNROUTED


async def test_what_nobody_thought_of_counts_as_stored_once_an_attempt_was_begun(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_any: object) -> Any:
        raise ZeroDivisionError

    async with Producer("p", pair.namesrv) as producer:
        await knowing(pair, producer)
        with monkeypatch.context() as patched:
            met = ends_with(patched, producer, KeyError("odd"))
            told = await failed_send(producer)
            assert told.__cause__ is met[0]
            assert isinstance(told, SendFailed)
            assert told.sent
            assert "KeyError: 'odd'; the message may have been stored all the same" in str(told)
        # Before there was an attempt nothing was sent.
        monkeypatch.setattr(producer._picker, "pick", breaks)
        told = await failed_send(producer)
        assert isinstance(told, SendFailed)
        assert not told.sent
        assert "after 0 attempt(s)" in str(told)
    assert pair.sent == []


async def test_an_answer_that_cannot_be_read_is_one_of_a_broker_that_may_have_stored_it() -> None:
    pair = Unreadable()
    await pair.start()
    try:
        async with Producer("p", pair.namesrv) as producer:
            told = await failed_send(producer)
    finally:
        await pair.close()
    assert isinstance(told.__cause__, HeaderError)
    assert isinstance(told, SendFailed)
    assert told.sent
    assert len(pair.sent) == 1


async def test_a_send_that_is_cancelled_from_outside_may_be_stored_once_an_attempt_was_begun(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when asyncio.run ends with all that is still there."""
    asked = asyncio.Event()

    async def never(_out: Outgoing) -> TopicRoute:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    pair.frozen = {"a", "b"}
    async with Producer("p", pair.namesrv, send_timeout=60) as producer, asyncio.timeout(20):
        # The first send of a topic is a task from its start, as its route is to be asked for.
        sending = producer.send_async(Message("T", b"x"))
        while not pair.sent:
            await asyncio.sleep(0.001)
        carrying().cancel()
        with pytest.raises(SendFailed, match="may have been stored all the same") as failed:
            await sending
        assert failed.value.sent
        assert isinstance(failed.value.__cause__, ClientClosed)
        # The same before its attempt.
        monkeypatch.setattr(producer._news, "in_time", never)
        sending = producer.send_async(Message("U", b"x"))
        await asked.wait()
        carrying().cancel()
        with pytest.raises(ClientClosed, match="before the message was sent"):
            await sending


def carrying() -> asyncio.Task[Any]:
    """Return the task that sees a send through."""
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "producer p:send" and not task.done())
    return task
