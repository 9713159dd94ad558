"""Where the queues of each topic are: the cache of the NameServers' answers.

`TopicRoute` is a pure value; `Routes` keeps one per topic, joins questions that are asked at the same time, and keeps
the old answer when no NameServer has a new one, so that clients go on while all NameServers are down.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from client.errors import RouteError
from remoting.bodies.registry import MessageQueue, TopicRouteData
from remoting.codes import Perm
from remoting.topics import AUTO_CREATE_TOPIC

_log = logging.getLogger(__name__)

MASTER_ID = 0
# Topics whose routes are kept and polled; the one that was added first is forgotten first and asked for again.
TOPICS_MAX = 16_384
# A poll asks for so many topics at a time.
POLLS_AT_A_TIME = 16
# Queues that an order configuration may name, of all brokers; what it names beyond is not used.
ORDERED_QUEUES_MAX = 16_384


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The queues of a topic, and the addresses of their brokers (broker name → broker id → host:port).

    Queues are sorted; those for writing are as an administrator ordered them, if one did. `assumed` marks the route of
    a topic that does not exist yet: the brokers of the default topic will create it.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]]
    assumed: bool = False
    clusters: tuple[str, ...] = ()
    """The clusters of its brokers."""

    def master(self, broker: str) -> str | None:
        """Return the address of a broker's master, None when it has none now."""
        return self.brokers.get(broker, {}).get(MASTER_ID)

    def for_writing(self, broker: str, avoid: str | None = None) -> str | None:
        """Return where to send: the master's address, another replica's when there is none or it is `avoid`.

        A member of a Raft group passes on what it is sent, or waits with it until a leader is elected; the slave of a
        master refuses it. None for an unknown broker.
        """
        return self.address(broker, MASTER_ID, avoid)

    @property
    def masterless(self) -> bool:
        """Whether some broker has replicas, but no master at the moment."""
        return any(MASTER_ID not in replicas for replicas in self.brokers.values())

    def address(self, broker: str, broker_id: int = MASTER_ID, avoid: str | None = None) -> str | None:
        """Return the address of that replica, else of the one with the lowest id; `avoid` only when there is no other.

        For another than the master the lowest of those is next: brokers name id 1 to slow readers, and in a Raft group
        nobody has it while its member n0 leads. None for an unknown broker.
        """
        replicas = self.brokers.get(broker)
        if not replicas:
            return None
        wanted = replicas.get(broker_id)
        if wanted is not None and wanted != avoid:
            return wanted
        order = sorted(replicas, key=lambda number: (number == MASTER_ID and broker_id != MASTER_ID, number))
        addresses = [replicas[number] for number in order]
        return next((address for address in addresses if address != avoid), addresses[0])


def topic_route(topic: str, data: TopicRouteData, *, assumed_queues: int = 0) -> TopicRoute:
    """Make a route of a NameServer's answer; `assumed_queues` > 0 when it is the default topic's, for a new topic.

    Queues of brokers without a master are written to only when no broker has one: their replicas may be a Raft group
    that elects its leader. Where an administrator has set the topic's order configuration, the queues that it names are
    written to, in its order and whoever is there: what belongs to one queue must not move to another.
    """
    brokers = {broker.brokerName: dict(broker.brokerAddrs) for broker in data.brokerDatas}
    writable: list[MessageQueue] = []
    leaderless: list[MessageQueue] = []
    readable: list[MessageQueue] = []
    for queues in data.queueDatas:
        name = queues.brokerName
        count = min(queues.writeQueueNums, assumed_queues) if assumed_queues else queues.writeQueueNums
        if queues.perm & Perm.WRITE and brokers.get(name):
            found = writable if MASTER_ID in brokers[name] else leaderless
            found += [MessageQueue(topic, name, number) for number in range(count)]
        if queues.perm & Perm.READ and brokers.get(name) and not assumed_queues:
            readable += [MessageQueue(topic, name, number) for number in range(queues.readQueueNums)]
    ordered = () if assumed_queues else _ordered_queues(topic, data.orderTopicConf or "")
    return TopicRoute(
        topic,
        ordered or tuple(sorted(writable or leaderless)),
        tuple(sorted(readable)),
        brokers,
        assumed_queues > 0,
        tuple(sorted({broker.cluster for broker in data.brokerDatas if broker.cluster})),
    )


def _ordered_queues(topic: str, text: str) -> tuple[MessageQueue, ...]:
    """Read "broker:number of queues;…"; entries that are none are passed over."""
    found: list[MessageQueue] = []
    for part in text.split(";"):
        name, _, count = part.strip().rpartition(":")
        if name and count.isdecimal():
            room = ORDERED_QUEUES_MAX - len(found)
            found += [MessageQueue(topic, name, number) for number in range(min(int(count), room))]
    return tuple(found)


