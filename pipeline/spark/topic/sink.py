"""Writing to a topic: every row is a message, at least once.

A task sends its rows in batches and ends when a broker has acknowledged all of them. What a failed task has sent stays
in the topic, and the task that repeats it sends it again: so each message carries, as the property `dedupKey`, which
row of which write it is (``write/epoch/partition/row``), and its copies carry the same.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from client.errors import MessageRefused, SendFailed
from client.message import BATCH_ENTRY_BYTES, RESERVED_PROPERTIES, Message
from client.produce.producer import Producer
from client.retry import retriable, with_retries
from pipeline.spark.topic.client import TopicClient, TopicError
from pipeline.spark.topic.options import COLUMNS, OptionError, TopicOptions
from remoting.bodies.registry import MessageQueue
from remoting.codes import ResponseCode
from remoting.errors import ResponseError
from remoting.javahash import java_hash

_log = logging.getLogger(__name__)

# One batch on the wire: far below the 4 MiB that a broker takes.
BATCH_MESSAGES = 256
BATCH_BYTES = 512 * 1024
# One attempt of the producer, with its own repetitions; what fails is begun anew until the retry time is over.
SEND_S = 10.0
_ATTEMPTS_MAX = 1_000_000
_BYTES_A_CHARACTER = 4

_TEXT = (StringType(),)
_KINDS: Mapping[str, Sequence[DataType]] = {
    "body": (BinaryType(), StringType()),
    "keys": _TEXT,
    "tags": _TEXT,
    "properties": (MapType(StringType(), StringType()), MapType(StringType(), StringType(), False)),
}
# Set by MicroBatchExecution for the tasks of a query.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What one task has sent."""

    messages: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch. One is made for a write, and copied to its tasks."""

    def __init__(self, options: TopicOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(schema, overwrite=overwrite)
        self._options = options
        self._write = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send one task's rows."""
        partition = _context().partitionId()
        return send_rows(self._options, iterator, f"{self._write}/0/{partition}", partition)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing but say so: every message was acknowledged already."""
        _log.info("%d messages were written to topic %s", _total(messages), self._options.topic)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say what a failed write leaves behind."""
        _abandoned(self._options, messages)


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, options: TopicOptions, schema: StructType, *, overwrite: bool) -> None:
        _check(schema, overwrite=overwrite)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send one task's rows of a micro-batch."""
        context = _context()
        query, epoch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or epoch is None:
            raise TopicError("this task belongs to no micro-batch: its messages could not be told from their copies")
        partition = context.partitionId()
        return send_rows(self._options, iterator, f"{self._options.write_id or query}/{epoch}/{partition}", partition)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing but say so: every message was acknowledged already."""
        _log.info("batch %d: %d messages were written to topic %s", batchId, _total(messages), self._options.topic)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Say what a failed micro-batch leaves behind."""
        _log.warning("batch %d failed", batchId)
        _abandoned(self._options, messages)


def send_rows(options: TopicOptions, batches: Iterable[pa.RecordBatch], mark: str, first: int) -> Sent:
    """Send all rows and wait for their acknowledgements; raises TopicError with the broker's words.

    `mark` begins the dedup property of each; `first` chooses the queue that rows without keys begin with.
    """
    sent = 0
    with TopicClient(options) as client:
        producer = Producer(options.group, send_timeout=min(SEND_S, options.retry_s), instance=client.instance)
        client.run(producer.start())
        try:
            spread = _Spread(client.run(client.patiently(partial(producer.queues, options.topic))), first)
            for batch in batches:
                messages = list(messages_of(options, batch, mark, sent))
                client.run(_send_all(producer, spread.assign(messages), options.retry_s))
                sent += len(messages)
        finally:
            client.run(producer.close())
    return Sent(sent)


def messages_of(options: TopicOptions, batch: pa.RecordBatch, mark: str, row: int) -> Iterator[Message]:
    """Yield the messages of a batch whose first row has the number `row`; raises TopicError."""
    columns = {name: batch.column(name).to_pylist() for name in _KINDS if name in batch.schema.names}
    empty: list[Any] = [None] * batch.num_rows
    of = [columns.get(name, empty) for name in ("body", "keys", "tags", "properties")]
    for number, (body, keys, tags, pairs) in enumerate(zip(*of, strict=True), row):
        if not body:
            raise TopicError(f"topic {options.topic}: row {mark}/{number} has no body: RocketMQ takes no empty message")
        # Names of RocketMQ's own come along when a topic is copied; they are set anew.
        properties = {key: value for key, value in pairs or () if value is not None and key not in RESERVED_PROPERTIES}
        if options.dedup_key:
            properties[options.dedup_key] = f"{mark}/{number}"
        data = body.encode() if isinstance(body, str) else body
        yield Message(options.topic, data, tags=tags or None, keys=keys or (), properties=properties)


