"""What hooks, traces and spans are told of messages that the application polls.

Both calls follow one another when the messages are handed out: how the application fares with them nobody tells, so
they count as consumed (SUCCESS), as in RocketMQ's lite pull consumer.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from client.hooks import ConsumeHook, ConsumeHooks, ConsumeOutcome
from client.instance import ClientInstance
from client.telemetry import RECEIVE, telemetry_hooks
from client.trace.dispatcher import trace_topic
from client.trace.hooks import consume_hooks


class PolledHooks:
    """The hooks of one polling consumer."""

    def __init__(self, group: str, trace: bool | str, hooks: Sequence[ConsumeHook]) -> None:
        """Take the options as the consumer was given them; raises ClientError for what is none."""
        self._group = group
        self._given = tuple(hooks)
        self._topic = trace_topic(trace)
        self._hooks = ConsumeHooks(group)

    def start(self, instance: ClientInstance, undo: AsyncExitStack) -> None:
        """Begin, now that the instance is entered."""
        hooks = [*telemetry_hooks(RECEIVE), *self._given]
        self._hooks = consume_hooks(self._group, instance, hooks, self._topic, undo)

    def handed_out(self, messages: Sequence[Any]) -> None:
        """Tell of messages that the application is about to get."""
        if messages:
            self._hooks.end(self._hooks.begin(list(messages)), ConsumeOutcome.SUCCESS)
