"""When the index of timer messages writes, merges and removes files: in another thread, one job at a time."""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from broker.delay.index import Job, TimerIndex
from broker.messages.delay_queue import Aside
from store.timerruns import Key

_log = logging.getLogger(__name__)


class IndexFiles:
    """Has an index's jobs done; and knows which of its cursors no power cut takes back."""

    def __init__(
        self, index: TimerIndex, aside: Aside, flushed: Callable[[], int], on_done: Callable[[], None]
    ) -> None:
        """`flushed` returns up to where the log is on the disk; `on_done` is called after each job."""
        self._index = index
        self._aside = aside
        self._flushed = flushed
        self._on_done = on_done
        # Cursors with the log's end at that time.
        self._cursors: deque[tuple[int, Key]] = deque()
        self._durable: Key = (-1, -1)
        self._failed = False
        self.reads = 0
        """How many reads of runs are on their way in other threads."""

    def moved(self, written: int, passed: Key) -> None:
        """Note what was delivered, which is needed no more once the log is on the disk up to this position.

        The whole slot stays until it is done: a recall in it may stand before the message that it recalls, which was
        stored anew since.
        """
        self._cursors.append((written, (passed[0], -1)))
        self._settle()

    def read(self) -> None:
        """Note that a read is done."""
        self.reads -= 1
        if not self.reads:
            self._index.close_gone()

    def look(self, *, again: bool = False) -> None:
        """Begin a job when there is one; after one that failed only with `again`, which comes now and then."""
        if self._failed and not again:
            return
        self._failed = False
        job = self._index.next_job(self._settle())
        if job is not None:
            self._aside(job.work, partial(self._worked, job))

    def finish(self) -> None:
        """Write what is worth it, at a stop. Raises OSError."""
        job = self._index.next_job(self._settle(), stopping=True)
        if job is not None:
            job.work()
            job.done()

    def _settle(self) -> Key:
        flushed = self._flushed()
        while self._cursors and self._cursors[0][0] <= flushed:
            self._durable = self._cursors.popleft()[1]
        return self._durable

    def _worked(self, job: Job, found: object) -> None:
        if job is not self._index.job:
            return
        try:
            if isinstance(found, BaseException):
                raise found
            job.done()
        except OSError as error:
            _log.warning("the index of timer messages cannot be written, it is tried again: %s", error)
            self._failed = True
            self._index.failed()
            return
        if not self.reads:
            self._index.close_gone()
        self._on_done()
