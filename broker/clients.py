"""Who is connected: producer groups, consumer groups with their members and subscriptions.

A pure table, driven by heartbeats, closed connections and the clock. A member is a connection, as in RocketMQ: the same
client id on a new connection is a new member, and the old one leaves when its connection closes. A closed connection
is forgotten at once, a silent one after channelExpiredTimeout. When the membership or the set of subscribed topics of
a group changes, all its members are told (code 40): in the next turn of the event loop, and not again before they have
had time to act on it, which each does by asking for all members. So a thousand that join one after the other are told
some times a second, and not a thousand times.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from remoting.bodies.registry import ConsumerData, ConsumerIdList, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, InvokeError
from remoting.headers.registry import NotifyConsumerIdsChangedRequestHeader
from runtime.clock import Clock

# Heartbeats of all clients, bytes as they came (kept they take ten times that); beyond it SYSTEM_BUSY.
HEARTBEAT_BYTES_MAX = 256 * 1024 * 1024
# Seconds between two notices of one group, for each of its members: to tell one and to answer its question takes some
# 0.2 ms. And how long a change is kept back at most.
NOTICE_S_EACH = 0.0005
NOTICE_S_MAX = 1.0


class Channel(Protocol):
    """What must be known of a connection."""

    closed: bool

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port of the other side."""
        ...

    def send_oneway(self, request: Command) -> None:
        """Send a request that has no answer."""
        ...


class GroupClient(msgspec.Struct, eq=False):
    """A client of a group. `language` is a LanguageCode; times: `seen_ms` on the wall clock, `seen` monotonic."""

    connection: Any  # a Channel; Any because a Struct checks no protocols
    client_id: str
    language: int
    version: int
    seen_ms: int
    seen: float


class ConsumerGroup(msgspec.Struct, eq=False):
    """A consumer group that has members. Settings are those of the latest heartbeat."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Any, GroupClient] = msgspec.field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    # How many connections each client id has, in the order of their coming, and the list of them as members ask for it
    # (b"": to be made anew).
    clients: dict[str, int] = msgspec.field(default_factory=dict)
    listed: bytes = b""
    # When members may be told again, on the monotonic clock.
    quiet_until: float = 0.0

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model == "BROADCASTING"


class OnReach(Protocol):
    """Takes note of a producer's client: it has a connection, or its last one ended by itself."""

    def __call__(self, client_id: str, *, here: bool) -> None:
        """Do so."""
        ...


def nothing_noted(client_id: str, *, here: bool) -> None:
    """Take no note."""


