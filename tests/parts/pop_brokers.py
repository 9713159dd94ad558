"""Brokers that give messages by POP as a test says, and a NameServer that knows who leads each of them."""

import asyncio
import base64
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Self

from remoting.bodies.registry import BrokerData, HeartbeatData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from remoting.msgid import pack_host
from remoting.record import encode_record
from remoting.server import Connection, Handler, RemotingServer, Reply

HOST = pack_host("127.0.0.1", 1)
_ids = itertools.count(1)


def record(topic: str, queue_id: int, offset: int, body: bytes, **properties: str) -> bytes:
    """One stored message, with an id of its own."""
    named = {"UNIQ_KEY": f"ID{next(_ids)}", **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in named.items()).encode()
    return bytes(
        encode_record(
            topic, queue_id, body, text, queue_offset=offset, physical_offset=offset, born_host=HOST, store_host=HOST
        )
    )


class PopBroker:
    """Gives each message once, with a handle, and notes what it is told of them. `silent`: codes it does not answer."""

    def __init__(self) -> None:
        self.waiting: defaultdict[str, list[tuple[int, int, bytes]]] = defaultdict(list)
        self.pops: list[PopMessageRequestHeader] = []
        self.acks: list[AckMessageRequestHeader] = []
        self.batches: list[dict[str, Any]] = []
        self.changes: list[ChangeInvisibleTimeRequestHeader] = []
        self.beats: list[HeartbeatData] = []
        self.refusals: dict[int, tuple[int, str]] = {}
        self.silent: set[int] = set()
        # The names of pops, answered or not.
        self.attempts: list[str | None] = []
        # Who signed, by request code.
        self.signers: dict[int, str] = {}
        # How far its clock is ahead.
        self.ahead_ms = 0
        self.parked = 0
        self._offsets: defaultdict[str, int] = defaultdict(int)
        self._changed = asyncio.Event()
        self._server: RemotingServer | None = None
        self._port = 0

    async def start(self) -> None:
        handlers: dict[int, Callable[[Command], Any]] = {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
            RequestCode.HEART_BEAT: self._beat,
            RequestCode.UNREGISTER_CLIENT: lambda _request: Command.response(0),
            RequestCode.CHECK_CLIENT_CONFIG: lambda _request: Command.response(0),
        }
        table: dict[int, Handler] = {code: self._answering(code, handler) for code, handler in handlers.items()}
        self._server = RemotingServer(table, name="pop broker")
        await self._server.start("127.0.0.1", self._port)
        self._port = self._server.port

    async def kill(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            for connection in list(server.connections):
                connection.abort()
            await server.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def give(self, topic: str, *bodies: bytes, queue_id: int = 0, **properties: str) -> None:
        """Have messages to pop."""
        for body in bodies:
            offset = self._offsets[topic]
            self._offsets[topic] += 1
            self.waiting[topic].append((queue_id, offset, record(topic, queue_id, offset, body, **properties)))
        self.stir()

    def stir(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something that this broker was asked or told makes it so."""
        async with asyncio.timeout(20):
            while not is_so():
                await self._changed.wait()

    def acknowledged(self) -> set[int]:
        """Offsets that were acknowledged, in whatever way."""
        found = {ack.offset for ack in self.acks}
        for batch in self.batches:
            for entry in batch["acks"]:
                bits = int.from_bytes(base64.b64decode(entry["b"]), "little")
                found |= {entry["so"] + bit for bit in range(bits.bit_length()) if bits >> bit & 1}
        return found

    def _answering(self, code: int, handler: Callable[[Command], Any]) -> Handler:
        async def answer(_connection: Connection, request: Command) -> Any:
            self.stir()
            self.signers[code] = request.ext.get("AccessKey", "")
            if code == RequestCode.POP_MESSAGE:
                self.attempts.append(request.ext.get("attemptId"))
            if code in self.silent:
                return None
            if code in self.refusals:
                return Command.response(*self.refusals[code])
            got = await handler(request) if code == RequestCode.POP_MESSAGE else handler(request)
            self.stir()
            return got

        return answer

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    async def _pop(self, request: Command) -> Reply:
        asked = request.header(PopMessageRequestHeader)
        self.pops.append(asked)
        if self._now_ms() - asked.bornTime - asked.pollTime > 500:
            said = PopMessageResponseHeader(popTime=0, invisibleTime=0, reviveQid=0, restNum=0)
            remark = "the broker[127.0.0.1] pop message is timeout too much"
            return Command.response(ResponseCode.POLLING_TIMEOUT, remark, header=said)
        deadline = time.monotonic() + asked.pollTime / 1000
        self.parked += 1
        try:
            while not self.waiting[asked.topic] and time.monotonic() < deadline:
                self.stir()
                try:
                    async with asyncio.timeout(deadline - time.monotonic()):
                        await self._changed.wait()
                except TimeoutError:
                    break
        finally:
            self.parked -= 1
        return self._taken(asked)

    def _taken(self, asked: PopMessageRequestHeader) -> Reply:
        waiting = self.waiting[asked.topic]
        taken, self.waiting[asked.topic] = waiting[: asked.maxMsgNums], waiting[asked.maxMsgNums :]
        by_queue: defaultdict[int, list[int]] = defaultdict(list)
        for queue_id, offset, _ in taken:
            by_queue[queue_id].append(offset)
        said = PopMessageResponseHeader(
            popTime=self._now_ms(), invisibleTime=asked.invisibleTime, reviveQid=3, restNum=0,
            startOffsetInfo=";".join(f"0 {queue_id} {offsets[0]}" for queue_id, offsets in by_queue.items()),
            msgOffsetInfo=";".join(
                f"0 {queue_id} {','.join(map(str, offsets))}" for queue_id, offsets in by_queue.items()
            ),
        )  # fmt: skip
        if not taken:
            return Command.response(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", header=said)
        body = b"".join(one for _, _, one in taken)
        return Command.response(ResponseCode.SUCCESS, "FOUND", header=said, body=body)

    def _ack(self, request: Command) -> Reply:
        self.acks.append(request.header(AckMessageRequestHeader))
        return Command.response(0)

    def _batch(self, request: Command) -> Reply:
        self.batches.append(json.loads(bytes(request.body)))
        return Command.response(0)

    def _change(self, request: Command) -> Reply:
        asked = request.header(ChangeInvisibleTimeRequestHeader)
        self.changes.append(asked)
        said = ChangeInvisibleTimeResponseHeader(popTime=self._now_ms(), invisibleTime=asked.invisibleTime, reviveQid=5)
        return Command.response(0, header=said)

    def _beat(self, request: Command) -> Reply:
        self.beats.append(HeartbeatData.decode(request.body))
        return Command.response(0)


class PopSite:
    """Groups of brokers by name, each two processes of which the one of `leaders` leads, and a NameServer."""

    def __init__(self, *names: str) -> None:
        self.brokers = {name: (PopBroker(), PopBroker()) for name in names or ("b",)}
        # The number of who leads; another number for nobody.
        self.leaders = dict.fromkeys(self.brokers, 0)
        self.topics = {"Orders"}
        self.routes_asked = 0
        self._server = RemotingServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}, name="name server")

    async def __aenter__(self) -> Self:
        try:
            for pair in self.brokers.values():
                for broker in pair:
                    await broker.start()
            await self._server.start("127.0.0.1", 0)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for pair in self.brokers.values():
            for broker in pair:
                await broker.kill()
        await self._server.close()

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    @property
    def broker(self) -> PopBroker:
        """The first group's leader."""
        return self.leader(next(iter(self.brokers)))

    def leader(self, name: str) -> PopBroker:
        return self.brokers[name][self.leaders[name]]

    def _route(self, _connection: Connection, request: Command) -> Reply:
        self.routes_asked += 1
        if request.ext["topic"] not in self.topics:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        data = TopicRouteData(
            brokerDatas=[
                BrokerData(
                    brokerAddrs={
                        0 if number == self.leaders[name] else number + 1: broker.address
                        for number, broker in enumerate(pair)
                    },
                    brokerName=name,
                    cluster="c",
                )
                for name, pair in self.brokers.items()
            ],
            queueDatas=[QueueData(brokerName=name, perm=6, readQueueNums=2, writeQueueNums=2) for name in self.brokers],
        )
        return Command.response(0, body=data.encode())
