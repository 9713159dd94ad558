"""The life of POP on one broker: while it leads, check points are known, and what is due comes again."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from broker.context import BrokerContext, Tables
from broker.messages.send_answers import Elsewhere
from broker.metadata.lmq_offsets import LMQ_FILE, OFFSETS_FILE
from broker.pop.acknowledging import AckHandlers
from broker.pop.check_points import CheckPoint, CheckPointTable
from broker.pop.feed import ReviveFeed
from broker.pop.records import ack_record, check_point_record
from broker.pop.revival import Revival
from broker.pop.taking import PopHandlers
from broker.replication import Replication
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler
from remoting.topics import REVIVE_LOG_PREFIX
from runtime.figures import Figure, counter, gauge
from runtime.tasks import Tasks
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# RocketMQ's group by which it is known how far check points are settled.
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
# Seconds: how often that is committed; before what failed is tried again; for how long a request waits until it is
# known which check points are open.
COMMIT_SECONDS = 5.0
AGAIN_SECONDS = 1.0
LOAD_SECONDS = 2.0
# ms for which a table of offsets that is being written may lack what is taken meanwhile.
WRITING_MS = 1000
# ms after which what was taken in order and is not asked for again is written anew.
RENEW_MS = 3600 * 1000
# Records of one append that gives messages back.
GIVEN_BACK = 256
# Check points that are settled side by side; each has up to BATCH_BYTES (broker/pop/revival.py) in hand.
SETTLED_TOGETHER = 32


class PopService:
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
        """`mends`: damaged records are given back by others of a Raft group; `elsewhere` as of SendHandlers."""
        config = context.live.broker
        self._context, self._tables = context, tables
        self._replication, self._elsewhere = replication, elsewhere
        self._loop = asyncio.get_running_loop()
        self.topic = REVIVE_LOG_PREFIX + config.brokerClusterName
        self._queues = config.reviveQueueNum
        self._feed = ReviveFeed(context.store, self.topic, self._queues, context.clock.now_ms, mends=mends)
        self._ready = asyncio.Event()
        self._stirred = asyncio.Event()
        self._tasks = Tasks("pop")
        self._working: asyncio.Task[None] | None = None
        self._committed: dict[int, int] = {}
        self._shared = mends
        self._config = context.live.store.root / "config"
        self.taking = PopHandlers(context, tables, self.topic, self._append, self._known, self._loaded)
        taking = self.taking
        self._acks = AckHandlers(
            context, tables, self.topic, self._append_for, self._loaded, taking.reader.busy, taking.waiting.more
        )
        self._revival = Revival(context, tables, self.topic, self._append)

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {**self.taking.table(), **self._acks.table()}

    def figures(self) -> Iterator[Figure]:
        """Yield the metrics."""
        table = self._known()
        yield gauge("raftmq_pop_check_points", "Pops that are not acknowledged in full", len(table) if table else 0)
        yield gauge("raftmq_pop_waiting", "Pops that wait for a message", self.taking.waiting.size)
        yield counter("raftmq_pop_taken_total", "Messages that were taken by POP", self.taking.taken)
        yield counter("raftmq_pop_acknowledged_total", "Messages that were acknowledged", self._acks.acknowledged)
        text = "Messages that were not acknowledged in time and came again"
        yield counter("rocketmq_pop_revive_retry_messages_total", text, self._revival.revived)
        yield counter("raftmq_pop_dead_letters_total", "Messages that came too often", self._revival.dead)

    # -- life

    def start(self) -> None:
        """Begin, as who leads."""
        self.stop()
        self._working = self._tasks.spawn(self._work(), "check points")

    def stop(self) -> None:
        """Lead no more: who waits is told."""
        if self._working is not None:
            self._working.cancel()
            self._working = None
        self._ready.clear()
        self.taking.waiting.wake_all()

    async def close(self) -> None:
        """End all that is under way."""
        self.stop()
        await self._tasks.close()

    def dispatched(self, topics: AbstractSet[str]) -> None:
        """Take note that something has come into queues of these topics."""
        if self.topic in topics:
            self._stirred.set()
        if self.taking.waiting.size:
            self._loop.call_soon(self.taking.arrived, topics)

    def on_close(self, connection: Connection) -> None:
        """Have what a closed connection waits for end."""
        self.taking.waiting.drop(connection)

    # -- what the handlers use

    def _known(self) -> CheckPointTable | None:
        return self._feed.table if self._ready.is_set() else None

    async def _loaded(self) -> CheckPointTable:
        """Wait until it is known which check points are open; raises CommandError."""
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    await self._ready.wait()
            except TimeoutError:
                raise CommandError(
                    ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not know yet what was taken: ask again"
                ) from None
        return self._feed.table

    async def _append(self, records: Sequence[PendingRecord]) -> bool:
        status, _code = await self._stored(records, 0.0)
        return status is PutStatus.PUT_OK

    async def _append_for(
        self, connection: Connection, request: Command, records: Sequence[PendingRecord]
    ) -> bool | None:
        status, code = await self._stored(records, request.until)
        if code == ResponseCode.NOT_LEADER_FOR_QUEUE and self._elsewhere is not None:
            self._elsewhere(connection, request)
            return None
        return status is PutStatus.PUT_OK

    def _stored(self, records: Sequence[PendingRecord], until: float) -> "asyncio.Future[tuple[PutStatus, int]]":
        done: asyncio.Future[tuple[PutStatus, int]] = self._loop.create_future()

        def answered(results: list[PutResult], code: int) -> None:
            if not done.done():
                # In a group a member that lost the lead says so by the code.
                lost = code == ResponseCode.NOT_LEADER_FOR_QUEUE
                done.set_result((PutStatus.SERVICE_NOT_AVAILABLE if lost else results[0].status, code))

        self._replication.append_batch(records, answered, until=until)
        return done

    # -- the work

    async def load(self) -> None:
        """Read which check points are open, and serve."""
        feed, offsets = self._feed, self._tables.offsets
        feed.begin(lambda queue: offsets.query(REVIVE_GROUP, self.topic, queue), self._offsets_written_ms())
        self._committed.clear()
        await feed.read()
        if self._shared:
            await self._give_back()
        if len(feed.table):
            _log.info("%d pops are not acknowledged", len(feed.table))
        self._go_on()
        self._ready.set()

    async def round(self) -> None:
        """Take in what came, and settle what is due."""
        await self._feed.read()
        await self._settle()

    async def _work(self) -> None:
        while not self._ready.is_set():
            try:
                await self.load()
            except Exception:
                _log.exception("what was taken by POP cannot be read; it is tried again in %s s", AGAIN_SECONDS)
                await asyncio.sleep(AGAIN_SECONDS)
        commit_at = self._loop.time() + COMMIT_SECONDS
        while True:
            self._stirred.clear()
            try:
                await self.round()
                if self._loop.time() >= commit_at:
                    commit_at = self._loop.time() + COMMIT_SECONDS
                    self.commit()
            except Exception:
                _log.exception("what was taken by POP cannot be settled; it is tried again in %s s", AGAIN_SECONDS)
                await asyncio.sleep(AGAIN_SECONDS)
            await self._rest(commit_at)

    def _offsets_written_ms(self) -> int:
        """Return when the table of offsets was last written, ms; far in the future where the log has them."""
        if self._shared:
            return 1 << 62
        for name in (OFFSETS_FILE, LMQ_FILE):
            with contextlib.suppress(OSError):
                return int((self._config / name).stat().st_mtime * 1000) - WRITING_MS
        return 0

    def _go_on(self) -> None:
        """Have groups go on behind what they took: a kill loses the offsets of the last seconds, but no check point."""
        offsets, store = self._tables.offsets, self._context.store
        for (group, topic, queue), taken in self._feed.ends.items():
            if self._tables.topics.get(topic) is not None and offsets.query(group, topic, queue) < taken:
                offsets.commit(group, topic, queue, taken, store.max_offset(topic, queue), None)
        self._feed.ends.clear()

    async def _give_back(self) -> None:
        """End what was taken from where its group goes on: the queue gives it again, and once is enough.

        In a Raft group a pop is answered when the offset behind it is agreed upon. A check point that reaches beyond
        it is one whose leader fell in between, so that nobody has its messages; or somebody set the offset back.
        """
        table, offsets = self._feed.table, self._tables.offsets
        ended: list[tuple[CheckPoint, list[int]]] = []
        for point in table:
            key = point.key
            begin = max(0, offsets.query(key.group, key.topic, key.queue_id))
            if coming := [offset for offset in point.open_offsets() if offset >= begin]:
                ended.append((point, coming))
        for at in range(0, len(ended), GIVEN_BACK):
            piece, now_ms = ended[at : at + GIVEN_BACK], self._context.clock.now_ms()
            host = self._context.store_host
            if not await self._append([ack_record(self.topic, *each, now_ms, host) for each in piece]):
                raise CommandError(ResponseCode.SYSTEM_ERROR, "what nobody has cannot be given back")
            for point, coming in piece:
                table.acknowledge(point.key, coming)

    async def _settle(self) -> None:
        """Settle all that is due, several check points side by side: in a group their appends share an entry."""
        table, clock = self._feed.table, self._context.clock
        while taken := list(islice(iter(lambda: table.take_due(clock.now_ms()), None), SETTLED_TOGETHER)):
            # One may be due more than once: its time was changed.
            dues = {due.key: due for due in taken}.values()
            await asyncio.gather(*(self._settle_one(due, table) for due in dues))

    async def _settle_one(self, due: CheckPoint, table: CheckPointTable) -> None:
        if not due.open:
            return
        try:
            if due.order is None:
                await self._revival.settle(due, table)
            else:
                await self._in_order_due(due, table)
        except BaseException:
            table.again(due.key, self._context.clock.now_ms() + int(AGAIN_SECONDS * 1000))
            raise

    async def _in_order_due(self, due: CheckPoint, table: CheckPointTable) -> None:
        """Have what was taken in order come again when somebody asks: from its own queue, before what follows there.

        When nobody does for long its check point is written anew, so that the topic need not be read from there on.
        """
        key, now_ms = due.key, self._context.clock.now_ms()
        old_ms = max(due.until_ms(offset) for offset in due.open_offsets()) + RENEW_MS
        if now_ms < old_ms or due.settling or (key.group, key.topic, key.queue_id) in self.taking.reader.busy:
            table.again(key, max(old_ms, now_ms + int(AGAIN_SECONDS * 1000)))
            self.taking.waiting.more(key.topic, key.group)
            return
        topic, host = self.topic, self._context.store_host
        left, made = due.open_offsets(), None
        records = [ack_record(topic, due, left, now_ms, host)]
        if self._tables.topics.get(key.topic) is not None and due.order is not None:
            times = dict(zip(due.offsets, due.order.times, strict=True))
            order = due.order._replace(times=tuple(times[offset] for offset in left))
            (fresh,) = table.fresh([key._replace(start=left[0], pop_ms=now_ms)])
            made = CheckPoint(fresh, 0, due.broker, due.revive_queue, tuple(left), order=order)
            records.insert(0, check_point_record(topic, made, host))
        with self._acks.settling([due]):
            if not await self._append(records):
                raise CommandError(ResponseCode.SYSTEM_ERROR, "what was taken in order cannot be written anew")
            if made is not None:
                table.add(made)
            table.acknowledge(key, left)

    async def _rest(self, commit_at: float) -> None:
        """Wait until something came, or is due."""
        seconds = max(0.0, commit_at - self._loop.time())
        due = self._feed.table.next_due()
        if due is not None:
            seconds = min(seconds, max(0.0, (due - self._context.clock.now_ms()) / 1000))
        try:
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        except TimeoutError:
            pass

    def commit(self) -> None:
        """Say from where on check points are still needed."""
        for queue in range(self._queues):
            low = self._feed.low(queue)
            if self._committed.get(queue) != low:
                self._committed[queue] = low
                end = self._context.store.max_offset(self.topic, queue)
                self._tables.offsets.commit(REVIVE_GROUP, self.topic, queue, low, end, None)
