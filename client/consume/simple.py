"""Consuming by POP: the brokers share messages out, not queues, and each message is acknowledged by itself."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence

from client.consume.filters import check_filters
from client.consume.offsets import refresh_quietly
from client.consume.polled import PolledHooks
from client.consume.popapi import PopApi
from client.consume.popbrokers import PopBrokers
from client.consume.popped import INVISIBLE_S_MAX, WAIT_S_MAX, PoppedMessage
from client.consume.popping import Poller, PopContext, PopWish
from client.consume.popstream import MessageStream, give_back
from client.consume.settling import PopSettler
from client.consume.subscription import ALL, Subscription, subscribe_to
from client.credentials import Credentials
from client.errors import ClientClosed, ConsumeError, raises_client_errors, with_client_errors
from client.hooks import ConsumeHook
from client.instance import ClientInstance
from client.lifecycle import Lifecycle, used_at_home
from client.message import ConsumeFrom, MessageModel
from client.options import count_of, group_of, milliseconds, number_of_seconds
from remoting.bodies.registry import ConsumeDirectlyResult, ConsumerData, ConsumerRunningInfo, MessageQueue
from remoting.message import MessageExt
from runtime.tasks import Tasks
from runtime.tls import ClientTls

# Messages of one receive: what brokers give at most.
RECEIVE_MAX = 32
TOPICS_MAX = 1024
# How long `close` waits for acknowledgements that are on their way, and for messages to be given back.
CLOSE_S = 5.0
INVISIBLE_S_MIN = 0.001


@raises_client_errors
@used_at_home
class SimpleConsumer(Lifecycle):
    """A member of a consumer group that asks for messages: ``receive``, then ``ack()`` each, or ``nak(delay)``.

    A message that is not acknowledged within its invisible time (`invisible` s from when the broker gave it) comes
    again, to any member, `reconsume_times` one higher; one that comes too often is a dead letter of the group. Or
    ``async for message in consumer``: it receives up to `buffer` messages ahead. `wait` is how long a receive waits
    for the first message, `ack_timeout` how long an acknowledgement is tried. `from_where` says where a group begins
    that is new to a topic: LAST_OFFSET or FIRST_OFFSET. With `ordered` a queue gives its next messages, in its order,
    only when all that was taken of it before is acknowledged, or its time is over: then that comes again. `trace`
    (True, or a topic) writes message traces; `hooks` see what the application is handed (client/consume/polled.py).
    `credentials` sign all requests (client/credentials.py).
    """

    noun = "consumer"

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *,
        invisible: float = 30.0,
        wait: float = 15.0,
        ack_timeout: float = 5.0,
        buffer: int = 16,
        ordered: bool = False,
        from_where: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        trace: bool | str = False,
        hooks: Sequence[ConsumeHook] = (),
        tls: bool | ClientTls | None = None,
        credentials: Credentials | None = None,
        instance_name: str | None = None,
        instance: ClientInstance | None = None,
    ) -> None:
        if from_where not in (ConsumeFrom.LAST_OFFSET, ConsumeFrom.FIRST_OFFSET):
            raise ConsumeError(f"from_where is {from_where!r}: POP begins at LAST_OFFSET or FIRST_OFFSET")
        self.group = group_of(group, ConsumeError)
        self.instance = instance or ClientInstance(
            namesrv, instance_name=instance_name, tls=tls, credentials=credentials
        )
        self._invisible_ms = _invisible_ms(invisible)
        self._wait_s = number_of_seconds("wait", wait, 0.0, WAIT_S_MAX)
        self._ack_s = number_of_seconds("ack_timeout", ack_timeout, 0.0, WAIT_S_MAX)
        self._buffer = count_of("buffer", buffer, RECEIVE_MAX)
        if not isinstance(ordered, bool):
            raise ConsumeError(f"ordered is {ordered!r}: it takes True or False")
        self._ordered = ordered
        self._from_where = from_where
        self._hooks = PolledHooks(group, trace, hooks)
        self._subscriptions: dict[str, Subscription] = {}
        self._tasks = Tasks(f"simple consumer {group}")
        # The loops over this consumer, and messages that are being given back.
        self._streams: set[MessageStream] = set()
        self._giving: set[asyncio.Task[None]] = set()
        self._started = False

    def subscribe(self, topic: str, expression: str = ALL, *, sql: str | None = None) -> None:
        """Want a topic's messages: all (``"*"``), of tags (``"TagA || TagB"``), or by properties (``sql="a > 5"``).

        Raises ConsumeError.
        """
        wish = subscribe_to(topic, expression, sql, time.time_ns() // 1_000_000)
        if topic not in self._subscriptions and len(self._subscriptions) >= TOPICS_MAX:
            raise ConsumeError(f"a consumer takes {TOPICS_MAX} topics at most")
        self._subscriptions[topic] = wish
        self._changed()

    def unsubscribe(self, topic: str) -> None:
        """Want a topic's messages no more; those that were received can still be acknowledged."""
        self._subscriptions.pop(topic, None)
        self._changed()

    async def receive(
        self, max_messages: int = RECEIVE_MAX, *, wait: float | None = None, invisible: float | None = None
    ) -> list[PoppedMessage]:
        """Return up to `max_messages`, waiting up to `wait` s for the first of them; [] when none came.

        Topics and brokers are asked in turn, and one answer is returned. Two seconds more may pass while an answer is
        on its way. Raises RouteError or RequestFailed when no broker gave a good answer in this time, RequestRefused
        at once when one refuses for good, ArgumentRefused, ClientClosed. After a cancelled call the next one returns
        what that would have.
        """
        messages = await self._receive(max_messages, wait, invisible)
        self._hooks.handed_out(messages)
        return messages

    @with_client_errors
    async def _receive(
        self, max_messages: int = RECEIVE_MAX, wait: float | None = None, invisible: float | None = None
    ) -> list[PoppedMessage]:
        count = count_of("number of messages", max_messages, RECEIVE_MAX)
        wait_s = self._wait_s if wait is None else number_of_seconds("wait", wait, 0.0, WAIT_S_MAX)
        invisible_ms = self._invisible_ms if invisible is None else _invisible_ms(invisible)
        self._check_started()
        if not self._subscriptions:
            raise ConsumeError("this consumer has no topic: subscribe to one first")
        return await self._poller.receive(PopWish(count, invisible_ms), wait_s)

    def __aiter__(self) -> AsyncGenerator[PoppedMessage]:
        """Return the messages one after the other, until the consumer is closed; each is to be acknowledged.

        Up to `buffer` of them are received ahead; what was not handed out when the loop is left is given back. What
        may pass (a broker that restarts) is logged and waited out; what is refused for good is raised.
        """
        self._check_started()
        stream = MessageStream(
            self._receive,
            self._buffer,
            goes_on=lambda: self._started,
            streams=self._streams,
            left=self._give_back,
            handed_out=self._hooks.handed_out,
        )
        return stream.messages()

    async def _start(self) -> None:
        await self.instance.enter()
        self._undo.push_async_callback(self.instance.leave)
        self._hooks.start(self.instance, self._undo)
        api = PopApi(self.instance.api)
        brokers = PopBrokers(self.instance.routes)
        self._settler = PopSettler(self.group, api, brokers, self._ack_s)
        from_end = self._from_where is ConsumeFrom.LAST_OFFSET
        context = PopContext(self.group, api, brokers, self.instance.routes, self._settler, from_end, self._ordered)
        self._poller = Poller(context, self._subscriptions)
        for topic in list(self._subscriptions):
            await refresh_quietly(self.instance.routes, topic)
        await check_filters(self.instance, self.group, list(self._subscriptions.values()))
        self._undo.push_async_callback(self.instance.remove_consumer, self)
        await self.instance.add_consumer(self)
        self._started = True

    async def _close(self) -> None:
        # What was received for nobody goes back first; acknowledgements that are on their way may end.
        if not self._started:
            return
        self._started = False
        until = time.monotonic() + CLOSE_S
        unreceived = await self._poller.close()
        for stream in list(self._streams):
            unreceived += stream.take_rest()
        self._give_back(unreceived)
        if self._giving:
            await asyncio.wait(list(self._giving), timeout=CLOSE_S / 2)
        await self._tasks.close()
        await self._settler.close(max(0.0, until - time.monotonic()))

    # What the client instance and, through it, brokers ask for (serverrequests.ConsumerMember).

    def consumer_data(self) -> ConsumerData:
        """Return the consumer's part of the heartbeat."""
        return ConsumerData(
            groupName=self.group,
            consumeType="CONSUME_POP",
            messageModel=MessageModel.CLUSTERING.value,
            consumeFromWhere=self._from_where.value,
            subscriptionDataSet=[subscription.data() for subscription in self._subscriptions.values()],
        )

    def topics(self) -> set[str]:
        """Return the subscribed topics."""
        return set(self._subscriptions)

    def rebalance_soon(self) -> None:
        """Do nothing: the brokers share the messages out."""

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Do nothing: the brokers keep how far the group is."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return none: they are the brokers'."""
        del topic
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        """Tell what the consumer is doing."""
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(self.instance.nameservers.addresses),
                "PROP_CONSUME_TYPE": "CONSUME_POP",
            },
            subscriptionSet=[subscription.data() for subscription in self._subscriptions.values()],
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Refuse: messages go to whoever receives."""
        return ConsumeDirectlyResult(consumeResult="CR_LATER", remark=f"{message.msg_id}: this consumer receives")

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosed("this consumer is not started, or was closed")
        self._check_home()

    def _give_back(self, messages: list[PoppedMessage]) -> None:
        if messages:
            giving = self._tasks.spawn(give_back(messages), "give back")
            self._giving.add(giving)
            giving.add_done_callback(self._giving.discard)

    def _changed(self) -> None:
        """Let brokers know of a changed subscription."""
        if self._started:
            self._tasks.spawn(self._tell(), "subscription changed")

    async def _tell(self) -> None:
        for topic in list(self._subscriptions):
            if self.instance.routes.cached(topic) is None:
                await refresh_quietly(self.instance.routes, topic)
        await self.instance.heartbeat()


def _invisible_ms(seconds: float) -> int:
    return milliseconds("invisible time", seconds, INVISIBLE_S_MIN, INVISIBLE_S_MAX)
