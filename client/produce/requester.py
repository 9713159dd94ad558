"""Asking: a message is sent, and the reply of whoever consumed it awaited."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from client.errors import MessageRefused, RequestTimedOut, SendFailed
from client.instance import ClientInstance
from client.lifecycle import Lifecycle
from client.message import INT32_MAX, Message, SendResult, check_message
from client.produce.arguments import seconds
from client.produce.outgoing import Selector
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from remoting.properties import PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT, PROPERTY_TTL

# A request is never longer under way: what waits in the table, waits for somebody.
REQUEST_S_MAX = 24 * 3600.0
# A send that fails says at its deadline, or a moment later, whether somebody may have the message: that is waited for.
VERDICT_S = 0.25


class Requester(Lifecycle):
    """The part of a producer that asks."""

    instance: ClientInstance
    _timeout: float
    _default_queues: int

    @abstractmethod
    async def send(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message."""

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> MessageExt:
        """Send a message and return the reply of whoever consumed it (see `reply_to`).

        `timeout` (s) bounds both together; without one it is the producer's `send_timeout`. Raises RequestTimedOut
        when no reply came in time, SendBacklogFull when too many requests wait, and what `send` raises.
        """
        bound = seconds(timeout, self._timeout)
        self._check_home()
        if not isinstance(message, Message):
            raise MessageRefused(f"{type(message).__name__} cannot be a request: it takes one Message")
        if not 0 < bound <= REQUEST_S_MAX:
            raise MessageRefused(f"the timeout is {bound!r}: a request waits more than 0 and up to {REQUEST_S_MAX:g} s")
        check_message(message, INT32_MAX)
        replies = self.instance.replies
        number, reply = replies.expect(self)
        properties = {
            PROPERTY_CORRELATION_ID: number,
            PROPERTY_REPLY_TO_CLIENT: self.instance.client_id,
            PROPERTY_TTL: str(max(int(bound * 1000), 1)),
        }
        asked = replace(message, properties={**message.properties, **properties})
        deadline = asyncio.get_running_loop().time() + bound
        asking = _Asking(self, asked, reply, deadline, self._default_queues)
        try:
            return await asking.done(queue=queue, selector=selector, arg=arg)
        except TimeoutError as error:
            raise asking.timed_out(bound) from error
        finally:
            replies.forget(number)

    async def close(self) -> None:
        """Give up the requests that wait for a reply, and end as every client does; see Lifecycle."""
        if self._starting is not None:
            self._check_home()
            self.instance.replies.close(self)
        await super().close()


class _Asking:
    """One request on its way."""

    def __init__(
        self,
        by: Requester,
        message: Message,
        reply: asyncio.Future[MessageExt],
        deadline: float,
        default_queues: int,
    ) -> None:
        self._by = by
        self._default_queues = default_queues
        self._message = message
        self._reply = reply
        self._deadline = deadline
        self._sent: SendResult | None = None
        # Whether somebody may have the request, and what the attempts to send it ended with.
        self._may_be_sent = False
        self._failed: SendFailed | None = None

    async def done(self, **choice: Any) -> MessageExt:
        """Send, and return the reply; TimeoutError at the deadline."""
        async with asyncio.timeout_at(self._deadline):
            await self._by.instance.introduce(self._message.topic, self._default_queues)
        left = max(self._deadline - asyncio.get_running_loop().time(), 0.001)
        self._may_be_sent = True
        sending = asyncio.ensure_future(self._by.send(self._message, timeout=left, **choice))
        try:
            async with asyncio.timeout_at(self._deadline + VERDICT_S):
                # The reply may come before the acknowledgement.
                await asyncio.wait((sending, self._reply), return_when=asyncio.FIRST_COMPLETED)
            if not self._reply.done():
                self._note(sending)
            async with asyncio.timeout_at(self._deadline):
                return await self._reply
        finally:
            sending.add_done_callback(_ended)
            sending.cancel()

    def timed_out(self, bound: float) -> RequestTimedOut:
        """Return what is raised when no reply came."""
        if self._sent is not None:
            fate = f"it was stored ({self._sent.msg_id}), and whoever consumes it may answer too late"
        elif self._may_be_sent:
            fate = f"it may have been stored: {self._failed or 'no broker has acknowledged it'}"
        else:
            fate = "it was not sent: the brokers could not be reached"
        text = f"no reply to the request to topic {self._message.topic} came within {bound:g} s; {fate}"
        return RequestTimedOut(text, sent=self._may_be_sent)

    def _note(self, sending: asyncio.Task[SendResult]) -> None:
        """Take note how the sending ended; raises what it was, unless somebody may have the request all the same."""
        try:
            self._sent = sending.result()
        except SendFailed as error:
            if not error.sent:
                raise
            self._failed = error


def _ended(sending: asyncio.Task[SendResult]) -> None:
    """Take note of the end of a sending that nobody waits for any more."""
    if not sending.cancelled():
        sending.exception()
