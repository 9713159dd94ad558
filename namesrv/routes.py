"""The tables of a NameServer, as pure state: registrations and the passing of time in, routes out.

Nothing here knows a socket: a connection is an opaque `link` that a broker is tied to. Rules of wire.md's sections 9
and 10 as RocketMQ 5.x has them; where two brokers claim the same id, the higher stateVersion (the term) wins, and of
brokerId 0 the highest that was ever registered (namesrv/epochs.py).
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from namesrv.epochs import Epochs
from namesrv.topic_tables import BROKER_BYTES_MAX, BYTES_MAX, TopicTables
from remoting.bodies.registry import BrokerData, DataVersion, QueueData, TopicConfig, TopicRouteData
from remoting.codes import Perm, ResponseCode
from remoting.errors import CommandError
from remoting.topics import SYNC_BROKER_MEMBER_PREFIX
from runtime.clock import Clock

MASTER_ID = 0
# Silence after which a broker is forgotten when it did not say how long its own may last.
SILENCE_SECONDS = 120.0
# Filter servers of one broker; more is a configuration that nobody runs.
FILTER_SERVERS_MAX = 64
# Characters of a cluster's or broker's name, of a zone and of an address: a DNS name has 253, RocketMQ's names 255.
NAME_CHARS_MAX = 300


class Address(NamedTuple):
    """A broker process: the cluster it names and the "host:port" it is reached at."""

    cluster: str
    address: str


@dataclass(slots=True)
class LiveBroker:
    """What is known of a broker process that was heard of lately."""

    broker_name: str
    version: DataVersion
    seen: float  # monotonic seconds
    seen_ms: int  # since the epoch, to be shown
    silence: float  # seconds it may be silent
    ha_address: str
    link: Hashable


@dataclass(slots=True, frozen=True, kw_only=True)
class BrokerRegistration:
    """A broker's claim: who it is, where, and its topics (all, or a part of a large or changed table)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    mappings: Mapping[str, Any] = field(default_factory=dict)  # static topics: topic → TopicQueueMappingInfo
    filter_servers: tuple[str, ...] = ()
    silence_ms: int | None = None
    acting_master: bool | None = None  # None: a broker of before 5.0
    zone: str | None = None
    link: Hashable = None


class Registered(NamedTuple):
    """What a slave is told, and a master that was deposed: the master's addresses; else they are empty."""

    master_address: str = ""
    ha_address: str = ""


