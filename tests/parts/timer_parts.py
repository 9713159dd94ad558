"""A timer service over a real store, with a clock that the test moves; it can be killed and opened again."""

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.delay.feed import Base, TimerFeed
from broker.delay.index import TimerIndex
from broker.delay.timer_context import TimerContext
from broker.delay.timers import TimerService
from broker.messages.timed_record import DELETES, TimerLimits, slot_of, timed
from broker.replication import BatchDone
from remoting.message import MessageExt
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.record import decode_record
from remoting.topics import TIMER_TOPIC
from runtime.clock import ManualClock
from runtime.late import late
from store.config import StoreConfig
from store.events import StoreEvents
from store.messagestore import MessageStore
from store.types import PendingRecord, PutResult, PutStatus
from tests.parts.broker_parts import Timer
from tests.parts.told import Told

HOST = pack_host("192.0.2.7", 5000)
DAY_MS = 24 * 3_600_000
LIMITS = TimerLimits(enabled=True, precision_ms=1000, max_delay_ms=40 * DAY_MS, window_ms=2 * DAY_MS)
SIZES = StoreConfig(
    mappedFileSizeCommitLog=1024 * 1024, mappedFileSizeConsumeQueue=20_000, maxHashSlotNum=1000, maxIndexNum=4000
)


