"""Reading: which records of a queue go into an answer, and where their bytes come from.

RocketMQ's limits: a read from memory gives at most 256 KiB and 32 messages, one from disk 64 KiB and 8; the first
message always goes, whatever its size. What is not in the page cache is not waited for: the result is marked cold.
"""

import struct
from collections.abc import Callable

from remoting.compiled.door import COMPILED
from remoting.properties import KEY_SEPARATOR
from remoting.record import BORNHOST_AT, BORNHOST_V6, MAGIC_V1, MAGIC_V2, SYSFLAG_AT, RecordError
from remoting.topics import RAFT_TOPIC
from store.config import QUEUE_ENTRY_BYTES, StoreConfig
from store.controlrecord import CONTROL_TAIL, is_control
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.errors import RecordDamaged
from store.files.queuefile import ENTRY, FILLER, Entry
from store.integrity.verifier import Asked, Verifier
from store.log.commitlog import CommitLog
from store.log.dispatch import dispatched_from_record
from store.log.logscan import check_record
from store.reads.gathering import Gathering
from store.reads.readlimits import ReadLimits
from store.reads.runs import WINDOW_BYTES, read_runs
from store.reads.timesearch import offset_by_time
from store.types import GetResult, GetStatus, QueryResult, QueueEntry

Accepts = Callable[[int], bool] | frozenset[int] | None

_SIZE_AND_MAGIC = struct.Struct(">iI")
_SYSFLAG = struct.Struct(">i")
_LONG = struct.Struct(">q")
# Enough of a record to find its store timestamp behind either kind of born host.
_STAMP_BYTES = BORNHOST_AT + 20 + _LONG.size
_FILLER_SIZE = FILLER[1]
# Around the records of an answer: most entries are smaller.
WARM_BYTES = 128 * 1024


