"""Hooks: what is called before and after each send and each call of a consumer's callback.

They run in the event loop, between two steps of the client, so they must neither wait nor work long. What a hook raises
is logged and changes nothing for the message.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from client.message import Message, SendResult
from remoting.message import MessageExt

_log = logging.getLogger(__name__)

H = TypeVar("H")


@dataclass(slots=True, eq=False)
class SendCall:
    """A send as hooks see it: one message, or those of a batch that the application made.

    What `before_send` puts into `properties` goes out with each message. After the send there are either `results`
    (one per message, none of a one-way send) or an `error`. `notes` is where a hook keeps something in between, under
    a key of its own. Times in milliseconds since the epoch.
    """

    group: str
    messages: tuple[Message, ...]
    began_ms: int
    # Known after the send: it was a half message of a transaction, or nobody has answered it.
    half: bool = False
    oneway: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    ended_ms: int = 0
    results: tuple[SendResult, ...] = ()
    error: BaseException | None = None
    # The broker that answered, and what its answer carried beside the result (MSG_REGION, TRACE_ON).
    address: str = ""
    answer: Mapping[str, str] = field(default_factory=dict)
    notes: dict[object, Any] = field(default_factory=dict)


class SendHook(Protocol):
    """What a Producer's `hooks` are made of."""

    def before_send(self, sending: SendCall) -> None:
        """Look at a send that is about to begin; its properties may be added to."""
        ...

    def after_send(self, sending: SendCall) -> None:
        """Look at how a send ended, retries included."""
        ...


class ConsumeOutcome(IntEnum):
    """How a call of a consumer's callback ended; the numbers are those of RocketMQ's ConsumeReturnType."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(slots=True, eq=False)
class ConsumeCall:
    """A call of a consumer's callback as hooks see it; `outcome` is there after it."""

    group: str
    messages: list[MessageExt]
    outcome: ConsumeOutcome | None = None
    notes: dict[object, Any] = field(default_factory=dict)


class ConsumeHook(Protocol):
    """What a PushConsumer's `hooks` are made of. Both are called in the task that calls the callback."""

    def before_consume(self, consuming: ConsumeCall) -> None:
        """Look at messages that are about to be consumed."""
        ...

    def after_consume(self, consuming: ConsumeCall) -> None:
        """Look at how consuming them ended."""
        ...


class HookFaults:
    """Calls hooks one after the other, and says once of each that it fails."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def call(self, hooks: Iterable[H], act: Callable[[H], None]) -> None:
        """Call each hook by `act`; what it raises goes to the log."""
        for hook in hooks:
            try:
                act(hook)
            except Exception:
                if id(hook) not in self._told:
                    self._told.add(id(hook))
                    _log.exception("a hook failed: %r; further failures of it are not told", hook)


class ConsumeHooks:
    """The hooks of one consumer."""

    def __init__(self, group: str, hooks: Iterable[ConsumeHook] = ()) -> None:
        self._group = group
        self._hooks = tuple(hooks)
        self._faults = HookFaults()

    def begin(self, messages: list[MessageExt]) -> ConsumeCall | None:
        """Tell of messages that are about to be consumed; None when nobody wants to know."""
        if not self._hooks:
            return None
        consuming = ConsumeCall(self._group, messages)
        self._faults.call(self._hooks, lambda hook: hook.before_consume(consuming))
        return consuming

    def end(self, consuming: ConsumeCall | None, outcome: ConsumeOutcome) -> None:
        """Tell how it ended; the hooks are called the other way round."""
        if consuming is not None:
            consuming.outcome = outcome
            self._faults.call(reversed(self._hooks), lambda hook: hook.after_consume(consuming))
