"""Runs of pulls: those of one read are answered one behind the other, each in one step from the log to its frame.

What is checked is what a pull by itself is checked for, in the same order, but once for pulls of the same group, topic
and filter. A pull of which anything is not so usual (nothing new, not in memory, a filter, a refusal, a failure) is
served by itself, and the run goes on behind it; so no answer is worded here but that messages were found.
"""

from time import monotonic
from typing import cast

from broker.context import BrokerContext, Tables
from broker.messages.commit_origins import Origins
from broker.messages.pull_answers import BEFORE, FOUND_BEHIND
from broker.messages.pull_checks import PullChecks, PullTicket, ReadQuota, bytes_wanted
from remoting.codes import PullSysFlag
from remoting.command import Command
from remoting.errors import CommandError
from remoting.headers.registry import PullMessageRequestHeader
from remoting.runs import PullRow, PullRun
from remoting.server import Connection
from remoting.turns import ANSWER_BYTES
from runtime.timings import Timings
from store.reads.gathering import Gathering

_COMMIT = int(PullSysFlag.COMMIT_OFFSET)


class PullRuns:
    """Serves them; see PullHandlers, whose parts these are."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        checks: PullChecks,
        origins: Origins,
        quota: ReadQuota | None,
        times: Timings,
    ) -> None:
        self._live, self._role = context.live, context.role
        self._gathering = context.store.gathering()
        self._offsets, self._stats = tables.offsets, tables.stats
        self._checks = checks
        self._origins = origins
        self._quota = quota
        self._times = times

    def serve(self, connection: Connection, run: PullRun) -> PullRun | None:
        """Answer pulls until one is to be served by itself, or this turn has written enough."""
        counted = self._quota is not None and self._quota.counts_bytes
        if not self._role.leads or self._live.broker.slaveReadEnable or counted or self._gathering is None:
            return run
        began, rows, first = monotonic(), run.rows.asked, run.at
        try:
            stopped = self._answer(connection, run, rows, self._gathering)
        except Exception:
            # By itself it fails again, and that is its answer and nobody else's.
            stopped = run.stopped(run.at, apart=True)
        if answered := (len(rows) if stopped is None else stopped.at) - first:
            self._times.add((monotonic() - began) / answered, answered)
        return stopped

    def _answer(
        self, connection: Connection, run: PullRun, rows: list[PullRow], gathering: Gathering
    ) -> PullRun | None:
        offsets, stats, sitting = self._offsets, self._stats, gathering.sitting(len(run))
        judged: object = None
        ticket: PullTicket | None = None
        before = b""
        for at in range(run.at, len(rows)):
            run.at = at
            if connection.spent > ANSWER_BYTES:
                return run.stopped(at, apart=False)
            row = rows[at]
            texts, opaque, queue_id, offset, count, sys_flag, commit_offset, _, version, size = row
            if (texts, sys_flag, version) != judged:
                judged, ticket = (texts, sys_flag, version), self._ticket(connection, run, row)
                if ticket is not None:
                    before = BEFORE % (0, 0, ticket.group.groupSysFlag)
            if ticket is None or queue_id >= ticket.config.readQueueNums:
                return run.stopped(at, apart=True)
            group, topic = texts[0], texts[1]
            if offsets.reset_pending(group, topic, queue_id):
                return run.stopped(at, apart=True)
            found = gathering.framed(
                (topic, queue_id),
                offset,
                max(count, 1),
                bytes_wanted(size),
                (before, FOUND_BEHIND, ticket.config.topicSysFlag, opaque),
                sitting,
            )
            if found is None:
                return run.stopped(at, apart=True)
            frame, number, size, behind, end = found
            if sys_flag & _COMMIT:
                # What the run was read with is what each of its pulls was.
                self._origins.pulled(
                    connection, cast(Command, run), (group, topic, queue_id), commit_offset, end, offsets
                )
            stats.got(group, topic, number, size, queue=queue_id, behind=behind)
            connection.spent += size
            connection.write(frame)
        return None

    def _ticket(self, connection: Connection, run: PullRun, row: PullRow) -> PullTicket | None:
        """Check a pull; None when it is to be served by itself, which words the refusal."""
        texts, _, queue_id, offset, count, sys_flag, commit_offset, suspend_ms, version, size = row
        group, topic, subscription, expression_type = texts
        header = PullMessageRequestHeader(
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            queueOffset=offset,
            maxMsgNums=count,
            sysFlag=sys_flag,
            commitOffset=commit_offset,
            suspendTimeoutMillis=suspend_ms,
            subVersion=version,
            subscription=subscription,
            expressionType=expression_type,
            maxMsgBytes=size,
        )
        try:
            ticket = self._checks.ticket(connection, cast(Command, run), header)
        except CommandError:
            return None
        return ticket if ticket.sql is None and ticket.accepts is None else None
