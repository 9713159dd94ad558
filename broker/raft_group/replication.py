"""The mode of a Raft group: a message is acknowledged when a majority has it, in the entry that it was appended with.

Everything that arrived in one turn of the loop becomes one entry (at most ENTRY_BYTES of it, the rest the next one).
As long as few entries are on their way each turn is proposed at once; beyond IN_FLIGHT_ENTRIES what arrives is gathered
until one of them is committed, so that under load entries grow instead of their number (group commit).

What becomes of an entry is told once, as its fate. Committed: its senders are answered. Overwritten: it never happened,
so that its senders' handlers may send it on to the leader (R8: they are told NOT_LEADER_FOR_QUEUE, as for what was not
appended at all). Unknown: this member stops or lost track, and says exactly that. A member that was deposed
acknowledges nothing that is not committed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from broker.replication import CODES, RECORD_OVERHEAD_BYTES, BatchDone, Done, SendTimes, batch_bytes, sends_of
from broker.role import BrokerRole
from raft.protocol.group_node import GroupNode
from raft.protocol.types import Fate, Refusal
from remoting.codes import ResponseCode
from store.types import PendingRecord, PutResult, PutStatus

_log = logging.getLogger(__name__)

# Bytes of records that one entry holds, unless a single message (or batch) is larger.
ENTRY_BYTES = 1024 * 1024
# Entries that may be on their way before arrivals are gathered.
IN_FLIGHT_ENTRIES = 4
# Records gathered for the next entry at which who sends much waits: what a few milliseconds bring.
GATHERED_MAX = 512
# Seconds before a turn is proposed again whose metadata the group did not take.
RETRY_SECONDS = 0.05
_FOREVER = float("inf")
_OK = PutStatus.PUT_OK
_new_taken = tuple.__new__
_RECORDS = itemgetter(0)
_SUCCESS = CODES[PutStatus.PUT_OK]
_NOT_LEADER = int(ResponseCode.NOT_LEADER_FOR_QUEUE)
# Refusals after which another member takes what this one did not.
_ELSEWHERE = frozenset({Refusal.NOT_LEADER, Refusal.TRANSFERRING})


class RecordLog(Protocol):
    """What is needed of the log of entries."""

    def append_records(
        self, records: Sequence[PendingRecord | Sequence[PendingRecord]], term: int, commit: int
    ) -> tuple[int, list[Any]]:
        """Append one MESSAGES entry; return its index (-1: nothing was taken) and each record's result."""
        ...


class TakenRecords(NamedTuple):
    """What one call of append or append_batch left; `records` of a batch stand together."""

    records: PendingRecord | Sequence[PendingRecord]
    done: Callable[[Any, int], None]
    size: int
    until: float
    """Nothing of it is stored any more from that moment on."""

    def refuse(self, status: PutStatus, code: int | None = None) -> None:
        """Answer that it is not stored, or not known to be, with the status's own code unless one is given."""
        refusal = PutResult(status)
        result = refusal if isinstance(self.records, PendingRecord) else [refusal]
        self.answer(result, CODES[status] if code is None else code)

    def send_on(self) -> None:
        """Answer that it is in no log, and that another member may store it."""
        self.refuse(PutStatus.SERVICE_NOT_AVAILABLE, _NOT_LEADER)

    def answer(self, result: Any, code: int) -> None:
        """Answer; a failure must not cost the others their answers."""
        try:
            self.done(result, code)
        except Exception:
            _log.exception("an acknowledgement could not be delivered")


class _Flight:
    """An entry on its way: who waits for it, since when, and what each will be told."""

    __slots__ = ("began", "proposed", "results", "sends", "size", "taken")

    def __init__(self, taken: list[TakenRecords], size: int, sends: int, began: float, proposed: float) -> None:
        self.taken, self.size, self.sends = taken, size, sends
        self.began, self.proposed = began, proposed
        self.results: list[Any] = []


