"""The mode of a single master: the local log is all there is.

Everything that arrived in one turn of the loop is written by one `store.write()`, and acknowledged when written
(ASYNC_FLUSH) or when fdatasync has returned (SYNC_FLUSH).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple, Protocol

from broker.replication import CODES, RECORD_OVERHEAD_BYTES, BatchDone, Done, SendTimes, batch_bytes, sends_of
from remoting.codes import ResponseCode
from store.errors import StoreError
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# Bytes written and not yet as safe as they must be, at which who sends much waits: some flushes' worth.
CONGESTED_BYTES = 4 * 1024 * 1024
# Bytes taken in one turn of the loop at which who sends much waits for the next. To take them costs a fraction of what
# it costs to write and answer them when the turn ends, and a quiet client's send waits for that: some milliseconds.
GATHERED_BYTES = 512 * 1024
_SUCCESS = int(ResponseCode.SUCCESS)
_FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_OK = PutStatus.PUT_OK
_new_turn = tuple.__new__
_RECORDS = itemgetter(0)


class LogStore(Protocol):
    """What LocalReplication needs of the store. Whoever opened it calls flushed_in_thread(): StoreEvents.flushed."""

    @property
    def written(self) -> int:
        """The position behind the last record written."""
        ...

    def put_many(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """Give records their places, each on its own account."""
        ...

    def put_batch(self, records: Sequence[PendingRecord]) -> list[PutResult]:
        """Give records their places, all or none."""
        ...

    def write(self, told: Callable[[], None] | None = None) -> int:
        """Write what was put, and call `told` before it comes into the queues."""
        ...

    def flush_soon(self, position: int) -> None:
        """Ask for fdatasync up to a position."""
        ...

    def writable(self) -> str | None:
        """Return None, or why nothing can be written."""
        ...


class Turn(NamedTuple):
    """What one call left for the end of the turn; `records` of a batch stand together, a PutResult stands already."""

    records: PendingRecord | Sequence[PendingRecord] | PutResult
    done: Callable[[Any, int], None]
    wait: bool


def sends_in(calls: Iterable[Turn]) -> int:
    """Return how many sends were stored by all of them."""
    return sum([sends_of(call.records) for call in calls])


class _Parked(NamedTuple):
    """A written message that waits for fdatasync."""

    end: int
    deadline: float
    done: Callable[[Any, int], None]
    result: Any

    def answer(self, code: int) -> None:
        """Answer; a failure must not cost the others their answers."""
        try:
            self.done(self.result, code)
        except Exception:
            _log.exception("an acknowledgement could not be delivered")


class LocalReplication:
    """The single master: the local log is all there is.

    Records get their places at the end of the turn, all in one step: a mode that puts a record of its own before those
    of a turn then knows them all.
    """

    def __init__(
        self,
        store: LogStore,
        loop: asyncio.AbstractEventLoop,
        *,
        sync_flush: bool,
        flush_timeout: float,
        pending_bytes_max: int,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        """`flush_timeout` in seconds; `pending_bytes_max` bounds what is taken and not yet acknowledged.

        `on_written` is called in the loop after each write, before anything of it is in the queues or answered; it must
        not raise.
        """
        self._store = store
        self._loop = loop
        self._sync = sync_flush
        self._flush_timeout = flush_timeout
        self._pending_bytes_max = pending_bytes_max
        self._turn: list[Turn] = []
        self._turn_bytes = 0
        self._turn_batches = 0
        # Of the turn that ended last.
        self._sends = 0
        # When the first message of the turn came, by monotonic(); and of those that wait for fdatasync, in their order:
        # where each turn ends, when it began, how many messages it has.
        self._began = 0.0
        self._turns_flushing: deque[tuple[int, float, int]] = deque()
        self.times = SendTimes()
        self._flushing: deque[_Parked] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # Positions: behind the last record written, and up to which everything is acknowledged.
        self._put_end = self._safe_end = store.written
        self._stopped = False
        self._empty = asyncio.Event()
        self._on_written = on_written

    @property
    def pending_bytes(self) -> int:
        """Bytes taken and not yet acknowledged."""
        return self._turn_bytes + max(0, self._put_end - self._safe_end)

    @property
    def congested(self) -> bool:
        """Whether more has been taken than is stored soon, or than one turn of the loop should write and answer."""
        gathered = self._turn_bytes
        return gathered > GATHERED_BYTES or gathered + self._put_end - self._safe_end > CONGESTED_BYTES

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:  # noqa: ARG002 # written at the end of this turn
        """Store a record; see Replication."""
        turn = self._turn
        if not turn and (refusal := self._begin_turn()) is not None:
            done(refusal, CODES[refusal.status])
            return
        if self._turn_bytes + self._put_end - self._safe_end > self._pending_bytes_max:
            done(PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
            return
        self._turn_bytes += len(record.body) + len(record.properties) + RECORD_OVERHEAD_BYTES
        if not turn:
            self._began = monotonic()
            self._loop.call_soon(self._end_turn)
        turn.append(_new_turn(Turn, (record, done, wait)))

    def append_batch(
        self,
        records: Sequence[PendingRecord],
        done: BatchDone,
        *,
        wait: bool = True,
        until: float = 0.0,  # noqa: ARG002 # as above
    ) -> None:
        """Store records next to one another; see Replication."""
        turn = self._turn
        if not turn and (refusal := self._begin_turn()) is not None:
            done([refusal], CODES[refusal.status])
            return
        if self.pending_bytes > self._pending_bytes_max:
            done([PutResult(PutStatus.OS_PAGE_CACHE_BUSY)], ResponseCode.SYSTEM_BUSY)
            return
        self._turn_bytes += batch_bytes(records)
        if not turn:
            self._began = monotonic()
            self._loop.call_soon(self._end_turn)
        self._turn_batches += 1
        turn.append(Turn(records, done, wait))

    def confirm(self, stored: PutResult, done: Done, *, wait: bool = True) -> None:
        """Tell when a record that is in the queues is safe; see Confirming."""
        if not self._sync or stored.end <= self._safe_end:
            done(stored, _SUCCESS)
        else:
            self._await_again(stored, done, wait=wait)

    def _await_again(self, stored: PutResult, done: Done, *, wait: bool) -> None:
        """Have a record that stands already wait with those of this turn."""
        turn = self._turn
        if not turn and (refusal := self._begin_turn()) is not None:
            done(refusal, CODES[refusal.status])
            return
        if not turn:
            self._began = monotonic()
            self._loop.call_soon(self._end_turn)
        # Not all are single records.
        self._turn_batches += 1
        turn.append(Turn(stored, done, wait))

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and return when everything taken is acknowledged; False when that took too long."""
        self._stopped = True
        if not self._idle():
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
        self._turn_bytes = 0
        self.times.queue.add(monotonic() - self._began)
        try:
            results = self._put(turn)
            end = self._store.write(self._on_written)
        except (StoreError, OSError) as error:
            _log.error("cannot write the log, %d sends fail: %s", sends_in(turn), error)
            refusal = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
            single = (PendingRecord, PutResult)
            results = [refusal if isinstance(entry.records, single) else [refusal] for entry in turn]
            self._complete(turn, results)
            self._check_empty()
            return
        self._put_end = end
        self._settle(turn, results)

    def _settle(self, turn: list[Turn], results: list[Any]) -> None:
        """Answer what was written, now or when it is as safe as this mode says."""
        if self._sync:
            self._await_flush(turn, results)
            return
        self._safe_end = self._put_end
        self._complete(turn, results)
        # What _answered() does, without its frame: this is every turn of a broker that flushes later.
        self.times.send.add(monotonic() - self._began, self._sends)
        if self._stopped:
            self._check_empty()

    def _answered(self, began: float, count: int) -> None:
        """Count messages whose turn began then, and which are answered now."""
        self.times.send.add(monotonic() - began, count)

    def _put(self, turn: list[Turn]) -> list[Any]:
        """Return the result of each entry: one, or a batch's list (only its first when it was refused)."""
        if not self._turn_batches:
            self._sends = len(turn)
            return self._store.put_many([*map(_RECORDS, turn)])  # no batches: all single
        self._turn_batches = 0
        self._sends = sends_in(turn)
        results: list[Any] = []
        for records, _done, _wait in turn:
            if isinstance(records, PendingRecord):
                results += self._store.put_many((records,))
            elif isinstance(records, PutResult):
                results.append(records)
            else:
                placed = self._store.put_batch(records)
                results.append(placed if placed[-1].status is _OK else placed[-1:])
        return results

    def _complete(self, turn: list[Turn], results: list[Any]) -> None:
        """Answer everybody; a failure in one answer must not cost the others theirs."""
        for (_records, done, _wait), result in zip(turn, results, strict=True):
            status = result[0].status if type(result) is list else result.status
            try:
                done(result, CODES[status] if status is not _OK else _SUCCESS)
            except Exception:
                _log.exception("an acknowledgement could not be delivered")

    def _await_flush(self, turn: list[Turn], results: list[Any]) -> None:
        deadline = self._loop.time() + self._flush_timeout
        at_once: list[tuple[Turn, Any]] = []
        parked = 0
        for entry, result in zip(turn, results, strict=True):
            last = result[-1] if type(result) is list else result
            if entry.wait and last.status is _OK:
                self._flushing.append(_Parked(last.end, deadline, entry.done, result))
                parked += sends_of(entry.records)
            else:
                at_once.append((entry, result))
        if parked:
            self._turns_flushing.append((self._put_end, self._began, parked))
        self._complete([entry for entry, _ in at_once], [result for _, result in at_once])
        if self._put_end > self._safe_end:
            self._store.flush_soon(self._put_end)
        self._arm()
        self._check_empty()

    def flushed_in_thread(self, position: int) -> None:
        """Carry the news from the store's flusher thread into the loop."""
        if self._sync:
            self._loop.call_soon_threadsafe(self.flushed, position)

    def flushed(self, position: int) -> None:
        """Answer whoever waited for what is on the disk now."""
        self._safe_end = max(self._safe_end, position)
        flushing = self._flushing
        while flushing and flushing[0].end <= position:
            parked = flushing.popleft()
            parked.answer(_SUCCESS)
        turns = self._turns_flushing
        while turns and turns[0][0] <= position:
            _end, began, count = turns.popleft()
            self._answered(began, count)
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
            parked.answer(_FLUSH_DISK_TIMEOUT)
        self._arm()
        self._check_empty()

    def _idle(self) -> bool:
        """Tell whether nobody waits for an answer."""
        return not self._turn and not self._flushing

    def _check_empty(self) -> None:
        if self._idle():
            self._empty.set()
