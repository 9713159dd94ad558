"""The life of a broker's transactions: prepared messages are taken, and while it leads, ended and asked about."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

from broker.context import BrokerContext, Tables
from broker.messages.send import Elsewhere
from broker.replication import Done, Replication
from broker.transactions.checker import Checker
from broker.transactions.counts import TransactionCounts
from broker.transactions.ending import EndHandler, Later
from broker.transactions.halves import Half
from broker.transactions.loading import GROUP, load
from broker.transactions.records import HalfView, half, view_of
from broker.transactions.resuming import ResumeHandler
from remoting.codes import RequestCode, ResponseCode, TransactionCode
from remoting.properties import PROPERTIES_BYTES_MAX
from remoting.server import Handler
from runtime.figures import Figure
from runtime.tasks import Tasks
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# Seconds after which a changed interval counts, and a read that failed is tried again.
LOOK_SECONDS = 1.0
# What a copy of a half names beside the properties of the half: room for it must be left.
COPY_BYTES = 128
# Undecided transactions at which prepared messages are refused with SYSTEM_BUSY: some 80 MB of memory.
PENDING_MAX = 200_000


class Transactions:
    """All of it, for one broker. Everything happens in the event loop."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        replication: Replication,
        elsewhere: Elsewhere | None,
        *,
        mends: bool,
        later: Later | None = None,
    ) -> None:
        """`mends`: damaged records are given back by others of a Raft group; `later` is the loop's by default."""
        self._context, self._tables, self._mends = context, tables, mends
        self._append = replication.append
        self.counts = TransactionCounts()
        self.ending = EndHandler(
            context,
            replication,
            elsewhere,
            self,
            asyncio.get_running_loop().call_later if later is None else later,
        )
        self.checker = Checker(context, tables, replication, self.ending, shared=mends)
        self._resuming = ResumeHandler(context, self.ending, self.checker)
        self.page = self._resuming.page
        """For /v1/transactions."""
        self._tasks = Tasks("transactions")
        self._working: asyncio.Task[None] | None = None
        # Halves that were acknowledged while the queues were being read.
        self._early: list[HalfView] = []

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.END_TRANSACTION: self.ending.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resuming.resume,
            TransactionCode.STATUS: self._resuming.status,
        }

    def figures(self) -> Iterator[Figure]:
        """Yield the metrics."""
        return self.counts.figures(self.ending.table, self.checker.checks, self.checker.given_up)

    def start(self) -> None:
        """Begin, as who leads: read what is undecided."""
        if self._working is not None:
            self.stop()
        self._working = self._tasks.spawn(self._work(), "check half messages")

    def stop(self) -> None:
        """Lead no more: what waits goes on its way elsewhere."""
        if self._working is not None:
            self._working.cancel()
            self._working = None
        self._early.clear()
        self.ending.began(None)

    def retire(self) -> None:
        """Begin to stop, or come to the end of that: what is gathered is written, and progress is committed now."""
        self.ending.flush()
        self.checker.keep()

    async def close(self) -> None:
        """End all that is under way."""
        self.stop()
        await self._tasks.close()

    def prepare(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        """Store a prepared message as a half message; see Replication."""
        table = self.ending.table
        if table is not None and len(table.pending) >= PENDING_MAX:
            done(PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
            return
        made = half(record)
        if len(made.properties) > PROPERTIES_BYTES_MAX - COPY_BYTES:
            done(PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED), ResponseCode.MESSAGE_ILLEGAL)
            return
        self._append(made, partial(self._prepared, made, done), wait=wait, until=until)

    def ended(self, half: Half, now_ms: int, *, committed: bool) -> None:
        """Count a transaction that has ended."""
        self.counts.ended(half, now_ms, committed=committed)

    def _prepared(self, record: PendingRecord, done: Done, result: PutResult, code: int) -> None:
        if result.status is PutStatus.PUT_OK and code != ResponseCode.NOT_LEADER_FOR_QUEUE:
            view = view_of(record, result.queue_offset, result.physical_offset, result.store_timestamp)
            if (table := self.ending.table) is not None:
                table.stored(view, fresh=True)
            elif self._working is not None:
                self._early.append(view)
        done(result, code)

    async def read(self) -> None:
        """Read what is undecided, and serve."""
        store, offsets = self._context.store, self._tables.offsets
        table = await load(store, lambda topic: offsets.query(GROUP, topic, 0), mends=self._mends)
        if table.pending:
            _log.info("%d half messages are neither committed nor rolled back", len(table.pending))
        for waiting in table.pending.values():
            # A crash may have lost the table's last change. One that was deleted does not come back by a commit.
            self._tables.topics.adopt_awaited(waiting.topic, waiting.queue_id, waiting.since_ms)
        early, self._early = self._early, []
        for view in early:
            table.stored(view, fresh=True)
        self.checker.began()
        self.ending.began(table)

    async def _work(self) -> None:
        while self.ending.table is None:
            try:
                await self.read()
            except Exception:
                _log.exception("the half messages cannot be read; it is tried again in %s s", LOOK_SECONDS)
                await asyncio.sleep(LOOK_SECONDS)
        while True:
            await self._interval()
            try:
                await self.checker.round()
            except Exception:
                _log.exception("a round over the half messages failed; the next one comes")

    async def _interval(self) -> None:
        """Wait for the next round; an administrator may change how long that is."""
        began = asyncio.get_running_loop().time()
        while True:
            left = began + self._context.live.broker.transactionCheckInterval / 1000 - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(min(left, LOOK_SECONDS))
