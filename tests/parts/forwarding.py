"""Members of a group that are all gate, a role that a test may change, and a client that knows one of them."""

import asyncio
from collections.abc import Callable

from broker.raft_group.forward_limits import ForwardLimits
from broker.raft_group.forwarder import Forwarder
from remoting.client import ClientLimits, RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.server import Connection, Handler, RemotingServer, Reply

SEND = int(RequestCode.SEND_MESSAGE_V2)
QUERY = int(RequestCode.QUERY_CONSUMER_OFFSET)
PULL = int(RequestCode.PULL_MESSAGE)
BEAT = int(RequestCode.HEART_BEAT)
# Longer than any machine is too busy for.
PATIENT = ForwardLimits(deadline_seconds=20.0, retry_seconds=0.005)
QUICK = ForwardLimits(deadline_seconds=0.5, retry_seconds=0.005)


class FakeRole:
    """A role that is what the test says."""

    def __init__(self, leader_address: str | None = None, *, leads: bool = False, term: int = 7) -> None:
        self.leads = leads
        self.term = term
        self.broker_id = 0 if leads else 2
        self.leader_address = leader_address
        self.leased = True
        self.callbacks: list[Callable[[], None]] = []

    def lease(self) -> bool:
        return self.leads and self.leased

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def become(self, *, leads: bool = False, leader_address: str | None = None, term: int | None = None) -> None:
        self.leads, self.leader_address = leads, leader_address
        self.term = self.term if term is None else term
        for callback in self.callbacks:
            callback()


class Member:
    """A broker that is all gate: it notes what reaches its handlers."""

    def __init__(self, role: FakeRole, limits: ForwardLimits = PATIENT, kind: type[Forwarder] = Forwarder) -> None:
        self.role = role
        self.taken: list[Command] = []
        self.hosts: list[bytes] = []
        self.arrived = asyncio.Event()
        self.answer: Callable[[Connection, Command], Reply] = lambda _connection, request: Command.response(
            0, ext={"queueId": "3", "echo": request.ext.get("i", "")}, body=b"answer"
        )
        self.client = RemotingClient(limits=ClientLimits(backoff_first_seconds=0.005, backoff_max_seconds=0.01))
        self.forwarder = kind(role, self.client, limits=limits)
        table: dict[int, Handler] = {SEND: self._take, QUERY: self._take, BEAT: self._take, PULL: self._pull}
        self.server = RemotingServer(self.forwarder.gate(table), name="member")

    def _take(self, connection: Connection, request: Command) -> Reply:
        self.taken.append(request)
        self.hosts.append(getattr(connection, "peer_host", b""))
        self.arrived.set()
        return self.answer(connection, request)

    def _pull(self, connection: Connection, request: Command) -> Reply:
        if self.role.leads:
            return self._take(connection, request)
        self.forwarder.forward_pull(connection, request, 0.2, lambda: Command.response(ResponseCode.PULL_NOT_FOUND))
        return None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def start(self, port: int = 0) -> None:
        await self.server.start("127.0.0.1", port)

    async def close(self) -> None:
        await self.forwarder.close()
        await self.client.close()
        await self.server.close()


class Group:
    """A leader, a follower and a client that knows only the follower."""

    def __init__(self, kind: type[Forwarder] = Forwarder, limits: ForwardLimits = PATIENT) -> None:
        self.leader = Member(FakeRole(leads=True), limits)
        self.follower = Member(FakeRole(), limits, kind)
        self.client = RemotingClient()

    async def start(self) -> None:
        await self.leader.start()
        await self.follower.start()
        self.follower.role.become(leader_address=self.leader.address)

    def submit(self, request: Command, timeout: float = 30.0) -> "asyncio.Future[Command]":
        return asyncio.ensure_future(self.client.invoke(self.follower.address, request, timeout))

    async def own_port(self) -> int:
        """The client's port as the follower sees it."""
        await self.client.invoke(self.follower.address, Command.request(BEAT), 5.0)
        (connection,) = self.follower.server.connections
        return connection.peer[1]

    async def close(self) -> None:
        await self.client.close()
        await self.follower.close()
        await self.leader.close()


def send(body: bytes = b"body", *, oneway: bool = False, properties: str = "TAGS\x01A\x02") -> Command:
    header = SendMessageRequestHeaderV2(
        producerGroup="P",
        topic="T",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=1,
        sysFlag=0,
        bornTimestamp=1,
        flag=0,
        properties=properties,
    )
    return Command.request(SEND, header, body, oneway=oneway)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
