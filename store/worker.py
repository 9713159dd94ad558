"""A thread for what the loop must not wait for: reads of cold bytes, writes and syncs of what is mended.

Jobs are done one after the other. What comes of them is told in the loop, by finish(), which whoever owns the loop
calls soon after `on_done` was called.
"""

import errno
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Worker:
    """The thread; it begins with the first job. With `stepped` there is none, and whoever drives it calls step()."""

    def __init__(self, on_done: Callable[[], None], *, stepped: bool = False) -> None:
        """`on_done` is called in the thread after each job, but not once close() was called."""
        self._on_done = on_done
        self._closing = False
        self._stepped = stepped
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._done: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self._thread: threading.Thread | None = None
        self.open = 0
        """Jobs that were handed in and are not told of yet."""

    def submit(self, job: Callable[[], Any], tell: Callable[[Any], None]) -> None:
        """Have something done; `tell` gets its result, or the OSError that it raised."""
        self.open += 1
        self._jobs.put((job, tell))
        if self._thread is None and not self._stepped:
            self._thread = threading.Thread(target=self._run, name="store-worker", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Tell of what is done. In the loop."""
        while self._done:
            result, tell = self._done.popleft()
            self.open -= 1
            tell(result)

    def step(self) -> bool:
        """Do one job in the caller's thread; tell whether there was one."""
        assert self._thread is None, "the thread does the jobs"
        if self._jobs.empty():
            return False
        job = self._jobs.get()
        if job is not None:
            self._do(*job)
        return True

    def drain(self) -> None:
        """Wait until everything handed in is done, and tell of it."""
        while self._stepped and self.step():
            pass
        if self._thread is not None and self.open:
            passed = threading.Event()
            self._jobs.put((passed.set, lambda _: None))
            self.open += 1
            passed.wait()
        self.finish()

    def close(self) -> None:
        """Do what waits, tell nobody, and end the thread."""
        self._closing = True
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
        while self._stepped and self.step():
            pass
        self._done.clear()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(*job)

    def _do(self, job: Callable[[], Any], tell: Callable[[Any], None]) -> None:
        try:
            result = job()
        except OSError as error:
            result = error
        except EOFError as error:
            result = OSError(errno.EIO, str(error))
        self._done.append((result, tell))
        if not self._closing:
            self._on_done()
