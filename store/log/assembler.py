"""Builds records into the log's pending buffer and gives them their offsets: the hot path of every send.

Queue offset and position are given in the same step that appends, so their orders never differ. Store timestamps never
go back within a log, whatever the clock does.
"""

import struct
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, repeat

from remoting.javahash import java_hash
from remoting.properties import PROPERTIES_BYTES_MAX, indexed_columns, indexed_properties
from remoting.record import BLANK_BYTES, BORNHOST_V6, HEADS, STOREHOST_V6, SYSFLAG_AT, RecordError, topic_field
from runtime.clock import Clock
from runtime.crc import crc32
from store.derived.consumequeue import ConsumeQueues
from store.log.commitlog import PENDING_BYTES_MAX, CommitLog
from store.log.dispatch import SCHEDULE_TOPIC, queue_code
from store.recordbatch import RecordBatch
from store.recordrun import RecordRun
from store.types import Dispatched, PendingRecord, PutResult, PutStatus

# Topics whose encoded names are kept; when they are that many, the table starts anew.
TOPIC_NAMES_MAX = 65_536
_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
_pack_short = struct.Struct(">h").pack
# sysFlag & 0x4: prepared (0x4) and rolled back (0xC) messages stand in no queue.
_HIDDEN = 0x4
_PUT_OK = PutStatus.PUT_OK
# A head as HEADS has it, with what all records of a batch share, from sysFlag on to BODYLEN, in one piece.
_BATCH_HEADS = {bits: struct.Struct(f">iIIiiqq{head.size - SYSFLAG_AT - 4}si") for bits, head in HEADS.items()}
# Makes a named tuple in half the time of its own constructor.
_new = tuple.__new__
_dispatched = partial(_new, Dispatched)
_result = partial(_new, PutResult)


