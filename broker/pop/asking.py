"""Who may take what by POP, and from where: the checks in RocketMQ's order, each with its code."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from broker.context import BrokerContext, Tables
from broker.messages.pull_checks import Wanted, wanted
from broker.pop.check_points import CheckPointTable
from broker.pop.records import ATTEMPT_MAX, TAKEN_MAX
from remoting.bodies.registry import TopicConfig
from remoting.codes import Perm, ResponseCode
from remoting.errors import CommandError
from remoting.headers.registry import NotificationRequestHeader, PopMessageRequestHeader
from remoting.server import Connection
from remoting.topics import pop_retry_topic

# ms by which a pop may come later than the time for which its client waits.
LATE_MS = 500
# For how long messages may be invisible, ms: what is acknowledged later may be gone with its log file.
INVISIBLE_MS_MAX = 3 * 24 * 3600 * 1000
# Check points that are open at a time; beyond it a pop is answered with SYSTEM_BUSY. Some 100 MB.
OPEN_MAX = 200_000
# One pop of so many begins with the retry topic.
RETRY_FIRST = 5
_FROM_END = 1
SEE = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_TYPE, _PRIORITY = "message.type", "PRIORITY"


class PopQuestion(NamedTuple):
    """A pop, as it was understood."""

    group: str
    topic: str
    queue_id: int
    """-1: any."""
    most: int
    accepts: Wanted
    from_end: bool
    invisible_ms: int
    ordered: bool = False
    """What is taken of a queue holds up what follows there."""
    attempt: str = ""
    """Who asks again by the same name has the same messages."""

    @property
    def topics(self) -> tuple[str, str, str]:
        """What brings something for it."""
        topic, group = self.topic, self.group
        return topic, pop_retry_topic(topic, group), pop_retry_topic(topic, group, v2=True)


class PopChecks:
    """The checks of one broker. A refusal is a CommandError with the code that the consumer gets."""

    def __init__(
        self, context: BrokerContext, tables: Tables, open_points: Callable[[], CheckPointTable | None]
    ) -> None:
        """`open_points` returns the table of check points, None while it is being read."""
        self._live, self._role, self._clock = context.live, context.role, context.clock
        self._tables = tables
        self._open = open_points

    def in_time(self, born_ms: int, poll_ms: int) -> None:
        """Refuse what comes when its client waits no more."""
        if self._clock.now_ms() - born_ms - poll_ms > LATE_MS:
            raise CommandError(ResponseCode.POLLING_TIMEOUT, f"{self._who()} pop message is timeout too much")

    def _who(self) -> str:
        return f"the broker[{self._live.broker.advertised_ip()}]"

    def pop(self, connection: Connection, header: PopMessageRequestHeader) -> PopQuestion:
        """Check a pop."""
        asked = self.checked(connection, header, header.maxMsgNums)
        check_invisible(header.invisibleTime)
        points = self._open()
        if points is not None and len(points) >= OPEN_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, f"{OPEN_MAX} pops are not acknowledged, start flow control for a while"
            )
        return self.in_order(asked, header)._replace(
            accepts=wanted(header.exp, header.expType, sql=self._live.broker.enablePropertyFilter),
            from_end=header.initMode == _FROM_END,
            invisible_ms=header.invisibleTime,
        )

    @staticmethod
    def in_order(asked: PopQuestion, header: PopMessageRequestHeader | NotificationRequestHeader) -> PopQuestion:
        """Add what a request says of order."""
        attempt = header.attemptId or ""
        if len(attempt) > ATTEMPT_MAX or not attempt.isprintable():
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"attemptId takes up to {ATTEMPT_MAX} characters that can be printed"
            )
        return asked._replace(ordered=True, attempt=attempt) if header.order else asked

    def checked(self, connection: Connection, header: Any, most: int) -> PopQuestion:
        """Check who may take what, in RocketMQ's order."""
        config, tables = self._live.broker, self._tables
        if not config.brokerPermission & Perm.READ:
            raise CommandError(ResponseCode.NO_PERMISSION, f"{self._who()} pop message is forbidden")
        if most > TAKEN_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"{self._who()} pop message's num is greater than {TAKEN_MAX}"
            )
        if not self._role.leads:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker does not lead, it gives nothing")
        group, name = header.consumerGroup, header.topic
        topic = tables.topics.get(name)
        if topic is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {SEE}")
        if not topic.perm & Perm.READ or not tables.groups.readable(group, name):
            raise CommandError(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if header.queueId >= topic.readQueueNums:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queueId}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.readQueueNums}] consumer:[/{connection.address}]",
            )
        known = tables.groups.find(group, connection)
        if known is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist"
            )
        if not known.consumeEnable:
            raise CommandError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        return PopQuestion(group, name, header.queueId, max(1, most), None, from_end=False, invisible_ms=0)

    def sources(self, asked: PopQuestion) -> list[tuple[str, str, list[int]]]:
        """Return the topics to be read, the kind of each ("0", "1" and "2": retry topics), and their queues, in order.

        Looked up each time: a retry topic may have come into being while a pop waited. One of the other form than
        enableRetryTopicV2 has now is from before, and is read too.
        """
        topics, config = self._tables.topics, self._live.broker
        topic = topics.get(asked.topic)
        found = [] if topic is None else [(asked.topic, "0", self._queues(topic, asked.queue_id))]
        retries = []
        for kind, retry in zip(("1", "2"), asked.topics[1:], strict=True):
            left = kind == "1" and config.enableRetryTopicV2 and not config.retrieveMessageFromPopRetryTopicV1
            if not left and (again := topics.get(retry)) is not None:
                retries.append((retry, kind, list(range(again.readQueueNums))))
        if retries:
            # What came there was taken out of order, and is older.
            first = asked.ordered or random.randrange(RETRY_FIRST) == 0
            found = retries + found if first else found + retries
        return found

    @staticmethod
    def _queues(topic: TopicConfig, queue_id: int) -> list[int]:
        """Return the queues to be read: the asked one, or all, beginning with another one each time."""
        if queue_id >= 0:
            return [queue_id]
        count = topic.readQueueNums
        if topic.attributes.get(_TYPE) == _PRIORITY:
            return list(range(count - 1, -1, -1))
        first = random.randrange(count) if count else 0
        return [(first + number) % count for number in range(count)]


def check_invisible(invisible_ms: int) -> None:
    """Refuse a time for which nothing can be invisible."""
    if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER, f"invisibleTime[{invisible_ms}]: it takes 0 to {INVISIBLE_MS_MAX} ms"
        )
