"""Recalling timer messages: one that is not delivered yet never will be."""

import asyncio
import contextlib
import time

from client.errors import MessageRefused, RouteError, as_client_error
from client.instance import ClientInstance
from client.lifecycle import Lifecycle
from client.produce.arguments import seconds
from client.produce.extras import SendExtras
from client.retry import retriable, with_retries
from client.timers import TimerHandle, read_handle
from client.trace.ends import recalled
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import InvokeError, RemotingError, ResponseError
from remoting.headers.registry import RecallMessageRequestHeader, RecallMessageResponseHeader
from remoting.topics import DLQ_PREFIX, RETRY_PREFIX, check_topic

# Of the time of a recall, so much at most is for finding out who leads now.
ROUTE_S_MAX = 0.2
# Recalls are off; the broker does not know the topic.
_FINAL = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})


class RecallingClient(Lifecycle):
    """A client that can recall timer messages, whoever has sent them. Repeating a recall does no harm."""

    group: str
    instance: ClientInstance
    _timeout: float
    _attempts: int
    _extras: SendExtras

    async def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Recall a timer message by the `recall_handle` of its send; returns its id.

        A broker refuses it (RequestRefused) for a message that is due within moments, or that it does not keep, and
        where recalls are switched off. Raises MessageRefused for what is no handle of the topic's, RouteError,
        RequestFailed (`sent`: it may have been recalled all the same).
        """
        self._check_home()
        bound = seconds(timeout, self._timeout)
        named = _checked(topic, handle)
        header = RecallMessageRequestHeader(
            producerGroup=self.group, topic=topic, recallHandle=handle, bname=named.broker
        )
        deadline = time.monotonic() + bound
        attempts = 0
        failed: InvokeError | None = None

        async def attempt() -> str:
            nonlocal attempts, failed
            attempts += 1
            address = await self._keeper(named, failed, deadline)
            left = max(deadline - time.monotonic(), 0.001)
            # Who hangs must leave time for another attempt, if there may be one.
            timeout = left if attempts >= self._attempts else left / 2
            try:
                answer = await self.instance.remoting.call(address, RequestCode.RECALL_MESSAGE, header, timeout=timeout)
            except InvokeError as error:
                failed = error
                raise
            return answer.header(RecallMessageResponseHeader).msgId

        done = False
        try:
            msg_id = await with_retries(attempt, attempts=self._attempts, deadline=deadline, again=_again)
            done = True
        except RemotingError as error:
            raise as_client_error(error) from error
        finally:
            if (trace := self._extras.trace) is not None and trace.wanted_by(named.broker):
                trace.add(recalled(self.group, topic, named.msg_id, success=done))
        return msg_id

    async def _keeper(self, named: TimerHandle, failed: InvokeError | None, deadline: float) -> str:
        """Return the address of the broker that keeps the message."""
        routes = self.instance.routes
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                if failed is not None:
                    with contextlib.suppress(RouteError, TimeoutError):
                        async with asyncio.timeout(ROUTE_S_MAX):
                            await routes.refresh(named.topic)
                route = await routes.find(named.topic)
        except TimeoutError:
            raise RouteError(
                f"no NameServer answered in time for topic {named.topic}: check that one runs at "
                f"{self.instance.nameservers.describe()}",
                retriable=True,
            ) from None
        address = route.master(named.broker)
        if address is None:
            raise RouteError(
                f"broker {named.broker}, which keeps message {named.msg_id}, is in no route of topic {named.topic} now",
                retriable=True,
            )
        return address


def _again(error: BaseException) -> bool:
    """Tell whether another attempt may go better: what the broker that keeps the message refuses, it refuses again."""
    if isinstance(error, ResponseError):
        # Who is a slave now knows of no refusal of its master's.
        return error.code == ResponseCode.SLAVE_NOT_AVAILABLE or (error.retriable and error.code not in _FINAL)
    return retriable(error)


def _checked(topic: object, handle: object) -> TimerHandle:
    if not isinstance(topic, str):
        raise MessageRefused(f"the topic is {topic!r}: it takes a str")
    wrong = check_topic(topic)
    if wrong is not None:
        raise MessageRefused(wrong)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise MessageRefused(f"nothing of topic {topic} can be recalled: no timer message goes there")
    named = read_handle(handle)
    if named.topic != topic:
        raise MessageRefused(f"the recall handle is of a message of topic {named.topic}, not of {topic}")
    return named