class TimerSetting:
    """One broker's timer messages."""

    def __init__(
        self,
        root: Path,
        *,
        shared: bool = False,
        stepped: bool = False,
        clock: ManualClock | None = None,
        base: Base | None = None,
        sizes: StoreConfig | None = None,
    ) -> None:
        self.root = root
        self.clock = clock or ManualClock()
        self.limits = LIMITS
        self.shared = shared
        self.stepped = stepped
        self.base = base
        self.sizes = sizes or SIZES
        self.timers: list[Timer] = []
        self.refusals: list[PutStatus] = []
        self.appends = 0
        self.lives = 0
        # Of a group: what is appended and not committed.
        self.open_entries: list[tuple[Sequence[PendingRecord], BatchDone]] | None = None
        # The unique keys of timer messages that were acknowledged.
        self.stored: list[str] = []
        self.came: list[tuple[str, int]] = []
        self.open()

    def open(self) -> None:
        told = self.told = Told()
        config = dataclasses.replace(self.sizes, storePathRootDir=str(self.root))
        self.store = MessageStore.open(
            config, store_host=HOST, clock=self.clock, events=self.events(told), stepped=self.stepped
        )
        told.dispatched = lambda batch: self.arrived({each.topic for each in batch})
        index = TimerIndex(self.root / "timerindex")
        self.feed = TimerFeed(self.store, index, mends=self.shared, base=self.base)
        context = TimerContext(
            self.store,
            self,
            self.clock,
            self.later,
            self.aside,
            lambda: self.limits,
            lambda topic, queue_id, _ms: self.came.append((topic, queue_id)),
            HOST,
            self.shared,
        )
        self.service = TimerService(context, index, self.feed)
        self.service.begin()

    def events(self, told: Told) -> StoreEvents:
        return dataclasses.replace(told.events, needed_from=late(lambda: self.service.needed_from))

    def arrived(self, topics: set[str]) -> None:
        if TIMER_TOPIC in topics:
            self.service.arrived()

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.clock.monotonic() + seconds, call))
        return self.timers[-1]

    def aside(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def do() -> None:
            try:
                found = work()
            except Exception as error:
                found = error
            then(found)

        self.later(0, do)

    def append(self, *_: object, **__: object) -> None:
        raise AssertionError("deliveries come with their mark")

    def append_batch(
        self, records: Sequence[PendingRecord], done: BatchDone, *, wait: bool = True, until: float = 0.0
    ) -> None:
        assert wait
        assert until == 0.0
        self.appends += 1
        if self.refusals:
            done([PutResult(self.refusals.pop(0))], 14)
            return
        self.enter(records, done)

    def enter(self, records: Sequence[PendingRecord], done: BatchDone = lambda _results, _code: None) -> None:
        """Bring records into the log, at once or when commit() does."""
        if self.open_entries is not None:
            self.open_entries.append((records, done))
            return
        results = self.store.put_batch(records)
        self.store.write()
        done(results if results[0].status is PutStatus.PUT_OK else results[:1], 0)

    def commit(self, count: int) -> None:
        """In a group: so many entries are committed."""
        assert self.open_entries is not None
        entries, self.open_entries = self.open_entries, None
        for records, done in entries[:count]:
            self.enter(records, done)
        self.open_entries = entries[count:]

    def overwrite(self, kept: int) -> None:
        """In a group: the entries behind the first ones are overwritten by another leader."""
        assert self.open_entries is not None
        lost, self.open_entries = self.open_entries[kept:], self.open_entries[:kept]
        for _, done in lost:
            done([PutResult(PutStatus.SERVICE_NOT_AVAILABLE)], 501)

    def pass_time(self, seconds: float, steps: int = 1_000_000) -> int:
        """Let time pass from timer to timer; return how many steps are left."""
        end = self.clock.monotonic() + seconds
        while due := [timer for timer in self.timers if not timer.cancelled and timer.at <= end]:
            if not steps:
                return 0
            steps -= 1
            timer = min(due, key=lambda one: one.at)
            self.timers.remove(timer)
            self.clock.advance(max(0.0, timer.at - self.clock.monotonic()))
            timer.call()
        self.clock.advance(end - self.clock.monotonic())
        return steps

    def send(self, key: str, topic: str = "T", queue_id: int = 2, body: bytes = b"body", **times: object) -> int:
        """Store what a producer sent; returns its slot."""
        found = {name: str(value) for name, value in times.items()}
        now_ms = self.clock.now_ms()
        out_ms = slot_of(found, now_ms, self.limits)
        if out_ms:
            self.store_timer(key, out_ms, topic, queue_id, body, found)
            return out_ms
        record = PendingRecord(
            topic, queue_id, 7, 0, 99, HOST, 0, 0, body, encode_properties({**found, "UNIQ_KEY": key, "TAGS": "A"})
        )
        self.store.put(record)
        self.store.write()
        return 0

    def store_timer(
        self,
        key: str,
        out_ms: int,
        topic: str = "T",
        queue_id: int = 2,
        body: bytes = b"body",
        found: Mapping[str, str] | None = None,
    ) -> None:
        """Store what waits for a slot."""
        properties = encode_properties({**(found or {}), "UNIQ_KEY": key, "TAGS": "A"})
        record = PendingRecord(topic, queue_id, 7, 0, 99, HOST, 0, 0, body, properties)
        self.enter([timed(record, out_ms, self.clock.now_ms(), self.limits)], self.sent(key))

    def sent(self, key: str) -> BatchDone:
        def done(results: list[PutResult], _code: int) -> None:
            if results[0].status is PutStatus.PUT_OK:
                self.stored.append(key)

        return done

    def recall(self, key: str, out_ms: int, topic: str = "T") -> list[bool]:
        """Store that a message is recalled; the list tells whether that came in time, when it is known."""
        now_ms = self.clock.now_ms()
        properties = encode_properties({DELETES: key, "UNIQ_KEY": key, "TIMER_DELIVER_MS": str(out_ms + 1)})
        record = PendingRecord(topic, 0, 0, 0, now_ms, HOST, 0, 0, b"0", properties)
        verdicts: list[bool] = []

        def done(results: list[PutResult], _code: int) -> None:
            if results[0].status is PutStatus.PUT_OK:
                self.feed.verdict(results[0].queue_offset, verdicts.append)

        self.enter([timed(record, out_ms, now_ms, self.limits)], done)
        return verdicts

    def delivered(self, topic: str = "T") -> list[MessageExt]:
        found = []
        for queue_id in self.store.topics().get(topic, []):
            for entry in self.store.queue_entries(topic, queue_id, 0, 1_000_000):
                view = self.store.record_at(entry.physical_offset)
                assert view is not None
                found.append(decode_record(view))
        return sorted(found, key=lambda message: message.physical_offset)

    def keys(self, topic: str = "T") -> list[str]:
        return [message.properties["UNIQ_KEY"] for message in self.delivered(topic)]

    def kill(self, *, cut: int = 0, index: bool = True) -> None:
        """Go on with a copy of the folder, as it is; `cut` bytes of the log's end are lost, perhaps the index too."""
        self.lives += 1
        old, self.root = self.root, self.root.parent / f"life{self.lives}"
        end = self.store.written
        assert cut <= end - self.store.flushed, "what is on the disk is not lost"
        shutil.copytree(old, self.root)
        if cut:
            _cut(self.root / "commitlog", end, cut)
        if not index:
            shutil.rmtree(self.root / "timerindex", ignore_errors=True)
        self.close(old)
        self.open()

    def close(self, root: Path | None = None) -> None:
        """End; with `root` as if killed: what it writes now is not looked at any more."""
        self.timers.clear()
        self.service.close()
        self.store.close()
        if root is not None:
            shutil.rmtree(root)

    def restart(self) -> None:
        """Stop in good order, and come again."""
        self.close()
        self.open()


def _cut(folder: Path, end: int, cut: int) -> None:
    file = max(path for path in folder.iterdir() if int(path.name) < end)
    at = max(end - cut, int(file.name)) - int(file.name)
    with file.open("r+b") as opened:
        size = opened.seek(0, 2)
        opened.seek(at)
        opened.write(bytes(size - at))
