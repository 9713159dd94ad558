"""The broker's figures under RocketMQ's names (code 28): mqadmin's clusterList fails on a row that lacks one.

What this broker does not have (thread pools, the timer, the transient pool) is zero.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from broker.settings.config import LiveConfig
from broker.stats import BrokerStats
from remoting.codes import VERSION, VERSION_NAME
from runtime.clock import Clock
from runtime.version import RELEASE
from store.messagestore import MessageStore


class Backlog(NamedTuple):
    """What waits in the broker just now."""

    pending_bytes: int
    """Bytes taken from producers and not yet acknowledged."""
    parked_pulls: int
    """Pulls that wait for messages."""
    timers: int = 0
    """Timer messages that wait for their time."""


_QUEUES = ("send", "pull", "litePull", "query", "ack")
# Queue capacities that RocketMQ's tools show; this broker answers pulls and queries at once, nothing queues for them.
_CAPACITIES = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
_ZEROS = (
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "EndTransactionQueueSize",
    "remainHowManyDataToCommit",
    "pageCacheLockTimeMills",
    "getMessageEntireTimeMax",
    "putMessageEntireTimeMax",
    "dispatchMaxBuffer",
)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class RuntimeInfo:
    """Makes the table of figures."""

    def __init__(
        self,
        config: LiveConfig,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        backlog: Callable[[], Backlog],
        delays: Callable[[], dict[str, str]],
    ) -> None:
        """`delays` returns the figures of the delay levels."""
        self._config = config
        self._store = store
        self._stats = stats
        self._clock = clock
        self._backlog = backlog
        self._delays = delays
        self._boot_ms = clock.now_ms()
        self._boot = clock.monotonic()

    def table(self) -> dict[str, str]:
        """Return every figure as text."""
        return {**self._general(), **self._traffic(), **self._log(), **self._queues(), **self._delays()}

    def _general(self) -> dict[str, str]:
        settings = self._config.broker
        return {
            "bootTimestamp": str(self._boot_ms),
            "runtime": _span(self._clock.monotonic() - self._boot),
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(VERSION),
            "raftmqVersion": RELEASE,
            "startAcceptSendRequestTimeStamp": str(settings.startAcceptSendRequestTimeStamp),
        }

    def _traffic(self) -> dict[str, str]:
        stats = self._stats
        totals = stats.totals
        puts, gets = stats.puts_by_day(), stats.gets_by_day()
        return {
            "putTps": _rates(stats.put_tps()),
            "getFoundTps": _rates(stats.found_tps()),
            "getMissTps": _rates(stats.missed_tps()),
            "getTotalTps": _rates(stats.pull_tps()),
            "getTransferredTps": _rates(stats.got_tps()),
            "putMessageTimesTotal": str(totals.put),
            "putMessageFailedTimes": str(totals.put_failed),
            "putMessageSizeTotal": str(totals.put_bytes),
            "putMessageAverageSize": str(totals.put_bytes / totals.put if totals.put else 0.0),
            "msgPutTotalYesterdayMorning": str(puts.yesterday_morning),
            "msgPutTotalTodayMorning": str(puts.today_morning),
            "msgPutTotalTodayNow": str(puts.now),
            "msgGetTotalYesterdayMorning": str(gets.yesterday_morning),
            "msgGetTotalTodayMorning": str(gets.today_morning),
            "msgGetTotalTodayNow": str(gets.now),
        }

    def _log(self) -> dict[str, str]:
        store = self._store.stats()
        folder = self._config.store.log_folder
        ratio = str(store.disk_ratio)
        return {
            "commitLogMinOffset": str(store.min_physical),
            "commitLogMaxOffset": str(store.written),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{folder}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": _capacity(folder),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "earliestMessageTimeStamp": str(store.earliest_timestamp),
            "remainHowManyDataToFlush": _amount(store.flush_behind_bytes),
            "writesRefused": store.refused or "",
        }

    def _queues(self) -> dict[str, str]:
        backlog = self._backlog()
        table = dict.fromkeys(_ZEROS, "0")
        for name in _QUEUES:
            table[f"{name}ThreadPoolQueueSize"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = str(_CAPACITIES[name])
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table["EndTransactionThreadPoolQueueCapacity"] = "100000"
        table["timerEnqueueTps"] = table["timerDequeueTps"] = "0.0"
        # Milliseconds, over the last minute.
        table["putLatency99"], table["putLatency999"] = self._latency(0.99), self._latency(0.999)
        # RocketMQ's text for a transient pool that is switched off.
        table["remainTransientStoreBufferNumbs"] = str(2**31 - 1)
        table["remainHowManyDataToCommit"] = _amount(0)
        table["putMessageDistributeTime"] = ""
        # Ours, beyond RocketMQ's names.
        table["pendingBytes"] = str(backlog.pending_bytes)
        table["parkedPulls"] = str(backlog.parked_pulls)
        return table

    def _latency(self, share: float) -> str:
        return f"{(self._stats.send_seconds(share) or 0.0) * 1000:.2f}"


def _rates(rates: tuple[float, ...]) -> str:
    return " ".join(f"{rate:.4f}".rstrip("0").rstrip(".") or "0" for rate in rates)


def _span(seconds: float) -> str:
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {whole % 60} seconds ]"


def _amount(size: int) -> str:
    """Return bytes for people, in steps of 1024."""
    amount = float(size)
    for unit in _UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.1f} {unit}" if unit != "B" else f"{size} B"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def _capacity(folder: Path) -> str:
    try:
        usage = os.statvfs(folder)
    except OSError:
        return "Total : unknown, Free : unknown."
    return f"Total : {_amount(usage.f_blocks * usage.f_frsize)}, Free : {_amount(usage.f_bavail * usage.f_frsize)}."