class _Spread:
    """Which queue a message goes to: by its keys, so that equal ones stay in order; without any in turns."""

    def __init__(self, queues: Sequence[MessageQueue], first: int) -> None:
        self._queues = sorted(queues)
        self._turn = first

    def assign(self, messages: Iterable[Message]) -> dict[MessageQueue, list[list[Message]]]:
        """Return the batches for each queue, in order."""
        filling: dict[int, tuple[list[Message], int]] = {}
        done: dict[MessageQueue, list[list[Message]]] = {}
        count = len(self._queues)
        for message in messages:
            at = java_hash(str(message.keys)) % count if message.keys else self._turn % count
            batch, size = filling.get(at, ([], 0))
            taken = _size(message)
            if batch and (len(batch) >= BATCH_MESSAGES or size + taken > BATCH_BYTES):
                done.setdefault(self._queues[at], []).append(batch)
                batch, size = [], 0
                if not message.keys:
                    self._turn += 1
            batch.append(message)
            filling[at] = (batch, size + taken)
        for at, (batch, _) in filling.items():
            done.setdefault(self._queues[at], []).append(batch)
        self._turn += 1
        return done


def _size(message: Message) -> int:
    """Return about how many bytes a message takes in a batch, rather more than less."""
    text = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    text += len(message.keys) + len(message.tags or "")
    return len(message.body) + BATCH_ENTRY_BYTES + text * _BYTES_A_CHARACTER


async def _send_all(producer: Producer, batches: Mapping[MessageQueue, list[list[Message]]], retry_s: float) -> None:
    """Send to all queues at a time, to each its batches in order; raises the first error when all ended."""

    async def one(queue: MessageQueue, of: list[list[Message]]) -> None:
        for batch in of:
            message = batch if len(batch) > 1 else batch[0]

            async def attempt(message: Message | list[Message] = message) -> None:
                await producer.send(message, queue=queue)

            deadline = time.monotonic() + retry_s
            await with_retries(attempt, attempts=_ATTEMPTS_MAX, deadline=deadline, again=_again)

    ends = await asyncio.gather(*(one(queue, of) for queue, of in batches.items()), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end


def _again(error: BaseException) -> bool:
    """Tell whether to send a batch once more: whoever reads drops the copies that this may make."""
    cause = error.__cause__ if isinstance(error, SendFailed) else error
    refused = isinstance(cause, ResponseError) and cause.code == ResponseCode.NO_PERMISSION
    return cause is not None and not isinstance(cause, MessageRefused) and retriable(cause) and not refused


def _check(schema: StructType, *, overwrite: bool) -> None:
    """Raise OptionError when rows of this schema cannot be messages."""
    takes = "body (binary or string), and may have keys, tags (string) and properties (map<string,string>)"
    if overwrite:
        raise OptionError('messages of a topic cannot be overwritten: use mode("append")')
    if "body" not in schema.names:
        raise OptionError(f"a row that becomes a message has the column {takes}; these have {', '.join(schema.names)}")
    for column in schema:
        # What the source has and a sender does not decide is passed over, so that a topic can be copied.
        if column.name not in COLUMNS or column.dataType not in _KINDS.get(column.name, (column.dataType,)):
            kind = column.dataType.simpleString()
            raise OptionError(f"a message has no {column.name} of type {kind}: a row has the column {takes}")


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise TopicError("messages are written by Spark's tasks only")
    return context


def _total(messages: Iterable[WriterCommitMessage | None]) -> int:
    return sum(message.messages for message in messages if isinstance(message, Sent))


def _abandoned(options: TopicOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    _log.warning(
        "a write to topic %s failed; at least %d of its messages are there, and stay: property %s tells their copies",
        options.topic,
        _total(messages),
        options.dedup_key or "(none: dedupKey is empty)",
    )
