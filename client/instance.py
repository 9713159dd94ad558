"""What the producers and consumers of one process may share: connections, routes, heartbeats, answers to brokers.

Every producer or consumer has an instance; one made by the application can be handed to several of them. The last that
leaves closes it.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from client.api import BrokerApi
from client.credentials import Credentials, credentials_for
from client.errors import ClientClosed, ConsumeError, RouteError
from client.flight import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, Flight
from client.nameservers import NameServers, parse_addresses
from client.replies import Replies
from client.retry import until_true
from client.routes import MASTER_ID, Routes, TopicRoute
from client.serverrequests import ConsumerMember, ServerRequests, TransactionChecker
from client.tls import tls_of
from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.client import ClientLimits, RemotingClient
from remoting.codes import ResponseCode
from remoting.errors import RemotingError, ResponseError
from remoting.topics import REPLY_TOPIC_SUFFIX
from runtime.tasks import Tasks
from runtime.tls import ClientTls

_log = logging.getLogger(__name__)

HEARTBEAT_S = 30.0
ROUTE_POLL_S = 30.0
# How long joining waits for brokers to know the new member; those that do not answer get it a little later.
FIRST_HEARTBEAT_S = 1.0
# After a lost connection: pauses between attempts to be known again, until the periodic heartbeat takes over.
REJOIN_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0)
# After a heartbeat that a broker did not take though its connection stands: pauses between attempts, until the next.
BEAT_AGAIN_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0)
# While a broker has no master: pauses between the questions who it is, until the periodic poll takes over.
SEEK_PAUSES_S = (0.01, 0.02, 0.03, *[0.05] * 10, *[0.1] * 20, *[0.5] * 10, 1.0, 1.0, 1.0)
HEARTBEATS_AT_A_TIME = 64
# An address that could not be reached is tried again soon: it may be that of the leader elected next.
LIMITS = ClientLimits(backoff_first_seconds=0.02, backoff_max_seconds=0.2)
# So long is waited after an answer by way of another member before the next one asks for the route again: a NameServer
# may learn a little later who leads.
PASSED_ON_S = 0.2
# Producer and consumer groups of one instance.
GROUPS_MAX = 1024

_numbers = itertools.count()


class ClientInstance:
    """Connections, routes and heartbeats of one client id (ip@name)."""

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        instance_name: str | None = None,
        tls: bool | ClientTls | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        credentials: Credentials | None = None,
    ) -> None:
        """`instance_name` must differ among the clients of a group on one host; by default it does.

        `in_flight_max` and `in_flight_bytes_max` bound what all producers of this instance have unanswered together.
        `tls`: see client/tls.py, `credentials`: client/credentials.py.
        """
        self._tls, self._credentials = tls_of(tls), credentials_for(credentials)
        self._addresses = parse_addresses(namesrv)
        self._consumers: dict[str, ConsumerMember] = {}
        self._producers: dict[str, int] = {}
        # The producers that answer checks of transactions, by group; one each.
        self.checkers: dict[str, TransactionChecker] = {}
        self.instance_name = instance_name or f"{os.getpid()}#{time.time_ns():x}{next(_numbers):x}"
        self.ip = "127.0.0.1"
        # What all its producers may have on their way together.
        self.flight = Flight(in_flight_max, in_flight_bytes_max)
        # The requests that wait for a reply, and whether there ever were any.
        self.replies = Replies()
        self._asks = False
        # Who wants to know at once that the connection to a broker has ended, by its address.
        self.on_lost: list[Callable[[str], None]] = []
        self._tasks = Tasks("client")
        self._users = 0
        self._closed = False
        # Brokers that know this client over their present connection.
        self._known_at: set[str] = set()
        # Those that are told again, as they did not take a heartbeat.
        self._telling: set[str] = set()
        # First heartbeats over connections, for which a commit waits.
        self._meeting: dict[str, asyncio.Future[RemotingError | None]] = {}
        self._seeking = False
        # Members that pass requests on to their leader, whose routes are being asked for.
        self._passing: set[str] = set()

    @property
    def client_id(self) -> str:
        """Return how brokers and the group's other members call this client."""
        return f"{self.ip}@{self.instance_name}"

    async def enter(self) -> None:
        """Take part in this instance; the first one starts it."""
        if self._closed:
            raise ClientClosed("this client instance was closed; make a new one")
        self._users += 1
        if self._users > 1:
            return
        # Made here and not before: they belong to the running loop.
        self.remoting = RemotingClient(
            ServerRequests(self._consumers, self.checkers).table() | self.replies.table(),
            limits=self._limits(),
            on_close=self._connection_lost,
            tls=self._tls,
            credentials=self._credentials,
        )
        self.nameservers = NameServers(self.remoting, self._addresses)
        self.api = BrokerApi(self.remoting, self.nameservers, self._passed_on)
        self.routes = Routes(self.api.route, self.nameservers.describe)
        self.routes.on_change.append(self._route_changed)
        self._tasks.every(HEARTBEAT_S, self.heartbeat, "heartbeat")
        self._tasks.every(ROUTE_POLL_S, self.routes.poll, "route poll")
        try:
            self.ip = await asyncio.to_thread(local_ip, self._addresses)
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Stop taking part; the last one closes connections and tasks."""
        self._users -= 1
        if self._users > 0 or self._closed:
            return
        self._closed = True
        await self._tasks.close()
        await self.routes.close()
        await self.remoting.close()

    def add_producer(self, group: str) -> None:
        """Name a producer group in heartbeats."""
        if group not in self._producers:
            self._check_room()
        self._producers[group] = self._producers.get(group, 0) + 1

    async def remove_producer(self, group: str) -> None:
        """Take a producer group out of heartbeats, and tell the brokers when it was the last of its name."""
        self._producers[group] -= 1
        if not self._producers[group]:
            del self._producers[group]
            await self._unregister(group, None)

    async def add_consumer(self, consumer: ConsumerMember) -> None:
        """Make the brokers of its topics know a consumer; its routes should be known. Raises ConsumeError."""
        if consumer.group in self._consumers:
            raise ConsumeError(
                f"this client instance has a consumer of group {consumer.group} already: use another one"
            )
        self._check_room()
        self._consumers[consumer.group] = consumer
        beat = self._tasks.spawn(self.heartbeat(), "first heartbeat")
        await asyncio.wait([beat], timeout=FIRST_HEARTBEAT_S)

    async def remove_consumer(self, consumer: ConsumerMember, *, keeps_locks: bool = False) -> None:
        """Take a consumer out of its group at all brokers, so that its queues go to the others at once.

        `keeps_locks`: but for those that it has not unlocked, whose callbacks still run.
        """
        if self._consumers.get(consumer.group) is consumer:
            del self._consumers[consumer.group]
            await self._unregister(None, consumer.group, keeps_locks=keeps_locks)

    async def introduce(self, topic: str, default_queues: int) -> None:
        """Be known to the brokers that may have replies to requests to this topic; raises RouteError.

        A reply goes to any broker of the cluster, and after a failover to another member of its group. Those that
        serve now are waited for, up to FIRST_HEARTBEAT_S; the others learn it a little later.
        """
        route = await self.routes.find_for_send(topic, default_queues)
        routes = [route]
        for cluster in route.clusters:
            with contextlib.suppress(RouteError):
                routes.append(await self.routes.find(cluster + REPLY_TOPIC_SUFFIX))
        masters = {replicas.get(MASTER_ID) for each in routes for replicas in each.brokers.values()} - {None}
        if not self._asks:
            self._asks = True
            others = [address for address in self._brokers() if address not in self._known_at | masters]
            self._tasks.spawn(self._beat(others), "heartbeat for replies")
        new = [address for address in masters if address is not None and address not in self._known_at]
        if new:
            beat = self._tasks.spawn(self._beat(new), "heartbeat for replies")
            await asyncio.wait([beat], timeout=FIRST_HEARTBEAT_S)

    async def heartbeat(self) -> None:
        """Tell every broker of a known route who this client is; failures are logged."""
        await self._beat(self._brokers())

    async def be_known(self, address: str) -> None:
        """Return when a broker was told over its present connection who consumes here; raises RemotingError."""
        if address in self._known_at or not self._consumers:
            return
        meeting = self._meeting.get(address)
        if meeting is None:
            meeting = self._meeting[address] = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._meet(address, meeting), f"first heartbeat to {address}")
        if (error := await asyncio.shield(meeting)) is not None:
            raise error

    async def _meet(self, address: str, meeting: "asyncio.Future[RemotingError | None]") -> None:
        failed: RemotingError | None = None
        try:
            await self.api.heartbeat(address, self._data())
            self._known_at.add(address)
        except ResponseError as error:
            # An answer: who is not let in stays a stranger, which is all that the broker has to know.
            _log.warning("heartbeat: %s", error)
        except RemotingError as error:
            failed = error
        finally:
            del self._meeting[address]
            meeting.set_result(failed)

    def _limits(self) -> ClientLimits:
        """Return bounds of connections that what the producers may have on their way never meets, tried twice even."""
        unsent = max(LIMITS.output_bytes_max, 2 * self.flight.bytes_max)
        waiting = max(LIMITS.in_flight_max, 2 * self.flight.count_max)
        return replace(LIMITS, output_bytes_max=unsent, in_flight_max=waiting)

    def _check_room(self) -> None:
        if len(self._producers) + len(self._consumers) >= GROUPS_MAX:
            raise ConsumeError(f"a client instance takes {GROUPS_MAX} groups at most: make another one")

    def _brokers(self) -> list[str]:
        """Return whom heartbeats go to: masters; for consumers and who awaits replies also the other replicas.

        They may be masters soon.
        """
        found: dict[str, None] = {}
        for replicas in self.routes.brokers().values():
            for broker_id, address in sorted(replicas.items()):
                if broker_id == MASTER_ID or self._consumers or self._asks:
                    found[address] = None
        return list(found)

    def _data(self) -> HeartbeatData:
        return HeartbeatData(
            clientID=self.client_id,
            producerDataSet=[ProducerData(groupName=group) for group in sorted(self._producers)],
            consumerDataSet=[consumer.consumer_data() for consumer in self._consumers.values()],
        )

    async def _beat(self, addresses: Iterable[str]) -> None:
        if not self._producers and not self._consumers:
            return
        data = self._data()
        targets = list(addresses)
        for start in range(0, len(targets), HEARTBEATS_AT_A_TIME):
            some = targets[start : start + HEARTBEATS_AT_A_TIME]
            failures = await asyncio.gather(*(self._beat_one(address, data) for address in some))
            for address, error in zip(some, failures, strict=True):
                if error is not None and address not in self._telling and self._may_take_it(address, error):
                    self._telling.add(address)
                    self._tasks.spawn(self._beat_again(address), f"heartbeat to {address}")

    async def _beat_one(self, address: str, data: HeartbeatData) -> RemotingError | None:
        """Tell a broker; returns why it did not take it."""
        try:
            await self.api.heartbeat(address, data)
        except RemotingError as error:
            _log.warning("heartbeat: %s", error)
            self._known_at.discard(address)
            return error
        self._known_at.add(address)
        return None

    def _may_take_it(self, address: str, error: RemotingError) -> bool:
        """Tell whether a heartbeat is worth repeating soon: its broker is there, and does not refuse it for good.

        One whose connection ended is told by _rejoin.
        """
        refused = isinstance(error, ResponseError) and error.code == ResponseCode.NO_PERMISSION
        return not refused and self._connected(address)

    def _connected(self, address: str) -> bool:
        return not self._closed and self.remoting.connection(address) is not None

    async def _beat_again(self, address: str) -> None:
        """Tell a broker that is there, and was too busy or hung, before the next heartbeat is due."""

        async def taken() -> bool:
            return not self._connected(address) or await self._beat_unless_known(address)

        try:
            await until_true(taken, BEAT_AGAIN_PAUSES_S)
        finally:
            self._telling.discard(address)

    async def _beat_unless_known(self, address: str) -> bool:
        """Tell a broker, unless it knows or need not know; False when it did not take it."""
        if address in self._known_at or address not in self._brokers():
            return True
        if not self._producers and not self._consumers:
            return True
        return await self._beat_one(address, self._data()) is None

    async def _unregister(self, producer: str | None, consumer: str | None, *, keeps_locks: bool = False) -> None:
        async def tell(address: str) -> None:
            # A broker that cannot be told notices by itself, when the connection ends or heartbeats stay away.
            with contextlib.suppress(RemotingError):
                await self.api.unregister(address, self.client_id, producer, consumer, keeps_locks=keeps_locks)

        await asyncio.gather(*(tell(address) for address in sorted(self._known_at)))

    def _route_changed(self, route: TopicRoute) -> None:
        for consumer in self._consumers.values():
            if route.topic in consumer.topics():
                consumer.rebalance_soon()
        new = [address for address in self._brokers() if address not in self._known_at]
        if new and not self._closed:
            self._tasks.spawn(self._beat(new), "heartbeat to new brokers")
        if route.masterless and not self._seeking and not self._closed:
            self._seeking = True
            self._tasks.spawn(self._seek_masters(), "who is master")

    async def _seek_masters(self) -> None:
        """Find out who is elected, as soon as the NameServers know."""
        try:
            await until_true(self.routes.seek_masters, SEEK_PAUSES_S)
        finally:
            self._seeking = False

    def _connection_lost(self, address: str) -> None:
        """Do not wait for the next poll: find out at once where the brokers are, and be known there again."""
        self._known_at.discard(address)
        for lost in list(self.on_lost):
            lost(address)
        if not self._closed and self._users and address not in self._addresses:
            self._tasks.spawn(self._rejoin(address), f"rejoin {address}")

    def _passed_on(self, address: str) -> None:
        """Learn who leads now: who leads no more forwards for its clients, also while it is to stop."""
        if address not in self._passing and not self._closed:
            self._passing.add(address)
            self._tasks.spawn(self._learn(address), f"who leads after {address}")

    async def _learn(self, address: str) -> None:
        try:
            await self.routes.refresh_using(address)
            await asyncio.sleep(PASSED_ON_S)
        finally:
            self._passing.discard(address)

    async def _rejoin(self, address: str) -> None:
        async def known() -> bool:
            with contextlib.suppress(RouteError):
                await self.routes.refresh_using(address)
            return await self._beat_unless_known(address)

        await until_true(known, REJOIN_PAUSES_S)


def local_ip(towards: Iterable[str]) -> str:
    """Return the address of this host as seen on the way to one of the given addresses; blocks while names resolve."""
    for address in towards:
        host, _colon, port = address.rpartition(":")
        host = host.strip("[]")
        with contextlib.suppress(OSError, ValueError, OverflowError):
            family = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0][0]
            # Connecting a datagram socket sends nothing; it only chooses the interface.
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, int(port)))
                return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]).compressed
    return "127.0.0.1"
