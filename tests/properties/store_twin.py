"""The dumb twin of the store: a list of messages, and what must be true of a store that was given them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from remoting.javahash import tags_code
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.record import decode_record
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.errors import StoreWriteError
from store.messagestore import MessageStore
from store.types import GetStatus, PendingRecord, PutResult, PutStatus
from tests.parts.told import Told
from tests.properties.crash_disk import CrashDisk

FILE_BYTES = 4096
HOST = pack_host("10.0.0.1", 10911)
CONFIG = StoreConfig(
    mappedFileSizeCommitLog=FILE_BYTES,
    mappedFileSizeConsumeQueue=200,
    maxHashSlotNum=16,
    maxIndexNum=40,
    # Only asked-for flushes, so that what is durable depends on the script alone.
    flushIntervalCommitLog=3_600_000,
)


@dataclass(frozen=True)
class Message:
    """A message as the twin remembers it, with the place that the store promised."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    tags: str
    key: str
    place: PutResult


class Twin:
    """A store under test and the list that it must equal.

    `messages` are those that may be in the log: the first `flushed` were reported durable, the first `written` written.
    """

    def __init__(self, root: Path) -> None:
        self._config = replace(CONFIG, storePathRootDir=str(root))
        self._root = root
        root.mkdir()
        self._clock = ManualClock()
        self._disk = self._new_disk()
        self.messages: list[Message] = []
        self.written = self.flushed = 0
        self._made = 0
        self._flush_told = Event()
        self._open()

    def _new_disk(self, after_kill: CrashDisk | None = None) -> CrashDisk:
        return CrashDisk(self._root, [self._root / "consumequeue", self._root / "index"], after_kill=after_kill)

    def _open(self) -> None:
        self._told = Told()
        self._told.flushed = lambda _: self._flush_told.set()
        self._told.fatal = lambda _: self._flush_told.set()
        self.store = MessageStore.open(
            self._config, store_host=HOST, clock=self._clock, disk=self._disk, events=self._told.events
        )

    # -- what a script may do

    def put(self, topic: int, queue_id: int, size: int) -> None:
        record = self._record(topic, queue_id, size)
        self._remember([record], [self.store.put(record)])

    def put_batch(self, topic: int, queue_id: int, sizes: list[int]) -> None:
        records = [self._record(topic, queue_id, size) for size in sizes]
        self._remember(records, self.store.put_batch(records))

    def write(self) -> None:
        dispatched: list[int] = []
        self._told.dispatched = lambda batch: dispatched.extend(entry.physical_offset for entry in batch)
        try:
            self.store.write()
        except StoreWriteError:
            if not self._disk.dead:
                # A full disk: all of it is gone, and the next one gets its chance a second later.
                assert self.store.writable() is not None
                del self.messages[self.written :]
                self._clock.advance(1)
                assert self.store.writable() is None
            assert not dispatched
            return
        assert dispatched == [message.place.physical_offset for message in self.messages[self.written :]]
        self.written = len(self.messages)

    def flush(self) -> None:
        self.write()
        if self._disk.dead:
            return
        self._flush_told.clear()
        self.store.flush_soon(self.store.written)
        while self.store.flushed < self.store.written:
            assert self._flush_told.wait(10)
            if self._disk.dead:
                return
            self._flush_told.clear()
        self.flushed = self.written

    def idle(self, seconds: int) -> None:
        self._clock.advance(seconds)
        self.store.idle()

    def expire(self) -> None:
        """Four days pass; what is checkpointed goes, except the newest file."""
        self._clock.advance(4 * 24 * 3600)
        # The files' own times are those of the machine that runs the test.
        self._clock.set_wall(2_000_000_000_000 + self._made)
        self.store.clean(now=True)

    def fill_disk(self, taken: int) -> None:
        self._disk.full = taken

    def set_fuse(self, calls: int) -> None:
        self._disk.fuse = calls

    def turn_clock(self, seconds: int) -> None:
        self._clock.set_wall(max(0, self._clock.now_ms() + seconds * 1000))

    def restart(self) -> None:
        """Stop cleanly and start."""
        self.write()
        if self._disk.dead:
            return
        self.store.close()
        if self._disk.dead:
            return
        self.flushed = self.written
        self._open()

    def crash(self, seed: int, *, power: bool, again_after: int = 0) -> None:
        """End without a stop, by a kill or by the loss of power; start, perhaps crash in the middle of that, start."""
        kept = self.flushed if power else self.written
        self._disk.dead = True
        with suppress(StoreWriteError, OSError):
            self.store.close()
        self._lose(seed, power=power)
        if again_after:
            self._disk.fuse = again_after
            with suppress(OSError):
                self._open()
                self._disk.dead = True
                self.store.close()
            self._disk.dead = True
            self._lose(seed + 1, power=power)
        self._open()
        self._accept(kept)

    def _lose(self, seed: int, *, power: bool) -> None:
        if power:
            self._disk.lose_power(seed)
            self._disk = self._new_disk()
        else:
            self._disk = self._new_disk(after_kill=self._disk)

    def survive(self, step: Callable[[], None], seed: int) -> None:
        """Take a step, and recover when the fuse has blown in it."""
        try:
            step()
        except OSError:
            if not self._disk.dead:
                raise
        if self._disk.dead:
            self.crash(seed, power=bool(seed & 1))

    # -- what must be true

    def _accept(self, kept: int) -> None:
        """After a crash the log is a beginning of what was tried, and holds all that must be kept."""
        end = self.store.written
        found = sum(message.place.end <= end for message in self.messages)
        assert found >= kept, f"{kept} messages had to survive, {found} did"
        del self.messages[found:]
        # The end is behind the last message, or at the next file when the blank behind it survived too.
        last = self.messages[-1].place.end if self.messages else 0
        assert end in {last, -(-last // FILE_BYTES) * FILE_BYTES}
        self.written = self.flushed = found
        assert self.store.flushed == end

    def check(self) -> None:
        """Compare everything that can be read with the list."""
        assert not self._disk.dead
        first = self.store.min_physical
        stored = self.messages[: self.written]
        queues: dict[tuple[str, int], list[Message]] = {}
        for message in stored:
            queues.setdefault((message.topic, message.queue_id), []).append(message)
        told = {(topic, queue_id) for topic, ids in self.store.topics().items() for queue_id in ids}
        # A file of a queue may outlive all that was ever in it; then it is empty.
        assert {queue for queue in told if self.store.max_offset(*queue)} == set(queues)
        for (topic, queue_id), messages in queues.items():
            gone = sum(message.place.physical_offset < first for message in messages)
            assert [message.queue_offset for message in messages] == list(range(len(messages)))
            assert self.store.min_offset(topic, queue_id) == gone
            assert self.store.max_offset(topic, queue_id) == len(messages)
            entries = self.store.queue_entries(topic, queue_id, gone, len(messages))
            assert [tuple(entry) for entry in entries] == [
                (message.place.physical_offset, message.place.size, tags_code(message.tags))
                for message in messages[gone:]
            ]
            self._read(topic, queue_id, messages, gone)
        stamps = [message.place.store_timestamp for message in stored]
        assert stamps == sorted(stamps)

    def _read(self, topic: str, queue_id: int, messages: list[Message], offset: int) -> None:
        while offset < len(messages):
            result = self.store.get(topic, queue_id, offset, 7)
            assert result.status is GetStatus.FOUND
            bodies = []
            for buffer in result.buffers:
                at = 0
                while at < len(buffer):
                    record = decode_record(buffer, at, check_crc=True)
                    bodies.append(record.body)
                    at += record.size
            assert bodies == [message.body for message in messages[offset : offset + result.count]]
            for message in messages[offset : offset + result.count]:
                found = self.store.query(topic, message.key, 4, 0, 1 << 60).records
                assert [decode_record(record).queue_offset for record in found] == [message.queue_offset]
            offset = result.next_offset

    # -- making messages

    def _record(self, topic: int, queue_id: int, size: int) -> PendingRecord:
        self._made += 1
        properties = {"UNIQ_KEY": f"K{self._made}"} | ({"TAGS": f"T{self._made % 3}"} if self._made % 3 else {})
        body = f"{self._made}:".encode().ljust(size, b".")
        return PendingRecord(f"topic{topic}", queue_id, 0, 0, 1, HOST, 0, 0, body, encode_properties(properties))

    def _remember(self, records: list[PendingRecord], places: list[PutResult]) -> None:
        for record, place in zip(records, places, strict=True):
            if self._disk.dead and place.status is PutStatus.CREATE_MAPPED_FILE_FAILED:
                continue
            assert place.status is PutStatus.PUT_OK
            number = int(bytes(record.body).partition(b":")[0])
            same = sum(
                message.topic == record.topic and message.queue_id == record.queue_id for message in self.messages
            )
            assert place.queue_offset == same
            tags = f"T{number % 3}" if number % 3 else ""
            self.messages.append(
                Message(record.topic, record.queue_id, same, bytes(record.body), tags, f"K{number}", place)
            )
