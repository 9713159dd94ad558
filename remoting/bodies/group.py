"""Bodies about consumer groups: their configuration, offsets, subscriptions."""

from typing import Any

import msgspec

from remoting.bodies.base import CONTAINER_BYTES_ASKED_MIN, Body, DataVersion
from remoting.bodies.client import SubscriptionData


class RetryPolicy(Body, msgspec.Struct):
    """How a group's retries are spaced: CUSTOMIZED (the delay levels) or EXPONENTIAL."""

    type: str = "CUSTOMIZED"
    customizedRetryPolicy: dict[str, Any] | None = None
    exponentialRetryPolicy: dict[str, Any] | None = None


class SubscriptionGroupConfig(Body, msgspec.Struct):
    """One consumer group as a broker keeps it. `consumeTimeoutMinute` in minutes."""

    groupName: str = ""
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    consumeBroadcastEnable: bool = True
    consumeMessageOrderly: bool = False
    retryQueueNums: int = 1
    retryMaxTimes: int = 16
    groupRetryPolicy: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    brokerId: int = 0
    whichBrokerWhenConsumeSlowly: int = 1
    notifyConsumerIdsChangedEnable: bool = True
    groupSysFlag: int = 0
    consumeTimeoutMinute: int = 15
    subscriptionDataSet: list[dict[str, Any]] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupTable(Body, msgspec.Struct):
    """All groups of a broker (code 201's answer, subscriptionGroup.json). `forbiddenTable` is group → topic → bits."""

    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    forbiddenTable: dict[str, dict[str, int]] = {}
    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = {}


class SubscriptionGroupList(Body, msgspec.Struct):
    """Code 225's body."""

    groupConfigList: list[SubscriptionGroupConfig] = []


class GroupForbidden(Body, msgspec.Struct):
    """Code 353's answer."""

    group: str = ""
    readable: bool | None = None
    topic: str = ""


class ConsumerOffsetTable(Body, msgspec.Struct):
    """Code 43's answer and consumerOffset.json: "topic@group" → queue number → offset."""

    dialect_bytes_max = None
    container_bytes_min = CONTAINER_BYTES_ASKED_MIN
    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    groupTopicMap: dict[str, list[str]] | None = None
    offsetTable: dict[str, dict[int, int]] = {}
    pullOffsetTable: dict[str, dict[int, int]] | None = None


class DelayOffsetTable(Body, msgspec.Struct):
    """Code 45's answer and delayOffset.json: delay level → offset reached."""

    dataVersion: DataVersion = msgspec.field(default_factory=DataVersion)
    offsetTable: dict[int, int] = {}


class GroupList(Body, msgspec.Struct):
    """Code 300's answer: the groups that consume a topic."""

    groupList: list[str] = []


class QuerySubscriptionBody(Body, msgspec.Struct):
    """Code 345's answer."""

    group: str = ""
    subscriptionData: SubscriptionData | None = None
    topic: str = ""


class CorrectionOffsets(Body, msgspec.Struct):
    """Code 308's answer: queue number → the lowest offset of the compared groups."""

    correctionOffsets: dict[int, int] = {}
