"""The broker's HTTP face: /healthz, /readyz, /metrics (metrics.py), /v1/status, /v1/topics and /v1/groups.

/v1/transactions shows half messages (broker/transactions).
A member of a Raft group has /v1/raft too: term, role, leader, indexes, lag of each peer, the last election and why. A
broker in a classic mode has /v1/ha: role, epoch, positions, slaves or master.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol

from broker.admin.runtime_info import Backlog
from broker.context import BrokerContext, Tables
from remoting.admission import http_judge
from remoting.codes import VERSION_NAME
from remoting.compiled.door import COMPILED
from runtime.gaps import LoopGaps
from runtime.http import HttpFace
from runtime.listening import exposed
from runtime.metrics import Metrics
from runtime.tls import enforces_tls
from runtime.version import RELEASE
from store.types import Integrity

# Topics and groups on a page of /v1/…; `total` tells how many there are.
ROWS_MAX = 10_000
# Damaged places of the log that /v1/status shows.
PLACES_SHOWN_MAX = 100


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
        gaps: LoopGaps,
        metrics: Metrics,
    ) -> None:
        """`ready` returns None when the broker serves; `addresses` names what it listens on and registers with."""
        self._config, self._store, self._role = context.live, context.store, context.role
        self._topics, self._groups, _, self._clients, self._stats = tables
        self._mode = mode
        self._backlog = backlog
        self._ready = ready
        self._addresses = addresses
        self._gaps = gaps
        self._metrics = metrics

    def face(self, more: Mapping[str, Callable[[], dict[str, object]]] | None = None) -> HttpFace:
        """Return the server of the pages, and of `more`; the caller starts and closes it."""
        pages = {"/v1/status": self.status, "/v1/topics": self.topics, "/v1/groups": self.groups, **self._mode.pages}
        pages.update(more or {})
        broker = self._config.broker
        judge = http_judge(broker.httpAllowFrom, guarded=broker.authenticationEnabled)
        return HttpFace(self._metrics, self._ready, pages, names=broker.http_names(), judge=judge)

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
            "compiled": COMPILED,
            "ready": self._ready() is None,
            "reason": self._ready(),
            "clockApart": self._mode.clock_apart(),
            "exposed": exposed(
                config.broker.bindAddress,
                guarded=config.broker.authenticationEnabled,
                encrypted=enforces_tls(config.broker),
            ),
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
                "syncedBy": store.synced_by,
                "logFiles": store.log_files,
                "logBytes": store.log_bytes,
                "queues": store.queues,
                "diskRatio": store.disk_ratio,
                "earliestTimestamp": store.earliest_timestamp,
                "latestTimestamp": store.latest_timestamp,
                "writesRefused": store.refused,
                "reserveBytes": store.reserve_bytes,
            },
            "integrity": _integrity(integrity),
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
                "pendingTimers": backlog.timers,
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


def _integrity(integrity: Integrity) -> dict[str, object]:
    return {
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
    }
