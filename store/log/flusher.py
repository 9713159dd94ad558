"""The flusher: one thread that makes what was written durable, as much as there is at a time.

Whoever waits for durability asks for a position; while one fdatasync runs, the requests of all others gather and the
next one serves them together (group commit). Without requests the thread flushes by interval.
"""

import logging
import threading
import time
from collections.abc import Callable

from store.config import StoreConfig
from store.log.commitlog import CommitLog

_LOG = logging.getLogger(__name__)

PAGE_BYTES = 4096

# What a witness saw: where the last entry ended, and what is to be called once a sync has covered it (None: nothing).
Witnessed = tuple[int, Callable[[], None] | None]


class Flusher:
    """Owns `log.flushed`. The callbacks are called from the flusher's thread.

    An error of fdatasync ends the thread: the kernel may have dropped the pages and would report success next time, so
    nothing is flushed ever again, and `on_fatal` says so once.
    """

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        *,
        on_flushed: Callable[[int], None],
        on_fatal: Callable[[BaseException], None],
        witness: Callable[[], Witnessed | None] = lambda: None,
        linger: Callable[[], float | None] = lambda: None,
        stepped: bool = False,
    ) -> None:
        """`witness` is called before a sync; what it returns is called once that sync has succeeded and was told.

        What is written between the two is synced and not witnessed: then it is called again, until it saw all.
        `linger` is called between syncs; it may raise OSError, and tells in how many seconds it wants to be called
        again at the latest (None: not before the next sync).

        With `stepped` it has no thread, and whoever drives the store calls step().
        """
        self._log = log
        self._interval_s = config.flushIntervalCommitLog / 1000
        self._least_bytes = config.flushCommitLogLeastPages * PAGE_BYTES
        self._thorough_s = config.flushCommitLogThoroughInterval / 1000
        self._on_flushed = on_flushed
        self._on_fatal = on_fatal
        self._wake = threading.Condition()
        self._wanted = log.flushed
        # The last sync went farther than its witness had seen; and: it is worth asking once more without waiting.
        self._unseen = self._again = False
        self._closing = False
        self._failure: BaseException | None = None
        self._last_flush = time.monotonic()
        # Held while a sync runs: who takes bytes or files out of the log must not meet one.
        self.syncing = threading.Lock()
        self._witness = witness
        self._linger = linger
        self._thread = None if stepped else threading.Thread(target=self._run, name="store-flusher", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._thread is not None:
            self._thread.start()

    def step(self) -> bool:
        """Flush what is written, in the caller's thread; tell whether there was anything."""
        assert self._thread is None, "the thread flushes"
        if self._failure is not None:
            return False
        flushed = self._flush()
        self._lingered()
        return flushed

    def cut(self, end: int) -> Callable[[], None]:
        """Let the log end at `end`, and forget what was asked for behind it; see CommitLog.hide().

        What is returned is to be called while `syncing` is held. A sync may run meanwhile.
        """
        with self._wake:
            self._wanted = min(self._wanted, end)
            return self._log.hide(end)

    def ask(self, position: int) -> None:
        """Have everything before `position`, which must be written, made durable as soon as possible."""
        assert position <= self._log.written, "only what is written can be flushed"
        if position <= self._wanted:
            return
        with self._wake:
            # Synced before its writer came to ask: the witness may have looked before the entry was there.
            self._again |= position <= self._log.flushed
            self._wanted = max(self._wanted, position)
            self._wake.notify()

    def fail(self, error: BaseException) -> None:
        """Note that syncing has failed somewhere; nothing is called flushed from now on."""
        with self._wake:
            if self._failure is not None:
                return
            self._failure = error
            self._wake.notify()
        _LOG.critical("the CommitLog cannot be synced: %s; what was acknowledged last may be lost", error)
        self._on_fatal(error)

    @property
    def failure(self) -> BaseException | None:
        """What ended the flushing."""
        return self._failure

    def close(self) -> None:
        """Flush everything that is written, and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        elif self._failure is None:
            self._flush()

    def _run(self) -> None:
        while self._failure is None:
            soon = self._lingered()
            with self._wake:
                if self._failure is not None:  # told before anybody waited
                    return
                if not self._closing and not self._again and self._wanted <= self._log.flushed:
                    self._wake.wait(self._interval_s if soon is None else min(soon, self._interval_s))
                closing = self._closing
                asked = self._wanted > self._log.flushed or self._again or self._unseen
                self._again = False
            if asked or closing or self._is_due():
                self._flush()
            if closing:
                return

    def _lingered(self) -> float | None:
        try:
            return self._linger()
        except OSError as error:
            self.fail(error)
            return None

    def _is_due(self) -> bool:
        dirty = self._log.written - self._log.flushed
        return dirty >= self._least_bytes or (dirty > 0 and time.monotonic() - self._last_flush >= self._thorough_s)

    def _flush(self) -> bool:
        log = self._log
        try:
            with self.syncing:
                witnessed = self._witness()
                # Read before syncing: what is written meanwhile is the next round's.
                until = log.written
                fresh = until > log.flushed
                if fresh:
                    log.sync(log.flushed, until)
                if self._failure is not None:
                    return False
                with self._wake:
                    self._unseen = witnessed is not None and witnessed[0] < until
                    if fresh:
                        self._last_flush = time.monotonic()
                        self._again |= self._unseen
                        # The log may have been cut meanwhile; nothing is written behind that before this is over.
                        log.flushed = until = min(until, log.written)
        except OSError as error:
            self.fail(error)
            return False
        if fresh:
            try:
                self._on_flushed(until)
            except Exception:
                _LOG.exception("on_flushed(%d) failed", until)
        if witnessed is not None and witnessed[1] is not None:
            try:
                witnessed[1]()
            except OSError as error:
                self.fail(error)
        return fresh