class RaftReplication:
    """Proposes records and answers their senders; see Replication for append and append_batch.

    `wait=False` changes nothing here: what is not committed may vanish with a new leader.
    """

    def __init__(
        self,
        entries: RecordLog,
        role: BrokerRole,
        loop: asyncio.AbstractEventLoop,
        *,
        writable: Callable[[], str | None],
        flush_metadata: Callable[[], bool],
        pending_bytes_max: int,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`writable` tells why the store takes nothing; `pending_bytes_max` bounds what is not yet acknowledged.

        `flush_metadata` is called before each turn's messages, which may need it (their topic's entry comes before
        them); False when the group does not take it now. `now` is the clock of deadlines, the loop's by default.
        """
        self._entries = entries
        self._role = role
        self._loop = loop
        self._writable = writable
        self._flush_metadata = flush_metadata
        self._pending_bytes_max = pending_bytes_max
        self._now: Callable[[], float] = loop.time if now is None else now
        self._node: GroupNode | None = None
        self._turn: list[TakenRecords] = []
        self._turn_bytes = 0
        self._turn_sends = 0
        # The first moment at which something of the turn is too late.
        self._turn_until = _FOREVER
        # When the first message of the turn came.
        self._turn_began = 0.0
        self.times = SendTimes()
        self._ends_soon = False
        self._flights = 0
        self._flight_bytes = 0
        self._stopped = False
        self._empty = asyncio.Event()

    def attach(self, node: GroupNode) -> None:
        """Take the node that entries are proposed to; before it, everything is refused."""
        self._node = node

    @property
    def pending_bytes(self) -> int:
        """Bytes taken and not yet acknowledged."""
        return self._turn_bytes + self._flight_bytes

    @property
    def congested(self) -> bool:
        """Whether a whole entry is gathered already, beside those that are proposed when this turn ends.

        They are counted although they may go: between an entry's end and this turn's a flood would bring more than
        the next entry takes, and what is gathered would grow with each.
        """
        entries = 1 + max(0, IN_FLIGHT_ENTRIES - self._flights)
        return self._turn_sends >= GATHERED_MAX * entries or self._turn_bytes >= ENTRY_BYTES * entries

    def append(self, record: PendingRecord, done: Done, *, wait: bool = True, until: float = 0.0) -> None:  # noqa: ARG002 # as the others
        """Store a record; see Replication."""
        size = len(record.body) + len(record.properties) + RECORD_OVERHEAD_BYTES
        # What TakenRecords() does, without its frame.
        self._take(_new_taken(TakenRecords, (record, done, size, until or _FOREVER)), 1)

    def append_batch(
        self,
        records: Sequence[PendingRecord],
        done: BatchDone,
        *,
        wait: bool = True,  # noqa: ARG002 # as the others
        until: float = 0.0,
    ) -> None:
        """Store records next to one another; see Replication."""
        self._take(TakenRecords(records, done, batch_bytes(records), until or _FOREVER), sends_of(records))

    def confirm(self, stored: PutResult, done: Done, *, wait: bool = True) -> None:  # noqa: ARG002 # as the others
        """Tell that a record that is in the queues is safe: only what is committed comes there (R12)."""
        done(stored, _SUCCESS)

    async def drain(self, timeout_seconds: float) -> bool:
        """Take nothing more and return when the fate of everything taken is known; False when that took too long."""
        self._stopped = True
        if self._turn or self._flights:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), timeout_seconds)
            except TimeoutError:
                return False
        return True

    def role_changed(self) -> None:
        """Let what was not appended yet go on its way elsewhere; called after each change of role."""
        if self._turn and not self._role.leads:
            for taken in self._take_all():
                taken.send_on()
            self._check_empty()

    def _take(self, taken: TakenRecords, sends: int) -> None:
        turn = self._turn
        if not turn:
            if not self._role.leads:
                taken.send_on()
                return
            if self._stopped or self._writable() is not None:
                taken.refuse(PutStatus.SERVICE_NOT_AVAILABLE)
                return
            self._turn_began = self._now()
        if self._turn_bytes + self._flight_bytes > self._pending_bytes_max:
            taken.refuse(PutStatus.OS_PAGE_CACHE_BUSY)
            return
        self._turn_bytes += taken.size
        self._turn_sends += sends
        self._turn_until = min(self._turn_until, taken.until)
        turn.append(taken)
        if not self._ends_soon and self._flights < IN_FLIGHT_ENTRIES:
            self._ends_soon = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._ends_soon = False
        if self._turn and not self._flush_metadata():
            if self._writable() is not None:
                for taken in self._take_all():
                    taken.refuse(PutStatus.SERVICE_NOT_AVAILABLE)
                self._check_empty()
                return
            self._ends_soon = True
            self._loop.call_later(RETRY_SECONDS, self._end_turn)
            return
        if self._turn_until <= self._now():
            self._drop_late()
        while self._turn and self._flights < IN_FLIGHT_ENTRIES:
            began, now = self._turn_began, self._now()
            self.times.queue.add(now - began)
            self._propose(self._next_entry(began, now))
        if self._stopped:
            self._check_empty()

    def _drop_late(self) -> None:
        """Refuse what was gathered for so long that its sender has given it up, and may have sent it again (R8)."""
        now = self._now()
        turn = self._take_all()
        for taken in turn:
            if taken.until > now:
                self._turn.append(taken)
                self._turn_bytes += taken.size
                self._turn_sends += sends_of(taken.records)
                self._turn_until = min(self._turn_until, taken.until)
        for taken in turn:
            if taken.until <= now:
                taken.refuse(PutStatus.SERVICE_NOT_AVAILABLE)

    def _next_entry(self, began: float, now: float) -> _Flight:
        """Take the head of the turn: as much as one entry holds, at least one."""
        turn, sends = self._turn, self._turn_sends
        if self._turn_bytes <= ENTRY_BYTES:
            size = self._turn_bytes
            return _Flight(self._take_all(), size, sends, began, now)
        size = count = 0
        for taken in turn:
            size += taken.size
            if count and size > ENTRY_BYTES:
                size -= taken.size
                break
            count += 1
        self._turn = turn[count:]
        self._turn_bytes -= size
        self._turn_sends = sum([sends_of(taken.records) for taken in self._turn])
        return _Flight(turn[:count], size, sends - self._turn_sends, began, now)

    def _take_all(self) -> list[TakenRecords]:
        turn, self._turn, self._turn_bytes, self._turn_sends, self._turn_until = self._turn, [], 0, 0, _FOREVER
        return turn

    def _propose(self, flight: _Flight) -> None:
        self._flights += 1
        self._flight_bytes += flight.size
        refusal = (
            Refusal.NOT_LEADER
            if self._node is None
            else self._node.propose(partial(self._append, flight), partial(self._settled, flight))
        )
        if refusal is None:
            return
        self._landed(flight)
        if flight.results:
            # Every record was refused on its own account, so that there is no entry.
            for taken, result in zip(flight.taken, flight.results, strict=True):
                taken.answer(result, CODES[_status(result)])
            return
        for taken in flight.taken:
            if refusal in _ELSEWHERE:
                taken.send_on()
            else:
                busy = refusal is Refusal.BUSY
                taken.refuse(PutStatus.OS_PAGE_CACHE_BUSY if busy else PutStatus.SERVICE_NOT_AVAILABLE)

    def _append(self, flight: _Flight, term: int, commit: int) -> int:
        """Give the records of an entry their places, all in one step."""
        index, flight.results = self._entries.append_records([*map(_RECORDS, flight.taken)], term, commit)
        return index

    def _settled(self, flight: _Flight, fate: Fate) -> None:
        """Answer everybody that waits for an entry, in their order."""
        self._landed(flight)
        if fate is Fate.UNKNOWN:
            # There are no results when the disk failed midway.
            for taken in flight.taken:
                taken.refuse(PutStatus.UNKNOWN_ERROR)
        else:
            committed = fate is Fate.COMMITTED
            if committed:
                now = self._now()
                self.times.commit.add(now - flight.proposed)
                self.times.send.add(now - flight.began, flight.sends)
            for taken, result in zip(flight.taken, flight.results, strict=True):
                status = result[0].status if type(result) is list else result.status
                if status is not _OK:
                    taken.answer(result, CODES[status])
                elif committed:
                    taken.answer(result, _SUCCESS)
                else:
                    taken.send_on()
        if self._turn and not self._ends_soon:
            self._ends_soon = True
            self._loop.call_soon(self._end_turn)
        if self._stopped:
            self._check_empty()

    def _landed(self, flight: _Flight) -> None:
        self._flights -= 1
        self._flight_bytes -= flight.size

    def _check_empty(self) -> None:
        if not self._turn and not self._flights:
            self._empty.set()


def _status(result: Any) -> PutStatus:
    """Return the status of a result: one, or a batch's list."""
    status: PutStatus = result[0].status if type(result) is list else result.status
    return status
