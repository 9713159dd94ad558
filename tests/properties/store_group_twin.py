"""The dumb twin of a member's log: lists of entries, a leader that never fails, and a disk that does."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from raft.protocol.types import Entry, EntryType
from remoting.javahash import tags_code
from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.record import decode_record, decode_records
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.controlrecord import control_bytes
from store.errors import StoreError
from store.events import StoreEvents
from store.messagestore import MessageStore
from store.raftlog.entrylog import EntryLog
from store.types import PendingRecord, PutStatus
from tests.properties.crash_disk import CrashDisk

FILE_BYTES = 4096
HOST = pack_host("10.0.0.1", 10911)
CONTROL_BYTES = control_bytes(HOST)
CONFIG = StoreConfig(
    mappedFileSizeCommitLog=FILE_BYTES,
    mappedFileSizeConsumeQueue=200,
    maxHashSlotNum=16,
    maxIndexNum=40,
    flushIntervalCommitLog=3_600_000,
)


class GroupTwin:
    """`leader` is a log that never fails, `store` the one under test, `entries` what must be in the latter."""

    def __init__(self, root: Path) -> None:
        self._root = root / "store"
        self._root.mkdir()
        self._clock = ManualClock()
        self._made = 0
        self._leader_store = MessageStore.open(
            replace(CONFIG, storePathRootDir=str(root / "leader")),
            store_host=HOST,
            clock=self._clock,
            group=True,
            stepped=True,
        )
        assert self._leader_store.entries is not None
        self.leader: EntryLog = self._leader_store.entries
        self.entries: list[Entry] = []
        # Indexes that the log under test has reported durable, and that the group has committed.
        self.durable = self.commit = 0
        # The last entry that stays, while others are being cut.
        self._cutting: int | None = None
        self._disk = self._new_disk()
        self._open()
        self.leader.append(EntryType.CONFIG, 1, b"the first", 0)

    def _new_disk(self, after_kill: CrashDisk | None = None) -> CrashDisk:
        derived = [self._root / name for name in ("consumequeue", "index", "raft")]
        return CrashDisk(self._root, derived, after_kill=after_kill)

    def _open(self) -> None:
        self.store = MessageStore.open(
            replace(CONFIG, storePathRootDir=str(self._root)),
            store_host=HOST,
            clock=self._clock,
            disk=self._disk,
            group=True,
            stepped=True,
            events=StoreEvents(flushed=self._durable_told),
        )
        assert self.store.entries is not None
        self.log = self.store.entries

    def _durable_told(self, position: int) -> None:
        self.durable = self.log.settle(position)

    # -- what a script may do

    def lead(self, kind: int, sizes: list[int]) -> None:
        """The leader appends; whatever the log under test has beyond what it shares with it is lost to the group."""
        term = max(self.leader.last.term, self.log.last.term) + (self.common() < self.log.last.index)
        self._append(self.leader, term, kind, sizes)

    def stray(self, kind: int, sizes: list[int]) -> None:
        """The log under test is a leader's for a moment, in a term that nobody else hears of."""
        if self.log.last.index:
            term = max(self.leader.last.term, self.log.last.term) + 1
            self._append(self.log, term, kind, sizes)
            self._remember()

    def follow(self, bytes_max: int) -> None:
        """Take over what the leader has, cutting what it does not have."""
        common = self.common()
        if common < self.log.last.index:
            # Before it is called: a crash in the middle may leave either.
            self.durable = min(self.durable, common)
            self._cutting = common
            self.log.cut(common)
            self.help()
            self._cutting = None
            del self.entries[common:]
        if common < self.leader.last.index:
            sent = self.leader.read(common + 1, bytes_max)
            self.log.accept([entry._replace(data=bytes(entry.data)) for entry in sent])
            self._remember()

    def release(self, behind: int) -> None:
        """Commit what is durable here and in the leader's log."""
        until = min(self.common(), self.durable) - behind
        if until > self.commit:
            self.commit = until
            self.leader.release(until)
        if min(self.commit, self.log.last.index) > self.log.commit:
            self.log.release(min(self.commit, self.log.last.index))

    def flush(self) -> None:
        self.store.step_flush()

    def help(self) -> None:
        while self.store.step_helper():
            pass

    def idle(self, seconds: int) -> None:
        self._clock.advance(seconds)
        self.store.idle()
        self.help()

    def turn_clock(self, seconds: int) -> None:
        self._clock.set_wall(max(0, self._clock.now_ms() + seconds * 1000))

    def set_fuse(self, calls: int) -> None:
        self._disk.fuse = calls

    def restart(self) -> None:
        self.store.close()
        if not self._disk.dead:
            self.durable = len(self.entries)
            self._open()
            self._accept(len(self.entries))

    def crash(self, seed: int, *, power: bool, again_after: int = 0) -> None:
        """End without a stop, by a kill or by the loss of power; perhaps once more in the middle of the next start."""
        kept = self.durable if power else len(self.entries)
        if self._cutting is not None:
            kept, self._cutting = min(kept, self._cutting), None
        self._disk.dead = True
        with suppress(StoreError, OSError):
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
        except (OSError, StoreError):
            if not self._disk.dead:
                raise
        if self._disk.dead:
            self.crash(seed, power=bool(seed & 1))

    def common(self) -> int:
        """Return the last entry that both logs have."""
        shared = min(self.leader.last.index, self.log.last.index)
        while shared and self.leader.read(shared, 1) != self.log.read(shared, 1):
            shared -= 1
        return shared

    # -- what must be true

    def _accept(self, kept: int) -> None:
        """After a crash the log is a beginning of what was there, or was about to come from the leader."""
        log = self.log
        assert log.whole
        assert log.last.index >= kept, f"{kept} entries had to survive, {log.last.index} did"
        assert log.commit <= self.commit
        assert log.durable == log.last.index == log.floor or not log.last.index
        found = self._all(log)
        known = self.entries + self.leader.read(len(self.entries) + 1, 1 << 30)
        # An entry that was being appended when the power went may be whole; it is nobody's then, and stays.
        assert found[: len(known)] == known[: len(found)]
        self.entries = found
        self.durable = len(found)

    def check(self) -> None:
        """Compare everything that can be asked with the lists."""
        log = self.log
        assert self._all(log) == self.entries
        assert log.last.index == len(self.entries)
        assert log.durable == self.durable
        for entry in self.entries:
            assert log.term(entry.index) == entry.term
            assert log.index_at(log.end_position(entry.index)) == entry.index
        assert log.term(len(self.entries) + 1) is None
        configs = [entry.index for entry in self.entries if log.kind(entry.index) is EntryType.CONFIG]
        assert log.last_config() == (configs[-1] if configs else 0)
        hints = self.store.queue_entries(RAFT_TOPIC, 0, 1, 1 << 20)
        assert [(hint.physical_offset, hint.tags_code) for hint in hints] == [
            (entry.position, entry.term) for entry in self.entries
        ]
        self._check_queues()

    def _check_queues(self) -> None:
        """Queues are a function of what is released, and of nothing else (R12)."""
        assert self.log.released == self.log.commit
        queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for entry in self.entries[: self.log.released]:
            for record in decode_records(bytes(entry.data), check_crc=True)[1:]:
                entries = queues.setdefault((record.topic, record.queue_id), [])
                assert record.queue_offset == len(entries)
                entries.append((record.physical_offset, record.size, tags_code(record.properties.get("TAGS"))))
                found = self.store.query(record.topic, record.properties["UNIQ_KEY"], 4, 0, 1 << 60).records
                assert [decode_record(view).physical_offset for view in found] == [record.physical_offset]
        told = {(topic, queue_id) for topic, ids in self.store.topics().items() for queue_id in ids}
        assert {queue for queue in told if self.store.max_offset(*queue)} - {(RAFT_TOPIC, 0)} == set(queues)
        for queue, entries in queues.items():
            assert [tuple(entry) for entry in self.store.queue_entries(*queue, 0, 1 << 20)] == entries
            assert self.store.max_offset(*queue) == len(entries)

    @staticmethod
    def _all(log: EntryLog) -> list[Entry]:
        found: list[Entry] = []
        while len(found) < log.last.index:
            part = log.read(len(found) + 1, random.Random(len(found)).randrange(1, 9000))
            found += [entry._replace(data=bytes(entry.data)) for entry in part]
        return found

    def _remember(self) -> None:
        news = self.log.read(len(self.entries) + 1, 1 << 30)
        self.entries += [entry._replace(data=bytes(entry.data)) for entry in news]

    # -- making entries

    def _append(self, log: EntryLog, term: int, kind: int, sizes: list[int]) -> None:
        commit = min(self.commit, log.last.index)
        if kind == EntryType.MESSAGES:
            before = log.last.index
            index, results = log.append_records([self._record(size) for size in sizes], term, commit)
            assert index == before + 1
            assert [result.status for result in results] == [PutStatus.PUT_OK] * len(sizes)
        else:
            log.append(kind, term, b"x" * sizes[0] if kind else b"", commit)

    def _record(self, size: int) -> PendingRecord:
        self._made += 1
        properties = {"UNIQ_KEY": f"K{self._made}"} | ({"TAGS": f"T{self._made % 3}"} if self._made % 3 else {})
        body = f"{self._made}:".encode().ljust(size, b".")
        return PendingRecord(
            f"topic{size % 2}", self._made % 2, 0, 0, 1, HOST, 0, 0, body, encode_properties(properties)
        )
