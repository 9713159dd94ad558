"""Code 37: a producer commits or rolls back what it prepared, of its own accord or because it was asked.

A commit stores the real message and the op message side by side, all or none; a rollback the op message. While that is
on its way, whoever ends the same transaction once more waits for it, and is answered by what came of it: a transaction
ends once. What arrives while the halves are still being read waits too.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from broker.context import BrokerContext
from broker.messages.delay_queue import Cancellable
from broker.messages.held import HeldRequests
from broker.messages.send_answers import Elsewhere
from broker.messages.send_checks import remark_of
from broker.replication import Replication
from broker.transactions.halves import Half, HalfTable
from broker.transactions.loading import committed_real, ended_since
from broker.transactions.records import HalfView, op, read_half, real
from remoting.codes import MessageSysFlag, ResponseCode
from remoting.command import HEADER_BYTES_FREE, Command
from remoting.errors import CommandError
from remoting.headers.registry import EndTransactionRequestHeader
from remoting.record import RecordError
from remoting.server import Connection
from remoting.topics import SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from store.errors import RecordDamaged
from store.log.dispatch import parse_delay_levels
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

COMMIT = int(MessageSysFlag.TRANSACTION_COMMIT)
ROLLBACK = int(MessageSysFlag.TRANSACTION_ROLLBACK)
# Requests that wait for the halves to be read, or for a write about their transaction; beyond it: SYSTEM_BUSY. What a
# producer does not get done is asked about later.
WAITING_MAX = 10_000
# Discarded halves that may still be ended, the newest ones: each is read to be found.
GIVEN_UP_MAX = 100
NOT_FOUND = "Find prepared transaction message failed"


Later = Callable[[float, Callable[[], None]], Cancellable]


class _Rollback(NamedTuple):
    """A rollback that waits for others to be written with; `offset` is the copy that it names."""

    half: Half
    offset: int
    connection: Connection
    request: Command


class EndsTold(Protocol):
    """Learns how transactions end."""

    def ended(self, half: Half, now_ms: int, *, committed: bool) -> None:
        """Count one."""
        ...


class EndHandler:
    """Serves END_TRANSACTION; `table` is None until the halves are read."""

    def __init__(
        self,
        context: BrokerContext,
        replication: Replication,
        elsewhere: Elsewhere | None,
        told: EndsTold,
        later: Later,
    ) -> None:
        """`elsewhere` as of SendHandlers; `later(seconds, call)` sets a timer."""
        self._live, self._store, self._clock = context.live, context.store, context.clock
        self._store_host = context.store_host
        self._append, self._append_batch = replication.append, replication.append_batch
        self._elsewhere = elsewhere
        self._told = told
        self._held = HeldRequests()
        self._levels = len(parse_delay_levels(context.live.store.messageDelayLevel))
        self._waiting: list[Callable[[], None]] = []
        self.waits = 0
        self._later = later
        self._timer: Cancellable | None = None
        self._gathered: list[_Rollback] = []
        self._gathered_bytes = 0
        self.table: HalfTable | None = None

    def end(self, connection: Connection, request: Command) -> Command | None:
        """37: commit or roll back; answers when that is safe, and never to what decides nothing."""
        header = request.header(EndTransactionRequestHeader)
        if header.commitOrRollback not in {COMMIT, ROLLBACK}:
            # As RocketMQ: the half stays as it is.
            return None
        if self.table is None:
            self._wait(self._waiting, connection, request, header)
            return None
        return self._end(self.table, connection, request, header)

    def began(self, table: HalfTable | None) -> None:
        """Serve with this table; None: no more. What waits is served now, or refused."""
        ended, self.table = self.table, table
        waiting, self._waiting = self._waiting, []
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        for each in gathered:
            self._lost(each.connection, each.request)
        if ended is not None:
            for half in ended.pending.values():
                if half.waiting is not None:
                    waiting += half.waiting
                    half.waiting = []
        for wake in waiting:
            wake()

    def settle(self, half: Half) -> None:
        """Let what waits for a write about a half go on."""
        waiting, half.waiting = half.waiting or [], None
        for wake in waiting:
            wake()

    # ---- one request

    def _wait(
        self,
        queue: list[Callable[[], None]],
        connection: Connection,
        request: Command,
        header: EndTransactionRequestHeader,
    ) -> None:
        if self.waits >= WAITING_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many ends of transactions wait: try again")
        again = partial(self._again, connection, request, header)
        queue.append(self._held.hold(len(request.body) + request.header_bytes, again))
        self.waits += 1

    def _again(self, connection: Connection, request: Command, header: EndTransactionRequestHeader) -> None:
        """Serve what had to wait."""
        self.waits -= 1
        table = self.table
        if table is None:
            self._lost(connection, request)
            return
        try:
            answer = self._end(table, connection, request, header)
        except CommandError as error:
            answer = Command.response(error.code, error.remark)
        if answer is not None:
            connection.reply(request, answer)

    def _lost(self, connection: Connection, request: Command) -> None:
        """Pass a request on: this broker leads no more, another one may do it."""
        if self._elsewhere is not None:
            self._elsewhere(connection, request)
        else:
            connection.reply(
                request, Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker ends no transactions now")
            )

    def _end(
        self, table: HalfTable, connection: Connection, request: Command, header: EndTransactionRequestHeader
    ) -> Command | None:
        committed = header.commitOrRollback == COMMIT
        view = self._view(header)
        self._check(header, view)
        root = table.root_of(view)
        half = table.pending.get(root)
        if half is not None and half.waiting is not None:
            self._wait(half.waiting, connection, request, header)
            if not request.is_oneway:
                self.flush()
            return None
        if half is None:
            found = self.discarded(root, view.key) if table.outcome(root) is None else None
            half = self.given_up(table, view, root, found.stored_ms) if found is not None else None
            if half is None:
                return self._over(table, root, view, committed=committed)
        elif not half.fresh and self._was_committed(half):
            # The log was torn between the real message and the op message.
            self._write(table, half, [], committed=True)
            return _answer(committed=committed, was=True)
        records = self._real(half) if committed else []
        size = len(request.body) + request.header_bytes
        done = partial(self._stored, table, half, committed, connection, request)
        done = self._held.hold(size, done)
        half.waiting = []
        # One that was given up stands among the others again until it is over: whoever ends it too finds it there.
        table.pending[root] = half
        if not committed and request.is_oneway and size <= HEADER_BYTES_FREE:
            self._gather(_Rollback(half, view.offset, connection, request))
        else:
            self._append_batch([*records, self.op(half, view.offset)], done, until=request.until)
        return None

    def _view(self, header: EndTransactionRequestHeader) -> HalfView:
        """Return the copy that a request names."""
        try:
            record = self._store.record_at(header.commitLogOffset) if header.commitLogOffset >= 0 else None
            if record is not None:
                return read_half(record)
        except RecordDamaged as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except RecordError:
            pass
        raise CommandError(ResponseCode.SYSTEM_ERROR, NOT_FOUND)

    def _check(self, header: EndTransactionRequestHeader, view: HalfView) -> None:
        """Refuse what is not the producer's own, or comes too late; RocketMQ's words."""
        if not header.fromTransactionCheck and 0 <= view.immunity_ms < self._clock.now_ms() - view.born_ms:
            raise CommandError(
                ResponseCode.ILLEGAL_OPERATION,
                "the time without checks (CHECK_IMMUNITY_TIME_IN_SECONDS) is over: answer the broker's check",
            )
        if view.group != header.producerGroup:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if view.offset != header.tranStateTableOffset:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")

    def _real(self, half: Half) -> list[PendingRecord]:
        try:
            record = self._store.record_at(half.position)
            if record is None:
                raise RecordError("its record is gone")
            return [real(record, self._levels, half.root if half.given_up else -1)]
        except RecordDamaged as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except RecordError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"{NOT_FOUND}: {error}") from None

    def op(self, half: Half, *more: int) -> PendingRecord:
        """Return the op message of a half that is over."""
        return op(half.offsets(*more), self._store_host, self._clock.now_ms())

    def _stored(
        self,
        table: HalfTable,
        half: Half,
        committed: bool,
        connection: Connection,
        request: Command,
        results: list[PutResult],
        code: int,
    ) -> None:
        if results[0].status is PutStatus.PUT_OK and code != ResponseCode.NOT_LEADER_FOR_QUEUE:
            self._note(table, half, results[-1], committed=committed)
            # Written, if perhaps not yet synced: nothing that a producer does makes it safer.
            connection.reply(request, Command.response(ResponseCode.SUCCESS))
        elif code == ResponseCode.NOT_LEADER_FOR_QUEUE:
            self._lost(connection, request)
        else:
            connection.reply(request, Command.response(code, remark_of(results[0].status)))
        self.settle(half)

    def _note(self, table: HalfTable, half: Half, op_result: PutResult, *, committed: bool) -> None:
        table.named(op_result.queue_offset, half.offsets())
        table.end(half, committed=committed)
        self._told.ended(half, self._clock.now_ms(), committed=committed)

    # ---- rollbacks that nobody waits for

    def _gather(self, rollback: "_Rollback") -> None:
        """Have a rollback written with others, in one op message."""
        self._gathered.append(rollback)
        self._gathered_bytes += sum([len(str(offset)) + 1 for offset in rollback.half.offsets(rollback.offset)])
        config = self._live.broker
        if self._gathered_bytes >= config.transactionOpMsgMaxSize:
            self.flush()
        elif self._timer is None:
            self._timer = self._later(config.transactionOpBatchInterval / 1000, self.flush)

    def flush(self) -> None:
        """Write the rollbacks that are gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        table = self.table
        if not gathered or table is None:
            return
        offsets = sorted({offset for each in gathered for offset in each.half.offsets(each.offset)})
        record = op(offsets, self._store_host, self._clock.now_ms())
        self._append(record, partial(self._rolled_back, table, gathered, offsets))

    def _rolled_back(
        self, table: HalfTable, gathered: list["_Rollback"], offsets: list[int], result: PutResult, code: int
    ) -> None:
        stored = result.status is PutStatus.PUT_OK and code != ResponseCode.NOT_LEADER_FOR_QUEUE
        if stored:
            table.named(result.queue_offset, offsets)
        for half, _offset, connection, request in gathered:
            if stored:
                table.end(half, committed=False)
                self._told.ended(half, self._clock.now_ms(), committed=False)
            self.settle(half)
            if code == ResponseCode.NOT_LEADER_FOR_QUEUE:
                self._lost(connection, request)

    # ---- what is over, or was

    def was_committed(self, half: Half) -> bool:
        """Tell whether a half that stood in the log before this broker led was committed; looked for once."""
        found = not half.fresh and self._was_committed(half)
        if found and self.table is not None:
            self._write(self.table, half, [], committed=True)
        return found

    def _was_committed(self, half: Half) -> bool:
        half.fresh = True
        topics = (half.topic, SCHEDULE_TOPIC)
        return committed_real(self._store, topics, half.key, half.root, half.position)

    def _write(self, table: HalfTable, half: Half, records: list[PendingRecord], *, committed: bool) -> None:
        """Write that a half is over, for the next who reads the queues; this one knows it now."""
        table.end(half, committed=committed)
        self._append_batch([*records, self.op(half)], partial(self._op_stored, table, half))

    def _op_stored(self, table: HalfTable, half: Half, results: list[PutResult], _code: int) -> None:
        if results[0].status is PutStatus.PUT_OK:
            table.named(results[-1].queue_offset, half.offsets())
        else:
            half.fresh = False
            table.pending[half.root] = half

    def _over(self, table: HalfTable, root: int, view: HalfView, *, committed: bool) -> Command:
        """Answer who ends what is over already."""
        was = table.outcome(root)
        if was is None:
            was = committed_real(self._store, (view.topic, SCHEDULE_TOPIC), view.key, root, view.position)
        return _answer(committed=committed, was=was)

    def discarded(self, root: int, key: str) -> HalfView | None:
        """Return the newest record that says that a half was discarded; None when none of the last ones does."""
        end = self._store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0)
        start = max(self._store.min_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0), end - GIVEN_UP_MAX)
        for entry in reversed(self._store.queue_entries(TRANS_CHECK_MAX_TIME_TOPIC, 0, start, end - start)):
            try:
                record = self._store.record_at(entry.physical_offset)
                found = read_half(record, TRANS_CHECK_MAX_TIME_TOPIC) if record is not None else None
            except (RecordDamaged, RecordError):
                continue
            if found is not None and found.root == root and found.key == key:
                return found
        return None

    def given_up(self, table: HalfTable, view: HalfView, root: int, since_ms: int) -> Half | None:
        """Return a transaction that was discarded then as one that can go on; None when it has ended since."""
        if table.outcome(root) is not None:
            return None
        made = Half.of(root, view)
        made.given_up = True
        if self._was_committed(made):
            return None
        if root >= 0 and ended_since(self._store, root, since_ms):
            table.remember(root, committed=False)
            return None
        return made


def _answer(*, committed: bool, was: bool) -> Command:
    if committed == was:
        return Command.response(ResponseCode.SUCCESS)
    how = "committed" if was else "rolled back, or given up"
    return Command.response(ResponseCode.SYSTEM_ERROR, f"the transaction is over: it was {how}")