class Reader:
    """All reads of a store. Everything is for the store's own thread but read_cold()."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex | None,
        config: StoreConfig,
        verifier: Verifier | None = None,
        *,
        joins: bool = False,
    ) -> None:
        """Without `verifier`, in recovery, records are read as they are. `joins`: of an answer no runs are wanted."""
        self._verifier = verifier
        self._log = log
        self._queues = queues
        self._index = index
        self._scratch = memoryview(bytearray(WINDOW_BYTES))
        self._scan_entries = config.maxFilterMessageSize // QUEUE_ENTRY_BYTES
        self._limits = ReadLimits(config)
        self.gathering: Gathering | None = None
        """Of answers in one step; None where that is not compiled."""
        if COMPILED and joins and verifier is not None:
            self.gathering = Gathering(log, queues, verifier, self._limits)

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, accepts: Accepts
    ) -> GetResult:
        """See MessageStore.get."""
        if topic == RAFT_TOPIC:
            # Its records are the group's own; consumers never see them.
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        queues = self._queues
        low, end = queues.bounds(topic, queue_id)
        if not low <= offset < end:
            return self._outside(topic, queue_id, offset, low, end)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, end)
        # What one read does not look at any more.
        scan_end = min(end, offset + max(self._scan_entries, max_count))
        left = scan_end - offset
        count = min(max(max_count, 1), left)
        if COMPILED and self.gathering is not None and not callable(accepts):
            packed = queues.packed(topic, queue_id, offset, count)
            whole = len(packed) == left * QUEUE_ENTRY_BYTES
            queue = (topic, queue_id)
            sitting = self.gathering.sitting(1)
            found = self.gathering.gathered(
                packed, queue, offset, accepts, (max_count, max_bytes), sitting, whole=whole
            )
            if found is not None:
                data, result.count, passed, until, _, result.size = found
                result.buffers = [data]
                result.next_offset += passed
                result.behind_bytes = self._log.written - until
                result.status = GetStatus.FOUND
                return result
            entries = list(ENTRY.iter_unpack(packed))
        else:
            entries = queues.entries(topic, queue_id, offset, count)
        self._choose(result, entries, topic, queue_id, scan_end, max_count, max_bytes, accepts)
        buffers = read_runs(self._log, result.runs, self._scratch)
        if buffers is None:
            result.cold = True
            result.asked = (topic, queue_id, offset)
        else:
            result.buffers = buffers
            self._verify(result, topic, queue_id, offset)
        return result

    def _verify(self, result: GetResult, topic: str, queue_id: int, offset: int) -> None:
        """Leave nothing in an answer that is not what was written (R18)."""
        verifier, runs, number = self._verifier, result.runs, len(result.buffers)
        if verifier is None or not runs or (runs[0][0] >= verifier.fresh_from and not result.unread):
            return
        asked = Asked(topic.encode(), queue_id, offset, result.next_offset)
        bad = verifier.first_bad(runs[:number], result.buffers, asked)
        if bad is None and number < len(runs):
            bad = verifier.unread(number, runs[number][0], result.unread, result.buffers, asked)
        if bad is None:
            return
        result.damaged = bad.position
        result.count, result.next_offset = bad.right, bad.next_offset
        part = [(runs[bad.run][0], bad.at)] if bad.at else []
        result.buffers = [*result.buffers[: bad.run], *[memoryview(result.buffers[bad.run])[: bad.at] for _ in part]]
        result.runs = [*runs[: bad.run], *part]
        result.size = sum([size for _, size in result.runs])
        if not bad.right:
            result.status = GetStatus.MESSAGE_DAMAGED

    def _outside(self, topic: str, queue_id: int, offset: int, low: int, end: int) -> GetResult:
        """Answer an offset at which no message stands."""
        if end == 0:
            known = self._queues.known(topic, queue_id)
            status = GetStatus.NO_MESSAGE_IN_QUEUE if known else GetStatus.NO_MATCHED_LOGIC_QUEUE
            return GetResult(status, 0, 0, 0)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, end)
        if offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, end)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, low, end)

    def _choose(
        self,
        result: GetResult,
        entries: list[Entry],
        topic: str,
        queue_id: int,
        scan_end: int,
        max_count: int,
        max_bytes: int,
        accepts: Accepts,
    ) -> None:
        """Fill in runs, count, size, status and next offset; `entries` are the first ones of those up to `scan_end`."""
        matches = accepts.__contains__ if isinstance(accepts, frozenset) else accepts
        log = self._log
        first, written = log.min_position, log.written
        runs = result.runs
        at = result.next_offset
        count = size = run_start = run_end = 0
        removed = full = False
        count_max, bytes_max = max_count, max_bytes
        while at < scan_end and not full:
            if not entries:
                result.status = GetStatus.OFFSET_FOUND_NULL
                break
            for position, length, code in entries:
                if position < first or length == _FILLER_SIZE:
                    removed = True
                elif matches is None or matches(code):
                    if not count:
                        # The first message goes in any case, and its place decides for all: later ones stand nearer.
                        count_max, bytes_max = self._limits.of(written - position, max_count, max_bytes)
                    elif count >= count_max or size + length > bytes_max:
                        full = True
                        break
                    assert position + length <= written, "a queue never leads the log"
                    if position != run_end:
                        if run_end:
                            runs.append((run_start, run_end - run_start))
                        run_start = position
                    run_end = position + length
                    count += 1
                    size += length
                at += 1
            full = full or count >= count_max
            if at < scan_end and not full:
                entries = self._queues.entries(topic, queue_id, at, min(max(count_max - count, 1), scan_end - at))
        if run_end:
            runs.append((run_start, run_end - run_start))
            result.behind_bytes = written - run_end
        if count:
            result.status = GetStatus.FOUND
        elif removed and result.status is GetStatus.NO_MATCHED_MESSAGE:
            result.status = GetStatus.MESSAGE_WAS_REMOVING
        result.count, result.size, result.next_offset = count, size, at

    def read_cold(self, result: GetResult) -> GetResult:
        """See MessageStore.read_cold."""
        assert result.cold, "only what is not in memory is read like this"
        result.buffers = []
        try:
            for position, size in result.runs:
                result.buffers.append(self._log.read_blocking(position, size))
            if self._verifier is not None and self._verifier.entries is not None:
                # The entries around are read next, in the loop.
                self._warm(result.runs)
        except FileNotFoundError:
            result.status = GetStatus.MESSAGE_WAS_REMOVING
            result.buffers = []
            result.runs = []
            result.count = result.size = 0
        except (OSError, EOFError) as error:
            result.unread = f"{type(error).__name__}: {error}"
        result.cold = False
        return result

    def verify_cold(self, result: GetResult) -> None:
        """See MessageStore.verify_cold."""
        self._verify(result, *result.asked)

    def _warm(self, runs: list[tuple[int, int]]) -> None:
        """Bring what stands around runs into the page cache."""
        log, warm = self._log, 0
        for position, size in runs:
            start = max(position - WARM_BYTES, warm, log.min_position)
            warm = min(position + size + WARM_BYTES, log.written)
            while start < warm:
                piece = min(warm, start + log.file_bytes - start % log.file_bytes) - start
                log.read_blocking(start, piece)
                start += piece

    def record_at(self, position: int) -> memoryview | None:
        """See MessageStore.record_at."""
        record = self.any_record_at(position)
        if record is not None and record[-len(CONTROL_TAIL) :] == CONTROL_TAIL and is_control(record, 0):
            # As in get(): what a group agrees on, users' secret keys among it, is no message.
            return None
        return record

    def any_record_at(self, position: int) -> memoryview | None:
        """See MessageStore.any_record_at."""
        if not self._log.contains(position, _SIZE_AND_MAGIC.size):
            return None
        verifier = self._verifier
        total, magic = _SIZE_AND_MAGIC.unpack(self._bytes(position, _SIZE_AND_MAGIC.size))
        if magic in {MAGIC_V1, MAGIC_V2} and self._log.contains(position, total):
            record = memoryview(self._bytes(position, total))
            # Any position may be asked for, and a body may look like a record.
            if not isinstance(check_record(record, 0, position, check_crc=False), str):
                reason = verifier.record_bad(record, position) if verifier is not None else ""
                if reason:
                    raise RecordDamaged(position, reason)
                return record
        if verifier is not None and (reason := verifier.entry_bad(position)):
            raise RecordDamaged(position, reason)
        return None

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """See MessageStore.store_time."""
        entries = self._queues.entries(topic, queue_id, offset, 1)
        return self._timestamp(entries[0][0]) if entries and entries[0][1] != _FILLER_SIZE else -1

    def earliest_timestamp(self) -> int:
        """Return the store time of the first record that is kept, -1 when there is none."""
        return self._timestamp(self._log.min_position)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool) -> int:
        """See MessageStore.offset_by_time."""
        return offset_by_time(
            self._queues.min_offset(topic, queue_id),
            self._queues.max_offset(topic, queue_id),
            timestamp_ms,
            lambda offset: self.store_time(topic, queue_id, offset),
            upper=upper,
        )

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """See MessageStore.query."""
        if self._index is None:
            return QueryResult([], 0, 0)
        wanted = key.encode("utf-8", "replace")
        records = []
        for position in self._index.query(topic, key, max_count, begin_ms, end_ms):
            try:
                record = self.record_at(position)
            except RecordDamaged:
                # It is counted and logged; whether it was asked for nobody can tell.
                continue
            if record is not None and _matches(record, topic, wanted, begin_ms, end_ms):
                records.append(record)
        return QueryResult(records, self._index.end_timestamp, max(0, self._index.end_physical))

    def queue_entries(self, topic: str, queue_id: int, index: int, count: int) -> list[QueueEntry]:
        """See MessageStore.queue_entries."""
        return [QueueEntry(*entry) for entry in self._queues.entries(topic, queue_id, index, count)]

    def _timestamp(self, position: int) -> int:
        if not self._log.contains(position, _STAMP_BYTES):
            return -1
        head = self._bytes(position, _STAMP_BYTES)
        if _SIZE_AND_MAGIC.unpack_from(head)[1] not in {MAGIC_V1, MAGIC_V2}:
            return -1
        born_bytes = 20 if _SYSFLAG.unpack_from(head, SYSFLAG_AT)[0] & BORNHOST_V6 else 8
        timestamp: int = _LONG.unpack_from(head, BORNHOST_AT + born_bytes)[0]
        return timestamp

    def _bytes(self, position: int, size: int) -> memoryview | bytes:
        """Read a few bytes wherever they are: searches and administration may wait for the disk a moment."""
        data = self._log.read(position, size)
        return self._log.read_blocking(position, size) if data is None else data


def _matches(record: memoryview, topic: str, key: bytes, begin_ms: int, end_ms: int) -> bool:
    """Tell whether the record that a hash led to is one that was asked for."""
    try:
        found = dispatched_from_record(record)
    except RecordError:
        return False
    if found.topic != topic or not begin_ms <= found.store_timestamp <= end_ms:
        return False
    return key == found.uniq_key or key in found.keys.split(KEY_SEPARATOR.encode())
