"""Sending message traces in the background: in batches, from a bounded queue, and never in a send's way.

What finds the queue full is dropped and counted, and so is what no broker takes: a trace tells of messages, it must not
cost any. `close` sends what is left, within a bound.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque

from client.errors import ClientError, RouteError
from client.instance import ClientInstance
from client.message import STATUS_BY_CODE, Message
from client.retry import with_retries
from client.trace.records import TraceRecord, encode_trace, trace_keys
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.errors import InvokeError, ResponseError
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.msgid import UniqKeys
from remoting.topics import AUTO_CREATE_TOPIC, TRACE_TOPIC, check_topic

_log = logging.getLogger(__name__)

# Traces that wait to be sent, as RocketMQ's dispatcher has it: some megabytes at most.
QUEUE_MAX = 2048
# So many are sent without waiting for more; else they wait for up to FLUSH_S.
BATCH = 10
FLUSH_S = 5.0
# What one trace message holds at most: records, bytes of its body, and characters of its keys (the broker takes 32,767
# bytes of properties).
RECORDS_MAX = 100
BODY_BYTES_MAX = 118_000
KEYS_LENGTH_MAX = 8_000
# A trace message is tried so often, within so many seconds.
ATTEMPTS = 3
SEND_S = 5.0
# How long `close` sends what is left.
CLOSE_S = 3.0
# Brokers remembered that want no traces; a cluster has far fewer.
UNWANTED_MAX = 4096
# Queues of a trace topic that a send creates, where brokers allow it.
DEFAULT_QUEUES = 4


class TraceDispatcher:
    """The traces of one producer or consumer on their way. `dropped` counts those that nobody will see."""

    def __init__(self, instance: ClientInstance, group: str, topic: str = TRACE_TOPIC) -> None:
        """`group` stands for whoever is traced, in the name under which the traces are sent."""
        self.topic = topic
        self.dropped = 0
        self.sent = 0
        self._instance = instance
        self._group = f"_INNER_TRACE_PRODUCER-{group}"
        self._waiting: deque[TraceRecord] = deque()
        self._unwanted: set[str] = set()
        self._enough = asyncio.Event()
        self._turn = itertools.count()
        self._closing = self._told = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send, now that a loop runs and the instance is entered."""
        self._keys = UniqKeys(self._instance.ip)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"traces of {self._group}")

    def add(self, record: TraceRecord) -> None:
        """Take a trace to send; without room, or after the close, it is dropped and counted."""
        if self._task is None or self._closing or len(self._waiting) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._waiting.append(record)
        if len(self._waiting) >= BATCH:
            self._enough.set()

    def heard(self, broker: str, *, wanted: bool) -> None:
        """Note what a broker's answer to a send said: whether it wants traces (`traceOn`)."""
        if wanted:
            self._unwanted.discard(broker)
        elif len(self._unwanted) < UNWANTED_MAX:
            self._unwanted.add(broker)

    def wanted_by(self, broker: str) -> bool:
        """Tell whether a broker wants traces, by its last answer to a send; other answers do not say it."""
        return broker not in self._unwanted

    async def close(self, grace_s: float = CLOSE_S) -> None:
        """Send what waits, for up to `grace_s`; what is left then is dropped."""
        if self._task is None:
            return
        self._closing = True
        self._enough.set()
        await asyncio.wait([self._task], timeout=grace_s)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self.dropped += len(self._waiting)
        self._waiting.clear()
        if self.dropped:
            _log.warning("%s: %d message traces were dropped, %d sent", self._group, self.dropped, self.sent)

    async def _run(self) -> None:
        while not (self._closing and not self._waiting):
            if len(self._waiting) < BATCH and not self._closing:
                self._enough.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_S):
                        await self._enough.wait()
            if self._waiting:
                await self._send_some()

    async def _send_some(self) -> None:
        records, message = self._next()
        try:
            await self._deliver(message)
        except asyncio.CancelledError:
            self.dropped += len(records)
            raise
        except Exception as error:
            self.dropped += len(records)
            if not self._told:
                self._told = True
                _log.warning("%s: traces cannot be sent to topic %s: %s", self._group, self.topic, error)
        else:
            self._told = False
            self.sent += len(records)

    def _next(self) -> tuple[list[TraceRecord], Message]:
        """Take as many traces as one message holds."""
        records: list[TraceRecord] = []
        keys: dict[str, None] = {}
        body = b""
        length = 0
        while self._waiting and len(records) < RECORDS_MAX:
            record = self._waiting[0]
            text = encode_trace(record).encode("utf-8", "replace")
            new = [key for key in trace_keys(record) if key not in keys]
            longer = sum(len(key) + 1 for key in new)
            if records and (len(body) + len(text) > BODY_BYTES_MAX or length + longer > KEYS_LENGTH_MAX):
                break
            if longer > KEYS_LENGTH_MAX:
                # By its id it is found all the same.
                new, longer = [record.msg_id], len(record.msg_id) + 1
            self._waiting.popleft()
            records.append(record)
            keys.update(dict.fromkeys(new))
            body += text
            length += longer
        return records, Message(self.topic, body, keys=" ".join(keys))

    async def _deliver(self, message: Message) -> None:
        properties = message.properties_text(self._keys.next())
        deadline = time.monotonic() + SEND_S

        async def attempt() -> None:
            route = await self._instance.routes.find_for_send(message.topic, DEFAULT_QUEUES)
            queue = route.write_queues[next(self._turn) % len(route.write_queues)]
            address = route.for_writing(queue.brokerName)
            if address is None:
                raise RouteError(f"broker {queue.brokerName} is in no route now", retriable=True)
            header = SendMessageRequestHeaderV2(
                producerGroup=self._group,
                topic=message.topic,
                defaultTopic=AUTO_CREATE_TOPIC,
                defaultTopicQueueNums=DEFAULT_QUEUES,
                queueId=queue.queueId,
                sysFlag=0,
                bornTimestamp=time.time_ns() // 1_000_000,
                flag=0,
                properties=properties,
                reconsumeTimes=0,
                unitMode=False,
                batch=False,
                bname=queue.brokerName,
            )
            request = Command.request(RequestCode.SEND_MESSAGE_V2, header, message.body)
            try:
                answer = await self._instance.remoting.invoke(address, request, max(deadline - time.monotonic(), 0.1))
                if answer.code not in STATUS_BY_CODE:
                    raise ResponseError(answer.code, answer.remark, address)
            except InvokeError:
                await self._instance.routes.refresh(message.topic)
                raise

        await with_retries(attempt, attempts=ATTEMPTS, deadline=deadline)


def trace_topic(trace: bool | str) -> str | None:
    """Return the topic that the option `trace` means: RocketMQ's for True, else its name; None for no traces.

    Raises ClientError for what is no topic.
    """
    if trace is True:
        return TRACE_TOPIC
    if trace is False:
        return None
    wrong = (
        check_topic(trace) if isinstance(trace, str) else f"the option trace is {trace!r}: it takes a bool or a topic"
    )
    if wrong is not None:
        raise ClientError(wrong)
    return trace
