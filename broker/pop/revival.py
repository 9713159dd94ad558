"""Messages that were taken and not acknowledged in time come again: in the retry topic, or as dead letters.

One append settles them: the messages as they will be had next, and the record that acknowledges them where they were.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from broker.context import BrokerContext, Tables
from broker.messages.delayed_record import pending, without
from broker.messages.send_checks import DLQ_QUEUES
from broker.pop.check_points import CheckPoint, CheckPointTable
from broker.pop.records import ack_record
from remoting.errors import CommandError
from remoting.properties import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_RECONSUME_TIME,
    find_property,
)
from remoting.record import RecordError
from remoting.topics import dlq_topic, is_retry_topic, origin_of, pop_retry_topic
from store.errors import RecordDamaged
from store.types import GetResult, GetStatus, PendingRecord

_log = logging.getLogger(__name__)

# Bytes of messages that one append stores anew: an entry of a Raft group takes more.
BATCH_BYTES = 512 * 1024
# ms before what cannot be read or stored is tried again.
AGAIN_MS = 1000
# How often a message comes again when its group is gone, or does not say.
ATTEMPTS_DEFAULT = 16
_FIRST_POP = f"{PROPERTY_FIRST_POP_TIME}\x01".encode()
_UNIQ_KEY = b"UNIQ_KEY\x01"
_WRITTEN = frozenset({PROPERTY_ORIGIN_GROUP.encode(), PROPERTY_FIRST_POP_TIME.encode()})

Append = Callable[[Sequence[PendingRecord]], Awaitable[bool]]
"""Stores records next to one another; tells whether they are safe."""


class PopReads(Protocol):
    """What is needed of the store."""

    def get(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, accepts: None) -> GetResult:
        """Read messages of a queue."""
        ...

    def read_cold(self, result: GetResult) -> GetResult:
        """Read what is not in memory. For any thread."""
        ...

    def verify_cold(self, result: GetResult) -> None:
        """Check what was read so: what must not go is taken out of it."""
        ...


class Revival:
    """Settles what is due."""

    def __init__(self, context: BrokerContext, tables: Tables, topic: str, append: Append) -> None:
        """`topic`: of check points."""
        self._store, self._threads, self._clock = context.store, context.threads, context.clock
        self._store_host, self._live = context.store_host, context.live
        self._topics, self._groups = tables.topics, tables.groups
        self._topic = topic
        self._append = append
        self.revived = 0
        self.dead = 0

    async def settle(self, made: CheckPoint, table: CheckPointTable) -> None:
        """Store anew what is open of a check point; what cannot be done now comes up again."""
        now_ms = self._clock.now_ms()
        records: list[PendingRecord] = []
        settled: list[int] = []
        size = dead = 0
        try:
            for offset in made.open_offsets():
                stored = await self._read(made, offset)
                if stored is not None:
                    record, is_dead = self._again(made, stored)
                    dead += is_dead
                    records.append(record)
                    size += len(record.body) + len(record.properties)
                settled.append(offset)
                if size >= BATCH_BYTES:
                    break
        except (RecordDamaged, OSError, CommandError) as error:
            _log.warning("messages of %s taken by %s wait to be had again: %s", made.key.topic, made.key.group, error)
            if not settled:
                table.again(made.key, now_ms + AGAIN_MS)
                return
        done = await self._append([*records, ack_record(self._topic, made, settled, now_ms, self._store_host)])
        if done:
            self.revived += len(records) - dead
            self.dead += dead
            table.acknowledge(made.key, settled)
        if made.open:
            table.again(made.key, now_ms if done else now_ms + AGAIN_MS)

    async def _read(self, made: CheckPoint, offset: int) -> PendingRecord | None:
        """Return a message as it is stored, None when it is gone; raises RecordDamaged, OSError."""
        key = made.key
        result = self._store.get(key.topic, key.queue_id, offset, 1, 1, None)
        if result.cold:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, self._store.read_cold, result)
            self._store.verify_cold(result)
        if result.damaged >= 0 and not result.count:
            raise RecordDamaged(result.damaged, "it is damaged")
        if result.unread:
            raise OSError(result.unread)
        if result.status is not GetStatus.FOUND or not result.buffers:
            return None
        try:
            return pending(memoryview(result.buffers[0]))
        except RecordError as error:
            _log.error("message %d of %s in queue %d cannot come again: %s", offset, key.topic, key.queue_id, error)
            return None

    def _again(self, made: CheckPoint, stored: PendingRecord) -> tuple[PendingRecord, bool]:
        """Return the message as it is to be had next, and whether nobody is to try it any more."""
        key = made.key
        group = self._groups.get(key.group)
        most = ATTEMPTS_DEFAULT if group is None else group.retryMaxTimes
        times = stored.reconsume_times + 1
        first = find_property(stored.properties, _FIRST_POP).decode("ascii", "replace") or str(key.pop_ms)
        told = f"{PROPERTY_ORIGIN_GROUP}\x01{key.group}\x02{PROPERTY_FIRST_POP_TIME}\x01{first}\x02"
        v2 = self._live.broker.enableRetryTopicV2
        retry = key.topic if is_retry_topic(key.topic) else pop_retry_topic(key.topic, key.group, v2=v2)
        topic = retry if times <= most else dlq_topic(key.group)
        if times > most:
            msg_id = find_property(stored.properties, _UNIQ_KEY).decode("utf-8", "replace")
            origin = origin_of(retry, key.group)
            told += f"{PROPERTY_RECONSUME_TIME}\x01{stored.reconsume_times}\x02{PROPERTY_DLQ_ORIGIN_TOPIC}\x01{origin}"
            told += f"\x02{PROPERTY_DLQ_ORIGIN_MESSAGE_ID}\x01{msg_id}\x02"
        properties = told.encode() + without(stored.properties, _WRITTEN)
        if len(properties) > PROPERTIES_BYTES_MAX:
            # It has no room for more: rather as it is than never.
            properties = stored.properties
        self._topics.create_for_retry(topic, DLQ_QUEUES)
        record = msgspec.structs.replace(stored, topic=topic, queue_id=0, reconsume_times=times, properties=properties)
        return record, times > most
