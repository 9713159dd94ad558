"""The flusher: makes what was written durable, as much as there is at a time.

Whoever waits for durability asks for a position; while one fdatasync runs, the requests of all others gather and the
next one serves them together (group commit). A thread does that, and flushes by interval without requests.

Where the kernel can be asked to sync without waiting (store/files/kernelsync.py), and the store's owner watches its
descriptor, the thread is spared for what was asked for: no switch to it and back. A round of syncs is the kernel's or
the thread's, never both: whose it is holds `syncing`. The thread takes what the kernel does not.
"""

import logging
import threading
import time
from collections.abc import Callable

from store.config import StoreConfig
from store.files.kernelsync import REQUESTS_MAX, KernelSyncs
from store.log.commitlog import CommitLog
from store.log.syncround import BesideLog, SyncRound, Witnessed

_LOG = logging.getLogger(__name__)

PAGE_BYTES = 4096
# So much later than wanted the thread may wake without being woken for it.
EARLY_S = 0.001
# How often wait() looks.
POLL_S = 0.001


class Flusher:
    """Owns `log.flushed`. The callbacks are called from the flusher's thread, but for what in_loop() says.

    An error of fdatasync is the end: the kernel may have dropped the pages and would report success next time, so
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
        beside: Callable[[], BesideLog | None] = lambda: None,
        make_kernel: Callable[[], KernelSyncs | None] = lambda: None,
        stepped: bool = False,
    ) -> None:
        """`witness` is called before a sync; what it returns is called once that sync has succeeded and was told.

        What is written between the two is synced and not witnessed: then it is called again, until it saw all.
        `beside` is asked for the file that becomes durable with the log. `make_kernel`: see in_loop(); it raises
        OSError where the kernel refuses, and returns None where it is not to be asked.

        With `stepped` it has no thread, and whoever drives the store calls step().
        """
        self._log = log
        self._interval_s = config.flushIntervalCommitLog / 1000
        self._least_bytes = config.flushCommitLogLeastPages * PAGE_BYTES
        self._thorough_s = config.flushCommitLogThoroughInterval / 1000
        self._on_flushed = on_flushed
        self._on_fatal = on_fatal
        # The lock by itself too: taken as the condition's it costs twice as much, several times a sync.
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._wanted = log.flushed
        # The last sync went farther than its witness had seen; and: it is worth asking once more without waiting.
        self._unseen = self._again = False
        self._closing = False
        self._failure: BaseException | None = None
        self._last_flush = time.monotonic()
        # Held while a sync runs: who takes bytes or files out of the log must not meet one. The loop must not wait for
        # it while it collects what the kernel did: see release_kernel().
        self.syncing = threading.Lock()
        self._witness = witness
        self._beside = beside
        self._thread = None if stepped else threading.Thread(target=self._run, name="store-flusher", daemon=True)
        # The kernel's part, all of it in the loop.
        self._make_kernel = make_kernel
        self._kernel: KernelSyncs | None = None
        self._round: SyncRound | None = None
        self._told_here: Callable[[int], None] = on_flushed
        # Whether what was asked for waits for the thread, though there is a kernel to ask; it has refused once.
        self._handed = self._refused = False
        # When the thread wakes by itself.
        self._wakes_at = 0.0

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
        with self._lock:
            self._wanted = min(self._wanted, end)
            return self._log.hide(end)

    def ask(self, position: int) -> None:
        """Have everything before `position`, which must be written, made durable as soon as possible. In the loop."""
        assert position <= self._log.written, "only what is written can be flushed"
        if position <= self._wanted:
            return
        with self._lock:
            # Synced before its writer came to ask: the witness may have looked before the entry was there.
            self._again |= position <= self._log.flushed
            self._wanted = max(self._wanted, position)
            if self._kernel is None:
                self._wake.notify()
                return
        self._go_on()

    def wait(self, position: int, seconds: float) -> None:
        """Wait in the loop, which stands still meanwhile, until everything before a position is durable, or so long.

        Whoever is told of it is told by on_flushed: nobody is called from here, who may be at what waits.
        """
        self.ask(position)
        until = time.monotonic() + seconds
        while self._log.flushed < position and self._failure is None and time.monotonic() < until:
            if self._kernel is not None and self._round is None:
                # Asked for before, while a round was under way whose end is being told of: it leads here.
                self._go_on()
            self.collect(self._on_flushed)
            time.sleep(POLL_S)

    def fail(self, error: BaseException) -> None:
        """Note that syncing has failed somewhere; nothing is called flushed from now on."""
        with self._lock:
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
        self.release_kernel()
        with self._lock:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
        elif self._failure is None:
            self._flush()

    # -- the kernel's part, in the loop

    def in_loop(self, told: Callable[[int], None]) -> int | None:
        """Have the kernel sync what is asked for, where it can; return a descriptor to be watched, None where not.

        Whenever it can be read, the thread that calls ask() is to call collect(), which calls `told` in place of
        on_flushed. So until release_kernel().
        """
        try:
            self._kernel = self._make_kernel()
        except OSError as error:
            _LOG.info("the kernel cannot be asked to sync files (%s): the flusher's thread syncs them", error)
        if self._kernel is None:
            return None
        self._told_here = told
        return self._kernel.fileno()

    @property
    def synced_by(self) -> str:
        """Who syncs what is asked for: "kernel" or "thread"."""
        return "thread" if self._kernel is None or self._refused else "kernel"

    def collect(self, told: Callable[[int], None] | None = None) -> None:
        """Take note of what the kernel has done, tell of it (in_loop()'s `told`), and begin the next round."""
        kernel, ending = self._kernel, self._round
        if kernel is None:
            return
        if ending is None:
            # The kernel signals behind what it did, which was collected in between. Left there, the signal would have
            # the loop call again and again until the next round.
            kernel.hush()
            return
        try:
            ending.note(kernel.collect())
        except OSError as error:
            # What becomes of it will never be known.
            ending.note([error])
        else:
            if kernel.under_way:
                return
        self._end(ending, told or self._told_here)

    def release_kernel(self) -> None:
        """Wait for what the kernel has under way, and leave everything to the thread from now on.

        To be called in the loop before it waits for any thread that may want `syncing`.
        """
        kernel, self._kernel = self._kernel, None
        if kernel is None:
            return
        if self._round is not None:
            try:
                self._round.note(kernel.wait())
            except OSError as error:
                self._round.note([error])
            self._end(self._round, self._on_flushed)
        kernel.close()
        self._hand()

    def _go_on(self) -> None:
        """Begin a round of the kernel's, if none is under way; the thread's, where that cannot be."""
        if self._round is None and not self._begin():
            self._hand()

    def _hand(self) -> None:
        with self._lock:
            self._handed = True
            self._wake.notify()

    def _begin(self) -> bool:
        """Have the kernel make durable what is written; tell whether it will, or has nothing to do."""
        kernel, log = self._kernel, self._log
        # The thread is at it, or somebody cuts; or it is over.
        if kernel is None or self._failure is not None or not self.syncing.acquire(blocking=False):
            return False
        with self._lock:
            self._again = False
        witnessed = self._witness()
        # Read before syncing: what is written meanwhile is the next round's.
        until = log.written
        if until <= log.flushed:
            self._note(until, witnessed, fresh=False)
            self.syncing.release()
            self._tell(None, until, witnessed)
            return True
        try:
            fds = log.fds_to_sync(log.flushed, until)
            if len(fds) >= REQUESTS_MAX:
                # Small files, and much that was written at once: the thread takes as many as there are.
                self.syncing.release()
                return False
            beside = self._beside()
            along = None if beside is None else beside.along()
            coming = SyncRound(until, witnessed, None if along is None else along[1])
            if along is not None:
                fds.append(along[0])
            taken = kernel.submit(fds)
        except OSError as error:
            # Not what a sync said: none was asked for. The thread's will say whether anything is lost.
            if not self._refused:
                self._refused = True
                _LOG.warning("the kernel takes no syncs: %s; the flusher's thread does them", error)
            taken = 0
        if not taken:
            self.syncing.release()
            return False
        coming.whole = taken == len(fds)
        self._round = coming
        return True

    def _end(self, ending: SyncRound, told: Callable[[int], None]) -> None:
        """Take note of a round of the kernel's that is over; `syncing` is held until here."""
        self._round = None
        self._log.times.sync.add(time.monotonic() - ending.began)
        if ending.error is not None or self._failure is not None:
            self.syncing.release()
            if ending.error is not None:
                self.fail(ending.error)
            return
        if not ending.whole:
            # A part of it is durable, and the thread asks for that once more.
            self.syncing.release()
            self._hand()
            return
        until = self._note(ending.until, ending.witnessed, fresh=True)
        self.syncing.release()
        if ending.landed is not None:
            ending.landed()
        # First who waits: what they send or write then comes into the next round.
        self._tell(told, until, ending.witnessed)
        if self._again or self._wanted > self._log.flushed:
            self._go_on()
        self._rouse()

    def _rouse(self) -> None:
        """Have the thread wake in time for what the file beside the log lacks still."""
        soon = self._lingered()
        if soon is not None and time.monotonic() + soon < self._wakes_at - EARLY_S:
            with self._lock:
                self._wake.notify()

    # -- the thread's part

    def _run(self) -> None:
        while self._failure is None:
            soon = self._lingered()
            with self._lock:
                if self._failure is not None:  # told before anybody waited
                    return
                if not self._closing and not self._asked():
                    wait = self._interval_s if soon is None else min(soon, self._interval_s)
                    self._wakes_at = time.monotonic() + wait
                    self._wake.wait(wait)
                    self._wakes_at = 0.0
                closing = self._closing
                due = self._asked() or (self._round is None and (self._unseen or self._is_due()))
                if due:
                    self._again = self._handed = False
            if due or closing:
                self._flush()
            if closing:
                return

    def _asked(self) -> bool:
        """Whether somebody waits for the thread."""
        mine = self._handed or self._kernel is None
        return mine and (self._again or self._wanted > self._log.flushed)

    def _is_due(self) -> bool:
        dirty = self._log.written - self._log.flushed
        return dirty >= self._least_bytes or (dirty > 0 and time.monotonic() - self._last_flush >= self._thorough_s)

    def _flush(self) -> bool:
        log = self._log
        try:
            with self.syncing:
                if self._failure is not None:
                    return False
                beside = self._beside()
                if beside is not None:
                    beside.hand_over()
                witnessed = self._witness()
                # Read before syncing: what is written meanwhile is the next round's.
                until = log.written
                fresh = until > log.flushed
                if fresh:
                    log.sync(log.flushed, until)
                if self._failure is not None:
                    return False
                until = self._note(until, witnessed, fresh=fresh)
        except OSError as error:
            self.fail(error)
            return False
        self._tell(self._on_flushed if fresh else None, until, witnessed)
        return fresh

    # -- of both

    def _note(self, until: int, witnessed: Witnessed | None, *, fresh: bool) -> int:
        """Take note of what is durable, while `syncing` is held; return up to where the log is."""
        log = self._log
        with self._lock:
            self._unseen = witnessed is not None and witnessed[0] < until
            if fresh:
                self._last_flush = time.monotonic()
                self._again |= self._unseen
                # The log may have been cut meanwhile; nothing is written behind that before this is over.
                log.flushed = until = min(until, log.written)
        return until

    def _tell(self, told: Callable[[int], None] | None, until: int, witnessed: Witnessed | None) -> None:
        if told is not None:
            try:
                told(until)
            except Exception:
                _LOG.exception("on_flushed(%d) failed", until)
        if witnessed is not None and witnessed[1] is not None:
            try:
                witnessed[1]()
            except OSError as error:
                self.fail(error)

    def _lingered(self) -> float | None:
        beside = self._beside()
        try:
            return None if beside is None else beside.catch_up()
        except OSError as error:
            self.fail(error)
            return None
