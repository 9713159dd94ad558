"""Calling the hooks of a producer around each send, and the batches whose messages had their hooks called before."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from client.hooks import HookFaults, SendCall, SendHook
from client.message import Message, SendResult
from client.produce.outgoing import Outgoing


class Gathered(list[Message]):
    """Messages that were sent one by one and go out together; `sendings` are what their hooks know of each."""

    def __init__(self, messages: Iterable[Message], sendings: Iterable[SendCall] = ()) -> None:
        super().__init__(messages)
        self.sendings = tuple(sendings)


class SendHooks:
    """The hooks of one producer; without any, sends pass by."""

    def __init__(self, group: str, hooks: Iterable[SendHook] = ()) -> None:
        self._group = group
        self._hooks = tuple(hooks)
        self._faults = HookFaults()

    def begin(self, message: Any) -> tuple[Any, tuple[SendCall, ...]]:
        """Call the hooks before a send of a Message or a sequence of them.

        Returns what to send, and what is to be handed to `end`. Of what was gathered the hooks were called before; if
        it is one message alone, it goes as such.
        """
        if isinstance(message, Gathered):
            return message[0] if len(message) == 1 else message, message.sendings
        if not self._hooks:
            return message, ()
        messages = (message,) if isinstance(message, Message) else tuple(message)
        sending = SendCall(self._group, messages, time.time_ns() // 1_000_000)
        self._faults.call(self._hooks, lambda hook: hook.before_send(sending))
        if sending.properties:
            # The application's own messages stay as they are: it may send them again.
            sending.messages = tuple(
                replace(one, properties={**one.properties, **sending.properties}) for one in messages
            )
            message = sending.messages[0] if isinstance(message, Message) else list(sending.messages)
        return message, (sending,)

    def end(
        self,
        sendings: Sequence[SendCall],
        result: SendResult | None = None,
        error: BaseException | None = None,
        *,
        address: str = "",
        answer: Mapping[str, str] | None = None,
    ) -> None:
        """Call the hooks after a send, the last first; nothing happens to sends that were ended before."""
        if not sendings:
            return
        results = split_result(result, sum(len(one.messages) for one in sendings)) if result is not None else []
        now_ms = time.time_ns() // 1_000_000
        start = 0
        for sending in sendings:
            end = start + len(sending.messages)
            if not sending.ended_ms:
                sending.ended_ms, sending.error, sending.address = now_ms, error, address
                sending.results = tuple(results[start:end])
                sending.answer = answer or {}
                self._tell(sending)
            start = end

    def ended(self, out: Outgoing, result: SendResult | None = None, error: BaseException | None = None) -> None:
        """Call the hooks after a send that had been packed."""
        if out.sendings:
            for sending in out.sendings:
                sending.half = out.half
            self.end(out.sendings, result, error, address=out.address, answer=out.answer)

    @contextmanager
    def around(self, out: Outgoing) -> Iterator[None]:
        """Call the hooks after a one-way send."""
        for sending in out.sendings:
            sending.oneway = True
        try:
            yield
        except BaseException as error:
            self.ended(out, error=error)
            raise
        self.ended(out)

    def _tell(self, sending: SendCall) -> None:
        self._faults.call(reversed(self._hooks), lambda hook: hook.after_send(sending))


def split_result(result: SendResult, count: int) -> list[SendResult]:
    """Return a result for each message of a batch: its own ids, and its own place in the queue.

    A broker that names one place for all (a batch ConsumeQueue) has stored them at one offset.
    """
    ids = result.msg_id.split(",")
    places = result.offset_msg_id.split(",")
    if count == 1 or len(ids) != count:
        return [result] * count
    each = len(places) == count
    return [
        replace(
            result,
            msg_id=msg_id,
            offset_msg_id=places[number] if each else result.offset_msg_id,
            queue_offset=result.queue_offset + (number if each else 0),
        )
        for number, msg_id in enumerate(ids)
    ]
