"""What a NameServer's HTTP face shows: its state as JSON, its numbers as metrics."""

from collections.abc import Callable

from auth.settings import shown_config
from namesrv.config import LiveNamesrvConfig
from namesrv.kv import KVConfig
from namesrv.lists import all_topics, topic_count
from namesrv.routes import Address, RouteTable
from remoting.codes import VERSION_NAME
from remoting.compiled.door import COMPILED
from remoting.server import RemotingServer, port_figures
from runtime.clock import Clock
from runtime.config import config_values
from runtime.figures import Figure, by, gauge
from runtime.listening import exposed
from runtime.tls import enforces_tls
from runtime.version import RELEASE

# Topics that /v1/routes lists; the number of all stands beside them.
TOPICS_SHOWN_MAX = 1000


class StatusPages:
    """The pages, and the metrics behind /metrics."""

    def __init__(
        self,
        table: RouteTable,
        kv: KVConfig,
        config: LiveNamesrvConfig,
        clock: Clock,
        ports: Callable[[], list[RemotingServer]],
    ) -> None:
        """`ports` returns those that are open."""
        self._table = table
        self._kv = kv
        self._config = config
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._ports = ports
        self._lost = {"silent": 0, "disconnected": 0}

    def lost(self, *, expired: bool) -> None:
        """Count a broker that was forgotten without having unregistered."""
        self._lost["silent" if expired else "disconnected"] += 1

    def figures(self) -> list[Figure]:
        """Return the metrics."""
        table = self._table
        lost = "Brokers forgotten, by reason: silent, disconnected"
        return [
            gauge("rocketmq_namesrv_brokers", "Broker processes that are registered", len(table.live)),
            gauge("rocketmq_namesrv_broker_groups", "Broker names that are registered", len(table.groups)),
            gauge("rocketmq_namesrv_topics", "Topics that some broker has", topic_count(table)),
            gauge("rocketmq_namesrv_kv_entries", "Entries of the KV configuration", len(self._kv)),
            by("reason", "counter", "rocketmq_namesrv_brokers_lost_total", lost, self._lost.items()),
            *port_figures(self._ports()),
        ]

    def status(self) -> dict[str, object]:
        """Return who this is and how much it holds."""
        config = self._config.now
        return {
            "role": "namesrv",
            "version": VERSION_NAME,
            "raftmqVersion": RELEASE,
            "compiled": COMPILED,
            "uptimeMs": self._clock.now_ms() - self._started_ms,
            "clusters": len(self._table.clusters),
            "brokers": len(self._table.live),
            "topicsByBroker": {name: len(topics) for name, topics in self._table.queues.items()},
            "kvEntries": len(self._kv),
            "exposed": exposed(
                config.bindAddress, guarded=config.authenticationEnabled, encrypted=enforces_tls(config)
            ),
            "epochsKnown": len(self._table.epochs),
            "config": shown_config(config_values(config)),
        }

    def routes(self) -> dict[str, object]:
        """Return clusters, broker groups with their processes, and the first topics by name."""
        topics = all_topics(self._table).topicList
        return {
            "clusters": {cluster: sorted(names) for cluster, names in self._table.clusters.items()},
            "brokers": {
                name: {
                    "cluster": group.cluster,
                    "zone": group.zoneName,
                    "topics": len(self._table.queues.get(name, ())),
                    "highestStateVersion": self._table.epochs.of(name).version,
                    "members": {
                        str(broker_id): self._member(Address(group.cluster, address))
                        for broker_id, address in group.brokerAddrs.items()
                    },
                }
                for name, group in self._table.groups.items()
            },
            "topicCount": len(topics),
            "topics": {topic: self._brokers_of(topic) for topic in topics[:TOPICS_SHOWN_MAX]},
        }

    def _member(self, who: Address) -> dict[str, object]:
        live = self._table.live.get(who)
        if live is None:
            return {"address": who.address}
        return {
            "address": who.address,
            "haAddress": live.ha_address,
            "lastSeenMs": live.seen_ms,
            "stateVersion": live.version.stateVersion,
            "counter": live.version.counter,
        }

    def _brokers_of(self, topic: str) -> dict[str, object]:
        return {
            name: {"read": table[topic].readQueueNums, "write": table[topic].writeQueueNums, "perm": table[topic].perm}
            for name, table in self._table.queues.items()
            if topic in table
        }
