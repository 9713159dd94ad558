"""Rounds over the undecided: their producers are asked (code 39), what nobody ends is given up, and progress is kept.

A half that its producer is asked about is written anew first, at the end of the half queue: so the queue's offset moves
on, and a broker that begins to lead need not read far back. One connection of the producer group is asked, each time
the next; the answer comes as a 37 like any other. Rounds without a live producer count too, as RocketMQ's do.

Progress is committed one round after it was made, and in a broker without a group not before the log is on the disk
up to there: what a power cut or a slave's promotion takes back is then asked about again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from broker.clients import ClientTable, GroupClient
from broker.context import BrokerContext, Tables
from broker.metadata.committers import ADMINISTRATOR
from broker.replication import Replication
from broker.transactions.ending import EndHandler
from broker.transactions.halves import Half, HalfTable
from broker.transactions.loading import GROUP
from broker.transactions.records import again, asked, discarded, view_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, InvokeError
from remoting.headers.registry import CheckTransactionStateRequestHeader
from remoting.msgid import offset_msg_id
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.errors import RecordDamaged
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# Halves that are written at a time, before others get their turn.
PER_TURN = 64
# Seconds that a round takes at most, as RocketMQ's; the next one goes on.
ROUND_SECONDS = 60.0
# Messages of the half queue behind one that must not be asked about yet, at which it is written anew all the same:
# whoever begins to lead reads from the first undecided one on.
BEHIND_MAX = 1000
# Lines that a round logs at most; the metrics count all.
LINES_MAX = 100
HOUR_MS = 3_600_000


class CheckedUpTo(NamedTuple):
    """What may be committed once the log is safe up to `written`."""

    halves: int
    ops: int
    written: int


class Checker:
    """Does the rounds of one broker."""

    def __init__(
        self, context: BrokerContext, tables: Tables, replication: Replication, ending: EndHandler, *, shared: bool
    ) -> None:
        """`shared`: a Raft group agrees on what is stored."""
        self._context, self._tables, self._shared = context, tables, shared
        self._live, self._store, self._clock = context.live, context.store, context.clock
        self._append, self._append_batch = replication.append, replication.append_batch
        self._ending = ending
        self._asked = ProducersInTurn(tables.clients)
        self._progress: CheckedUpTo | None = None
        # Of the present round: lines that may still be logged, groups of which it is said that nobody is there.
        self._lines = LINES_MAX
        self._unasked: set[str] = set()
        # The last offset of the round that is due: what stands before it is written anew with it. So no older copies
        # stand behind the committed offset, which RocketMQ would take for transactions of their own.
        self._last_due = -1
        self.checks = 0
        """How often a producer was asked."""
        self.given_up = 0

    def began(self) -> None:
        """Forget what was found out about another time as leader."""
        self._progress = None

    async def round(self) -> None:
        """Look at every undecided half once."""
        table = self._ending.table
        if table is None:
            return
        self._commit_progress()
        self._lines, self._unasked = LINES_MAX, set()
        until = self._clock.monotonic() + ROUND_SECONDS
        halves = sorted(table.pending.values(), key=lambda half: half.offset)
        self._last_due = max([half.offset for half in halves if self._is_due(half)], default=-1)
        for at in range(0, len(halves), PER_TURN):
            writes = [write for half in halves[at : at + PER_TURN] for write in self._looked(table, half)]
            await asyncio.gather(*writes)
            await asyncio.sleep(0)
            if self._ending.table is not table or self._clock.monotonic() >= until:
                break
        if self._ending.table is table:
            self._progress = CheckedUpTo(*table.progress(), self._store.written)
            if not self._shared:
                self._store.flush_soon(self._progress.written)

    def _looked(self, table: HalfTable, half: Half) -> Iterable["asyncio.Future[bool]"]:
        """Do what _look() does; what goes wrong with one must not keep the round from the others."""
        try:
            return self._look(table, half)
        except Exception:
            if self._may_tell():
                _log.exception("half message %d of group %s cannot be looked at", half.offset, half.group)
            return ()

    def _look(self, table: HalfTable, half: Half) -> Iterable["asyncio.Future[bool]"]:
        """Begin what is due about a half; yields what to wait for."""
        if half.busy or table.pending.get(half.root) is not half:
            return ()
        now_ms = self._clock.now_ms()
        reserved_ms = self._live.store.fileReservedTime * HOUR_MS
        age, due = now_ms - half.since_ms, self._is_due(half)
        given_up = age > reserved_ms or (due and half.checks >= self._live.broker.transactionCheckMax)
        moves = (
            half.offset < self._last_due
            or table.halves.end - half.offset > BEHIND_MAX
            or now_ms - half.stored_ms > reserved_ms // 2
        )
        if not (due or given_up or moves) or self._ending.was_committed(half):
            return ()
        view = self._read(table, half)
        if view is None:
            if age > reserved_ms:
                # It stays damaged, and must not hold up the offset for good.
                table.pending.pop(half.root, None)
            return ()
        if given_up:
            return (self._give_up(table, half, view),)
        return (self.renew(table, half, view, half.checks + due, ask=due),)

    def _is_due(self, half: Half) -> bool:
        """Tell whether a producer may be asked; a clock that was set back must not keep anybody waiting."""
        timeout_ms = self._live.broker.transactionTimeOut
        age = self._clock.now_ms() - half.since_ms
        return age >= (half.immunity_ms if half.immunity_ms >= 0 else timeout_ms) or age < -timeout_ms

    def _read(self, table: HalfTable, half: Half) -> bytes | memoryview | None:
        try:
            view = self._store.record_at(half.position)
        except RecordDamaged as error:
            if self._may_tell():
                _log.error("half message %d cannot be read: %s", half.offset, error)
            return None
        if view is None:
            if self._may_tell():
                _log.error("half message %d of group %s is gone with the log: nobody ended it", half.offset, half.group)
            table.pending.pop(half.root, None)
        return view

    # ---- writing

    def renew(
        self, table: HalfTable, half: Half, view: bytes | memoryview, checks: int, *, ask: bool
    ) -> "asyncio.Future[bool]":
        """Write a half anew, and ask its producer; the future tells whether it is stored."""
        copy = again(view, half.root, checks)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        record = bytes(view)
        half.waiting = []
        self._append(copy, partial(self._renewed, table, half, record, copy, ask, done))
        return done

    def _renewed(
        self,
        table: HalfTable,
        half: Half,
        record: bytes,
        copy: PendingRecord,
        ask: bool,
        done: "asyncio.Future[bool]",
        result: PutResult,
        code: int,
    ) -> None:
        stored = _stored(result, code) and self._ending.table is table
        if stored:
            place = (result.queue_offset, result.physical_offset, result.store_timestamp)
            if half.root >= 0:
                table.pending.setdefault(half.root, half)
            table.stored(view_of(copy, *place), fresh=True)
        self._ending.settle(half)
        _finish(done, stored)
        if stored and ask and not half.busy and half.root in table.pending:
            self._ask(half, asked(record, copy, half.offset, half.position))

    def _give_up(self, table: HalfTable, half: Half, view: bytes | memoryview) -> "asyncio.Future[bool]":
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            self._tables.topics.create_for_retry(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        except CommandError as error:
            _log.error("%s cannot be made: %s", TRANS_CHECK_MAX_TIME_TOPIC, error)
            _finish(done, False)
            return done
        records = [discarded(view, half.root), self._ending.op(half)]
        half.waiting = []
        self._append_batch(records, partial(self._gave_up, table, half, done))
        return done

    def _gave_up(
        self, table: HalfTable, half: Half, done: "asyncio.Future[bool]", results: list[PutResult], code: int
    ) -> None:
        if _stored(results[0], code):
            table.named(results[-1].queue_offset, half.offsets())
            table.pending.pop(half.root, None)
            self.given_up += 1
            if self._may_tell():
                _log.warning(
                    "transaction %s of group %s (topic %s) is given up after %d checks: it stands in %s, at %d",
                    half.key,
                    half.group,
                    half.topic,
                    half.checks,
                    TRANS_CHECK_MAX_TIME_TOPIC,
                    results[0].queue_offset,
                )
        self._ending.settle(half)
        _finish(done, _stored(results[0], code))

    # ---- asking

    def _ask(self, half: Half, record: bytes) -> None:
        header = CheckTransactionStateRequestHeader(
            topic=TRANS_HALF_TOPIC,
            tranStateTableOffset=half.offset,
            commitLogOffset=half.position,
            msgId=half.key or None,
            transactionId=half.key or None,
            offsetMsgId=offset_msg_id(self._context.store_host, half.position),
        )
        name = self._live.broker.name()
        if self._asked.ask(half.group, lambda: _check(header, record, name)):
            self.checks += 1
        elif half.group not in self._unasked and self._may_tell():
            self._unasked.add(half.group)
            _log.warning("transaction %s: nobody of producer group %s is there to be asked", half.key, half.group)

    def _may_tell(self) -> bool:
        self._lines -= 1
        return self._lines >= 0

    # ---- progress

    def keep(self) -> None:
        """Commit what there is, before a stop in good order: the whole log goes to the disk then."""
        if (table := self._ending.table) is not None:
            self._commit(*table.progress())

    def _commit_progress(self) -> None:
        """Commit what the last round has come to, when a crash takes nothing of it back."""
        found, self._progress = self._progress, None
        if found is None or (not self._shared and self._store.flushed < found.written):
            return
        self._commit(found.halves, found.ops)

    def _commit(self, halves: int, ops: int) -> None:
        offsets = self._tables.offsets
        # The half queue's first: as long as only that one counts, op messages are read that say nothing new.
        for topic, offset in ((TRANS_HALF_TOPIC, halves), (TRANS_OP_HALF_TOPIC, ops)):
            # Where there is no transaction, there is nothing to note.
            if offset > max(offsets.query(GROUP, topic, 0), 0):
                try:
                    end = self._store.max_offset(topic, 0)
                    offsets.commit(GROUP, topic, 0, offset, end, ADMINISTRATOR)
                except CommandError as error:
                    _log.info("progress of transactions is committed later: %s", error)
                    return


class ProducersInTurn:
    """Whom of a producer group to ask next."""

    def __init__(self, clients: ClientTable) -> None:
        self._clients = clients
        self._turn = 0

    def ask(self, group: str, request: Callable[[], Command]) -> bool:
        """Send a request to one of a group's connections, to the next when that one takes none; False: to nobody."""
        members: list[GroupClient] = self._clients.producers(group)
        self._turn += 1
        for at in range(len(members)):
            connection = members[(self._turn + at) % len(members)].connection
            if connection.closed:
                continue
            try:
                connection.send_oneway(request())
            except InvokeError:
                continue
            return True
        return False


def _check(header: CheckTransactionStateRequestHeader, record: bytes, name: str) -> Command:
    return Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, record, oneway=True, ext={"bname": name})


def _stored(result: PutResult, code: int) -> bool:
    return result.status is PutStatus.PUT_OK and code != ResponseCode.NOT_LEADER_FOR_QUEUE


def _finish(done: "asyncio.Future[bool]", stored: bool) -> None:
    if not done.done():
        done.set_result(stored)
