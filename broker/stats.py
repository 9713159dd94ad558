"""What went through this broker: counters on the hot path, rates computed from samples that a tick takes.

Totals are sampled once a second (RocketMQ's rates over 10, 60 and 600 s). Each topic and each (topic, group) has two
counters, messages and bytes, sampled every 10 s, 10 min and hour for the windows of code 315: a minute, an hour, a day.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from remoting.bodies.registry import BrokerStatsData, StatsItem
from runtime.clock import Clock
from runtime.timings import Lately, Timings

K = TypeVar("K")

# Topics, and pairs of topic and group, that are counted one by one. Idle ones make room; what finds no room still
# counts in the totals. Sampling as many takes 20 ms every 10 s.
KEYS_MAX = 10_000
# Seconds without a change after which a counter may make room for another: the longest that code 315 looks back
# with any precision.
IDLE_S = 3600.0

SAMPLE_S = 10.0
_RATE_WINDOWS_S = (10, 60, 600)
# Samples that the times of sends are of late: between one minute and ten seconds less.
_LATELY_SAMPLES = 6


class _Sample(NamedTuple):
    at_ms: int
    messages: int
    size: int
    calls: int


class Counter:
    """Messages, bytes and calls of one key, and samples of them. `count`, `size` and `calls` only ever grow."""

    __slots__ = ("_day", "_hour", "_minute", "calls", "changed_at", "count", "seen", "size")

    def __init__(self, now_ms: int, monotonic: float) -> None:
        self.count = 0
        self.size = 0
        self.calls = 0
        self.seen = 0  # `calls` at the last sample
        self.changed_at = monotonic
        start = _Sample(now_ms, 0, 0, 0)
        # One sample more than there are intervals in the window.
        self._minute = deque((start,), 7)
        self._hour = deque((start,), 7)
        self._day = deque((start,), 25)

    def add(self, count: int, size: int) -> None:
        """Count one call that moved `count` messages of `size` bytes together."""
        self.count += count
        self.size += size
        self.calls += 1

    def sample(self, now_ms: int, monotonic: float, *, ten_minutes: bool, hour: bool) -> None:
        """Remember where the counters stand; the longer windows when their time has come."""
        if self.calls != self.seen:
            self.seen = self.calls
            self.changed_at = monotonic
        now = _Sample(now_ms, self.count, self.size, self.calls)
        self._minute.append(now)
        if ten_minutes:
            self._hour.append(now)
        if hour:
            self._day.append(now)

    def windows(self, now_ms: int, *, bytes_of: bool) -> BrokerStatsData:
        """Return sum, rate and average per call over the last minute, hour and day."""
        now = _Sample(now_ms, self.count, self.size, self.calls)
        minute, hour, day = (
            _between(window[0], now, bytes_of=bytes_of) for window in (self._minute, self._hour, self._day)
        )
        return BrokerStatsData(statsDay=day, statsHour=hour, statsMinute=minute)

    def rate(self, now_ms: int) -> float:
        """Return messages per second over the last minute."""
        return _between(self._minute[0], _Sample(now_ms, self.count, self.size, self.calls), bytes_of=False).tps


def _between(first: _Sample, last: _Sample, *, bytes_of: bool) -> StatsItem:
    amount = last.size - first.size if bytes_of else last.messages - first.messages
    calls = last.calls - first.calls
    elapsed_ms = last.at_ms - first.at_ms
    return StatsItem(
        avgpt=round(amount / calls, 2) if calls else 0.0,
        sum=amount,
        tps=round(amount * 1000 / elapsed_ms, 2) if elapsed_ms > 0 else 0.0,
    )


@dataclass(slots=True)
class Totals:
    """Sums since start. Puts and gets are messages, but `found` and `missed`, which are pulls."""

    put: int = 0
    put_bytes: int = 0
    put_failed: int = 0
    got: int = 0
    got_bytes: int = 0
    found: int = 0
    missed: int = 0


class _Second(NamedTuple):
    at: float
    put: int
    found: int
    missed: int
    got: int


class Days(NamedTuple):
    """Messages put, or got, since start: up to yesterday's midnight, to today's, and to now."""

    yesterday_morning: int
    today_morning: int
    now: int


# Bytes of the log past what a pull was given that are noted, and of how many queues; beyond it slow ones go unnoticed.
BEHIND_NOTED = 1024 * 1024
BEHIND_MAX = 100_000


class BrokerStats:
    """The broker's counters. `tick` must be called about once a second."""

    def __init__(
        self,
        clock: Clock,
        cluster: str,
        broker: str,
        *,
        day_of: Callable[[int], int] | None = None,
        sends: Timings | None = None,
    ) -> None:
        """`day_of` turns a time in ms into a number that changes at midnight (the machine's, unless handed in).

        `sends`: how long messages took to be stored, counted elsewhere.
        """
        self._sends = Lately(Timings() if sends is None else sends, _LATELY_SAMPLES)
        self.totals = Totals()
        self._clock = clock
        self._cluster = cluster
        self._broker = broker
        self._day_of = day_of or _local_day
        self._topics: dict[str, Counter] = {}
        self._groups: dict[tuple[str, str], Counter] = {}
        self._sent_back: dict[tuple[str, str], Counter] = {}
        # (group, topic, queue): how far it was behind at its last pull, where that is much.
        self._behind: dict[tuple[str, str, int], int] = {}
        self._seconds: deque[_Second] = deque(maxlen=_RATE_WINDOWS_S[-1] + 1)
        self._seconds.append(self._second())
        self._sampled_at = clock.monotonic()
        self._samples = 0
        self._day = self._day_of(clock.now_ms())
        self._morning = (0, 0)
        self._yesterday = (0, 0)
        now_ms, monotonic = clock.now_ms(), clock.monotonic()
        self._put_all = Counter(now_ms, monotonic)
        self._got_all = Counter(now_ms, monotonic)

    def put(self, topic: str, count: int, size: int) -> None:
        """Count messages that were stored by one call, with their size in bytes."""
        totals = self.totals
        totals.put += count
        totals.put_bytes += size
        counter = self._topics.get(topic) or self._make(self._topics, topic)
        if counter is not None:
            counter.count += count
            counter.size += size
            counter.calls += 1

    def put_failed(self) -> None:
        """Count a send that was refused or failed."""
        self.totals.put_failed += 1

    def got(self, group: str, topic: str, count: int, size: int, *, queue: int = 0, behind: int = 0) -> None:
        """Count messages that one pull of a group was given, with their size; `behind`: how much log lies past them."""
        if behind >= BEHIND_NOTED and len(self._behind) < BEHIND_MAX:
            self._behind[group, topic, queue] = behind
        elif self._behind:
            self._behind.pop((group, topic, queue), None)
        totals = self.totals
        totals.got += count
        totals.got_bytes += size
        totals.found += 1
        key = (topic, group)
        counter = self._groups.get(key) or self._make(self._groups, key)
        if counter is not None:
            counter.count += count
            counter.size += size
            counter.calls += 1

    def furthest_behind(self) -> dict[tuple[str, str, int], int]:
        """Return of each group the queue in which it is furthest behind, with how many bytes, where that is much."""
        worst: dict[str, tuple[int, str, int]] = {}
        for (group, topic, queue), behind in self._behind.items():
            worst[group] = max(worst.get(group, (0, "", 0)), (behind, topic, queue))
        return {(group, topic, queue): behind for group, (behind, topic, queue) in worst.items()}

    def forget_behind(self, group: str) -> None:
        """Forget how far a group was behind, until it pulls again."""
        self._behind = {place: behind for place, behind in self._behind.items() if place[0] != group}

    def missed(self) -> None:
        """Count a pull that found nothing."""
        self.totals.missed += 1

    def sent_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer sent back to be tried again."""
        key = (topic, group)
        counter = self._sent_back.get(key) or self._make(self._sent_back, key)
        if counter is not None:
            counter.add(1, 0)

    def tick(self) -> None:
        """Take the samples that are due."""
        self._seconds.append(self._second())
        now_ms, monotonic = self._clock.now_ms(), self._clock.monotonic()
        day = self._day_of(now_ms)
        if day != self._day:
            self._day = day
            self._yesterday = self._morning
            self._morning = (self.totals.put, self.totals.got)
        if monotonic - self._sampled_at >= SAMPLE_S:
            self._sampled_at = monotonic
            self._samples += 1
            self._sample(now_ms, monotonic)

    def put_tps(self) -> tuple[float, ...]:
        """Return messages stored per second, over the last 10, 60 and 600 s (or since start)."""
        return self._rates(lambda second: second.put)

    def found_tps(self) -> tuple[float, ...]:
        """Return pulls per second that found messages."""
        return self._rates(lambda second: second.found)

    def missed_tps(self) -> tuple[float, ...]:
        """Return pulls per second that found nothing."""
        return self._rates(lambda second: second.missed)

    def pull_tps(self) -> tuple[float, ...]:
        """Return pulls per second."""
        return self._rates(lambda second: second.found + second.missed)

    def got_tps(self) -> tuple[float, ...]:
        """Return messages handed to consumers per second."""
        return self._rates(lambda second: second.got)

    def send_seconds(self, share: float) -> float | None:
        """Return in what time that share of the last minute's messages was stored, None when there were none."""
        return self._sends.quantile(share)

    def puts_by_day(self) -> Days:
        """Return the messages stored, by midnight."""
        return Days(self._yesterday[0], self._morning[0], self.totals.put)

    def gets_by_day(self) -> Days:
        """Return the messages handed to consumers, by midnight."""
        return Days(self._yesterday[1], self._morning[1], self.totals.got)

    def topic_put_tps(self, topic: str) -> float:
        """Return messages stored per second in a topic, over the last minute."""
        counter = self._topics.get(topic)
        return counter.rate(self._clock.now_ms()) if counter is not None else 0.0

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return messages of a topic handed to a group per second, over the last minute."""
        counter = self._groups.get((topic, group))
        return counter.rate(self._clock.now_ms()) if counter is not None else 0.0

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the windows of one counter by RocketMQ's names of it (code 315); None when it is unknown."""
        counter: Counter | None = None
        if name in {"TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"}:
            counter = self._topics.get(key)
        elif name in {"GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"}:
            topic, _, group = key.rpartition("@")
            table = self._sent_back if name == "SNDBCK_PUT_NUMS" else self._groups
            counter = table.get((topic, group))
        elif name in {"BROKER_PUT_NUMS", "BROKER_GET_NUMS"} and key in {self._cluster, self._broker}:
            counter = self._whole(name)
        if counter is None:
            return None
        return counter.windows(self._clock.now_ms(), bytes_of=name.endswith("_SIZE"))

    def topics(self) -> Iterator[tuple[str, Counter]]:
        """Yield the counted topics."""
        yield from self._topics.items()

    def groups(self) -> Iterator[tuple[str, str, Counter]]:
        """Yield (topic, group, counter) of those that are counted."""
        for (topic, group), counter in self._groups.items():
            yield topic, group, counter

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a topic that is deleted."""
        self._topics.pop(topic, None)
        for table in (self._groups, self._sent_back):
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def forget_group(self, group: str) -> None:
        """Drop the counters of a group that is deleted."""
        for table in (self._groups, self._sent_back):
            for key in [key for key in table if key[1] == group]:
                del table[key]

    def _whole(self, name: str) -> Counter:
        counter = self._put_all if name == "BROKER_PUT_NUMS" else self._got_all
        self._level()
        return counter

    def _level(self) -> None:
        """Bring the counters of the whole broker up to the totals: the hot path does not touch them."""
        totals = self.totals
        for counter, count in ((self._put_all, totals.put), (self._got_all, totals.got)):
            counter.count = counter.calls = count

    def _second(self) -> _Second:
        totals = self.totals
        return _Second(self._clock.monotonic(), totals.put, totals.found, totals.missed, totals.got)

    def _rates(self, of: Callable[[_Second], int]) -> tuple[float, ...]:
        now = self._second()
        rates = []
        for seconds in _RATE_WINDOWS_S:
            first = now
            # The samples are about a second apart: start where the window should begin and look on from there.
            for index in range(max(0, len(self._seconds) - seconds - 1), len(self._seconds)):
                first = self._seconds[index]
                if now.at - first.at <= seconds:
                    break
            elapsed = now.at - first.at
            rates.append((of(now) - of(first)) / elapsed if elapsed > 0 else 0.0)
        return tuple(rates)

    def _sample(self, now_ms: int, monotonic: float) -> None:
        ten_minutes = self._samples % 60 == 0
        hour = self._samples % 360 == 0
        self._sends.mark()
        self._level()
        for counter in (self._put_all, self._got_all):
            counter.sample(now_ms, monotonic, ten_minutes=ten_minutes, hour=hour)
        tables: tuple[dict[Any, Counter], ...] = (self._topics, self._groups, self._sent_back)
        for table in tables:
            for counter in table.values():
                counter.sample(now_ms, monotonic, ten_minutes=ten_minutes, hour=hour)
            _make_room(table, monotonic)

    def _make(self, table: dict[K, Counter], key: K) -> Counter | None:
        if len(table) >= KEYS_MAX:
            return None
        counter = table[key] = Counter(self._clock.now_ms(), self._clock.monotonic())
        return counter


def _make_room(table: dict[Any, Counter], monotonic: float) -> None:
    if len(table) < KEYS_MAX:
        return
    for key in [key for key, counter in table.items() if monotonic - counter.changed_at > IDLE_S]:
        del table[key]


def _local_day(now_ms: int) -> int:
    moment = time.localtime(now_ms / 1000)
    return moment.tm_year * 1000 + moment.tm_yday