class RouteTable:
    """topicQueueTable (by broker name), brokerAddrTable, brokerLiveTable, clusterAddrTable, filterServerTable."""

    def __init__(
        self,
        clock: Clock,
        *,
        topics_per_broker_max: int,
        brokers_max: int,
        epochs_max: int,
        broker_bytes_max: int = BROKER_BYTES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._clock = clock
        self._brokers_max = brokers_max
        self.topics = TopicTables(topics_per_broker_max, broker_bytes_max, bytes_max)
        self.groups: dict[str, BrokerData] = {}
        self.live: dict[Address, LiveBroker] = {}
        self.clusters: dict[str, set[str]] = {}
        self.filter_servers: dict[Address, tuple[str, ...]] = {}
        # Outlives who is registered.
        self.epochs = Epochs(epochs_max, self.groups.__contains__)

    @property
    def queues(self) -> Mapping[str, Mapping[str, QueueData]]:
        """Broker name → topic → its queues."""
        return self.topics.queues

    def register(self, claim: BrokerRegistration, *, delete_missing: bool = False) -> Registered:
        """Take a registration in; `delete_missing` drops the group's topics that it lacks.

        A claim to an id that another process holds with a higher stateVersion is ignored, and one to brokerId 0 also
        when that process is gone; the answer names the master then, so that one that was deposed learns of it. Raises
        CommandError at a limit, and for a single topic of a broker that never registered the others; nothing is changed
        then.
        """
        self._check(claim, delete_missing=delete_missing)
        who = Address(claim.cluster, claim.address)
        group = self.groups.get(claim.broker_name)
        if self._fenced(claim, group):
            if group is None or claim.address not in group.brokerAddrs.values():
                self.live.pop(who, None)
            master = Registered() if group is None else self._master(claim.cluster, group)
            return master if master.master_address else Registered(self.epochs.of(claim.broker_name).holder)
        self._renamed(who, claim.broker_name)
        if group is None:
            group = self.groups[claim.broker_name] = BrokerData({}, claim.broker_name, claim.cluster)
        self.clusters.setdefault(claim.cluster, set()).add(claim.broker_name)
        group.enableActingMaster = bool(claim.acting_master)
        group.zoneName = claim.zone
        # A process has one id: who was 1 and is 0 now must not stand twice.
        for broker_id in [i for i, at in group.brokerAddrs.items() if at == claim.address and i != claim.broker_id]:
            del group.brokerAddrs[broker_id]
        first = not group.brokerAddrs.get(claim.broker_id)
        # By id, the master first: several clients take the first.
        group.brokerAddrs = dict(sorted({**group.brokerAddrs, claim.broker_id: claim.address}.items()))
        if self._speaks_for_topics(claim, group):
            self._take_topics(claim, changed=first or self._version_of(who) != claim.version, delete=delete_missing)
        self._note_alive(who, claim)
        self.epochs.heard(claim.broker_name, claim.broker_id, claim.address)
        if claim.broker_id == MASTER_ID:
            self.epochs.leads(claim.broker_name, claim.version.stateVersion, claim.address)
        return self._master_of(claim, group)

    def query_version(
        self, who: Address, broker_name: str, broker_id: int, version: DataVersion, link: Hashable
    ) -> tuple[bool, DataVersion | None]:
        """Tell whether a broker must register anew, and the version last taken in; the same version keeps it alive."""
        live = self.live.get(who)
        group = self.groups.get(broker_name)
        holds = group is not None and group.brokerAddrs.get(broker_id) == who.address
        if live is None:
            return True, None
        if live.version != version or not holds:
            return True, live.version
        self.heartbeat(who, link)
        return False, live.version

    def heartbeat(self, who: Address, link: Hashable) -> None:
        """Note a sign of life, over the connection that now speaks for the broker; ignored when it is unknown."""
        live = self.live.get(who)
        if live is not None:
            live.seen = self._clock.monotonic()
            live.seen_ms = self._clock.now_ms()
            live.link = link

    def unregister(self, who: Address, broker_name: str) -> None:
        """Forget a broker process; what stands under its ids at another address stays."""
        self.live.pop(who, None)
        self.filter_servers.pop(who, None)
        group = self.groups.get(broker_name)
        if group is None:
            return
        for broker_id in [i for i, at in group.brokerAddrs.items() if at == who.address]:
            del group.brokerAddrs[broker_id]
        if not group.brokerAddrs:
            self._forget_group(broker_name)
        elif group.enableActingMaster and MASTER_ID not in group.brokerAddrs:
            self.topics.change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def disconnect(self, link: Hashable) -> list[Address]:
        """Forget every broker tied to a connection that has closed; returns them."""
        gone = [who for who, live in self.live.items() if live.link == link]
        for who in gone:
            self.unregister(who, self.live[who].broker_name)
        return gone

    def expire(self) -> list[tuple[Address, Hashable]]:
        """Forget every broker that was silent for too long; returns them with their connections."""
        now = self._clock.monotonic()
        gone = [(who, live.link) for who, live in self.live.items() if live.seen + live.silence < now]
        for who, _link in gone:
            self.unregister(who, self.live[who].broker_name)
        return gone

    def route(self, topic: str, *, acting_masters: bool = False) -> TopicRouteData | None:
        """Return where a topic lives; None when no broker has it. With `acting_masters` a slave may stand as 0."""
        queues = [table[topic] for table in self.queues.values() if topic in table]
        brokers = [self._shown(self.groups[queue.brokerName]) for queue in queues if queue.brokerName in self.groups]
        if not queues or not brokers:
            return None
        filters = {
            at: list(servers)
            for group in brokers
            for at in group.brokerAddrs.values()
            if (servers := self.filter_servers.get(Address(group.cluster, at)))
        }
        mappings = {name: table[topic] for name, table in self.topics.mappings.items() if topic in table}
        if acting_masters and not topic.startswith(SYNC_BROKER_MEMBER_PREFIX):
            _promote(brokers, queues)
        return TopicRouteData(brokers, filters, None, queues, mappings or None)

    def set_writable(self, broker_name: str, *, writable: bool) -> int:
        """Take write permission from every topic of a broker, or give read and write; returns how many topics.

        Holds until the broker registers with another data version.
        """
        if writable:
            return self.topics.change_perm(broker_name, lambda _perm: int(Perm.READ | Perm.WRITE))
        return self.topics.change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        names = set(self.queues) if cluster is None else self.clusters.get(cluster, set())
        for name in names:
            self.topics.drop(name, topic)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add a topic's queues on brokers that are registered; ignored as a whole when one of them is not."""
        wanted = list(queues)
        if any(queue.brokerName not in self.groups for queue in wanted):
            return
        for queue in wanted:
            self.topics.check(queue.brokerName, (topic,), {})
        for queue in wanted:
            self.topics.put(queue.brokerName, topic, queue)

    def _check(self, claim: BrokerRegistration, *, delete_missing: bool) -> None:
        if not (claim.cluster.strip() and claim.broker_name.strip() and claim.address.strip()):
            raise CommandError(ResponseCode.SYSTEM_ERROR, "register broker failed: a name or address is blank")
        texts = (claim.cluster, claim.broker_name, claim.address, claim.ha_address, claim.zone or "")
        if max(map(len, (*texts, *claim.filter_servers))) > NAME_CHARS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: a name or address has more than {NAME_CHARS_MAX} characters",
            )
        for table, key in (
            (self.live, Address(claim.cluster, claim.address)),
            (self.groups, claim.broker_name),
            (self.clusters, claim.cluster),
        ):
            if key not in table and len(table) >= self._brokers_max:
                raise CommandError(
                    ResponseCode.SYSTEM_ERROR, f"register broker failed: {len(table)} brokers already (brokersMax)"
                )
        if len(claim.filter_servers) > FILTER_SERVERS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"register broker failed: more than {FILTER_SERVERS_MAX} filter servers"
            )
        self.topics.check(claim.broker_name, claim.topics, claim.mappings, delete_missing=delete_missing)
        group = self.groups.get(claim.broker_name)
        if len(claim.topics) == 1 and (group is None or claim.broker_id not in group.brokerAddrs):
            # A change of one topic, meant for a table that is not here (any more): taking its version as known would
            # keep the broker from ever sending the rest.
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: one topic of {claim.broker_name}[{claim.broker_id}], which is not registered",
            )

    def _renamed(self, who: Address, broker_name: str) -> None:
        """Forget what a process was called before: it has one name, and the old one would never be forgotten."""
        before = self.live.get(who)
        if before is not None and before.broker_name != broker_name:
            self.unregister(who, before.broker_name)

    def _fenced(self, claim: BrokerRegistration, group: BrokerData | None) -> bool:
        version = claim.version.stateVersion
        if claim.broker_id == MASTER_ID and self.epochs.refuses(claim.broker_name, version, claim.address):
            return True
        if group is None:
            return False
        holder = group.brokerAddrs.get(claim.broker_id)
        if holder is None or holder == claim.address:
            return False
        held = self.live.get(Address(claim.cluster, holder))
        return held is not None and held.version.stateVersion > version

    def _version_of(self, who: Address) -> DataVersion | None:
        live = self.live.get(who)
        return None if live is None else live.version

    @staticmethod
    def _speaks_for_topics(claim: BrokerRegistration, group: BrokerData) -> bool:
        """Tell whether its topics count: a master's do; without one, since 5.0, the lowest slave's."""
        if claim.broker_id == MASTER_ID:
            return True
        return claim.acting_master is not None and claim.broker_id == min(group.brokerAddrs)

    def _take_topics(self, claim: BrokerRegistration, *, changed: bool, delete: bool) -> None:
        name = claim.broker_name
        if delete and not claim.mappings:
            self.topics.drop_queues(name, claim.topics)
        table = self.topics.queues.setdefault(name, {})
        lost = Perm.WRITE if claim.broker_id != MASTER_ID and claim.acting_master else 0
        for topic, config in claim.topics.items():
            # With an unchanged version what was done here since (write permission wiped) stays.
            if changed or topic not in table:
                perm, sizes = config.perm & ~lost, (config.readQueueNums, config.topicSysFlag, config.writeQueueNums)
                self.topics.put(name, topic, QueueData(name, perm, *sizes))
        if claim.mappings and changed:
            self.topics.put_mappings(name, claim.mappings)

    def _note_alive(self, who: Address, claim: BrokerRegistration) -> None:
        silence = claim.silence_ms / 1000 if claim.silence_ms and claim.silence_ms > 0 else SILENCE_SECONDS
        self.live[who] = LiveBroker(
            broker_name=claim.broker_name,
            version=claim.version,
            seen=self._clock.monotonic(),
            seen_ms=self._clock.now_ms(),
            silence=silence,
            ha_address=claim.ha_address,
            link=claim.link,
        )
        if claim.filter_servers:
            self.filter_servers[who] = claim.filter_servers
        else:
            self.filter_servers.pop(who, None)

    def _master_of(self, claim: BrokerRegistration, group: BrokerData) -> Registered:
        return Registered() if claim.broker_id == MASTER_ID else self._master(claim.cluster, group)

    def _master(self, cluster: str, group: BrokerData) -> Registered:
        address = group.brokerAddrs.get(MASTER_ID, "")
        master = self.live.get(Address(cluster, address))
        return Registered() if master is None else Registered(address, master.ha_address)

    def _forget_group(self, broker_name: str) -> None:
        del self.groups[broker_name]
        self.topics.forget(broker_name)
        for cluster in [cluster for cluster, names in self.clusters.items() if broker_name in names]:
            self.clusters[cluster].discard(broker_name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]

    @staticmethod
    def _shown(group: BrokerData) -> BrokerData:
        return BrokerData(
            dict(group.brokerAddrs), group.brokerName, group.cluster, group.enableActingMaster, group.zoneName
        )


def _promote(brokers: list[BrokerData], queues: list[QueueData]) -> None:
    """Show the lowest slave as 0 where a group that allows it has no master and cannot be written."""
    read_only = {queue.brokerName for queue in queues if not queue.perm & Perm.WRITE}
    for group in brokers:
        allowed = group.enableActingMaster and group.brokerName in read_only
        if allowed and group.brokerAddrs and MASTER_ID not in group.brokerAddrs:
            acting = group.brokerAddrs.pop(min(group.brokerAddrs))
            group.brokerAddrs = {MASTER_ID: acting, **group.brokerAddrs}
