"""Pulling: codes 11 and 361. Checks in RocketMQ's order, then a read of the store, or a wait for the next message.

The newest messages leave as memoryviews of the log's mapping; older ones are copied from the page cache, and checked.
What is not in memory is read by a small thread pool, so that an old backlog does not hold up the loop. A request that
finds nothing new may be parked (longpoll.py); it is run again when a message arrives that it wants, at its deadline, or
when the broker stops, and is answered then whatever comes.

A member of a group that does not lead passes pulls on to the leader. With slaveReadEnable, and while no leader is
known, it answers from its own log, which is dispatched as far as it is committed. What lies outside it only the leader
knows (rule R14): such a pull goes on to the leader, or is answered with 19 and the offset asked for, so that the client
asks again; never with 21, which would move the consumer. The same holds for a leader that somebody else may have
replaced. Offsets that come along with a pull are the leader's to store: clients send them by themselves as well (15).

A slave does the same, and passes nothing on. While its master lives it sends pulls there (20, unless slaveReadEnable);
when the master is away it serves what it has, and parks who wants more.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import cast

from broker.context import BrokerContext, Tables
from broker.messages.commit_origins import Origins
from broker.messages.longpoll import LongPollTable
from broker.messages.pull_answers import TEMPLATE, words
from broker.messages.pull_checks import PullChecks, PullTicket, ReadQuota
from broker.messages.pull_damage import DamagedPulls
from broker.messages.pull_runs import PullRuns
from broker.messages.pull_sifting import ParkedSifting, read_for
from broker.role import MasterWatch
from remoting.codes import PullSysFlag, RequestCode, ResponseCode
from remoting.command import JSON, ONEWAY_FLAG, Command
from remoting.errors import CommandError
from remoting.headers.registry import PullMessageRequestHeader, PullMessageResponseHeader
from remoting.runs import PULL_RUN
from remoting.server import Connection, Handler, Reply
from runtime.timings import Timings
from store.types import Dispatched, GetResult, GetStatus

_log = logging.getLogger(__name__)

# How long a request may be parked at most, in milliseconds: below the idle close of a connection (120 s).
SUSPEND_MS_MAX = 90_000
# How often parked requests are compared with their queues, in seconds; a safety net, and what moves a consumer past
# messages that its filter skips (RocketMQ's own figure).
SWEEP_SECONDS = 5.0
# Reads that wait for the thread pool; beyond it a pull is answered with SYSTEM_BUSY.
COLD_READS_MAX = 1024
# How long a leader without a lease keeps a pull that it must not judge, in milliseconds: about an election.
UNSURE_MS_MAX = 1000

# Passes a pull on: who asked, what, how long the leader may park it (seconds), and the answer when that fails.
ForwardPull = Callable[[Connection, Command, float, Callable[[], Command]], None]

_SUSPEND = int(PullSysFlag.SUSPEND)
_COMMIT = int(PullSysFlag.COMMIT_OFFSET)
_FOUND = int(ResponseCode.SUCCESS)
_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_RETRY = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)

_CODES: dict[GetStatus, int] = {
    GetStatus.FOUND: _FOUND,
    GetStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetStatus.OFFSET_TOO_SMALL: _MOVED,
}
_REMARKS = {status: status.name.encode() for status in GetStatus}


class PullHandlers:
    """Handlers of the pull requests, and the service that completes parked ones."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        checks: PullChecks,
        loop: asyncio.AbstractEventLoop,
        *,
        forward: ForwardPull | None = None,
        master: MasterWatch | None = None,
        origins: Origins | None = None,
        quota: ReadQuota | None = None,
    ) -> None:
        """`forward` asks a group's leader; `master`: a slave's; `origins`: of offsets; `quota`: of bytes."""
        self._live, self._store, self._role = context.live, context.store, context.role
        self._offsets, self._stats = tables.offsets, tables.stats
        self._threads = context.threads
        self._forward = forward
        self._master = master
        self._checks = checks
        self._origins = Origins() if origins is None else origins
        self._quota = quota
        self._loop = loop
        self._polls = LongPollTable[PullTicket](context.live.broker.pullThreadPoolQueueCapacity)
        self._sifting = ParkedSifting(self._polls, context.store, loop, self._run_again)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._cold_reads = 0
        self.times = Timings()
        """How long it took to read what a pull is answered with; its time parked does not count."""
        self._runs = PullRuns(context, tables, checks, self._origins, quota, self.times)
        self._damaged = DamagedPulls(context.store, loop, self._run_again)
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._slow_bytes = ram * context.live.store.accessMessageInMemoryMaxRatio // 100

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        run = cast(Handler, self._runs.serve)
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull, PULL_RUN: run}

    @property
    def parked(self) -> int:
        """Pulls that wait for a message."""
        return self._polls.size

    def pull(self, connection: Connection, request: Command) -> Reply:
        """Answer a pull (11, 361), or park it."""
        header = request.header(PullMessageRequestHeader)
        master = self._master
        if master is not None and master.master_alive and not self._live.broker.slaveReadEnable:
            return _elsewhere(_RETRY, header.queueOffset, "the master serves pulls")
        if self._forward is not None and self._leader_reads():
            self._forward(connection, request, _hold_seconds(header), partial(_nothing_at, header.queueOffset))
            return None
        try:
            ticket = self._checks.ticket(connection, request, header)
        except CommandError:
            if master is not None and master.master_alive:
                # It may know what this copy of its tables does not yet; if not, it says so itself.
                return _nothing_at(header.queueOffset)
            if self._role.leads or self._forward is None:
                raise
            # The leader may know a topic, a group or a member that this one does not know yet.
            self._forward(connection, request, _hold_seconds(header), partial(_nothing_at, header.queueOffset))
            return None
        return self._serve(ticket, may_park=True)

    def arrived(self, batch: Sequence[Dispatched]) -> None:
        """Wake who waits for one of these messages; called by the store, once a write."""
        polls = self._polls
        if not polls.size:
            return
        ends: dict[tuple[str, int], int] = {}
        codes: dict[tuple[str, int], set[int]] = {}
        for message in batch:
            key = (message.topic, message.queue_id)
            if polls.waits_for(key):
                ends[key] = message.queue_offset + 1
                codes.setdefault(key, set()).add(message.tags_code)
        woken: list[PullTicket] = []
        for key, end in ends.items():
            woken += polls.arrived(key, end, codes[key])
            if unsure := polls.sql_waits(key, end):
                self._sifting.arrived(unsure)
        if woken:
            # In the next turn: the producers' answers leave first, and the store is not read while it writes.
            self._loop.call_soon(self._run_again, woken)

    def sweep(self) -> None:
        """Wake who has been overtaken unnoticed, or moved by an administrator; called every SWEEP_SECONDS."""
        offsets = self._offsets

        def moved(ticket: PullTicket) -> bool:
            return offsets.reset_pending(ticket.header.consumerGroup, ticket.topic, ticket.queue_id)

        self._run_again(self._polls.overtaken(self._store.max_offset, moved, self._sifting.busy))

    def on_close(self, connection: Connection) -> None:
        """Forget what a closed connection waited for."""
        self._polls.drop(connection)

    def wake_all(self) -> None:
        """Answer everybody who waits: whoever asks again asks the broker that leads now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._run_again(self._polls.clear())

    def stop(self) -> None:
        """Answer everybody who waits; called when no more pulls come."""
        self.wake_all()

    def _serve(self, ticket: PullTicket, *, may_park: bool) -> Reply:
        began = monotonic()
        header = ticket.header
        leads = self._role.leads
        if leads:
            reset = self._offsets.take_reset(header.consumerGroup, ticket.topic, ticket.queue_id)
            if reset >= 0:
                return self._reset_answer(ticket, reset)
        result = read_for(self._store, ticket)
        if may_park and header.sysFlag & _COMMIT and leads:
            place = (header.consumerGroup, ticket.topic, ticket.queue_id)
            end, offsets = result.max_offset, self._offsets
            self._origins.pulled(ticket.owner, ticket.request, place, header.commitOffset, end, offsets)
        if result.cold:
            self._read_cold(ticket, result, began)
            return None
        if result.damaged >= 0 and not result.count:
            return self._damaged.take(ticket, result.damaged)
        code = self._code(ticket, result)
        if code == _MOVED and not self._may_judge():
            return self._outside(ticket, may_park=may_park)
        if code == _NOT_FOUND and may_park and header.sysFlag & _SUSPEND and self._park(ticket, SUSPEND_MS_MAX):
            return None
        self._answer(ticket, code, result)
        self.times.add(monotonic() - began)
        return None

    def _leader_reads(self) -> bool:
        """Tell whether the group's leader, another member, is to answer: clients with old routes still come here."""
        role = self._role
        return not role.leads and role.leader_address is not None and not self._live.broker.slaveReadEnable

    def _may_judge(self) -> bool:
        """Tell whether this broker may call an offset wrong: nobody else can have more, or less, of the queue (R14)."""
        return self._role.leads and self._role.lease()

    def _outside(self, ticket: PullTicket, *, may_park: bool) -> Command | None:
        """Deal with an offset that this broker does not have, and must not call wrong."""
        if may_park and self._role.leads:
            if ticket.header.sysFlag & _SUSPEND and self._park(ticket, UNSURE_MS_MAX):
                return None
        elif may_park and self._forward is not None:
            answer = partial(_nothing_at, ticket.offset)
            self._forward(ticket.owner, ticket.request, _hold_seconds(ticket.header), answer)
            return None
        elif (
            may_park
            and self._master is not None
            and not self._master.master_alive
            and ticket.header.sysFlag & _SUSPEND
            and self._park(ticket, SUSPEND_MS_MAX)
        ):
            # It may come back with more. Who is told at once asks again at once, and there is nobody else to ask.
            return None
        return _nothing_at(ticket.offset)

    @staticmethod
    def _code(ticket: PullTicket, result: GetResult) -> int:
        # Of a queue that is empty or not there: an offset other than 0 points at messages that are gone.
        return _CODES.get(result.status, _MOVED if ticket.offset else _NOT_FOUND)

    def _answer(self, ticket: PullTicket, code: int, result: GetResult) -> None:
        """Send what was read."""
        header, request, connection = ticket.header, ticket.request, ticket.owner
        if code == _FOUND:
            place, behind = ticket.queue_id, result.behind_bytes
            self._stats.got(header.consumerGroup, ticket.topic, result.count, result.size, queue=place, behind=behind)
            if self._quota is not None and self._quota.counts_bytes:
                self._quota.answered(connection, result.size)
        else:
            self._stats.missed()
        group = ticket.group
        broker_id = 0
        if self._live.broker.slaveReadEnable:
            slow = result.behind_bytes > self._slow_bytes
            broker_id = group.whichBrokerWhenConsumeSlowly if slow else group.brokerId
        buffers = result.buffers if code == _FOUND else []
        if request.serialize_type != JSON:
            response = PullMessageResponseHeader(
                suggestWhichBrokerId=broker_id,
                nextBeginOffset=result.next_offset,
                minOffset=result.min_offset,
                maxOffset=result.max_offset,
                topicSysFlag=ticket.config.topicSysFlag,
                groupSysFlag=group.groupSysFlag,
            )
            connection.reply(request, Command.response(code, result.status.name, response, buffers))
            return
        if request.flag & ONEWAY_FLAG:
            return
        head = TEMPLATE % (
            code,
            broker_id,
            group.groupSysFlag,
            result.next_offset,
            result.max_offset,
            result.min_offset,
            ticket.config.topicSysFlag,
            request.opaque,
            _REMARKS[result.status],
        )
        length, body_bytes = len(head), result.size if buffers else 0
        connection.spent += body_bytes
        connection.write(words(length + 4 + body_bytes, length) + head, *buffers)

    def _reset_answer(self, ticket: PullTicket, offset: int) -> Command:
        """Tell a consumer that an administrator has moved its group."""
        header = PullMessageResponseHeader(
            suggestWhichBrokerId=0,
            nextBeginOffset=offset,
            minOffset=self._store.min_offset(ticket.topic, ticket.queue_id),
            maxOffset=self._store.max_offset(ticket.topic, ticket.queue_id),
            topicSysFlag=ticket.config.topicSysFlag,
            groupSysFlag=ticket.group.groupSysFlag,
        )
        return Command.response(_MOVED, "OFFSET_RESET", header)

    def _read_cold(self, ticket: PullTicket, result: GetResult, began: float) -> None:
        if self._cold_reads >= COLD_READS_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
        self._cold_reads += 1
        reading = self._loop.run_in_executor(self._threads, self._store.read_cold, result)
        reading.add_done_callback(partial(self._cold_read, ticket, began))

    def _cold_read(self, ticket: PullTicket, began: float, reading: "asyncio.Future[GetResult]") -> None:
        self._cold_reads -= 1
        self.times.add(monotonic() - began)
        if reading.cancelled():
            return
        self._guarded(ticket, lambda: self._answer_cold(ticket, reading.result()))

    def _answer_cold(self, ticket: PullTicket, result: GetResult) -> Reply:
        self._store.verify_cold(result)
        if result.damaged >= 0 and not result.count:
            return self._damaged.take(ticket, result.damaged)
        self._answer(ticket, self._code(ticket, result), result)
        return None

    def _park(self, ticket: PullTicket, most_ms: int) -> bool:
        broker = self._live.broker
        wait_ms = ticket.header.suspendTimeoutMillis if broker.longPollingEnable else broker.shortPollingTimeMills
        if wait_ms <= 0 or ticket.owner.closed:
            return False
        deadline = self._loop.time() + min(wait_ms, most_ms) / 1000
        if not self._polls.park(ticket, deadline):
            return False
        ticket.request = ticket.request.answerable(ticket.header)
        if self._timer is None or deadline < self._timer_at:
            self._arm()
        return True

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._polls.next_deadline()
        if deadline is not None:
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        # A timer may fire a moment early: its clock counts whole milliseconds.
        self._run_again(self._polls.expired(self._loop.time() + 0.001))
        self._arm()

    def _run_again(self, tickets: Iterable[PullTicket]) -> None:
        for ticket in tickets:
            if not ticket.owner.closed:
                self._guarded(ticket, partial(self._again, ticket))

    def _again(self, ticket: PullTicket) -> Reply:
        """Run a parked pull by what holds now: its group may want other messages, or may read no more."""
        try:
            present = self._checks.renewed(ticket)
        except CommandError:
            if self._role.leads:
                raise
            return _nothing_at(ticket.offset)
        return self._serve(present, may_park=False)

    @staticmethod
    def _guarded(ticket: PullTicket, work: Callable[[], Reply]) -> None:
        """Run what completes a parked request: its failure is its own answer and nobody else's."""
        try:
            reply = work()
        except CommandError as error:
            reply = Command.response(error.code, error.remark)
        except Exception as error:
            _log.exception("a pull of %s:%d failed", ticket.topic, ticket.queue_id)
            reply = Command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if isinstance(reply, Command):
            ticket.owner.reply(ticket.request, reply)


def _hold_seconds(header: PullMessageRequestHeader) -> float:
    """Return how long the leader may park a pull."""
    return min(max(header.suspendTimeoutMillis, 0), SUSPEND_MS_MAX) / 1000 if header.sysFlag & _SUSPEND else 0.0


def _nothing_at(offset: int) -> Command:
    """Return the answer that leaves a consumer where it is, and sends it to the leader."""
    return _elsewhere(_NOT_FOUND, offset, "not known here: ask the leader")


def _elsewhere(code: int, offset: int, why: str) -> Command:
    header = PullMessageResponseHeader(suggestWhichBrokerId=0, nextBeginOffset=offset, minOffset=0, maxOffset=offset)
    return Command.response(code, why, header)
