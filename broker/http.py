"""The broker's HTTP face: /healthz, /readyz, /metrics under RocketMQ's names, /v1/status, /v1/topics and /v1/groups.

A member of a Raft group has /v1/raft too: term, role, leader, indexes, lag of each peer, the last election and why. A
broker in a classic mode has /v1/ha: role, epoch, positions, slaves or master.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from broker.clients import ClientTable
from broker.config import LiveConfig
from broker.groups import GroupTable
from broker.offsets import OffsetTable
from broker.role import BrokerRole
from broker.runtime_info import Backlog
from broker.stats import BrokerStats
from broker.topics import TopicTable
from remoting.codes import VERSION_NAME, LanguageCode
from remoting.topics import is_retry_topic, is_system_group, is_system_topic
from runtime.clock import Clock
from runtime.http import HttpFace
from runtime.metrics import Metrics
from store.messagestore import MessageStore

# (topic, group) pairs whose lag is shown; each costs a look-up per queue at every scrape. Beyond it the gauge
# rocketmq_consumer_lag_series_omitted tells how many are not shown.
LAG_SERIES_MAX = 1000
# Topics and groups on a page of /v1/…; `total` tells how many there are.
ROWS_MAX = 10_000
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


class BrokerHttp:
    """Builds the pages from the broker's parts."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        stats: BrokerStats,
        store: MessageStore,
        clock: Clock,
        backlog: Callable[[], Backlog],
        ready: Callable[[], str | None],
        addresses: Callable[[], dict[str, str]],
        role: BrokerRole,
        label: Callable[[], str],
        pages: Mapping[str, Callable[[], dict[str, object]]],
    ) -> None:
        """`ready` returns None when the broker serves; `addresses` names what it listens on and registers with.

        `label` returns what the broker is called in its mode; `pages` is what the mode adds: path → content.
        """
        self._config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._store = store
        self._clock = clock
        self._backlog = backlog
        self._ready = ready
        self._addresses = addresses
        self._role = role
        self._label = label
        self._pages = pages
        self._common = (config.broker.brokerClusterName, "broker", config.broker.name())
        self._declare()

    def face(self) -> HttpFace:
        """Return the server of the pages; the caller starts and closes it."""
        pages = {"/v1/status": self.status, "/v1/topics": self.topics, "/v1/groups": self.groups, **self._pages}
        return HttpFace(self._metrics, self._ready, pages, self.refresh)

    def status(self) -> dict[str, object]:
        """Return what this broker is and how far it has come."""
        config, store, backlog = self._config, self._store.stats(), self._backlog()
        return {
            "cluster": config.broker.brokerClusterName,
            "broker": config.broker.name(),
            "brokerId": self._role.broker_id,
            "role": self._label(),
            "term": self._role.term,
            "version": VERSION_NAME,
            "ready": self._ready() is None,
            "reason": self._ready(),
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
        self._refresh_connections()
        self._refresh_lag()
        self._size.labels(*common).set(store.log_bytes)
        self._flush_behind.labels(*common).set(store.flush_behind_bytes)
        self._dispatch_behind.labels(*common).set(store.dispatch_behind_bytes)
        kept_ms = self._clock.now_ms() - store.earliest_timestamp if store.earliest_timestamp > 0 else 0
        self._reserve_time.labels(*common).set(max(0, kept_ms))
        self._disk_ratio.labels(*common).set(store.disk_ratio)
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
        self._watermark = metrics.gauge(
            "rocketmq_processor_watermark",
            "What waits: bytes not yet acknowledged (send), parked requests (pull)",
            (*_COMMON, "processor"),
        )

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
