"""Gathering traces: what happens to messages at a producer and a consumer becomes records for the dispatcher."""

import time
from collections.abc import Iterable
from contextlib import AsyncExitStack

from client.hooks import ConsumeCall, ConsumeHook, ConsumeHooks, ConsumeOutcome, SendCall
from client.instance import ClientInstance
from client.message import Message, SendResult, SendStatus
from client.trace.dispatcher import TraceDispatcher
from client.trace.records import MessageType, Pub, SubAfter, SubBefore
from remoting.message import MessageExt
from remoting.msgid import UniqKeys
from remoting.properties import PROPERTY_KEYS, PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH

NO_REGION = "DefaultRegion"
TIMER_PREFIX = "TIMER_DE"


class SendTracer:
    """Traces what a producer sends: a Pub for each message that a broker has answered for.

    As in RocketMQ nothing is traced of sends that failed or were one-way, and nothing where the broker does not want it
    (`traceOn=false`). The messages of a batch have a record each, so that each is found by its own id.
    """

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_send(self, sending: SendCall) -> None:
        """Do nothing: when it began is in `sending`."""

    def after_send(self, sending: SendCall) -> None:
        """Trace each message."""
        region = sending.answer.get(PROPERTY_MSG_REGION)
        wanted = sending.answer.get(PROPERTY_TRACE_SWITCH) != "false"
        if sending.results:
            self._dispatcher.heard(sending.results[0].queue.brokerName, wanted=wanted)
        if region is None or not wanted:
            return
        for message, result in zip(sending.messages, sending.results, strict=False):
            if not message.topic.startswith(self._dispatcher.topic):
                self._dispatcher.add(_pub(sending, message, result, region))


class ConsumeTracer:
    """Traces what a consumer is handed: SubBefore and SubAfter for each message of a call."""

    def __init__(self, dispatcher: TraceDispatcher, ids: UniqKeys) -> None:
        """`ids` makes the request ids that join both records of a call."""
        self._dispatcher = dispatcher
        self._ids = ids

    def before_consume(self, consuming: ConsumeCall) -> None:
        """Trace that the call begins."""
        traced = [one for one in consuming.messages if one.properties.get(PROPERTY_TRACE_SWITCH) != "false"]
        began_ms = time.time_ns() // 1_000_000
        request_id = self._ids.next()
        consuming.notes[self] = (request_id, began_ms, traced)
        for message in traced:
            region = message.properties.get(PROPERTY_MSG_REGION) or NO_REGION
            self._dispatcher.add(
                SubBefore(
                    began_ms,
                    region,
                    consuming.group,
                    request_id,
                    message.msg_id,
                    message.reconsume_times,
                    _keys(message),
                )
            )

    def after_consume(self, consuming: ConsumeCall) -> None:
        """Trace how the call ended; the cost is shared by the messages of the call, as RocketMQ has it."""
        noted = consuming.notes.get(self)
        if noted is None or consuming.outcome is None:
            return
        request_id, began_ms, traced = noted
        now_ms = time.time_ns() // 1_000_000
        cost_ms = max(now_ms - began_ms, 0) // max(len(consuming.messages), 1)
        success = consuming.outcome is ConsumeOutcome.SUCCESS
        for message in traced:
            self._dispatcher.add(
                SubAfter(
                    request_id,
                    message.msg_id,
                    cost_ms,
                    success,
                    _keys(message),
                    int(consuming.outcome),
                    now_ms,
                    consuming.group,
                )
            )


def consume_hooks(
    group: str, instance: ClientInstance, hooks: Iterable[ConsumeHook], topic: str | None, undo: AsyncExitStack
) -> ConsumeHooks:
    """Return the hooks of a consumer that starts, in a running loop: its own ones, and with a `topic` what traces.

    `undo` gets what sends the last traces.
    """
    given = [*hooks]
    if topic is not None:
        dispatcher = TraceDispatcher(instance, f"{group}-CONSUME", topic)
        dispatcher.start()
        undo.push_async_callback(dispatcher.close)
        given.append(ConsumeTracer(dispatcher, UniqKeys(instance.ip)))
    return ConsumeHooks(group, given)


def _pub(sending: SendCall, message: Message, result: SendResult, region: str) -> Pub:
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    return Pub(
        time_ms=sending.began_ms,
        region=region,
        group=sending.group,
        topic=message.topic,
        msg_id=result.msg_id,
        tags=message.tags,
        keys=keys or None,
        store_host=sending.address,
        body_length=len(message.body),
        cost_ms=max(sending.ended_ms - sending.began_ms, 0),
        message_type=_type_of(sending, message),
        offset_msg_id=result.offset_msg_id,
        success=result.status is SendStatus.SEND_OK,
    )


def _type_of(sending: SendCall, message: Message) -> MessageType:
    if sending.half:
        return MessageType.HALF
    timed = getattr(message, "delayed", False) or any(name.startswith(TIMER_PREFIX) for name in message.properties)
    return MessageType.DELAY if message.delay_level or timed else MessageType.NORMAL


def _keys(message: MessageExt) -> str | None:
    return message.properties.get(PROPERTY_KEYS)
