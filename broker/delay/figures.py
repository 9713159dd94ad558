"""What is told of timer messages: codes 60 and 61, figures of code 28, metrics."""

import asyncio
import struct
from collections.abc import Iterator
from functools import partial

import orjson

from broker.delay.pending_topics import PendingTopics
from broker.delay.timers import TimerService
from broker.messages.delay_queue import Aside
from broker.messages.timed_record import TimerLimits
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler
from runtime.clock import Clock
from runtime.figures import Figure, by, counter, gauge, histogram

# RocketMQ's timercheck: last time read, flushed position of the timer log, queue offset, the master's, data version.
_CHECK = struct.Struct(">7q")
# Slaves ask every three seconds, each; what waits may take half a second of a thread to count.
COUNTED_MS = 3000
# Topics that have series of their own, those of which most waits; the others are counted as this one.
TOPICS_SHOWN_MAX = 500
OTHER = "other"


class TimerFigures:
    """Tells of one timer service."""

    def __init__(self, timers: TimerService, clock: Clock, aside: Aside) -> None:
        self._timers = timers
        self._clock = clock
        self._aside = aside
        # The counts by topic that were made last, or are being made; and when.
        self._counts: asyncio.Future[dict[str, int]] | None = None
        self._counted_ms = 0
        # Those that metrics show while others are being made.
        self._shown: dict[str, int] = {}

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.check_point,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def check_point(self, _connection: Connection, _request: Command) -> Command:
        """60: RocketMQ's 56 bytes. Up to the time that they name everything has been delivered."""
        timers, now_ms = self._timers, self._clock.now_ms()
        precision = self._limits().precision_ms
        reached = now_ms // precision * precision
        first = timers.index.first()
        if first is not None:
            reached = min(reached, first.slot)
        taken = timers.index.stamp.taken
        body = _CHECK.pack(reached, 0, taken, taken, 0, now_ms, timers.index.stamp.marks)
        return Command.response(ResponseCode.SUCCESS, body=body)

    async def metrics(self, _connection: Connection, _request: Command) -> Command:
        """61: how many messages wait, by topic, as RocketMQ counts: a recall counts off what it recalls."""
        counts = await asyncio.shield(self._by_topic())
        counted_ms, timers = self._counted_ms, self._timers
        version = {"stateVersion": 0, "timestamp": counted_ms, "counter": timers.index.stamp.marks}
        timing = {topic: {"count": count, "timeStamp": counted_ms} for topic, count in counts.items()}
        return Command.response(
            ResponseCode.SUCCESS, body=orjson.dumps({"dataVersion": version, "timingCount": timing})
        )

    def _by_topic(self) -> asyncio.Future[dict[str, int]]:
        """Return the counts, for a while the same."""
        now_ms = self._clock.now_ms()
        fresh = self._counts is not None and now_ms - self._counted_ms < COUNTED_MS
        if self._counts is None or (self._counts.done() and not (fresh and self._counts.exception() is None)):
            self._counts, self._counted_ms = asyncio.get_running_loop().create_future(), now_ms
            try:
                waiting: PendingTopics = self._timers.index.pending_topics()
            except OSError as error:
                _counted(self._counts, error)
            else:
                self._aside(waiting.count, partial(_counted, self._counts))
        return self._counts

    def figures(self) -> dict[str, str]:
        """Return what RocketMQ tells of its timer in code 28."""
        timers = self._timers
        return {
            "timerReadBehind": str(timers.lag_ms() // 1000),
            "timerOffsetBehind": str(timers.feed.behind),
            "timerCongestNum": str(timers.index.count),
        }

    def measures(self) -> Iterator[Figure]:
        """Return the metrics."""
        timers = self._timers
        yield gauge("rocketmq_timer_enqueue_lag", "Timer messages not yet in the index", timers.feed.behind)
        behind = timers.feed.behind_ms(self._clock.now_ms())
        yield gauge("rocketmq_timer_enqueue_latency", "For how long the first one of them is behind, in ms", behind)
        yield gauge("rocketmq_timer_dequeue_lag", "Timer messages that are overdue", timers.overdue())
        yield gauge("rocketmq_timer_dequeue_latency", "For how long the first one is overdue, in ms", timers.lag_ms())
        yield by("topic", "gauge", "rocketmq_timing_messages", "Timer messages that wait", self._rows())
        text = "How far ahead timer messages are due when they are sent"
        yield histogram("rocketmq_delay_message_latency", text, timers.feed.ahead)
        topic = "Timer messages taken into the index since the start"
        yield counter("rocketmq_timer_enqueue_total", topic, timers.feed.enqueued)
        yield counter("rocketmq_timer_dequeue_total", "Timer messages delivered since the start", timers.delivered)
        yield counter(
            "raftmq_timer_recalled_total", "Timer messages that were recalled, by their time", timers.recalled
        )
        yield counter("raftmq_timer_rolled_total", "Timer messages stored anew to go on waiting", timers.rolled)
        yield gauge("raftmq_timer_runs", "Files of the index", len(timers.index.runs))

    def _rows(self) -> list[tuple[str, int]]:
        """Return what waits by topic: now where it is in memory, else as it was counted last, which is done anew."""
        if not self._timers.index.runs:
            counts = self._timers.index.pending_topics().count()
        else:
            counting = self._by_topic()
            if counting.done() and counting.exception() is None:
                self._shown = counting.result()
            counting.add_done_callback(_heard)
            counts = self._shown
        rows = sorted(counts.items(), key=lambda row: -row[1])
        rest = sum([count for _, count in rows[TOPICS_SHOWN_MAX:]])
        return [*rows[:TOPICS_SHOWN_MAX], *([(OTHER, rest)] if rest else [])]

    def _limits(self) -> TimerLimits:
        return self._timers.limits()


def _heard(counts: "asyncio.Future[dict[str, int]]") -> None:
    """Take note of an error: whoever scrapes sees what was counted before."""
    if not counts.cancelled():
        counts.exception()


def _counted(counts: "asyncio.Future[dict[str, int]]", found: object) -> None:
    """Tell who waits for counts what came of them."""
    if counts.cancelled():
        return
    if isinstance(found, dict):
        counts.set_result(found)
    else:
        text = f"timer messages cannot be counted: {found}"
        counts.set_exception(CommandError(ResponseCode.SYSTEM_ERROR, text))
