"""Reading a topic: which ranges of which queues become Spark's partitions, and a partition as Arrow batches."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from client.consume.subscription import ALL
from pipeline.spark.topic.arrow import PullBodyError, PulledRecords
from pipeline.spark.topic.client import TopicClient, TopicError
from pipeline.spark.topic.options import Bound, TopicOptions
from pipeline.spark.topic.pull import DataLoss, RangePuller
from remoting.bodies.registry import MessageQueue

_log = logging.getLogger(__name__)

# About so many bytes of messages make one Arrow batch: enough to hide its cost, and few to hold in memory.
BATCH_BYTES = 8 * 1024 * 1024
# A tag that is pushed down must be one that a subscription can name.
_NO_TAG = ("|", "*")


class QueueRange(InputPartition):
    """The messages of one queue from `start` up to `end` (exclusive)."""

    def __init__(self, broker: str, queue_id: int, start: int, end: int) -> None:
        super().__init__((broker, queue_id, start, end))
        self.broker = broker
        self.queue_id = queue_id
        self.start = start
        self.end = end

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


def split_ranges(ranges: Iterable[QueueRange], partitions_min: int) -> list[QueueRange]:
    """Return the ranges that are not empty, the long ones cut into about equal parts until there are enough."""
    filled = [one for one in ranges if one.size > 0]
    total = sum(one.size for one in filled)
    if len(filled) >= partitions_min or not total:
        return filled
    parts = []
    for one in filled:
        count = min(max(-(-one.size * partitions_min // total), 1), one.size)
        edges = [one.start + one.size * number // count for number in range(count + 1)]
        parts += [QueueRange(one.broker, one.queue_id, *pair) for pair in itertools.pairwise(edges)]
    return parts


class TopicReader(DataSourceReader):
    """Reads the ranges that the options name as they are when the query is planned."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[QueueRange]:
        """Ask the brokers where the ranges are."""
        options = self._options
        with TopicClient(options) as client:
            queues = client.queues()
            starts = client.resolve(options.start or Bound("earliest"), queues)
            ends = client.resolve(options.end, queues)
        ranges = [QueueRange(queue.brokerName, queue.queueId, starts[queue], ends[queue]) for queue in queues]
        # Spark would read a partition that is not there, were there none.
        return split_ranges(ranges, options.partitions_min) or [QueueRange("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        assert isinstance(partition, QueueRange), f"{partition} is no range of a queue"
        return read_range(self._options, self._schema, partition)


class PushingTopicReader(TopicReader):
    """Takes `tags = 'x'` and `tags IN (...)` out of Spark's filters and has the brokers apply them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return the filters that Spark must still apply."""
        for one in filters:
            tags = _tags_of(one)
            if tags is None or self._options.expression != ALL:
                yield one
            else:
                self._options = replace(self._options, expression=" || ".join(tags))


def _tags_of(one: Filter) -> list[str] | None:
    """Return the tags that a filter lets through, None when it cannot be said as a subscription."""
    if isinstance(one, EqualTo) and one.attribute == ("tags",):
        values: list[Any] = [one.value]
    elif isinstance(one, In) and one.attribute == ("tags",):
        values = list(one.value)
    else:
        return None
    tags = [value for value in values if isinstance(value, str)]
    plain = all(tag and tag == tag.strip() and not any(mark in tag for mark in _NO_TAG) for tag in tags)
    return tags if tags and len(tags) == len(values) and plain else None


def read_range(options: TopicOptions, schema: StructType, part: QueueRange) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range, in order; raises TopicError."""
    if part.size <= 0:
        return
    arrow = to_arrow_schema(schema, timezone="UTC")
    queue = MessageQueue(options.topic, part.broker, part.queue_id)
    constants = {"topic": options.topic, "queueId": part.queue_id, "brokerName": part.broker}
    with TopicClient(options) as client:
        puller = RangePuller(client, queue, part.start, part.end, options.expression)
        try:
            while puller.position < part.end:
                pulled = client.run(puller.pull(BATCH_BYTES))
                if pulled.bodies:
                    yield _batch(options, arrow, constants, part, pulled.start, pulled.next, b"".join(pulled.bodies))
        finally:
            client.run(puller.close())


def _batch(
    options: TopicOptions,
    arrow: pa.Schema,
    constants: dict[str, Any],
    part: QueueRange,
    start: int,
    behind: int,
    data: bytes,
) -> pa.RecordBatch:
    """Decode what was pulled of [start, behind)."""
    where = f"queue {part.queue_id} of topic {options.topic} at broker {part.broker}"
    try:
        records = PulledRecords(data)
    except PullBodyError as error:
        raise TopicError(f"{where}: what the broker sent cannot be read: {error}") from error
    offsets = records.queue_offsets
    wanted = None
    if options.expression != ALL:
        # The last answer may reach behind the range.
        wanted = offsets < part.end
    elif not np.array_equal(offsets, np.arange(start, behind)):
        text = f"{where}: of offsets {start} to {behind - 1} only {len(offsets)} messages came"
        if options.fail_on_data_loss:
            raise DataLoss(f"{text}; set failOnDataLoss to false to go on without the others")
        _log.warning("%s; failOnDataLoss is false: going on", text)
    return records.batch(arrow, wanted, constants, options.tags)
