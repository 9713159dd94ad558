"""A started client belongs to one event loop: whatever is called from another one says so at once."""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from client.admin.client import AdminClient
from client.consume import push
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer
from client.produce.transaction import TransactionState
from client.produce.transactions import TransactionProducer

NOBODY = "127.0.0.1:1"
# One that waits in the wrong loop costs seconds: so many are enough to know of.
WRONG_MAX = 5
ELSEWHERE = "was started in another event loop"
# Which of its public coroutines are surely found, so that a search that finds nothing is noticed.
KNOWN = {
    "Producer": {"send", "send_oneway", "request", "recall", "room", "queues", "start", "close"},
    "TransactionProducer": {"send_in_transaction", "send", "close"},
    "PushConsumer": {"commit", "close", "reset_offsets"},
    "SimpleConsumer": {"receive", "close"},
    "LitePullConsumer": {"assign", "poll", "commit", "committed", "position", "seek_to_begin", "close"},
    "AdminClient": {"topics", "masters", "create_topic", "each_message", "each_dead_letter", "close"},
}


def pushed() -> PushConsumer:
    consumer = PushConsumer("group", NOBODY)
    consumer.subscribe("T")
    consumer.on_message(lambda _messages: None)
    return consumer


def received() -> SimpleConsumer:
    consumer = SimpleConsumer("group", NOBODY)
    consumer.subscribe("T")
    return consumer


def transactions() -> TransactionProducer:
    return TransactionProducer("group", NOBODY, on_check=lambda _half: TransactionState.COMMIT)


def calls_of(client: Any) -> dict[str, Callable[[], Any]]:
    """Return how each public coroutine and generator is called, and what begins one without being one."""
    calls: dict[str, Callable[[], Any]] = {}
    for name, member in inspect.getmembers(client, inspect.ismethod):
        if name.startswith("_") or not (inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)):
            continue
        parameters = inspect.signature(member).parameters.values()
        nothing = {each.name: None for each in parameters if each.default is each.empty and "VAR" not in each.kind.name}
        calls[name] = partial(member, **nothing)
    if isinstance(client, Producer):
        calls["send_async"] = lambda: client.send_async(Message("T", b"x"))
    if isinstance(client, TransactionProducer):
        calls["transaction"] = lambda: client.transaction(Message("T", b"x")).__aenter__()
    if isinstance(client, SimpleConsumer):
        calls["__aiter__"] = lambda: anext(aiter(client))
    return calls


async def told_of(call: Callable[[], Any]) -> str:
    """Return how a call ended."""
    try:
        async with asyncio.timeout(10):
            answer = call()
            return f"returned {await (anext(answer) if inspect.isasyncgen(answer) else answer)!r}"
    except ClientError as error:
        return str(error)
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Producer("group", NOBODY, send_timeout=0.3),
        transactions,
        pushed,
        received,
        lambda: LitePullConsumer("group", NOBODY),
        lambda: AdminClient(NOBODY),
    ],
    ids=["producer", "transactions", "push", "simple", "litepull", "admin"],
)
def test_every_call_from_a_second_loop_is_a_clear_error(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "START_S", 0.01)
    client = make()

    async def elsewhere() -> dict[str, str]:
        told: dict[str, str] = {}
        calls = calls_of(client)
        assert KNOWN[type(client).__name__] <= set(calls)
        for name, call in calls.items():
            text = await told_of(call)
            # A second start is refused wherever it is called.
            if ELSEWHERE not in text and not (name == "start" and "is started already" in text):
                told[name] = text
            if len(told) == WRONG_MAX:
                break
        return told

    async def home() -> dict[str, str]:
        await client.start()
        told = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        if not told:
            # None of it has begun its end.
            assert client._closing is None
            await client.close()
        return told

    assert asyncio.run(asyncio.wait_for(home(), 30)) == {}
