"""Telling NameServers single topics, with RocketMQ's code 217: a route of one topic whose queues are taken over.

A NameServer takes it for every broker name that is registered, and ignores it otherwise. That topics are gone cannot
be said so: NameServers keep topics of brokers that have them no longer, unless told to drop what a whole table lacks
(deleteTopicWithBrokerRegistration), and who deletes a topic deletes it there himself (code 216).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.metadata.topic_changes import ChangedTopics
from remoting.bodies.registry import QueueData, TopicConfig, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import ResponseError
from remoting.headers.registry import RegisterTopicRequestHeader

# Topics of a table from which changes are told one by one; a smaller one costs hardly more than a few of its topics.
SINGLES_FROM = 256
# So many changed topics are always few, and so is this share of a table: a topic by itself costs a NameServer some 60
# times what it costs in a table.
FEW = 32
FEW_SHARE = 64
# Requests of one broker that are under way to a NameServer.
AT_ONCE = 64
# Seconds until the whole table is sent for what single topics cannot say, at least; how many times as long as the last
# one took; and at most.
OWED_SECONDS = 1.0
OWED_FACTOR = 20.0
OWED_SECONDS_MAX = 10.0


class SinglesUnknown(Exception):
    """The NameServer does not know code 217: it is older than RocketMQ 5."""


class TopicRequest(NamedTuple):
    """What is said of one topic."""

    header: RegisterTopicRequestHeader
    body: bytes


class Owed:
    """A whole table that the NameServers are to be sent soon, once for all that happens until then."""

    def __init__(self, pay: Callable[[], None]) -> None:
        """`pay` is called when the time has come."""
        self._pay = pay
        self._timer: asyncio.TimerHandle | None = None

    def owe(self, whole_seconds: float) -> None:
        """Owe it from now on, unless it is owed already; `whole_seconds`: how long the last one took."""
        if self._timer is None:
            seconds = min(max(OWED_SECONDS, OWED_FACTOR * whole_seconds), OWED_SECONDS_MAX)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def settle(self) -> None:
        """Owe nothing: it is being sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._pay()


def few(changes: ChangedTopics, table: Mapping[str, TopicConfig]) -> bool:
    """Tell whether the changed topics cost less by themselves than the whole table does."""
    return len(changes.names) <= max(FEW, len(table) // FEW_SHARE)


def topic_requests(
    names: Iterable[str], table: Mapping[str, TopicConfig], broker_name: str, permission: int
) -> list[TopicRequest]:
    """Return what to say of topics; those that are gone are left out. `permission`, the broker's, bounds theirs."""
    found = [topic for name in names if (topic := table.get(name)) is not None]
    return [
        TopicRequest(RegisterTopicRequestHeader(topic=topic.topicName), _route(topic, broker_name, permission).encode())
        for topic in found
    ]


async def tell_topics(client: RemotingClient, address: str, requests: Sequence[TopicRequest], timeout: float) -> None:
    """Tell one NameServer. Raises SinglesUnknown, RemotingError."""
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    try:
        for begin in range(0, len(requests), AT_ONCE):
            some = requests[begin : begin + AT_ONCE]
            await asyncio.gather(*(client.call(address, code, each.header, each.body, timeout) for each in some))
    except ResponseError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise SinglesUnknown from error
        raise


def _route(topic: TopicConfig, broker_name: str, permission: int) -> TopicRouteData:
    queues = QueueData(
        broker_name, topic.perm & permission, topic.readQueueNums, topic.topicSysFlag, topic.writeQueueNums
    )
    return TopicRouteData([], {}, None, [queues], None)
