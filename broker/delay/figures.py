"""What is told of timer messages: codes 60 and 61, figures of code 28, metrics."""

import struct
from collections.abc import Iterator

import orjson

from broker.delay.timers import TimerService
from broker.messages.timed_record import TimerLimits
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.server import Connection, Handler
from remoting.topics import TIMER_TOPIC
from runtime.clock import Clock
from runtime.figures import Figure, by, counter, gauge

# RocketMQ's timercheck: last time read, flushed position of the timer log, queue offset, the master's, data version.
_CHECK = struct.Struct(">7q")


class TimerFigures:
    """Tells of one timer service."""

    def __init__(self, timers: TimerService, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock

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

    def metrics(self, _connection: Connection, _request: Command) -> Command:
        """61: how many messages wait; of all topics together, under the topic in which they do."""
        now_ms, timers = self._clock.now_ms(), self._timers
        version = {"stateVersion": 0, "timestamp": now_ms, "counter": timers.index.stamp.marks}
        counts = {TIMER_TOPIC: {"count": timers.index.count, "timeStamp": now_ms}}
        return Command.response(
            ResponseCode.SUCCESS, body=orjson.dumps({"dataVersion": version, "timingCount": counts})
        )

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
        yield gauge("rocketmq_timer_dequeue_lag", "For how long the first one is overdue, in ms", timers.lag_ms())
        rows = [(TIMER_TOPIC, timers.index.count)]
        yield by("topic", "gauge", "rocketmq_timing_messages", "Timer messages that wait", rows)
        topic = "Timer messages taken into the index since the start"
        yield counter("rocketmq_timer_enqueue_total", topic, timers.feed.enqueued)
        yield counter("rocketmq_timer_dequeue_total", "Timer messages delivered since the start", timers.delivered)
        yield counter(
            "raftmq_timer_recalled_total", "Timer messages that were recalled, by their time", timers.recalled
        )
        yield counter("raftmq_timer_rolled_total", "Timer messages stored anew to go on waiting", timers.rolled)
        yield gauge("raftmq_timer_runs", "Files of the index", len(timers.index.runs))

    def _limits(self) -> TimerLimits:
        return self._timers.limits()
