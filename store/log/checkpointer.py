"""The helper thread, and the steps towards a checkpoint.

The thread does what may take long and nobody waits for: the next log file and zeros ahead of the writing, syncing the
derived files, removing old files.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from runtime.clock import Clock
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.errors import is_full
from store.files.beginning import Beginning
from store.files.checkpoint import Checkpoint, overwrite_checkpoint, save_checkpoint
from store.files.disk import Disk
from store.log.commitlog import CommitLog
from store.log.flusher import Flusher
from store.worker import Worker

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
        self,
        log: CommitLog,
        disk: Disk,
        failed: Callable[[BaseException], None],
        worked: Callable[[], None],
        *,
        stepped: bool = False,
    ) -> None:
        """Make it; `worked` is called in the worker's thread after each of its jobs.

        With `stepped` it has no thread, and whoever drives the store calls step().
        """
        self._log = log
        self._disk = disk
        self._failed = failed
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._making_room = False
        self._room_after = 0.0
        # A thread of its own: a sync of all derived files takes seconds, and repair goes on meanwhile.
        self.worker = Worker(worked, stepped=stepped)
        self._thread = None if stepped else threading.Thread(target=self._run, name="store-helper", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._thread is not None:
            self._thread.start()

    def step(self) -> bool:
        """Do one job, of the worker too, in the caller's thread; tell whether there was one."""
        assert self._thread is None, "the thread does the jobs"
        if self._jobs.empty():
            return self.worker.step()
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
        self.worker.close()
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
        # Tells where the log begins, None when that is not settled yet; until it is set, what was known at the start.
        self._beginning: Callable[[], Beginning | None] = lambda: checkpoint.beginning
        # Where a hole of the log begins that is not filled yet: no checkpoint may lie behind it.
        self._hole: int | None = None
        # What the queues held in front of the hole when it was found, which is the least that they hold.
        self._hole_totals = (0, 0)
        # Whether what was counted for the last checkpoint, or the one that is coming, is what there is.
        self._counted = True
        self._saving = threading.Lock()
        self._due = clock.monotonic() + CHECKPOINT_SECONDS
        # The checkpoint being worked on, and how many queues must be written before it holds.
        self._coming: Checkpoint | None = None
        self._owed = 0
        self._syncing = False
        self._broken = False
        # That no room was for the last checkpoint.
        self.full: OSError | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The last one written."""
        return self._saved

    def step(self, timestamp: int) -> None:
        """Do some milliseconds of the work. `timestamp`: store time of the last record. Raises OSError."""
        if self._index is not None and self._index.owes:
            self._index.catch_up()
        dirty = self._queues.dirty
        if dirty:
            self._queues.persist(queues_max=QUEUES_PER_STEP)
            self._owed -= min(dirty, QUEUES_PER_STEP)
        if self._syncing or self._broken:
            return
        if self._coming is None:
            news = self._vouched() - self._saved.dispatched
            enough = self._bytes_max is not None and news >= self._bytes_max
            if news > 0 and (enough or self._clock.monotonic() >= self._due):
                self._mark(timestamp)
            return
        if self._owed <= 0 and self._log.flushed >= self._coming.flushed:
            self._syncing = True
            coming = self._coming
            self._helper.submit(lambda: self._save(coming))

    def shrunk(self) -> None:
        """Note that queues were deleted, which the log does not tell: no checkpoint counts them any more.

        The next one comes at once. Raises OSError.
        """
        self._due = self._clock.monotonic()
        with self._saving:
            self._counted = False
            if self._saved.totals is not None:
                self._save_held(self._saved)

    def begin(self, beginning: Callable[[], Beginning | None]) -> None:
        """Have every checkpoint say where the log begins, the one on the disk at once. Raises OSError.

        `beginning` is called by any thread.
        """
        self._beginning = beginning
        try:
            self.note_beginning()
        except OSError as error:
            if not is_full(error):
                raise

    def note_beginning(self) -> None:
        """Have the disk say where the log begins now: before what stood in front of it is removed.

        For any thread. Raises OSError; then nothing may be removed.
        """
        with self._saving:
            if self._saved.beginning == self._beginning():
                return
            try:
                self._save_held(self._saved)
            except OSError as error:
                if not is_full(error):
                    raise
                # What is to be removed is what would make room.
                noted = replace(self._saved, beginning=self._beginning())
                try:
                    overwrite_checkpoint(self._root, self._disk, noted)
                except FileNotFoundError:
                    raise error from None
                self._saved = noted

    def hold(self, position: int | None) -> None:
        """Keep every checkpoint at or below `position`, where a hole of the log begins; None: there is none any more.

        The last one is lowered at once, durably: a start that reads from behind a hole would not know of it (R4).
        Raises OSError.
        """
        if position is None or (self._hole is not None and position >= self._hole):
            # Upwards nothing is lowered: a repair goes on while the helper waits for the disk with a checkpoint.
            self._hole = position
            return
        totals = self._queues.totals(below=position)
        with self._saving:
            self._hole, self._hole_totals = position, totals
            if self._saved.dispatched > position:
                self._save_held(self._saved)

    def finish(self, timestamp: int) -> bool:
        """Write everything and a checkpoint at the end of the log, which must be flushed; False: there was no room.

        Then the next start builds from the log what is missing. Raises OSError.
        """
        try:
            self._finish(timestamp)
        except OSError as error:
            if not is_full(error):
                raise
            _LOG.warning("no room for queues, index or checkpoint: %s; the next start builds them from the log", error)
            return False
        return True

    def _finish(self, timestamp: int) -> None:
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
        position = self._vouched()
        self._counted = True
        self._owed = self._queues.dirty
        if self._index is not None:
            self._index.persist()
        self._flusher.ask(position)
        self._coming = Checkpoint(
            timestamp,
            timestamp,
            timestamp,
            position,
            position,
            replication=self._saved.replication,
            totals=self._queues.totals() if position == self._log.dispatched else self._hole_totals,
        )

    def _vouched(self) -> int:
        return self._log.dispatched if self._hole is None else min(self._log.dispatched, self._hole)

    def _save(self, coming: Checkpoint) -> None:
        """Run in the helper's thread."""
        try:
            self._disk.sync_tree(self._root)
            self.full = self._write_held(coming)
        except OSError:
            # Some derived pages may be lost for good: with no later checkpoint they are rebuilt at the next start.
            self._broken = True
            _LOG.exception("queues and index cannot be synced: no checkpoint any more until the next start")
        finally:
            self._coming = None
            self._due = self._clock.monotonic() + (CHECKPOINT_SECONDS if self.full is None else ROOM_RETRY_SECONDS)
            self._syncing = False

    def _write_held(self, coming: Checkpoint) -> OSError | None:
        """Write a checkpoint; the one before stays while there is no room for it, and is tried again soon."""
        try:
            with self._saving:
                # A hole may have been found since it was marked.
                self._save_held(coming)
        except OSError as error:
            if not is_full(error):
                raise
            return error
        return None

    def _write(self, coming: Checkpoint) -> None:
        self._disk.sync_tree(self._root)
        with self._saving:
            # A hole may have been found since it was marked.
            self._save_held(coming)

    def _save_held(self, checkpoint: Checkpoint) -> None:
        if not self._counted:
            checkpoint = replace(checkpoint, totals=None)
        hole = self._hole
        if hole is not None and checkpoint.dispatched > hole:
            checkpoint = checkpoint.lowered(hole, self._hole_totals if self._counted else None)
        checkpoint = replace(checkpoint, beginning=self._beginning())
        save_checkpoint(self._root, self._disk, checkpoint)
        self._saved = checkpoint
