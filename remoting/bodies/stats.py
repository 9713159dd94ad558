"""Bodies that report how topics and groups stand: offsets, lag, time spans, counters."""

from typing import Any

import msgspec

from remoting import fastjson
from remoting.bodies.base import CONTAINER_BYTES_ASKED_MIN, Body, MessageQueue, queue_keys
from remoting.bodies.client import SubscriptionData


class TopicOffset(Body, msgspec.Struct):
    """What a queue holds: [minOffset, maxOffset); the last message's store time in ms, 0 when there is none."""

    lastUpdateTimestamp: int = 0
    maxOffset: int = 0
    minOffset: int = 0


class TopicStatsTable(Body, msgspec.Struct):
    """Code 202's answer. `topicPutTps` in messages a second."""

    dialect_bytes_max = None
    container_bytes_min = CONTAINER_BYTES_ASKED_MIN
    queue_keyed = ("offsetTable",)

    offsetTable: dict[MessageQueue, TopicOffset] = {}
    topicPutTps: float = 0.0


class OffsetWrapper(Body, msgspec.Struct):
    """How far a group has come in a queue; `lastTimestamp` is the store time (ms) of the last message consumed."""

    brokerOffset: int = 0
    consumerOffset: int = 0
    lastTimestamp: int = 0
    pullOffset: int = 0


class ConsumeStats(Body, msgspec.Struct):
    """Code 208's answer. `consumeTps` in messages a second."""

    dialect_bytes_max = None
    container_bytes_min = CONTAINER_BYTES_ASKED_MIN
    queue_keyed = ("offsetTable",)

    consumeTps: float = 0.0
    offsetTable: dict[MessageQueue, OffsetWrapper] = {}

    def total_diff(self) -> int:
        """Return how many messages the group is behind."""
        return sum(max(0, queue.brokerOffset - queue.consumerOffset) for queue in self.offsetTable.values())


class ConsumeStatsList(Body, msgspec.Struct):
    """Code 317's answer: per group the stats of its topics."""

    dialect_bytes_max = None
    container_bytes_min = CONTAINER_BYTES_ASKED_MIN
    brokerAddr: str | None = None
    consumeStatsList: list[dict[str, list[ConsumeStats]]] = []
    totalDiff: int = 0
    totalInflightDiff: int = 0

    def encode(self) -> bytes:
        """Return the body's bytes: the nested stats are keyed by queues."""
        return fastjson.dumps_object_keyed(self)

    @classmethod
    def repair(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Give the nested stats their keys."""
        entries = fields.get("consumeStatsList")
        for entry in entries if isinstance(entries, list) else ():
            for stats in entry.values() if isinstance(entry, dict) else ():
                for item in stats if isinstance(stats, list) else ():
                    if isinstance(item, dict) and "offsetTable" in item:
                        item["offsetTable"] = queue_keys(item["offsetTable"])
        return fields


class QueueTimeSpan(Body, msgspec.Struct):
    """Times (ms) of a queue's first, last and last consumed message, also as text, and the lag of the latter two."""

    consumeTimeStamp: int = 0
    consumeTimeStampStr: str = ""
    delayTime: int = 0
    maxTimeStamp: int = 0
    maxTimeStampStr: str = ""
    messageQueue: MessageQueue | None = None
    minTimeStamp: int = 0
    minTimeStampStr: str = ""


class ConsumeTimeSpanBody(Body, msgspec.Struct):
    """Code 303's answer."""

    consumeTimeSpanSet: list[QueueTimeSpan] = []


class StatsItem(Body, msgspec.Struct):
    """One counter over one period: sum, per second, average per call."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Body, msgspec.Struct):
    """Code 315's answer."""

    statsDay: StatsItem | None = None
    statsHour: StatsItem | None = None
    statsMinute: StatsItem | None = None


class ConsumeQueueData(Body, msgspec.Struct):
    """One entry of a ConsumeQueue as code 321 shows it."""

    bitMap: str | None = None
    eval: bool = False
    extendDataJson: str | None = None
    msg: str | None = None
    physicOffset: int = 0
    physicSize: int = 0
    tagsCode: int = 0


class QueryConsumeQueueBody(Body, msgspec.Struct):
    """Code 321's answer."""

    filterData: str | None = None
    maxQueueIndex: int = 0
    minQueueIndex: int = 0
    queueData: list[ConsumeQueueData] = []
    subscriptionData: SubscriptionData | None = None


class MessageRequestModeTable(Body, msgspec.Struct):
    """Code 402's answer: topic → group → mode."""

    messageRequestModeMap: dict[str, dict[str, dict[str, Any]]] = {}