class Assembler:
    """Owns the next offset of each queue and what waits for dispatch."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        clock: Clock,
        *,
        store_host: bytes,
        body_bytes_max: int,
        last_timestamp: int,
        levels_ms: tuple[int, ...],
    ) -> None:
        self._log = log
        self._queues = queues
        self._clock = clock
        self._store_host = store_host
        self._store_host_bit = STOREHOST_V6 if len(store_host) == 20 else 0
        self._body_bytes_max = body_bytes_max
        self._levels_ms = levels_ms
        # One reading of the clock serves all records between two writes.
        self.timestamp = last_timestamp
        # Why nothing is taken, None when something is.
        self.refused: str | None = None
        # Records of the pending buffer, to be dispatched when they are written.
        self.batch: list[Dispatched] = []
        self._next: dict[tuple[str, int], int] = {}
        self._topics: dict[str, tuple[int, bytes]] = {}
        self._limit = 0
        # In a group records stand in entries only: the position before which the present one must end, 0 between them.
        self.entry_limit: int | None = None
        # And what the largest entry can hold.
        self._entry_bytes_max = 0
        self.moved()

    def moved(self) -> None:
        """Note that the log was written, rolled or cut: from here on records must end before a new limit."""
        log = self._log
        limit = self.entry_limit
        self._limit = min(log.file_end - BLANK_BYTES, log.written + PENDING_BYTES_MAX) if limit is None else limit

    def open_entry(self, limit: int, bytes_max: int = 0) -> None:
        """Take records that end at or before a position, and never roll; none at all with 0, between two entries.

        What needs more than `bytes_max` is refused for good: no entry could ever hold it.
        """
        self._limit = self.entry_limit = limit
        self._entry_bytes_max = bytes_max

    def put(self, record: PendingRecord) -> PutResult:
        """See MessageStore.put."""
        return self.put_many((record,))[0]

    def put_many(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """See MessageStore.put_many. One loop with everything at hand: a call per record would cost a third more."""
        if self.refused is not None:
            return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE) for _ in records]
        results: list[PutResult] = []
        log, batch, limit, body_bytes_max = self._log, self.batch, self._limit, self._body_bytes_max
        next_offsets, topics, store_host, store_bit = self._next, self._topics, self._store_host, self._store_host_bit
        if not batch:
            self.timestamp = max(self.timestamp, self._clock.now_ms())
        timestamp = self.timestamp
        end = log.end
        try:
            for record in records:
                topic, queue_id, body, properties = record.topic, record.queue_id, record.body, record.properties
                named = topics.get(topic) or self._learn_topic(topic)
                properties_size, body_size = len(properties), len(body)
                if properties_size > PROPERTIES_BYTES_MAX:
                    results.append(PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED))
                    continue
                # Zeros at the end of a record are how recovery knows a torn one.
                if named is None or body_size > body_bytes_max or (properties and properties[-1] == 0):
                    results.append(PutResult(PutStatus.MESSAGE_ILLEGAL))
                    continue
                born_host = record.born_host
                sys_flag = record.sys_flag & ~_HOST_BITS | store_bit
                if len(born_host) == 20:
                    sys_flag |= BORNHOST_V6
                head = HEADS[sys_flag & _HOST_BITS]
                size = head.size + body_size + len(named[1]) + 2 + properties_size
                if end + size > limit:
                    log.end = end
                    if (status := self._make_room(size)) is not None:
                        results.append(PutResult(status))
                        continue
                    end, limit = log.end, self._limit
                queue = (topic, queue_id)
                if sys_flag & _HIDDEN:
                    offset = 0
                elif (known := next_offsets.get(queue)) is None:
                    offset = self._queues.next_offset(topic, queue_id)
                else:
                    offset = known
                try:
                    packed = head.pack(
                        size, named[0], crc32(body) & 0x7FFFFFFF, queue_id, record.flag, offset, end, sys_flag,
                        record.born_timestamp, born_host, timestamp, store_host, record.reconsume_times,
                        record.prepared_transaction_offset, body_size,
                    )  # fmt: skip
                except struct.error:
                    # A number that its field cannot hold.
                    results.append(PutResult(PutStatus.MESSAGE_ILLEGAL))
                    continue
                tags, uniq_key, keys = indexed_properties(properties)
                code = self._code(topic, tags, properties) if tags or topic == SCHEDULE_TOPIC else 0
                log.pieces += (packed, body, named[1], _pack_short(properties_size), properties)
                position, end = end, end + size
                if not sys_flag & _HIDDEN:
                    next_offsets[queue] = offset + 1
                batch.append(_new(Dispatched, (
                    topic, queue_id, offset, position, size, code, timestamp, uniq_key, keys, sys_flag, tags,
                )))  # fmt: skip
                results.append(_new(PutResult, (_PUT_OK, position, offset, size, timestamp, end)))
        finally:
            log.end = end
        return results

    def _code(self, topic: str, tags: bytes, properties: bytes) -> int:
        if topic == SCHEDULE_TOPIC:
            return queue_code(topic, tags, properties, self.timestamp, self._levels_ms)
        return java_hash(tags)

    def put_batch(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """See MessageStore.put_batch."""
        if type(records) is RecordBatch and (placed := self._put_columns(records)) is not None:
            return placed
        if type(records) is RecordRun:
            return self._put_run(records)
        if self.refused is None:
            # More than enough, so that the records never part at the end of a file.
            size = sum(
                [
                    HEADS[_HOST_BITS].size + len(record.body) + len(record.topic) * 4 + 4 + len(record.properties)
                    for record in records
                ]
            )
            if self._log.end + size > self._limit:
                size = sum([self._bytes_of(record) for record in records])
            status = self._make_room(size) if self._log.end + size > self._limit else None
            if status is not None:
                return [PutResult(status) for _ in records]
        log = self._log
        pieces, end, dispatched = len(log.pieces), log.end, len(self.batch)
        results = self.put_many(records)
        refused = next((result.status for result in results if result.status is not _PUT_OK), None)
        if refused is not None:
            self._take_back(pieces, end, dispatched)
            return [PutResult(refused) for _ in records]
        return results

    def _put_columns(self, records: RecordBatch) -> list[PutResult] | None:
        """Do what put_many() does for a batch, column by column; None when something of it wants to be looked at.

        Then nothing was put. A batch has no prepared messages, and its properties end in no zeros.
        """
        topic, queue_id, bodies, properties = records.topic, records.queue_id, records.bodies, records.properties
        named = self._topics.get(topic) or self._learn_topic(topic)
        sys_flag = records.sys_flag & ~_HOST_BITS | self._store_host_bit
        if len(records.born_host) == 20:
            sys_flag |= BORNHOST_V6
        if self.refused is not None or named is None or topic == SCHEDULE_TOPIC or sys_flag & _HIDDEN:
            return None
        body_sizes, properties_sizes = list(map(len, bodies)), list(map(len, properties))
        if max(body_sizes) > self._body_bytes_max or max(properties_sizes) > PROPERTIES_BYTES_MAX:
            return None
        log, whole = self._log, HEADS[sys_flag & _HOST_BITS]
        fixed = whole.size + len(named[1]) + 2
        sizes = [fixed + body + text for body, text in zip(body_sizes, properties_sizes, strict=True)]
        ends = list(accumulate(sizes, initial=log.end))
        if ends[-1] > self._limit:
            return None
        positions, count = ends[:-1], len(sizes)
        del ends[0]
        if not self.batch:
            self.timestamp = max(self.timestamp, self._clock.now_ms())
        timestamp, first = self.timestamp, self.next_offset(topic, queue_id)
        offsets = range(first, first + count)
        try:
            same = whole.pack(
                0, 0, 0, 0, 0, 0, 0, sys_flag, records.born_timestamp, records.born_host, timestamp, self._store_host,
                0, 0, 0,
            )[SYSFLAG_AT:-4]  # fmt: skip
            pack, magic = _BATCH_HEADS[sys_flag & _HOST_BITS].pack, named[0]
            heads = [
                pack(size, magic, crc & 0x7FFFFFFF, queue_id, flag, offset, position, same, body_size)
                for size, crc, flag, offset, position, body_size in zip(
                    sizes, map(crc32, bodies), records.flags, offsets, positions, body_sizes, strict=True
                )
            ]
        except struct.error:
            return None
        tags, uniq_keys, keys = indexed_columns(properties)
        codes = [java_hash(tag) if tag else 0 for tag in tags]
        lengths = map(_pack_short, properties_sizes)
        log.pieces += chain.from_iterable(zip(heads, bodies, repeat(named[1]), lengths, properties))
        log.end = ends[-1]
        self._next[topic, queue_id] = first + count
        self.batch += map(_dispatched, zip(
            repeat(topic), repeat(queue_id), offsets, positions, sizes, codes, repeat(timestamp), uniq_keys, keys,
            repeat(sys_flag), tags,
        ))  # fmt: skip
        return list(map(_result, zip(repeat(_PUT_OK), positions, offsets, sizes, repeat(timestamp), ends)))

    def _put_run(self, run: RecordRun) -> list[PutResult]:
        """Do what put_many() does for a run, in one call where all of it fits and is usual.

        Returns one result for all: of the last that is stored, or why the first one is not; see RecordRun.results.
        """
        rows, log = run.rows, self._log
        found = [self._topics.get(topic) or self._learn_topic(topic) for topic in rows.topics]
        named = [each for each in found if each is not None]
        size = self._bytes_of_run(run, named) if len(named) == len(found) else None
        if self.refused is not None or size is None or log.end + size > self._limit:
            run.results = results = self.put_many(list(run))
            stored = [result for result in results if result.status is _PUT_OK]
            return stored[-1:] or results[:1]
        run.results = None
        if not self.batch:
            self.timestamp = max(self.timestamp, self._clock.now_ms())
        bits = self._store_host_bit | (BORNHOST_V6 if len(run.born_host) == 20 else 0)
        blob, batch = rows.place(
            Dispatched, named, [flags | bits for flags in run.sys_flags], run.born_host, self._store_host, run.suffix,
            self._next, self._queues.next_offset, log.end, self.timestamp, crc32,
        )  # fmt: skip
        log.pieces.append(blob)
        log.end += len(blob)
        self.batch += batch
        last = batch[-1]
        return [PutResult(_PUT_OK, last.physical_offset, last.queue_offset, last.size, self.timestamp, log.end)]

    def _bytes_of_run(self, run: RecordRun, named: Sequence[tuple[int, bytes]]) -> int | None:
        """Return what a run takes at the most; None when something of it is to be looked at."""
        rows = run.rows
        if (
            SCHEDULE_TOPIC in rows.topics
            or rows.sys_flags & (_HIDDEN | _HOST_BITS)
            or any(flags & _HIDDEN for flags in run.sys_flags)
        ):
            return None
        too_long = rows.properties_max + len(run.suffix) > PROPERTIES_BYTES_MAX or run.suffix[-1:] == b"\0"
        if too_long or rows.body_max > self._body_bytes_max:
            return None
        longest = max([len(name[1]) for name in named])
        return run.content_bytes + len(rows) * (HEADS[_HOST_BITS].size + longest + 2)

    def take_batch(self) -> list[Dispatched]:
        """Hand over what was written and must be dispatched now."""
        batch = self.batch
        self.batch = []
        if self.entry_limit is None:
            self.moved()
        return batch

    def forget_pending(self) -> None:
        """Undo all that is not written: the log was cut back to its written end."""
        self.batch = []
        self._next.clear()
        self.moved()

    def follow(self, batch: Sequence[Dispatched]) -> None:
        """Continue the queues behind records that are in the log, and not dispatched yet."""
        for entry in batch:
            if not entry.sys_flag & _HIDDEN:
                self._next[entry.topic, entry.queue_id] = entry.queue_offset + 1

    def stamp(self, at_least: int = 0) -> int:
        """Return the store time of a record that is made now, and let none be older from here on."""
        self.timestamp = max(self.timestamp, at_least or self._clock.now_ms())
        return self.timestamp

    def forget_topic(self, topic: str) -> None:
        """Ask the queues anew for the offsets of a topic; nothing of it may be pending."""
        for queue in [queue for queue in self._next if queue[0] == topic]:
            del self._next[queue]

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next record of the queue gets."""
        known = self._next.get((topic, queue_id))
        return self._queues.next_offset(topic, queue_id) if known is None else known

    def _take_back(self, pieces: int, end: int, dispatched: int) -> None:
        log = self._log
        del log.pieces[pieces:]
        log.end = end
        for entry in reversed(self.batch[dispatched:]):
            if not entry.sys_flag & _HIDDEN:
                self._next[entry.topic, entry.queue_id] = entry.queue_offset
        del self.batch[dispatched:]

    def _bytes_of(self, record: PendingRecord) -> int:
        """Return what a record takes; of one that cannot be stored it does not matter."""
        named = self._topics.get(record.topic) or self._learn_topic(record.topic) or (0, b"")
        bits = self._store_host_bit | (BORNHOST_V6 if len(record.born_host) == 20 else 0)
        return HEADS[bits].size + len(record.body) + len(named[1]) + 2 + len(record.properties)

    def _make_room(self, size: int) -> PutStatus | None:
        """Roll to the next file when `size` bytes do not fit into this one; None when there is room now."""
        log = self._log
        if not log.fits(size):
            return PutStatus.MESSAGE_ILLEGAL
        if self.entry_limit is not None:
            too_long = self.entry_limit and size > self._entry_bytes_max
            return PutStatus.MESSAGE_ILLEGAL if too_long else PutStatus.OS_PAGE_CACHE_BUSY
        if log.pending_bytes + size > PENDING_BYTES_MAX:
            return PutStatus.OS_PAGE_CACHE_BUSY
        if log.end + size + BLANK_BYTES > log.file_end:
            try:
                log.roll()
            except OSError:
                return PutStatus.CREATE_MAPPED_FILE_FAILED
            self.moved()
        return None

    def _learn_topic(self, topic: str) -> tuple[int, bytes] | None:
        if "\0" in topic:
            # Recovery takes it for a torn one.
            return None
        try:
            named = topic_field(topic.encode("utf-8"))
        except (RecordError, UnicodeEncodeError):
            return None
        if len(self._topics) >= TOPIC_NAMES_MAX:
            self._topics.clear()
        self._topics[topic] = named
        return named
