"""What may be asked of the store's queues and index, beside the messages themselves."""

from store.derived.consumequeue import ConsumeQueues
from store.log.commitlog import CommitLog
from store.log.logbytes import LogBytes
from store.reads.reads import Reader
from store.types import QueryResult, QueueEntry


class QueueReads(LogBytes):
    """A part of MessageStore, for the same thread."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, reader: Reader) -> None:
        """Use MessageStore.open()."""
        super().__init__(log)
        self._queues = queues
        self._reader = reader

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest offset of a queue; 0 when it is unknown."""
        return self._queues.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue; 0 when it is unknown."""
        return self._queues.max_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the first offset stored at or after a time (the end of the queue when there is none).

        `upper`: the last one stored at or before it. May wait for the disk.
        """
        return self._reader.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, ms; -1 when it is not there. May wait for the disk."""
        return self._reader.store_time(topic, queue_id, offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the whole record of a message that begins at a position, None when none does. May wait for the disk.

        Positions may come from a network: a group's control records are nobody's to read. Raises RecordDamaged when
        one stood there and is not what was written (R18).
        """
        return self._reader.record_at(physical_offset)

    def any_record_at(self, physical_offset: int) -> memoryview | None:
        """Do as `record_at`, of control records too: never for a position that somebody asks for."""
        return self._reader.any_record_at(physical_offset)

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Return records of `topic` with this key or unique key, newest first. May wait for the disk."""
        return self._reader.query(topic, key, max_count, begin_ms, end_ms)

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> list[QueueEntry]:
        """Return up to `count` entries of a queue from offset `index` on."""
        return self._reader.queue_entries(topic, queue_id, index, count)

    def topics(self) -> dict[str, list[int]]:
        """Return the queue ids of each topic that ever had a message."""
        return self._queues.topics()