class Routes:
    """The known routes. `ask` fetches one topic's route: None when no NameServer knows the topic, else RouteError."""

    def __init__(self, ask: Callable[[str], Awaitable[TopicRouteData | None]], whom: Callable[[], str]) -> None:
        """`whom` names the NameServers, for error texts."""
        self._ask = ask
        self._whom = whom
        self._routes: dict[str, TopicRoute] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        # Whose turn it is to be asked for first, of those without a master.
        self._sought = -1
        self.on_change: list[Callable[[TopicRoute], None]] = []

    def cached(self, topic: str) -> TopicRoute | None:
        """Return what is known without asking anybody."""
        return self._routes.get(topic)

    def all(self) -> list[TopicRoute]:
        """Return every known route."""
        return list(self._routes.values())

    def brokers(self) -> dict[str, dict[int, str]]:
        """Return the addresses of all brokers that stand in a known route."""
        found: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            found.update(route.brokers)
        return found

    async def find(self, topic: str) -> TopicRoute:
        """Return the topic's route, asking when it is not known; raises RouteError when it does not exist."""
        route = self._routes.get(topic) or await self.refresh(topic)
        if route is None:
            raise self._no_route(topic)
        return route

    async def find_for_send(self, topic: str, assumed_queues: int) -> TopicRoute:
        """Return a route with queues to write to, that of a topic to be created included; raises RouteError."""
        route = self._routes.get(topic)
        if route is None or not route.write_queues:
            route = await self.refresh(topic) or await self._assume(topic, assumed_queues)
        if not route.write_queues:
            raise RouteError(
                f"No queue of topic {topic} can be written to now: its brokers {sorted(route.brokers)} are gone "
                f"or have no write permission (NameServers asked: {self._whom()})",
                retriable=True,
            )
        return route

    async def refresh(self, topic: str) -> TopicRoute | None:
        """Ask now; returns the new route, or the old one when nobody knows the topic any more, or None.

        Raises RouteError when no NameServer answered and nothing is known.
        """
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(topic), name=f"route:{topic}")
            self._asking[topic] = task
            task.add_done_callback(lambda ended: self._asked(topic, ended))
        try:
            # Shielded: another may wait for the same answer.
            return await asyncio.shield(task) or self._routes.get(topic)
        except RouteError:
            known = self._routes.get(topic)
            if known is None:
                raise
            return known

    def _asked(self, topic: str, ended: "asyncio.Task[TopicRoute | None]") -> None:
        del self._asking[topic]
        if not ended.cancelled():
            # Whoever asked may have given up meanwhile: an error that nobody waits for is no news.
            ended.exception()

    async def poll(self) -> None:
        """Refresh every known route; failures keep the old ones."""
        topics = list(self._routes)
        for start in range(0, len(topics), POLLS_AT_A_TIME):
            await asyncio.gather(*(self._refresh_quietly(topic) for topic in topics[start : start + POLLS_AT_A_TIME]))

    async def refresh_using(self, address: str) -> None:
        """Refresh the routes that lead to `address`, whose connection just ended."""
        topics = [route.topic for route in self.all() if any(address in ids.values() for ids in route.brokers.values())]
        for start in range(0, len(topics), POLLS_AT_A_TIME):
            await asyncio.gather(*(self._refresh_quietly(topic) for topic in topics[start : start + POLLS_AT_A_TIME]))

    async def seek_masters(self) -> bool:
        """Refresh the routes in which a broker has no master; True when none is left.

        One of them is asked for first, so that waiting for an election costs a question at a time: each time another
        one, for who is elected may know nothing of the first.
        """
        found = [route.topic for route in self.all() if route.masterless]
        turn = self._sought = (self._sought + 1) % max(len(found), 1)
        topics = found[turn:] + found[:turn]
        for start, end in ((0, 1), (1, len(topics))):
            for place in range(start, end, POLLS_AT_A_TIME):
                some = topics[place : min(place + POLLS_AT_A_TIME, end)]
                await asyncio.gather(*(self._refresh_quietly(topic) for topic in some))
            if any(route.masterless for topic in topics[start:end] if (route := self._routes.get(topic)) is not None):
                return False
        return True

    async def close(self) -> None:
        """End questions that are still open."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except RouteError as error:
            _log.warning("route of %s: %s", topic, error)

    async def _fetch(self, topic: str) -> TopicRoute | None:
        data = await self._ask(topic)
        if data is None:
            return None
        route = topic_route(topic, data)
        self._keep(route)
        return route

    async def _assume(self, topic: str, assumed_queues: int) -> TopicRoute:
        data = await self._ask(AUTO_CREATE_TOPIC)
        if data is None:
            raise self._no_route(topic)
        route = topic_route(topic, data, assumed_queues=assumed_queues)
        if topic not in self._routes:
            self._keep(route)
        return route

    def _keep(self, route: TopicRoute) -> None:
        old = self._routes.get(route.topic)
        if old == route:
            return
        if old is None and len(self._routes) >= TOPICS_MAX:
            self._routes.pop(next(iter(self._routes)))
        self._routes[route.topic] = route
        if not route.assumed:
            for tell in self.on_change:
                tell(route)

    def _no_route(self, topic: str) -> RouteError:
        return RouteError(
            f"No topic route info for topic {topic} (NameServers asked: {self._whom()}): create it "
            f"(raftmq topic create {topic}), or check that its brokers run and register with these NameServers",
            retriable=False,
        )