class ClientTable:
    """Producers and consumers by group, and by connection what must be forgotten when it closes."""

    def __init__(
        self,
        clock: Clock,
        *,
        later: Callable[[float, Callable[[], None]], object],
        notifies: Callable[[str], bool],
        on_leave: Callable[[str, str], None],
        on_reach: OnReach = nothing_noted,
    ) -> None:
        """`later` runs a call in so many seconds; `notifies` tells whether a group's members want code 40.

        `on_leave` is called with (group, client id) when a client's last connection in a group is gone, unless it keeps
        its locks.
        `on_reach`: with a producer's client that has a connection, and one whose last connection ended by itself.
        """
        self._clock = clock
        self._later = later
        self._notifies = notifies
        self._on_leave = on_leave
        self._on_reach = on_reach
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Any, GroupClient]] = {}
        # Groups by connection: (consumer groups, producer groups).
        self._joined: dict[Any, tuple[set[str], set[str]]] = {}
        # Connections of producers by client id, the newest last: where replies go.
        self._reached: dict[str, dict[Any, None]] = {}
        self._reached_as: dict[Any, str] = {}
        self._changed: set[str] = set()
        # Bytes of the latest whole heartbeat by connection.
        self._bytes: dict[Any, int] = {}
        self._bytes_all = 0

    def heartbeat(self, connection: Channel, data: HeartbeatData, language: int, version: int, size: int = 0) -> bool:
        """Take note of a client, whose heartbeat had `size` bytes; True when membership or subscriptions changed.

        Raises CommandError at a limit.
        """
        before = self._bytes.get(connection, 0)
        kept = max(before, size) if data.withoutSub else size
        if self._bytes_all - before + kept > HEARTBEAT_BYTES_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"heartbeats take {HEARTBEAT_BYTES_MAX} bytes at most")
        if data.consumerDataSet or data.producerDataSet:
            self._bytes[connection] = kept
            self._bytes_all += kept - before
        changed = False
        for consumer in data.consumerDataSet:
            changed |= self._join(connection, data, consumer, language, version)
        if data.producerDataSet:
            self._reach(connection, data.clientID)
        for producer in data.producerDataSet:
            members = self._producers.setdefault(producer.groupName, {})
            self._see(members, connection, data.clientID, language, version)
            self._groups_of(connection)[1].add(producer.groupName)
        return changed

    def unregister(
        self, connection: Channel, producer_group: str | None, consumer_group: str | None, *, keeps_locks: bool = False
    ) -> None:
        """Take a client out of the groups it names; with `keeps_locks` what it has locked stays so."""
        joined = self._joined.get(connection)
        if joined is None:
            return
        if consumer_group:
            self._leave(connection, consumer_group, keeps_locks=keeps_locks)
        if producer_group:
            self._leave_producers(connection, producer_group)

    def on_close(self, connection: Channel) -> None:
        """Forget a connection that has closed."""
        consumers, producers = self._joined.get(connection, ((), ()))
        client_id = self._reached_as.get(connection)
        for group in tuple(consumers):
            self._leave(connection, group)
        for group in tuple(producers):
            self._leave_producers(connection, group)
        if client_id is not None and client_id not in self._reached:
            self._on_reach(client_id, here=False)

    def expire(self, silent_seconds: float) -> list[Channel]:
        """Forget clients that have been silent for longer; returns their connections, which should be closed."""
        limit = self._clock.monotonic() - silent_seconds
        silent: dict[Any, None] = {}
        for members in [*(group.members for group in self._consumers.values()), *self._producers.values()]:
            silent.update((connection, None) for connection, member in members.items() if member.seen < limit)
        for connection in silent:
            self.on_close(connection)
        return list(silent)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group that has members; None when it has none."""
        return self._consumers.get(group)

    def consumer_ids(self, group: str) -> list[str]:
        """Return the client ids of a group, each once."""
        found = self._consumers.get(group)
        return [] if found is None else list(found.clients)

    def consumer_list(self, group: str) -> bytes:
        """Return the client ids of a group as members are answered (code 38), empty when it has none.

        Written once for all that ask after a change: the answer is as long as the group, and all of it ask.
        """
        found = self._consumers.get(group)
        if found is None:
            return b""
        if not found.listed:
            found.listed = ConsumerIdList(list(found.clients)).encode()
        return found.listed

    def connections(self, group: str) -> list[GroupClient]:
        """Return the members of a consumer group."""
        found = self._consumers.get(group)
        return [] if found is None else list(found.members.values())

    def consumes(self, connection: Channel, group: str) -> bool:
        """Tell whether a connection is a member's of a consumer group."""
        joined = self._joined.get(connection)
        return joined is not None and group in joined[0]

    def client_id(self, connection: Channel) -> str | None:
        """Return the client of a connection, None while it has sent no heartbeat."""
        consumers, producers = self._joined.get(connection, (set(), set()))
        for group in consumers:
            return str(self._consumers[group].members[connection].client_id)
        for group in producers:
            return str(self._producers[group][connection].client_id)
        return None

    def find(self, group: str, client_id: str) -> GroupClient | None:
        """Return a member of a consumer group by its client id; the one seen last when it has several connections."""
        members = [member for member in self.connections(group) if member.client_id == client_id]
        return max(members, key=lambda member: member.seen, default=None)

    def reach(self, client_id: str) -> Channel | None:
        """Return the newest connection of the client of a producer, None when there is none."""
        connections = self._reached.get(client_id)
        return None if connections is None else next(reversed(connections))

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what a group wants of a topic, None when it does not subscribe to it."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def consumer_groups(self) -> list[str]:
        """Return the consumer groups that have members."""
        return sorted(self._consumers)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Return the connected groups that subscribe to a topic."""
        return sorted(name for name, group in self._consumers.items() if topic in group.subscriptions)

    def producers(self, group: str) -> list[GroupClient]:
        """Return the members of a producer group."""
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> dict[str, list[GroupClient]]:
        """Return all producer groups with their members."""
        return {group: list(members.values()) for group, members in self._producers.items()}

    def _reach(self, connection: Channel, client_id: str | None) -> None:
        """Note whose a connection is; None: no producer's any more."""
        before = self._reached_as.get(connection)
        if before == client_id:
            return
        if before is not None:
            del self._reached[before][connection]
            if not self._reached[before]:
                del self._reached[before]
            del self._reached_as[connection]
        if client_id is not None:
            self._reached.setdefault(client_id, {})[connection] = None
            self._reached_as[connection] = client_id
            self._on_reach(client_id, here=True)

    def _groups_of(self, connection: Channel) -> tuple[set[str], set[str]]:
        joined = self._joined.get(connection)
        if joined is None:
            joined = self._joined[connection] = (set(), set())
        return joined

    def _see(
        self, members: dict[Any, GroupClient], connection: Channel, client_id: str, language: int, version: int
    ) -> bool:
        """Note a sign of life; True when the connection is new among the members."""
        member = members.get(connection)
        if member is None:
            now_ms, now = self._clock.now_ms(), self._clock.monotonic()
            members[connection] = GroupClient(connection, client_id, language, version, now_ms, now)
            return True
        member.client_id = client_id
        member.seen_ms = self._clock.now_ms()
        member.seen = self._clock.monotonic()
        return False

    def _join(
        self, connection: Channel, data: HeartbeatData, consumer: ConsumerData, language: int, version: int
    ) -> bool:
        group = self._consumers.get(consumer.groupName)
        if group is None:
            group = self._consumers[consumer.groupName] = ConsumerGroup(consumer.groupName)
        before = group.members.get(connection)
        before_id = None if before is None else before.client_id
        changed = self._see(group.members, connection, data.clientID, language, version)
        if before_id != data.clientID:
            _count(group, data.clientID, 1)
            if before_id is not None:
                _count(group, before_id, -1)
        group.consume_type = consumer.consumeType
        group.message_model = consumer.messageModel
        group.consume_from_where = consumer.consumeFromWhere
        self._groups_of(connection)[0].add(group.name)
        if not data.withoutSub:
            changed |= _subscribe(group, consumer.subscriptionDataSet)
        if changed:
            self._tell(group)
        return changed

    def _leave(self, connection: Channel, group_name: str, *, keeps_locks: bool = False) -> None:
        consumers = self._joined[connection][0]
        group = self._consumers.get(group_name)
        if group is None or group_name not in consumers:
            return
        consumers.discard(group_name)
        member = group.members.pop(connection)
        _count(group, member.client_id, -1)
        self._forget_if_idle(connection)
        if not group.members:
            del self._consumers[group_name]
        else:
            self._tell(group)
        if not keeps_locks and member.client_id not in group.clients:
            self._on_leave(group_name, member.client_id)

    def _leave_producers(self, connection: Channel, group_name: str) -> None:
        producers = self._joined.get(connection, (set(), set()))[1]
        if group_name not in producers:
            return
        producers.discard(group_name)
        members = self._producers[group_name]
        del members[connection]
        if not members:
            del self._producers[group_name]
        if not producers:
            self._reach(connection, None)
        self._forget_if_idle(connection)

    def _forget_if_idle(self, connection: Channel) -> None:
        consumers, producers = self._joined[connection]
        if not consumers and not producers:
            del self._joined[connection]
            self._bytes_all -= self._bytes.pop(connection, 0)

    def _tell(self, group: ConsumerGroup) -> None:
        """Have the members told of a change, unless they are to be told anyway."""
        if group.name not in self._changed:
            self._changed.add(group.name)
            wait = group.quiet_until - self._clock.monotonic()
            self._later(max(wait, 0.0), functools.partial(self._notify, group.name))

    def _notify(self, name: str) -> None:
        self._changed.discard(name)
        group = self._consumers.get(name)
        if group is None or not self._notifies(name):
            return
        group.quiet_until = self._clock.monotonic() + min(len(group.members) * NOTICE_S_EACH, NOTICE_S_MAX)
        for connection in list(group.members):
            header = NotifyConsumerIdsChangedRequestHeader(consumerGroup=name)
            request = Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
            # A connection that is closing or does not read learns of it by its own rebalance timer.
            with contextlib.suppress(InvokeError):
                connection.send_oneway(request)


def _count(group: ConsumerGroup, client_id: str, by: int) -> None:
    """Note that a client has one connection more or less in a group."""
    count = group.clients.get(client_id, 0) + by
    assert count >= 0, "a connection that leaves has come"
    if count:
        group.clients[client_id] = count
    else:
        del group.clients[client_id]
    group.listed = b""


def _subscribe(group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
    """Take over what a heartbeat subscribes to; True when the set of topics changed."""
    topics = set()
    changed = False
    for subscription in wanted:
        topics.add(subscription.topic)
        known = group.subscriptions.get(subscription.topic)
        if known is None:
            changed = True
            group.subscriptions[subscription.topic] = subscription
        elif subscription.subVersion > known.subVersion:
            group.subscriptions[subscription.topic] = subscription
    for topic in [topic for topic in group.subscriptions if topic not in topics]:
        changed = True
        del group.subscriptions[topic]
    return changed
