"""What an administrator sees of transactions, and code 323: have a producer asked about one again.

A discarded half comes back into the half queue with no checks counted, one that is pending has its count begin anew.
What is over stays over.
"""

import heapq
from collections.abc import Iterator
from itertools import islice

import orjson

from broker.context import BrokerContext
from broker.reply import ok
from broker.transactions.checker import Checker
from broker.transactions.ending import EndHandler
from broker.transactions.halves import Half, HalfTable
from broker.transactions.records import HalfView, read_half
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import ResumeCheckHalfMessageRequestHeader
from remoting.msgid import offset_msg_id, parse_offset_msg_id
from remoting.record import RecordError, decode_record
from remoting.server import Connection
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from store.errors import RecordDamaged

# Transactions on a page of each kind, the oldest pending ones and the newest that were discarded.
ROWS_MAX = 100
# As many as a request may ask for: each that was discarded is a record that is read in the loop.
ASKED_MAX = 500


class ResumeHandler:
    """Serves 323 and the page of one broker."""

    def __init__(self, context: BrokerContext, ending: EndHandler, checker: Checker) -> None:
        self._store, self._clock, self._store_host = context.store, context.clock, context.store_host
        self._ending, self._checker = ending, checker

    async def resume(self, _connection: Connection, request: Command) -> Command:
        """323: begin to ask about a transaction anew; `msgId` is the offset id of its half, or of the discarded one."""
        header = request.header(ResumeCheckHalfMessageRequestHeader)
        try:
            position = parse_offset_msg_id(header.msgId or "")[1]
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from None
        table = self._ending.table
        if table is None:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, "half messages are still being read: try again")
        record, view = self._read(position)
        half = self._undecided(table, view, record)
        # Not asked in this moment: the next round does it, and so a request that comes again asks nobody twice.
        if not await self._checker.renew(table, half, record, 0, ask=False):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return Command.response(ResponseCode.SUCCESS)

    def _read(self, position: int) -> tuple[bytes | memoryview, HalfView]:
        try:
            record = self._store.record_at(position)
            if record is not None:
                return record, read_half(record, TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
        except RecordDamaged as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except RecordError:
            pass
        raise CommandError(ResponseCode.SYSTEM_ERROR, "no half message, pending or discarded, has this id")

    def _undecided(self, table: HalfTable, view: HalfView, record: bytes | memoryview) -> Half:
        """Return the transaction that a record belongs to; refuses one that is over, or being ended just now."""
        given_up = decode_record(record).topic == TRANS_CHECK_MAX_TIME_TOPIC
        # Where RocketMQ wrote that it was discarded, it is not said which half it was.
        root = view.root if given_up else table.root_of(view)
        half = table.pending.get(root) if root >= 0 else _same(table, view)
        if half is None and given_up:
            newest = self._ending.discarded(root, view.key) or view
            half = self._ending.given_up(table, view, root, newest.stored_ms)
        if half is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the transaction is over: nobody is asked about it any more")
        if half.busy:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "something about the transaction is being written: try again")
        return half

    # ---- the page

    def status(self, _connection: Connection, request: Command) -> Command:
        """9131: the page, with as many rows as are asked for, and of one producer group if it says so."""
        try:
            asked = orjson.loads(bytes(request.body) or b"{}")
            limit, group = asked.get("limit", ROWS_MAX), asked.get("group")
        except (ValueError, AttributeError):
            raise CommandError(ResponseCode.INVALID_PARAMETER, "the body is no JSON object") from None
        if type(limit) is not int or not 1 <= limit <= ASKED_MAX or not isinstance(group, str | None):
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"it takes a limit of 1 to {ASKED_MAX}, and the name of a group"
            )
        return ok(body=orjson.dumps(self.page(limit, group)))

    def page(self, limit: int = ROWS_MAX, group: str | None = None) -> dict[str, object]:
        """Return what is undecided and what was given up, the first `limit` of each; for /v1/transactions.

        With a `group` what is undecided is counted of that one; what was given up is looked for among the newest
        ASKED_MAX.
        """
        table = self._ending.table
        pending = [] if table is None else [half for half in table.pending.values() if group in {None, half.group}]
        oldest = heapq.nsmallest(limit, pending, key=lambda half: half.since_ms)
        return {
            "read": table is not None,
            "pending": len(pending),
            "oldestMs": max(0, self._clock.now_ms() - oldest[0].since_ms) if oldest else 0,
            "halves": [self._row(half) for half in oldest],
            "discarded": self._store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0)
            - self._store.min_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0),
            "discardedHalves": list(islice(self._discarded(table, limit, group), limit)),
        }

    def _row(self, half: Half) -> dict[str, object]:
        return {
            "id": offset_msg_id(self._store_host, half.position),
            "transactionId": half.key,
            "producerGroup": half.group,
            "topic": half.topic,
            "checks": half.checks,
            "ageMs": max(0, self._clock.now_ms() - half.since_ms),
            "immunityMs": half.immunity_ms,
        }

    def _discarded(self, table: HalfTable | None, limit: int, group: str | None) -> Iterator[dict[str, object]]:
        """Yield the newest that were discarded, newest first, but those that are asked about again or are over."""
        end = self._store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0)
        newest = limit if group is None else ASKED_MAX
        start = max(self._store.min_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0), end - newest)
        shown = set[int]()
        for entry in reversed(self._store.queue_entries(TRANS_CHECK_MAX_TIME_TOPIC, 0, start, end - start)):
            try:
                record = self._store.record_at(entry.physical_offset)
                view = read_half(record, TRANS_CHECK_MAX_TIME_TOPIC) if record is not None else None
            except (RecordDamaged, RecordError):
                continue
            if view is None or view.root in shown or group not in {None, view.group}:
                continue
            shown.add(view.root if view.root >= 0 else -1 - view.position)
            if table is not None and (view.root in table.pending or table.outcome(view.root) is not None):
                continue
            yield {
                "id": offset_msg_id(self._store_host, view.position),
                "transactionId": view.key,
                "producerGroup": view.group,
                "topic": view.topic,
                "checks": view.checks,
                "discardedMs": view.stored_ms,
            }


def _same(table: HalfTable, view: HalfView) -> Half | None:
    who = (view.key, view.group)
    return next((half for half in table.pending.values() if view.key and (half.key, half.group) == who), None)
