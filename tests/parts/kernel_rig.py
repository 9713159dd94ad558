"""A flusher that asks a kernel of the test's, which is done when the test says so."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from store.config import StoreConfig
from store.files.disk import Disk
from store.files.kernelsync import KernelSyncs
from store.files.mappedfile import LogFile
from store.log.commitlog import CommitLog
from store.log.flusher import Flusher
from store.log.syncround import BesideLog, Witnessed

FILE_BYTES = 4096
CONFIG = StoreConfig(flushIntervalCommitLog=3_600_000)


class Counted(Disk):
    """Counts the thread's fdatasyncs, and names who asked for them."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def fdatasync(self, fd: int) -> None:
        self.threads.append(threading.current_thread().name)
        super().fdatasync(fd)


class FakeKernel(KernelSyncs):
    """A kernel that takes as many syncs as it is told to, and is done when the test says so."""

    def __init__(self) -> None:
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        self.under_way = 0
        self.asked: list[int] = []
        self.takes = 100
        self.refuses: OSError | None = None
        self.results: list[OSError | None] = []
        self.collect_fails: OSError | None = None
        self.closed = False

    def submit(self, fds: Sequence[int]) -> int:
        if self.refuses is not None:
            raise self.refuses
        taken = min(self.takes, len(fds))
        self.asked.append(len(fds))
        self.under_way += taken
        return taken

    def done(self, *results: OSError | None) -> None:
        """Let all that is under way be over."""
        self.results = list(results) + [None] * (self.under_way - len(results))

    def collect(self) -> list[OSError | None]:
        if self.collect_fails is not None:
            raise self.collect_fails
        results, self.results = self.results, []
        self.under_way -= len(results)
        return results

    def wait(self) -> list[OSError | None]:
        self.done()
        return self.collect()

    def close(self) -> None:
        self.closed = True
        os.close(self._eventfd)


class Floor:
    """A file beside the log: what was on its way, and whether it is durable."""

    def __init__(self, folder: Path) -> None:
        self.fd = os.open(folder / "floor", os.O_RDWR | os.O_CREAT)
        self.lacks = True
        self.handed = 0

    def hand_over(self) -> None:
        self.handed += 1

    def along(self) -> tuple[int, Callable[[], None]] | None:
        return (self.fd, self._landed) if self.lacks else None

    def catch_up(self) -> float | None:
        return None

    def _landed(self) -> None:
        self.lacks = False


class Rig:
    """A log with a flusher that asks a kernel; everything it tells, and from which thread."""

    def __init__(
        self,
        folder: Path,
        kernel: KernelSyncs | None,
        *,
        disk: Disk | None = None,
        witness: Callable[[], Witnessed | None] = lambda: None,
        beside: BesideLog | None = None,
        config: StoreConfig = CONFIG,
    ) -> None:
        self.disk = disk or Counted()
        folder.mkdir(exist_ok=True)
        first = LogFile.create(self.disk, folder, 0, FILE_BYTES)
        self.log = CommitLog(folder, FILE_BYTES, self.disk, [first], 0)
        if isinstance(self.disk, Counted):
            self.disk.threads.clear()
        self.told: list[int] = []
        self.told_by_thread: list[int] = []
        self.fatal: list[BaseException] = []
        self.news = threading.Semaphore(0)
        self.flusher = Flusher(
            self.log,
            config,
            on_flushed=self._by_thread,
            on_fatal=self._failed,
            witness=witness,
            beside=lambda: beside,
            make_kernel=lambda: kernel,
        )
        self.fd = self.flusher.in_loop(self.told.append)
        self.flusher.start()

    def _by_thread(self, position: int) -> None:
        self.told_by_thread.append(position)
        self.news.release()

    def _failed(self, error: BaseException) -> None:
        self.fatal.append(error)
        self.news.release()

    def write(self, size: int) -> int:
        if size > self.log.file_end - self.log.end - 8:
            self.log.roll()
        self.log.pieces.append(b"x" * size)
        self.log.end += size
        self.log.write()
        return self.log.written

    def ask(self, size: int) -> None:
        """Write so much and ask for it."""
        self.flusher.ask(self.write(size))

    def wait(self) -> None:
        assert self.news.acquire(timeout=10)

    def close(self) -> None:
        self.flusher.close()
        self.log.close()


@contextmanager
def faked(folder: Path, **options: object) -> Iterator[tuple[Rig, FakeKernel]]:
    """A rig whose kernel does what the test says."""
    kernel = FakeKernel()
    rig = Rig(folder, kernel, **options)  # type: ignore[arg-type]
    try:
        yield rig, kernel
    finally:
        rig.close()
        assert kernel.closed
