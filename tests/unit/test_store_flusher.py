"""Group commit: one fdatasync for all that wait; an error is the end."""

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.files.disk import Disk
from store.files.mappedfile import LogFile
from store.log.commitlog import CommitLog
from store.log.flusher import Flusher
from store.log.syncround import BesideLog, Witnessed

NEVER = 3_600_000
CONFIG = StoreConfig(flushIntervalCommitLog=NEVER)


class SlowDisk(Disk):
    """fdatasync waits until it is let go; it may fail."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.syncs = 0
        self.broken = False

    def fdatasync(self, fd: int) -> None:
        if threading.current_thread().name != "store-flusher":
            super().fdatasync(fd)
        else:
            self.begun.release()
            assert self.go.acquire(timeout=10)
            self.syncs += 1
            if self.broken:
                raise OSError(errno.EIO, "broken")


class Lingers:
    """A file beside the log that only ever catches up."""

    def __init__(self, catch_up: Callable[[], float | None]) -> None:
        self.catch_up = catch_up

    def hand_over(self) -> None:
        """Nothing is on its way."""

    def along(self) -> None:
        """Nothing is on its way."""


class Rig:
    """A log with a flusher, and what the flusher said."""

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        config: StoreConfig = CONFIG,
        witness: Callable[[], Witnessed | None] = lambda: None,
        beside: BesideLog | None = None,
    ) -> None:
        self.log = CommitLog(folder, 4096, disk, [LogFile.create(disk, folder, 0, 4096)], 0)
        self.told: list[int] = []
        self.fatal: list[BaseException] = []
        self.news = threading.Semaphore(0)
        self.flusher = Flusher(
            self.log, config, on_flushed=self.flushed, on_fatal=self.failed, witness=witness, beside=lambda: beside
        )
        self.flusher.start()

    def flushed(self, position: int) -> None:
        self.told.append(position)
        self.news.release()

    def failed(self, error: BaseException) -> None:
        self.fatal.append(error)
        self.news.release()

    def write(self, size: int) -> int:
        self.log.pieces.append(b"x" * size)
        self.log.end += size
        self.log.write()
        return self.log.written

    def wait(self) -> None:
        assert self.news.acquire(timeout=10)

    def close(self) -> None:
        self.flusher.close()
        self.log.close()


def test_requests_that_gather_are_served_together(tmp_path: Path) -> None:
    disk = SlowDisk()
    rig = Rig(tmp_path, disk)
    rig.flusher.ask(rig.write(100))
    assert disk.begun.acquire(timeout=10)
    for _ in range(5):
        rig.flusher.ask(rig.write(100))
    assert rig.log.flushed == 0, "nothing is flushed while the disk is at it"
    disk.go.release(2)
    rig.wait()
    rig.wait()
    assert rig.told == [100, 600]
    assert rig.log.flushed == 600
    assert disk.syncs == 2
    rig.close()


def test_what_is_written_while_syncing_is_not_called_flushed(tmp_path: Path) -> None:
    disk = SlowDisk()
    rig = Rig(tmp_path, disk)
    rig.flusher.ask(rig.write(10))
    assert disk.begun.acquire(timeout=10)
    rig.write(10)
    disk.go.release()
    rig.wait()
    assert rig.told == [10]
    disk.go.release()
    rig.close()
    assert rig.told == [10, 20], "closing flushes the rest"


def test_an_error_is_said_once_and_ends_it(tmp_path: Path) -> None:
    disk = SlowDisk()
    disk.broken = True
    disk.go.release(5)
    rig = Rig(tmp_path, disk)
    rig.flusher.ask(rig.write(10))
    rig.wait()
    assert [str(error) for error in rig.fatal] == ["[Errno 5] broken"]
    assert rig.flusher.failure is rig.fatal[0]
    disk.broken = False
    rig.flusher.ask(rig.write(10))
    rig.flusher.fail(OSError("again"))
    rig.close()
    assert disk.syncs == 1, "fdatasync is never tried again"
    assert rig.log.flushed == 0
    assert rig.told == []
    assert len(rig.fatal) == 1


@pytest.mark.parametrize(("pages", "thorough_ms"), [(1, NEVER), (4, 0)])
def test_the_interval_flushes_by_itself(tmp_path: Path, pages: int, thorough_ms: int) -> None:
    """Enough dirty pages, or anything at all when the thorough interval is over."""
    config = replace(
        CONFIG, flushIntervalCommitLog=10, flushCommitLogLeastPages=pages, flushCommitLogThoroughInterval=thorough_ms
    )
    rig = Rig(tmp_path, Disk(), config)
    rig.write(4096 - 8)
    if pages == 1:
        rig.log.roll()
        rig.write(8)
    rig.wait()
    assert rig.told[-1] == rig.log.written
    rig.close()


def test_too_little_waits_for_the_thorough_interval(tmp_path: Path) -> None:
    config = replace(CONFIG, flushIntervalCommitLog=1, flushCommitLogThoroughInterval=NEVER)
    rig = Rig(tmp_path, Disk(), config)
    rig.write(100)
    assert not rig.news.acquire(timeout=0.05)
    assert rig.log.flushed == 0
    rig.close()
    assert rig.log.flushed == 100


class Entries:
    """What a witness sees: an entry counts when it is `known`, which is after its bytes were written."""

    def __init__(self) -> None:
        self.known = 0
        self.floor = 0
        self.asked = 0
        self.raised = threading.Event()
        self.awaited = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def witness(self) -> Witnessed:
        self.asked += 1
        seen, meanwhile = self.known, self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return seen, lambda: self.advance(seen)

    def advance(self, seen: int) -> None:
        self.floor = max(self.floor, seen)
        if self.floor >= self.awaited:
            self.raised.set()


def test_R4_an_entry_written_between_witness_and_sync_is_witnessed_without_another(tmp_path: Path) -> None:
    entries = Entries()
    rig = Rig(tmp_path, Disk(), witness=entries.witness)

    def overtake() -> None:
        entries.known = rig.write(10)
        rig.flusher.ask(entries.known)

    entries.meanwhile, entries.awaited = overtake, 20
    entries.known = rig.write(10)
    rig.flusher.ask(10)
    assert entries.raised.wait(10), "nothing more comes, and the floor stays behind what was acknowledged"
    assert (rig.log.flushed, entries.floor) == (20, 20)
    rig.close()


def test_R4_an_entry_synced_before_it_counts_is_witnessed_when_its_writer_asks(tmp_path: Path) -> None:
    entries = Entries()
    rig = Rig(tmp_path, Disk(), witness=entries.witness)
    entries.meanwhile, entries.awaited = lambda: rig.write(10), 20
    entries.known = rig.write(10)
    rig.flusher.ask(10)
    rig.wait()
    assert rig.log.flushed == 20
    asked = entries.asked
    entries.known = 20
    rig.flusher.ask(20)
    assert entries.raised.wait(10)
    assert entries.asked > asked
    rig.close()


def test_R4_closing_leaves_nothing_unwitnessed(tmp_path: Path) -> None:
    entries = Entries()
    rig = Rig(tmp_path, Disk(), witness=entries.witness)
    entries.meanwhile = lambda: rig.write(10)
    entries.known = rig.write(10)
    rig.flusher.ask(10)
    rig.wait()
    entries.known = 20
    rig.close()
    assert entries.floor == 20


def test_bytes_that_are_no_entry_cost_a_round_for_each_interval_and_no_more(tmp_path: Path) -> None:
    entries = Entries()
    rig = Rig(tmp_path, Disk(), witness=entries.witness)
    rig.flusher.ask(rig.write(10))
    rig.wait()
    time.sleep(0.2)
    assert entries.asked <= 3
    rig.close()


def test_R4_who_lingers_is_called_again_though_nothing_is_to_be_synced(tmp_path: Path) -> None:
    left, called = 3, threading.Event()

    def linger() -> float | None:
        nonlocal left
        left -= 1
        if left:
            return 0.001
        called.set()
        return None

    rig = Rig(tmp_path, Disk(), beside=Lingers(linger))
    assert called.wait(10), "nothing is written, and the interval is an hour"
    rig.close()


def test_who_lingers_and_meets_an_error_ends_it_as_a_sync_does(tmp_path: Path) -> None:
    def linger() -> float | None:
        raise OSError(errno.EIO, "broken")

    rig = Rig(tmp_path, Disk(), beside=Lingers(linger))
    assert rig.flusher._thread is not None
    rig.flusher._thread.join(10)
    assert not rig.flusher._thread.is_alive(), "nobody has to close it"
    assert [str(error) for error in rig.fatal] == ["[Errno 5] broken"]
    assert isinstance(rig.flusher.failure, OSError)
    rig.close()
