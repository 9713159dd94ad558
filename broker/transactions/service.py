"""The life of a broker's transactions: prepared messages are taken, and while it leads, ended and asked about."""

import asyncio
import logging
from functools import partial

from broker.context import BrokerContext, Tables
from broker.messages.send import Elsewhere
from broker.replication import Done, Replication
from broker.transactions.ending import EndHandler
from broker.transactions.halves import Half
from broker.transactions.loading import GROUP, load
from broker.transactions.records import half, view_of
from remoting.codes import RequestCode, ResponseCode
from remoting.server import Handler
from runtime.tasks import Tasks
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

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
    ) -> None:
        """`mends`: damaged records are given back by other members of a Raft group."""
        self._context, self._tables, self._mends = context, tables, mends
        self._append = replication.append
        self._ending = EndHandler(context, replication, tables.topics.adopt_awaited, elsewhere, self)
        self._tasks = Tasks("transactions")
        self._loading: asyncio.Task[None] | None = None

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.END_TRANSACTION: self._ending.end}

    def start(self) -> None:
        """Begin, as who leads: read what is undecided."""
        self.stop()
        self._loading = self._tasks.spawn(self._load(), "read half messages")

    def stop(self) -> None:
        """Lead no more: what waits goes on its way elsewhere."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._ending.began(None)

    async def close(self) -> None:
        """End all that is under way."""
        self.stop()
        await self._tasks.close()

    def prepare(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:
        """Store a prepared message as a half message; see Replication."""
        table = self._ending.table
        if table is not None and len(table.pending) >= PENDING_MAX:
            done(PutResult(PutStatus.OS_PAGE_CACHE_BUSY), ResponseCode.SYSTEM_BUSY)
            return
        made = half(record)
        self._append(made, partial(self._prepared, made, done), wait=wait, until=until)

    def ended(self, half: Half, now_ms: int, *, committed: bool) -> None:
        """Count a transaction that has ended."""

    def _prepared(self, record: PendingRecord, done: Done, result: PutResult, code: int) -> None:
        if result.status is PutStatus.PUT_OK and code != ResponseCode.NOT_LEADER_FOR_QUEUE:
            table = self._ending.table
            if table is not None:
                view = view_of(record, result.queue_offset, result.physical_offset, result.store_timestamp)
                table.stored(view, fresh=True)
        done(result, code)

    async def _load(self) -> None:
        store, offsets = self._context.store, self._tables.offsets
        table = await load(store, lambda topic: offsets.query(GROUP, topic, 0), mends=self._mends)
        if table.pending:
            _log.info("%d half messages are neither committed nor rolled back", len(table.pending))
        self._ending.began(table)
