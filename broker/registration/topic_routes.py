"""Which queues a topic has, at this broker and at others: as NameServers say it and this broker knows better."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from broker.metadata.topics import TopicTable
from broker.settings.config import LiveConfig
from remoting.bodies.registry import MessageQueue, TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import Perm, RequestCode, ResponseCode
from remoting.errors import RemotingError, ResponseError
from remoting.headers.registry import GetRouteInfoRequestHeader

_log = logging.getLogger(__name__)

# Seconds for which an answer of the NameServers is believed: clients ask every 20 s.
FRESH_SECONDS = 5.0
# Seconds that one NameServer is waited for: a client that asks waits 3 s for its answer.
ASK_SECONDS = 1.0
# Topics that are remembered; beyond it the one that was asked for longest ago is forgotten.
TOPICS_MAX = 10_000


class TopicRoutes:
    """Asks NameServers, and remembers for a moment what they say."""

    def __init__(
        self,
        live: LiveConfig,
        topics: TopicTable,
        client: RemotingClient,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client` calls NameServers."""
        self._live, self._topics, self._client = live, topics, client
        self._monotonic = monotonic
        # By topic: until when it is believed, and the question that was, or is being, answered.
        self._asked: OrderedDict[str, tuple[float, asyncio.Task[list[MessageQueue]]]] = OrderedDict()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be read, sorted; [] when nobody knows the topic."""
        name = self._live.broker.name()
        others = [queue for queue in await self._others(topic) if queue.brokerName != name]
        own = self._topics.get(topic)
        if own is None or not own.perm & self._live.broker.brokerPermission & Perm.READ:
            return sorted(others)
        return sorted([*others, *(MessageQueue(topic, name, number) for number in range(own.readQueueNums))])

    async def close(self) -> None:
        """Ask no more."""
        tasks = [task for _until, task in self._asked.values()]
        self._asked.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _others(self, topic: str) -> list[MessageQueue]:
        now = self._monotonic()
        until, task = self._asked.get(topic, (0.0, None))
        if task is None or (task.done() and until <= now):
            task = asyncio.get_running_loop().create_task(self._ask(topic), name=f"route of {topic}")
            self._asked[topic] = (now + FRESH_SECONDS, task)
            self._asked.move_to_end(topic)
            while len(self._asked) > TOPICS_MAX:
                self._asked.popitem(last=False)
        # Whoever waits with others and gives up leaves the question to them.
        return await asyncio.shield(task)

    async def _ask(self, topic: str) -> list[MessageQueue]:
        """Return what the first NameServer says that answers."""
        header = GetRouteInfoRequestHeader(topic=topic)
        for address in self._live.broker.namesrv_addresses():
            try:
                answer = await self._client.call(
                    address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout=ASK_SECONDS
                )
                return _readable(topic, TopicRouteData.decode(answer.body))
            except ResponseError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return []
                _log.warning("NameServer %s does not say where %s is: %s", address, topic, error)
            except RemotingError as error:
                _log.warning("NameServer %s cannot be asked where %s is: %s", address, topic, error)
        return []


def _readable(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    return [
        MessageQueue(topic, data.brokerName, number)
        for data in route.queueDatas
        if data.perm & Perm.READ
        for number in range(data.readQueueNums)
    ]
