"""When is a message acknowledged? The one seam between the data plane and whatever keeps messages safe.

A sender appends records and says whom to call; the call comes exactly once, in the event loop, with the response code
of the mode. `LocalReplication` is the mode of a single master: everything that arrived in one turn of the loop is
written by one `store.write()`, and acknowledged when written (ASYNC_FLUSH) or when fdatasync has returned (SYNC_FLUSH).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from remoting.codes import ResponseCode
from store.errors import StoreError, StoreWriteError
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

CODES: dict[PutStatus, int] = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
}
_SUCCESS = int(ResponseCode.SUCCESS)
_FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_OK = PutStatus.PUT_OK

Done = Callable[[PutResult, int], None]
BatchDone = Callable[[list[PutResult], int], None]


class Replication(Protocol):
    """Takes records and tells when they are safe. `done` may be called before append returns: when it is refused."""

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True) -> None:
        """Store a record; `wait=False` asks for the answer as soon as it is written, whatever the mode."""
        ...

    def append_batch(self, records: Sequence[PendingRecord], done: BatchDone, *, wait: bool = True) -> None:
        """Store records next to one another, all or none; a refusal comes as one result."""
        ...


class LogStore(Protocol):
    """What LocalReplication needs of the store."""

    on_flushed: Callable[[int], None] | None

    @property
    def written(self) -> int:
        """The position behind the last record written."""
        ...

    def put(self, record: PendingRecord) -> PutResult:
        """Give a record its place."""
        ...

    def put_batch(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """Give records their places, all or none."""
        ...

    def write(self) -> int:
        """Write what was put."""
        ...

    def flush_soon(self, position: int) -> None:
        """Ask for fdatasync up to a position."""
        ...

    def writable(self) -> str | None:
        """Return None, or why nothing can be written."""
        ...


class _Parked(NamedTuple):
    """A written message that waits for fdatasync."""

    end: int
    deadline: float
    done: Callable[[Any, int], None]
    result: Any


class LocalReplication:
    """The single master: the local log is all there is."""

    def __init__(
        self,
        store: LogStore,
        loop: asyncio.AbstractEventLoop,
        *,
        sync_flush: bool,
        flush_timeout: float,
        pending_bytes_max: int,
    ) -> None:
        """`flush_timeout` in seconds; `pending_bytes_max` bounds what is taken and not yet acknowledged."""
        self._store = store
        self._loop = loop
        self._sync = sync_flush
        self._flush_timeout = flush_timeout
        self._pending_bytes_max = pending_bytes_max
        self._turn: list[tuple[Callable[[Any, int], None], Any, int, bool]] = []
        self._flushing: deque[_Parked] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # Positions: behind the last record put, and up to which everything is acknowledged. The difference is pending.
        self._put_end = self._safe_end = store.written
        self._stopped = False
        self._empty = asyncio.Event()
        store.on_flushed = self._flushed_in_thread

    @property
    def pending_bytes(self) -> int:
        """Bytes taken and not yet acknowledged."""
        return max(0, self._put_end - self._safe_end)

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True) -> None:
        """Store a record; see Replication."""
        if not self._turn and (refusal := self._begin_turn()) is not None:
            done(refusal, CODES[refusal.status])
            return
        if self._put_end - self._safe_end > self._pending_bytes_max:
            done(PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
            return
        result = self._store.put(record)
        if result.status is not _OK:
            done(result, CODES[result.status])
            return
        self._put_end = result.end
        if not self._turn:
            self._loop.call_soon(self._end_turn)
        self._turn.append((done, result, result.end, wait))

    def append_batch(self, records: Sequence[PendingRecord], done: BatchDone, *, wait: bool = True) -> None:
        """Store records next to one another; see Replication."""
        if not self._turn and (refusal := self._begin_turn()) is not None:
            done([refusal], CODES[refusal.status])
            return
        if self._put_end - self._safe_end > self._pending_bytes_max:
            done([PutResult(PutStatus.OS_PAGE_CACHE_BUSY)], ResponseCode.SYSTEM_BUSY)
            return
        results = self._store.put_batch(records)
        last = results[-1]
        if last.status is not _OK:
            done([last], CODES[last.status])
            return
        self._put_end = last.end
        if not self._turn:
            self._loop.call_soon(self._end_turn)
        self._turn.append((done, results, last.end, wait))

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and return when everything taken is acknowledged; False when that took too long."""
        self._stopped = True
        if self._turn or self._flushing:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), timeout_seconds)
            except TimeoutError:
                return False
        return True

    def _begin_turn(self) -> PutResult | None:
        """Return None when the store takes records, else the refusal; asked once a turn."""
        if self._stopped or self._store.writable() is not None:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        return None

    def _end_turn(self) -> None:
        turn = self._turn
        self._turn = []
        try:
            if self._store.write() < self._put_end:
                # Somebody else made the store write, and that failed: what was put is gone.
                raise StoreWriteError("an earlier write failed")
        except (StoreError, OSError) as error:
            _log.error("cannot write the log, %d sends fail: %s", len(turn), error)
            self._put_end = self._safe_end
            for done, result, _end, _wait in turn:
                refusal = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
                _call(done, [refusal] if type(result) is list else refusal, ResponseCode.SERVICE_NOT_AVAILABLE)
            self._check_empty()
            return
        if self._sync:
            self._await_flush(turn)
            return
        self._safe_end = self._put_end
        for done, result, _end, _wait in turn:
            _call(done, result, _SUCCESS)
        self._check_empty()

    def _await_flush(self, turn: list[tuple[Callable[[Any, int], None], Any, int, bool]]) -> None:
        deadline = self._loop.time() + self._flush_timeout
        for done, result, end, wait in turn:
            if wait:
                self._flushing.append(_Parked(end, deadline, done, result))
            else:
                _call(done, result, _SUCCESS)
        self._store.flush_soon(self._put_end)
        self._arm()

    def _flushed_in_thread(self, position: int) -> None:
        """Carry the news from the store's flusher thread into the loop."""
        if self._sync:
            self._loop.call_soon_threadsafe(self._flushed, position)

    def _flushed(self, position: int) -> None:
        self._safe_end = max(self._safe_end, position)
        flushing = self._flushing
        while flushing and flushing[0].end <= position:
            parked = flushing.popleft()
            _call(parked.done, parked.result, _SUCCESS)
        self._arm()
        self._check_empty()

    def _arm(self) -> None:
        if self._flushing and self._timer is None:
            self._timer = self._loop.call_at(self._flushing[0].deadline, self._expire)
        elif not self._flushing and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Answer what fdatasync kept waiting for too long: it is written, but not known to be durable."""
        self._timer = None
        now = self._loop.time()
        while self._flushing and self._flushing[0].deadline <= now:
            parked = self._flushing.popleft()
            _call(parked.done, parked.result, _FLUSH_DISK_TIMEOUT)
        self._arm()
        self._check_empty()

    def _check_empty(self) -> None:
        if not self._turn and not self._flushing:
            self._empty.set()


def _call(done: Callable[[Any, int], None], result: Any, code: int) -> None:
    """Complete one send; a failure in one answer must not cost the others theirs."""
    try:
        done(result, code)
    except Exception:
        _log.exception("an acknowledgement could not be delivered")
