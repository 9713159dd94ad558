"""The helper thread, and the steps towards a checkpoint.

The thread does what may take long and nobody waits for: the next log file and zeros ahead of the writing, syncing the
derived files, removing old files.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

from runtime.clock import Clock
from runtime.durable import replace_file
from store.checkpoint import CHECKPOINT_NAME, Checkpoint
from store.commitlog import CommitLog
from store.consumequeue import ConsumeQueues
from store.disk import Disk
from store.flusher import Flusher
from store.indexfile import MessageIndex

_LOG = logging.getLogger(__name__)

# How much of the log a start after a kill reads again at most, in seconds of writing.
CHECKPOINT_SECONDS = 5.0
# And in a group, in bytes of its log: a member reads and dispatches some 50 MB of small messages a second.
GROUP_CHECKPOINT_BYTES = 64 * 1024 * 1024
# Queues whose tails one step writes: some 5 ms of the caller's time.
QUEUES_PER_STEP = 512
# After the disk refused zeros ahead, they are not tried again at once: the writing itself will tell.
ROOM_RETRY_SECONDS = 1.0


class Helper:
    """The thread. Jobs of one kind wait at most once, so the queue is as short as there are kinds."""

    def __init__(
        self, log: CommitLog, disk: Disk, failed: Callable[[BaseException], None], *, stepped: bool = False
    ) -> None:
        """Make it; with `stepped` it has no thread, and whoever drives the store calls step()."""
        self._log = log
        self._disk = disk
        self._failed = failed
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._making_room = False
        self._room_after = 0.0
        self._thread = None if stepped else threading.Thread(target=self._run, name="store-helper", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._thread is not None:
            self._thread.start()

    def step(self) -> bool:
        """Do one job in the caller's thread; tell whether there was one."""
        assert self._thread is None, "the thread does the jobs"
        if self._jobs.empty():
            return False
        job = self._jobs.get()
        if job is not None:
            self._do(job)
        return True

    def make_room(self) -> None:
        """Have zeros written ahead of the writing."""
        if not self._making_room and time.monotonic() >= self._room_after:
            self._making_room = True
            self._jobs.put(self._prepare)

    def remove(self, paths: Sequence[Path]) -> None:
        """Have files of the log removed, oldest first."""

        def unlink_all() -> None:
            for path in paths:
                self._disk.unlink(path)
            self._disk.sync_folder(paths[0].parent)

        self._jobs.put(unlink_all)

    def submit(self, job: Callable[[], None]) -> None:
        """Have something done once."""
        self._jobs.put(job)

    def close(self) -> None:
        """Finish what waits and end the thread."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
            return
        while self.step():
            pass

    def _prepare(self) -> None:
        try:
            self._log.prepare(self._failed)
        except OSError as error:
            _LOG.warning("no room ahead of the CommitLog's end: %s", error)
            self._room_after = time.monotonic() + ROOM_RETRY_SECONDS
        finally:
            self._making_room = False

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            self._do(job)

    @staticmethod
    def _do(job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            _LOG.exception("a job of the store's helper failed")


class Keeper:
    """Persists what is derived, a little at each step, and writes a checkpoint whenever all of it is on disk."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        clock: Clock,
        *,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex | None,
        flusher: Flusher,
        helper: Helper,
        checkpoint: Checkpoint,
        bytes_max: int | None = None,
    ) -> None:
        """`bytes_max`: a checkpoint comes once so much was dispatched since the last one, however soon that is."""
        self._bytes_max = bytes_max
        self._root = root
        self._disk = disk
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._flusher = flusher
        self._helper = helper
        self._saved = checkpoint
        self._due = clock.monotonic() + CHECKPOINT_SECONDS
        # The checkpoint being worked on, and how many queues must be written before it holds.
        self._coming: Checkpoint | None = None
        self._owed = 0
        self._syncing = False
        self._broken = False

    @property
    def checkpoint(self) -> Checkpoint:
        """The last one written."""
        return self._saved

    def step(self, timestamp: int) -> None:
        """Do some milliseconds of the work. `timestamp`: store time of the last record. Raises OSError."""
        dirty = self._queues.dirty
        if dirty:
            self._queues.persist(queues_max=QUEUES_PER_STEP)
            self._owed -= min(dirty, QUEUES_PER_STEP)
        if self._syncing or self._broken:
            return
        if self._coming is None:
            news = self._log.dispatched - self._saved.dispatched
            enough = self._bytes_max is not None and news >= self._bytes_max
            if news > 0 and (enough or self._clock.monotonic() >= self._due):
                self._mark(timestamp)
            return
        if self._owed <= 0 and self._log.flushed >= self._coming.flushed:
            self._syncing = True
            coming = self._coming
            self._helper.submit(lambda: self._save(coming))

    def hasten(self) -> None:
        """Let the next checkpoint come at once: something changed that the log does not tell."""
        self._due = self._clock.monotonic()

    def finish(self, timestamp: int) -> None:
        """Write everything and a checkpoint at the end of the log, which must be flushed. Raises OSError."""
        self._queues.persist()
        if self._index is not None:
            # With the slots: the mark of an unclean stop goes, and nobody will make them from the entries again.
            self._index.persist(sync=True)
        if not self._broken:
            self._mark(timestamp)
            assert self._coming is not None, "just marked"
            self._write(self._coming)

    def _mark(self, timestamp: int) -> None:
        # In a group what is not committed yet is in no queue, and may be cut: the checkpoint does not vouch for it.
        position = self._log.dispatched
        self._owed = self._queues.dirty
        if self._index is not None:
            self._index.persist()
        self._flusher.ask(position)
        self._coming = Checkpoint(
            timestamp, timestamp, timestamp, position, position, replication=self._saved.replication
        )

    def _save(self, coming: Checkpoint) -> None:
        """Run in the helper's thread."""
        try:
            self._write(coming)
        except OSError:
            # Some derived pages may be lost for good: with no later checkpoint they are rebuilt at the next start.
            self._broken = True
            _LOG.exception("queues and index cannot be synced: no checkpoint any more until the next start")
        finally:
            self._coming = None
            self._due = self._clock.monotonic() + CHECKPOINT_SECONDS
            self._syncing = False

    def _write(self, coming: Checkpoint) -> None:
        self._disk.sync_tree(self._root)
        replace_file(self._root / CHECKPOINT_NAME, coming.encode())
        self._saved = coming
