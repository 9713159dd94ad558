"""What can be read from the tables besides routes: topic lists, cluster information, members of a group, zones."""

from collections.abc import Callable

from namesrv.routes import MASTER_ID, RouteTable
from remoting.bodies.registry import BrokerData, BrokerMemberGroup, ClusterInfo, QueueData, TopicList, TopicRouteData

# Bits of a topic's sysFlag: its messages belong to a unit; its subscriptions do.
UNIT = 0x1
UNIT_SUBSCRIPTION = 0x2


def all_topics(table: RouteTable) -> TopicList:
    """Return every topic's name."""
    return TopicList(topicList=sorted(_names(table)))


def topic_count(table: RouteTable) -> int:
    """Return how many topics there are."""
    return len(_names(table))


def topics_of_cluster(table: RouteTable, cluster: str) -> TopicList:
    """Return the topics that live on a cluster's brokers; none when the cluster is unknown."""
    names = table.clusters.get(cluster, set())
    return TopicList(topicList=sorted(set().union(*(table.queues.get(name, {}) for name in names))))


def system_topics(table: RouteTable) -> TopicList:
    """Return the names of clusters and broker groups, which are topics too, and the address of one broker."""
    names = set(table.clusters).union(*table.clusters.values())
    addresses = (group.brokerAddrs[min(group.brokerAddrs)] for group in table.groups.values() if group.brokerAddrs)
    return TopicList(brokerAddr=next(addresses, None), topicList=sorted(names))


def unit_topics(table: RouteTable) -> TopicList:
    """Return the topics whose messages belong to a unit."""
    return _topics_where(table, lambda queue: bool(queue.topicSysFlag & UNIT))


def unit_subscription_topics(table: RouteTable) -> TopicList:
    """Return the topics whose subscriptions belong to a unit."""
    return _topics_where(table, lambda queue: bool(queue.topicSysFlag & UNIT_SUBSCRIPTION))


def unit_subscription_only_topics(table: RouteTable) -> TopicList:
    """Return the topics whose subscriptions belong to a unit, but not their messages."""
    return _topics_where(table, lambda queue: queue.topicSysFlag & (UNIT | UNIT_SUBSCRIPTION) == UNIT_SUBSCRIPTION)


def cluster_info(table: RouteTable) -> ClusterInfo:
    """Return every cluster and broker group."""
    return ClusterInfo(
        brokerAddrTable=dict(table.groups),
        clusterAddrTable={cluster: sorted(names) for cluster, names in table.clusters.items()},
    )


def member_group(table: RouteTable, cluster: str, broker_name: str) -> BrokerMemberGroup:
    """Return a broker group's members; without addresses when it is unknown."""
    group = table.groups.get(broker_name)
    return BrokerMemberGroup({} if group is None else dict(group.brokerAddrs), broker_name, cluster)


def within_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Return the part of a route that lies in a zone; groups without a master are kept wherever they are."""

    def kept(group: BrokerData) -> bool:
        return MASTER_ID not in group.brokerAddrs or (group.zoneName or "").lower() == zone.lower()

    dropped = [group for group in route.brokerDatas if not kept(group)]
    names = {group.brokerName for group in dropped}
    addresses = {address for group in dropped for address in group.brokerAddrs.values()}
    return TopicRouteData(
        brokerDatas=[group for group in route.brokerDatas if kept(group)],
        filterServerTable={at: servers for at, servers in route.filterServerTable.items() if at not in addresses},
        orderTopicConf=route.orderTopicConf,
        queueDatas=[queue for queue in route.queueDatas if queue.brokerName not in names],
        topicQueueMappingByBroker=route.topicQueueMappingByBroker,
    )


def _names(table: RouteTable) -> set[str]:
    return set().union(*table.queues.values())


def _topics_where(table: RouteTable, wanted: Callable[[QueueData], bool]) -> TopicList:
    names = {topic for queues in table.queues.values() for topic, queue in queues.items() if wanted(queue)}
    return TopicList(topicList=sorted(names))
