"""Traces on their way: bounded, batched, never in anybody's way, and sent at the close within its time."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from client.message import Message
from client.produce.hooked import SendHooks, split_result
from client.routes import TopicRoute
from client.trace import dispatcher as module
from client.trace.dispatcher import TraceDispatcher
from client.trace.records import Recall, decode_traces
from remoting.bodies.registry import MessageQueue
from remoting.command import Command
from remoting.errors import ConnectionLost
from remoting.headers.registry import SendMessageRequestHeaderV2

ROUTE = TopicRoute("RMQ_SYS_TRACE_TOPIC", (MessageQueue("RMQ_SYS_TRACE_TOPIC", "a", 0),), (), {"a": {0: "h:1"}})


class Instance:
    """A broker that takes, refuses, or never answers."""

    def __init__(self) -> None:
        self.ip = "127.0.0.1"
        self.taken: list[Command] = []
        self.mute = False
        self.code = 0
        self.fails = 0
        self.routes = SimpleNamespace(find_for_send=self._route, refresh=self._route)
        self.remoting = SimpleNamespace(invoke=self._invoke)

    async def _route(self, *_args: Any) -> TopicRoute:
        return ROUTE

    async def _invoke(self, _address: str, request: Command, _timeout: float) -> Command:
        if self.mute:
            await asyncio.Event().wait()
        if self.fails:
            self.fails -= 1
            raise ConnectionLost("x")
        self.taken.append(request)
        return Command.response(self.code, "told" if self.code else None)

    def bodies(self) -> list[bytes]:
        return [bytes(request.body) for request in self.taken]


def trace(number: int, key: str = "") -> Recall:
    return Recall(number, "r", "g", "t", f"id-{number}{key}", True)


def made(instance: Instance) -> TraceDispatcher:
    dispatcher = TraceDispatcher(instance, "g-PRODUCE")  # type: ignore[arg-type]
    dispatcher.start()
    return dispatcher


async def test_close_sends_what_waits_in_few_messages_under_all_ids() -> None:
    instance = Instance()
    dispatcher = made(instance)
    for number in range(250):
        dispatcher.add(trace(number))
    await dispatcher.close()
    assert [len(decode_traces(body)) for body in instance.bodies()] == [100, 100, 50]
    header = instance.taken[0].header(SendMessageRequestHeaderV2)
    assert header.producerGroup == "_INNER_TRACE_PRODUCER-g-PRODUCE"
    assert "KEYS\x01id-0 id-1 " in (header.properties or "")
    assert (dispatcher.sent, dispatcher.dropped) == (250, 0)


async def test_what_finds_no_room_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    instance = Instance()
    instance.mute = True
    dispatcher = made(instance)
    for number in range(module.QUEUE_MAX + 5):
        dispatcher.add(trace(number))
    assert dispatcher.dropped == 5
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(10):
            await dispatcher.close(0.05)
    assert dispatcher.dropped == module.QUEUE_MAX + 5
    assert "were dropped" in caplog.text
    dispatcher.add(trace(1))
    assert dispatcher.dropped == module.QUEUE_MAX + 6


async def test_few_traces_wait_for_more_for_some_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.02)
    instance = Instance()
    dispatcher = made(instance)
    dispatcher.add(trace(1))
    async with asyncio.timeout(20):
        while not instance.taken:
            await asyncio.sleep(0.001)
    await dispatcher.close()
    assert len(instance.taken) == 1


async def test_a_lost_connection_is_tried_again_and_a_refusal_told_once(caplog: pytest.LogCaptureFixture) -> None:
    instance = Instance()
    instance.fails = 1
    dispatcher = made(instance)
    dispatcher.add(trace(1))
    await dispatcher.close()
    assert (dispatcher.sent, dispatcher.dropped) == (1, 0)
    refused = Instance()
    refused.code = 13
    dispatcher = made(refused)
    for number in range(150):
        dispatcher.add(trace(number))
    with caplog.at_level(logging.WARNING):
        await dispatcher.close()
    assert dispatcher.dropped == 150
    assert caplog.text.count("cannot be sent") == 1


async def test_long_keys_are_shared_out_and_absurd_ones_left_out() -> None:
    instance = Instance()
    dispatcher = made(instance)
    for number in range(4):
        dispatcher.add(trace(number, "k" * 5000))
    await dispatcher.close()
    assert len(instance.taken) == 4


def test_results_of_a_batch_are_taken_apart() -> None:
    from client.message import SendResult, SendStatus

    queue = MessageQueue("T", "a", 1)
    whole = SendResult(SendStatus.SEND_OK, "i,j", "p,q", queue, 7)
    assert [(one.msg_id, one.offset_msg_id, one.queue_offset) for one in split_result(whole, 2)] == [
        ("i", "p", 7),
        ("j", "q", 8),
    ]
    together = SendResult(SendStatus.SEND_OK, "i,j", "p", queue, 7)
    assert [(one.offset_msg_id, one.queue_offset) for one in split_result(together, 2)] == [("p", 7), ("p", 7)]
    assert split_result(whole, 1) == [whole]


def test_without_hooks_a_send_passes_by() -> None:
    message = Message("T", b"x")
    assert SendHooks("g").begin(message) == (message, ())
