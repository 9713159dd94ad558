"""The topics that every broker has from the start."""

from broker.settings.config import BrokerConfig
from remoting import topics as names
from remoting.bodies.registry import TopicConfig
from remoting.codes import Perm

READ_WRITE = int(Perm.READ | Perm.WRITE)

_BENCHMARK_QUEUES = 1024
_SCHEDULE_QUEUES = 18


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics that a broker of this configuration has from the start, as RocketMQ makes them."""

    def topic(name: str, queues: int = 1, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm)

    cluster, broker = config.brokerClusterName, config.name()
    inheriting = int(Perm.INHERIT)
    found = [
        topic(names.SELF_TEST_TOPIC),
        topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        topic(cluster, 16, READ_WRITE | inheriting if config.clusterTopicEnable else inheriting),
        topic(broker, 1, READ_WRITE | inheriting if config.brokerTopicEnable else inheriting),
        topic(names.OFFSET_MOVED_EVENT),
        topic(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        topic(cluster + names.REPLY_TOPIC_SUFFIX),
        topic(names.REVIVE_LOG_PREFIX + cluster, config.reviveQueueNum),
        topic(names.SYNC_BROKER_MEMBER_PREFIX + broker, 1, inheriting),
        topic(names.TRANS_HALF_TOPIC),
        topic(names.TRANS_OP_HALF_TOPIC),
        topic(names.TIMER_TOPIC),
    ]
    if config.autoCreateTopicEnable:
        queues = config.defaultTopicQueueNums
        found.append(topic(names.AUTO_CREATE_TOPIC, queues, READ_WRITE | inheriting))
    if config.traceTopicEnable:
        found.append(topic(config.msgTraceTopicName))
    return found
