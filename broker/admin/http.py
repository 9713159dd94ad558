"""The broker's HTTP face: /healthz, /readyz, /metrics under RocketMQ's names, /v1/status, /v1/topics and /v1/groups.

A member of a Raft group has /v1/raft too: term, role, leader, indexes, lag of each peer, the last election and why. A
broker in a classic mode has /v1/ha: role, epoch, positions, slaves or master.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from broker.admin.runtime_info import Backlog
from broker.context import BrokerContext, Tables
from remoting.codes import VERSION_NAME, LanguageCode
from remoting.topics import is_retry_topic, is_system_group, is_system_topic
from runtime.gaps import LoopGaps
from runtime.http import HttpFace
from runtime.listening import exposed
from runtime.metrics import Metrics
from runtime.version import RELEASE

# (topic, group) pairs whose lag is shown; each costs a look-up per queue at every scrape. Beyond it the gauge
# rocketmq_consumer_lag_series_omitted tells how many are not shown.
LAG_SERIES_MAX = 1000
# Topics and groups on a page of /v1/…; `total` tells how many there are.
ROWS_MAX = 10_000
# Damaged places of the log that /v1/status shows.
PLACES_SHOWN_MAX = 100
# Upper bounds of the times that the loop is held up, in seconds.
GAP_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_COMMON = ("cluster", "node_type", "node_id")


class _Series(Protocol):
    """What is used of a Prometheus counter with labels."""

    def labels(self, *values: str) -> Any:
        """Return the series of these label values."""
        ...

    def remove(self, *values: str) -> None:
        """Drop a series."""
        ...


class _Absolute:
    """A Prometheus counter that follows sums kept elsewhere; series whose key is gone disappear."""

    def __init__(self, counter: _Series, common: tuple[str, ...]) -> None:
        self._counter = counter
        self._common = common
        self._last: dict[tuple[str, ...], float] = {}

    def follow(self, sums: Iterator[tuple[tuple[str, ...], float]]) -> None:
        seen: dict[tuple[str, ...], float] = {}
        for labels, value in sums:
            last = self._last.get(labels, 0.0)
            if value < last:  # the key was deleted and came back between two scrapes
                self._counter.remove(*self._common, *labels)
                last = 0.0
            self._counter.labels(*self._common, *labels).inc(value - last)
            seen[labels] = value
        for labels in self._last.keys() - seen.keys():
            self._counter.remove(*self._common, *labels)
        self._last = seen


class ShownMode(Protocol):
    """What the pages show of a broker's mode: broker.mode.Mode."""

    @property
    def pages(self) -> Mapping[str, Callable[[], dict[str, object]]]:
        """What it adds to the pages: path → content."""
        ...

    def label(self) -> str:
        """Return what the broker is called in its mode."""
        ...

    def clock_apart(self) -> str:
        """Return why it may not lead its group for its clock; "" when nothing is against it."""
        ...


