"""A topic as a stream: offsets are JSON per broker and queue, {"broker-a": {"0": 12}}, of the next message to read.

The reader keeps nothing between calls but what Trigger.AvailableNow asks for: Spark's checkpoint has the offsets. A
queue that appears while the query runs is read from its first message: one micro-batch ends where it begins, so that
its beginning is in the checkpoint as well, and the next one reads it. A queue that is in no route for a while keeps
its offset.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.spark.topic.batch import QueueRange, read_range, split_ranges
from pipeline.spark.topic.client import TopicClient, TopicError
from pipeline.spark.topic.options import Bound, TopicOptions
from remoting.bodies.registry import MessageQueue

Offsets = dict[str, dict[str, int]]
# (broker name, queue id) → offset.
Table = dict[tuple[str, int], int]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Table | None = None

    def initialOffset(self) -> Offsets:
        """Return where a query without a checkpoint begins: by default behind the last message of each queue."""
        with TopicClient(self._options) as client:
            return written(_table(client.resolve(self._options.start or Bound("latest"), client.queues())))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that maxOffsetsPerTrigger sets."""
        most = self._options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where the topic ends now: the query ends there."""
        with TopicClient(self._options) as client:
            self._target = self._ends(client)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next micro-batch ends."""
        begun = read(start)
        with TopicClient(self._options) as client:
            ends = self._ends(client) if self._target is None else dict(self._target)
            new = [MessageQueue(self._options.topic, *queue) for queue in sorted(ends.keys() - begun.keys())]
            begins = _table(dict(zip(new, client.earliest(new), strict=True)))
        self._check(begun, ends)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return written(limited(begun, ends, most) | begins)

    def reportLatestOffset(self) -> Offsets:
        """Return where the topic ends, for the progress that the query reports."""
        with TopicClient(self._options) as client:
            return written(self._ends(client))

    def partitions(self, start: Offsets, end: Offsets) -> list[QueueRange]:
        """Return the ranges of a micro-batch; the same ones when it is repeated after a restart."""
        begun = read(start)
        ranges = [QueueRange(*queue, begun.get(queue, offset), offset) for queue, offset in sorted(read(end).items())]
        return split_ranges(ranges, self._options.partitions_min)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range."""
        assert isinstance(partition, QueueRange), f"{partition} is no range of a queue"
        return read_range(self._options, self._schema, partition)

    def commit(self, end: Offsets) -> None:
        """Do nothing: the offsets are in Spark's checkpoint, and no group of the broker's moves."""

    def stop(self) -> None:
        """Nothing is left open between calls."""

    def _ends(self, client: TopicClient) -> Table:
        queues = client.queues()
        return _table(dict(zip(queues, client.latest(queues), strict=True)))

    def _check(self, begun: Table, ends: Table) -> None:
        """Refuse a checkpoint that is ahead of its queue, when losing messages is not allowed."""
        if not self._options.fail_on_data_loss:
            return
        for (broker, queue_id), offset in begun.items():
            end = ends.get((broker, queue_id), offset)
            if end < offset and self._target is None:
                raise TopicError(
                    f"queue {queue_id} of topic {self._options.topic} at broker {broker} ends at {end}, but the query "
                    f"has read it up to {offset}: the topic was deleted and made anew, or its broker lost its store. "
                    "Start the query with a new checkpoint, or set failOnDataLoss to false to wait for new messages"
                )


def read(offsets: Offsets) -> Table:
    """Return the offsets of Spark's JSON."""
    return {(broker, int(number)): offset for broker, queues in offsets.items() for number, offset in queues.items()}


def written(table: Table) -> Offsets:
    """Return offsets as Spark keeps them as JSON: sorted, so that equal ones are equal texts."""
    found: Offsets = {}
    for (broker, number), offset in sorted(table.items()):
        found.setdefault(broker, {})[str(number)] = offset
    return found


def limited(begun: Table, ends: Table, most: int | None) -> Table:
    """Return where a micro-batch ends that takes `most` messages at most, of each queue its share of what is new.

    Of the queues that have begun; none of them goes back or is forgotten.
    """
    new = {queue: max(ends.get(queue, offset) - offset, 0) for queue, offset in begun.items()}
    total = sum(new.values())
    if most is None or total <= most:
        return {queue: offset + new[queue] for queue, offset in begun.items()}
    shares = {queue: count * most // total for queue, count in new.items()}
    left = most - sum(shares.values())
    # What rounding left goes where most is missing: a limit of 1 must not stop the query.
    for queue in sorted(new, key=lambda queue: (shares[queue] - new[queue], queue)):
        if left and shares[queue] < new[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: offset + shares[queue] for queue, offset in begun.items()}


def _table(offsets: Mapping[MessageQueue, int]) -> Table:
    return {(queue.brokerName, queue.queueId): offset for queue, offset in offsets.items()}
