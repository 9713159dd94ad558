"""Hooks around a consumer's callback: what they are told, and what they cannot break."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from client.consume.caller import CallbackCaller
from client.hooks import ConsumeCall, ConsumeHooks, ConsumeOutcome
from client.message import ConsumeResult
from remoting.message import MessageExt
from tests.unit.test_client_listeners import message, options


class Told:
    def __init__(self, name: str, story: list[Any]) -> None:
        self._name, self._story = name, story

    def before_consume(self, call: ConsumeCall) -> None:
        assert call.outcome is None
        self._story.append((self._name, "before", call.group, len(call.messages)))

    def after_consume(self, call: ConsumeCall) -> None:
        self._story.append((self._name, "after", call.outcome))


class Broken:
    def before_consume(self, call: ConsumeCall) -> None:
        raise ValueError(f"a hook's mistake with {call}")

    after_consume = before_consume


def fails(_messages: list[MessageExt]) -> ConsumeResult:
    raise ValueError("the application's mistake")


async def too_long(_messages: list[MessageExt]) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("callback", "outcome"),
    [
        (lambda _messages: None, ConsumeOutcome.SUCCESS),
        (lambda _messages: ConsumeResult.RECONSUME_LATER, ConsumeOutcome.FAILED),
        (fails, ConsumeOutcome.EXCEPTION),
        (too_long, ConsumeOutcome.TIME_OUT),
    ],
)
async def test_hooks_are_told_how_a_call_ended(callback: Callable[..., Any], outcome: ConsumeOutcome) -> None:
    story: list[Any] = []
    hooks = ConsumeHooks("g", [Told("outer", story), Broken(), Told("inner", story)])
    caller = CallbackCaller(callback, options(timeout_s=0.05 if callback is too_long else 20), None, hooks)
    assert await caller.call([message(1), message(2)]) is (outcome is ConsumeOutcome.SUCCESS)
    caller.close()
    assert story == [
        ("outer", "before", "g", 2),
        ("inner", "before", "g", 2),
        ("inner", "after", outcome),
        ("outer", "after", outcome),
    ]


async def test_a_broken_hook_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caller = CallbackCaller(lambda _messages: None, options(), None, ConsumeHooks("g", [Broken()]))
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            assert await caller.call([message(number)])
    caller.close()
    assert caplog.text.count("a hook failed") == 1


async def test_a_cancelled_call_ends_for_the_hooks_too() -> None:
    story: list[Any] = []
    caller = CallbackCaller(too_long, options(timeout_s=60), None, ConsumeHooks("g", [Told("one", story)]))
    call = asyncio.create_task(caller.call([message(1)]))
    while not story:
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert story[-1] == ("one", "after", ConsumeOutcome.EXCEPTION)
