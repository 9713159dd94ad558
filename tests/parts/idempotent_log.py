"""Idempotent sends in front of a log of which everything is known."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from broker.messages.idempotent import FirstResult, IdempotentSends
from broker.messages.recent_records import IDEMPOTENT_FLAG
from broker.settings.idempotent_keys import IdempotentKeys
from remoting.codes import ResponseCode
from remoting.msgid import offset_msg_id, pack_host
from remoting.record import encode_record
from runtime.clock import ManualClock
from store.derived.recentkeys import RecentKeys
from store.log.dispatch import dispatched_from_record
from store.types import Dispatched, PendingRecord, PutResult, PutStatus

HOST = pack_host("192.0.2.1", 10911)
REFUSED = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
SERVICE_NOT_AVAILABLE = int(ResponseCode.SERVICE_NOT_AVAILABLE)
NOT_LEADER = int(ResponseCode.NOT_LEADER_FOR_QUEUE)
WINDOW_S = 60


class Log:
    """Records by position, and a replication whose sends end when the test says so."""

    file_bytes = 1 << 30
    min_physical = 0

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.records: dict[int, bytes] = {}
        self.end = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self.flights: list[tuple[list[PendingRecord], Callable[[Any, int], None], bool]] = []
        self.confirms = 0
        self.told: Callable[[Sequence[Dispatched]], None] = lambda _batch: None

    def append(self, record: PendingRecord, done: Any, *, wait: bool = True, until: float = 0.0) -> None:
        assert (wait, until) == (True, 5.0)
        self.flights.append(([record], done, False))

    def append_batch(
        self, records: Sequence[PendingRecord], done: Any, *, wait: bool = True, until: float = 0.0
    ) -> None:
        assert (wait, until) == (True, 5.0)
        self.flights.append((list(records), done, True))

    def confirm(self, stored: PutResult, done: Any, *, wait: bool = True) -> None:
        assert wait
        assert stored.end in self.records.keys() | {self.end}, "behind the last record of what is repeated"
        if self.confirms == SERVICE_NOT_AVAILABLE:
            done(REFUSED, self.confirms)
        else:
            done(stored, self.confirms)

    def store(self, number: int = 0, code: int = 0) -> None:
        """Store a send that is on its way, and answer it."""
        records, done, batch = self.flights.pop(number)
        results, told = [], []
        for record in records:
            queue = (record.topic, record.queue_id)
            offset = self.offsets.get(queue, 0)
            view = encode_record(
                record.topic, record.queue_id, record.body, record.properties, queue_offset=offset,
                physical_offset=self.end, sys_flag=record.sys_flag, store_timestamp=self.clock.now_ms(),
                store_host=HOST,
            )  # fmt: skip
            self.records[self.end] = view
            results.append(PutResult(PutStatus.PUT_OK, self.end, offset, len(view)))
            told.append(dispatched_from_record(view))
            self.offsets[queue] = offset + 1
            self.end += len(view)
        self.told(told)
        done(results if batch else results[0], code)

    def refuse(self, number: int = 0, result: PutResult = REFUSED, code: int = 14) -> None:
        _records, done, batch = self.flights.pop(number)
        done([result] if batch else result, code)

    def cut(self, count: int) -> None:
        """Lose the newest records."""
        for position in sorted(self.records, reverse=True)[:count]:
            found = dispatched_from_record(self.records.pop(position))
            self.end = position
            self.offsets[found.topic, found.queue_id] = found.queue_offset

    def record_at(self, physical_offset: int) -> memoryview | None:
        found = self.records.get(physical_offset)
        return None if found is None else memoryview(found)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.offsets.get((topic, queue_id), 0)

    def read_piece_cold(self, position: int, size_max: int) -> bytes:
        whole = b"".join(view for _, view in sorted(self.records.items()))
        return whole[position : position + size_max]


def few_hashes(key: bytes) -> int:
    return sum(key) % 3


class Setting:
    def __init__(self, hash_of: Callable[[bytes], int] = few_hashes) -> None:
        self.clock = ManualClock()
        self.log = Log(self.clock)
        self.hash_of = hash_of
        self.answers: dict[int, tuple[Any, int]] = {}
        self.number = 0
        self.start()

    def start(self) -> None:
        """Begin anew with what is in the log, as a broker that was killed."""
        self.log.flights.clear()
        self.sends = IdempotentSends(
            self.log, self.log, HOST, self.clock, IdempotentKeys(idempotentWindowSeconds=WINDOW_S)
        )
        self.sends.keys = RecentKeys(1000, WINDOW_S * 1000, segment_keys=4, hash_of=self.hash_of)
        self.log.told = self.sends.dispatched
        self.sends.dispatched([dispatched_from_record(view) for _, view in sorted(self.log.records.items())])

    async def restart(self) -> None:
        """Begin anew as a broker does that reads the tail of its log."""
        self.start()
        with ThreadPoolExecutor(1) as threads:
            await self.sends.read_tail(self.log.end, threads)

    def _done(self) -> Callable[[Any, int], None]:
        self.number += 1
        number = self.number

        def done(result: Any, code: int) -> None:
            assert number not in self.answers, "one answer each"
            self.answers[number] = result, code

        return done

    def send(self, key: str, topic: str = "T", queue_id: int = 0) -> int:
        record = PendingRecord(
            topic, queue_id, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"body", f"UNIQ_KEY\x01{key}\x02".encode()
        )
        self.sends.append(topic, key, queue_id, record, self._done(), wait=True, until=5.0)
        return self.number

    def send_batch(self, keys: Sequence[str], queue_id: int = 0) -> int:
        records = [
            PendingRecord("T", queue_id, 0, IDEMPOTENT_FLAG, 0, HOST, 0, 0, b"b", f"UNIQ_KEY\x01{key}\x02".encode())
            for key in keys
        ]
        self.sends.append_batch("T", queue_id, records, self._done(), wait=True, until=5.0)
        return self.number


def first(position: int, offset: int, queue_id: int = 0) -> FirstResult:
    return FirstResult(queue_id, offset, offset_msg_id(HOST, position))