class BrokerHttp:
    """Builds the pages from the broker's parts."""

    def __init__(
        self,
        context: BrokerContext,
        tables: Tables,
        mode: ShownMode,
        backlog: Callable[[], Backlog],
        ready: Callable[[], str | None],
        addresses: Callable[[], dict[str, str]],
        unsupported: Callable[[], Iterator[tuple[tuple[str, str], float]]],
        gaps: LoopGaps,
    ) -> None:
        """`ready` returns None when the broker serves; `addresses` names what it listens on and registers with.

        `unsupported` yields how often what this broker does not have was asked for: (feature, code) and the number.
        """
        self._config = config = context.live
        self._store, self._clock, self._role = context.store, context.clock, context.role
        self._topics, self._groups, self._offsets, self._clients, self._stats = tables
        self._mode = mode
        self._backlog = backlog
        self._ready = ready
        self._addresses = addresses
        self._unsupported = unsupported
        self._gaps = gaps
        self._common = (config.broker.brokerClusterName, "broker", config.broker.name())
        self._declare()

    def face(self) -> HttpFace:
        """Return the server of the pages; the caller starts and closes it."""
        pages = {"/v1/status": self.status, "/v1/topics": self.topics, "/v1/groups": self.groups, **self._mode.pages}
        return HttpFace(self._metrics, self._ready, pages, self.refresh, names=self._config.broker.http_names())

    def status(self) -> dict[str, object]:
        """Return what this broker is and how far it has come."""
        config, store, backlog, integrity = self._config, self._store.stats(), self._backlog(), self._store.integrity()
        return {
            "cluster": config.broker.brokerClusterName,
            "broker": config.broker.name(),
            "brokerId": self._role.broker_id,
            "role": self._mode.label(),
            "term": self._role.term,
            "version": VERSION_NAME,
            "raftmqVersion": RELEASE,
            "ready": self._ready() is None,
            "reason": self._ready(),
            "clockApart": self._mode.clock_apart(),
            "exposed": exposed(config.broker.bindAddress),
            "addresses": self._addresses(),
            "positions": {
                "minPhysical": store.min_physical,
                "written": store.written,
                "flushed": store.flushed,
                "dispatchBehindBytes": store.dispatch_behind_bytes,
                "flushBehindBytes": store.flush_behind_bytes,
            },
            "store": {
                "root": config.store.storePathRootDir,
                "flushDiskType": config.store.flushDiskType,
                "logFiles": store.log_files,
                "logBytes": store.log_bytes,
                "queues": store.queues,
                "diskRatio": store.disk_ratio,
                "earliestTimestamp": store.earliest_timestamp,
                "latestTimestamp": store.latest_timestamp,
                "writesRefused": store.refused,
            },
            "integrity": {
                "damagedFound": integrity.found,
                "damaged": [
                    {"position": position, "reason": reason}
                    for position, reason in islice(integrity.places.items(), PLACES_SHOWN_MAX)
                ],
                "scrubBytesPerSecond": integrity.rate,
                "scrubPosition": integrity.position,
                "scrubUntil": integrity.until,
                "scrubbedBytes": integrity.checked,
                "scrubPasses": integrity.passes,
                "rewritten": integrity.rewritten,
            },
            "loopGaps": self._gaps.status(),
            "tables": {
                "topics": len(self._topics.tables),
                "topicsVersion": self._topics.data_version.counter,
                "groups": len(self._groups.tables),
                "consumerGroupsOnline": len(self._clients.consumer_groups()),
                "producerGroupsOnline": len(self._clients.producer_groups()),
            },
            "traffic": {
                "putTps": self._stats.put_tps()[0],
                "getTps": self._stats.got_tps()[0],
                "pendingBytes": backlog.pending_bytes,
                "parkedPulls": backlog.parked_pulls,
            },
            "config": {
                "brokerPermission": config.broker.brokerPermission,
                "autoCreateTopicEnable": config.broker.autoCreateTopicEnable,
                "autoCreateSubscriptionGroup": config.broker.autoCreateSubscriptionGroup,
                "fileReservedTime": config.store.fileReservedTime,
            },
        }

    def topics(self) -> dict[str, object]:
        """Return the topics with their queues and permissions, the first ROWS_MAX of them."""
        rows = [
            {
                "topic": topic.topicName,
                "readQueueNums": topic.readQueueNums,
                "writeQueueNums": topic.writeQueueNums,
                "perm": topic.perm,
                "order": topic.order,
                "attributes": topic.attributes,
                "system": self._topics.is_protected(topic.topicName),
                "putTps": self._stats.topic_put_tps(topic.topicName),
            }
            for topic in islice(self._topics.tables.values(), ROWS_MAX)
        ]
        return {"total": len(self._topics.tables), "topics": rows}

    def groups(self) -> dict[str, object]:
        """Return the consumer groups and who is connected, the first ROWS_MAX of them."""
        rows = []
        for group in islice(self._groups.tables.values(), ROWS_MAX):
            connected = self._clients.consumer_group(group.groupName)
            rows.append(
                {
                    "group": group.groupName,
                    "consumeEnable": group.consumeEnable,
                    "retryMaxTimes": group.retryMaxTimes,
                    "messageModel": None if connected is None else connected.message_model,
                    "clients": self._clients.consumer_ids(group.groupName),
                    "subscriptions": {}
                    if connected is None
                    else {topic: wanted.subString for topic, wanted in connected.subscriptions.items()},
                }
            )
        return {"total": len(self._groups.tables), "groups": rows}

    def refresh(self) -> None:
        """Bring the metrics up to date, before a scrape."""
        common, stats, store = self._common, self._stats, self._store.stats()
        backlog = self._backlog()
        self._permission.labels(*common).set(self._config.broker.brokerPermission)
        self._topic_number.labels(*common).set(len(self._topics.tables))
        self._group_number.labels(*common).set(len(self._groups.tables))
        self._messages_in.follow((_topic_labels(topic), counter.count) for topic, counter in stats.topics())
        self._bytes_in.follow((_topic_labels(topic), counter.size) for topic, counter in stats.topics())
        self._messages_out.follow((_group_labels(topic, group), one.count) for topic, group, one in stats.groups())
        self._bytes_out.follow((_group_labels(topic, group), one.size) for topic, group, one in stats.groups())
        self._not_served.follow(self._unsupported())
        self._refresh_connections()
        self._refresh_lag()
        self._size.labels(*common).set(store.log_bytes)
        self._flush_behind.labels(*common).set(store.flush_behind_bytes)
        self._dispatch_behind.labels(*common).set(store.dispatch_behind_bytes)
        kept_ms = self._clock.now_ms() - store.earliest_timestamp if store.earliest_timestamp > 0 else 0
        self._reserve_time.labels(*common).set(max(0, kept_ms))
        self._disk_ratio.labels(*common).set(store.disk_ratio)
        self._refused.labels(*common).set(store.refused is not None)
        self._apart.labels(*common).set(bool(self._mode.clock_apart()))
        self._refresh_integrity()
        self._gap.labels(*common).set(self._gaps.longest_lately())
        self._watermark.labels(*common, "send").set(backlog.pending_bytes)
        self._watermark.labels(*common, "pull").set(backlog.parked_pulls)

    def _declare(self) -> None:
        metrics = self._metrics = Metrics()
        topic = (*_COMMON, "topic", "is_system")
        group = (*_COMMON, "topic", "consumer_group", "is_retry", "is_system")

        def absolute(name: str, text: str, labels: tuple[str, ...]) -> _Absolute:
            return _Absolute(metrics.counter(name, text, labels), self._common)

        self._permission = metrics.gauge("rocketmq_broker_permission", "2 write, 4 read, 6 both", _COMMON)
        self._topic_number = metrics.gauge("rocketmq_topic_number", "Topics configured", _COMMON)
        self._group_number = metrics.gauge("rocketmq_consumer_group_number", "Consumer groups configured", _COMMON)
        self._messages_in = absolute("rocketmq_messages_in_total", "Messages stored", topic)
        self._bytes_in = absolute("rocketmq_throughput_in_total", "Bytes stored", topic)
        self._messages_out = absolute("rocketmq_messages_out_total", "Messages handed to consumers", group)
        self._bytes_out = absolute("rocketmq_throughput_out_total", "Bytes handed to consumers", group)
        self._not_served = absolute(
            "rocketmq_unsupported_requests_total",
            "Requests for what this broker does not have",
            (*_COMMON, "feature", "request_code"),
        )
        self._producers = metrics.gauge(
            "rocketmq_producer_connections", "Connections of producers", (*_COMMON, "language", "version")
        )
        self._consumers = metrics.gauge(
            "rocketmq_consumer_connections",
            "Connections of consumers",
            (*_COMMON, "consumer_group", "language", "version", "consume_mode"),
        )
        self._lag = metrics.gauge("rocketmq_consumer_lag_messages", "Messages not yet acknowledged by the group", group)
        self._lag_omitted = metrics.gauge(
            "rocketmq_consumer_lag_series_omitted", "Pairs of topic and group whose lag is not shown", _COMMON
        )
        self._size = metrics.gauge("rocketmq_storage_size", "Bytes of the commit log", _COMMON)
        self._flush_behind = metrics.gauge("rocketmq_storage_flush_behind_bytes", "Written, not yet synced", _COMMON)
        self._dispatch_behind = metrics.gauge(
            "rocketmq_storage_dispatch_behind_bytes", "Written, not yet in the queues", _COMMON
        )
        self._reserve_time = metrics.gauge(
            "rocketmq_storage_message_reserve_time", "Age of the oldest message, in milliseconds", _COMMON
        )
        self._disk_ratio = metrics.gauge("rocketmq_storage_disk_ratio", "Used part of the file system", _COMMON)
        self._refused = metrics.gauge(
            "raftmq_storage_writes_refused", "1 while the store takes no messages: a full disk, mostly", _COMMON
        )
        self._apart = metrics.gauge(
            "raftmq_clock_apart", "1 while this member may not lead its group for its clock", _COMMON
        )
        self._damaged_found = absolute("raftmq_storage_damage_found_total", "Damaged places met in the log", _COMMON)
        self._scrubbed = absolute("raftmq_storage_scrubbed_bytes_total", "Read again and checked", _COMMON)
        self._scrub_passes = absolute("raftmq_storage_scrub_passes_total", "Checks of the whole log", _COMMON)
        self._damaged = metrics.gauge("raftmq_storage_damaged_places", "Damaged places that are not mended", _COMMON)
        self._scrub_position = metrics.gauge("raftmq_storage_scrub_position", "Where the check is", _COMMON)
        self._mended = absolute(
            "raftmq_repaired_bytes_total", "Damaged bytes written again from other members", _COMMON
        )
        self._to_mend = metrics.gauge("raftmq_repair_left_bytes", "Damaged bytes still to come from others", _COMMON)
        self._gap = metrics.gauge(
            "raftmq_loop_gap_longest_seconds", "The longest time of late that the event loop was held up", _COMMON
        )
        gaps = metrics.histogram(
            "raftmq_loop_gap_seconds", "Times that the event loop was held up", _COMMON, buckets=GAP_BUCKETS
        )
        self.gap = gaps.labels(*self._common).observe
        """Counts the seconds of a time that the loop was held up."""
        self._watermark = metrics.gauge(
            "rocketmq_processor_watermark",
            "What waits: bytes not yet acknowledged (send), parked requests (pull)",
            (*_COMMON, "processor"),
        )

    def _refresh_integrity(self) -> None:
        found, common = self._store.integrity(), self._common
        self._damaged_found.follow(iter([((), float(found.found))]))
        self._scrubbed.follow(iter([((), float(found.checked))]))
        self._scrub_passes.follow(iter([((), float(found.passes))]))
        self._damaged.labels(*common).set(len(found.places))
        self._scrub_position.labels(*common).set(found.position)
        entries = self._store.entries
        mended, total = entries.mending.progress() if entries is not None else (0, 0)
        self._mended.follow(iter([((), float(mended))]))
        self._to_mend.labels(*common).set(total - mended)

    def _refresh_connections(self) -> None:
        self._producers.clear()
        for members in self._clients.producer_groups().values():
            for member in members:
                self._producers.labels(*self._common, _language(member.language), str(member.version)).inc()
        self._consumers.clear()
        for name in islice(self._clients.consumer_groups(), ROWS_MAX):
            group = self._clients.consumer_group(name)
            assert group is not None
            mode = "pull" if group.consume_type == "CONSUME_ACTIVELY" else "push"
            for member in group.members.values():
                labels = (name, _language(member.language), str(member.version), mode)
                self._consumers.labels(*self._common, *labels).inc()

    def _refresh_lag(self) -> None:
        self._lag.clear()
        shown = omitted = 0
        for topic, group in self._offsets.pairs():
            if self._topics.get(topic) is None:
                continue
            if shown >= LAG_SERIES_MAX:
                omitted += 1
                continue
            shown += 1
            lag = sum(
                max(0, self._store.max_offset(topic, queue_id) - offset)
                for queue_id, offset in self._offsets.offsets(group, topic).items()
            )
            self._lag.labels(*self._common, *_group_labels(topic, group)).set(lag)
        self._lag_omitted.labels(*self._common).set(omitted)


def _topic_labels(topic: str) -> tuple[str, ...]:
    return topic, _flag(is_system_topic(topic))


def _group_labels(topic: str, group: str) -> tuple[str, ...]:
    return topic, group, _flag(is_retry_topic(topic)), _flag(is_system_group(group))


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _language(number: int) -> str:
    return LanguageCode(number).name if number in LanguageCode._value2member_map_ else LanguageCode.OTHER.name
