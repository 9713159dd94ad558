"""Brokers that play their part in transactions and recalls, and a NameServer that knows which of them is the master."""

import asyncio
from collections.abc import Callable
from typing import Self

from remoting.bodies.registry import BrokerData, HeartbeatData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from remoting.msgid import offset_msg_id, pack_host
from remoting.properties import decode_properties
from remoting.record import encode_record
from remoting.server import Connection, Handler, RemotingServer, Reply
from remoting.topics import TRANS_HALF_TOPIC

POSITION = 4096


class HalfBroker:
    """Takes half messages, notes what it is told of them, and asks when the test says so."""

    def __init__(self) -> None:
        self.halves: list[SendMessageRequestHeaderV2] = []
        self.ends: list[EndTransactionRequestHeader] = []
        self.oneways: list[bool] = []
        self.recalls: list[RecallMessageRequestHeader] = []
        # Groups of producers that have said who they are, and where they are.
        self.producers: dict[str, Connection] = {}
        self.status = int(ResponseCode.SUCCESS)
        # What a recall is answered: code and remark, None for no answer.
        self.recalled: tuple[int, str] | None = (0, "")
        self._changed = asyncio.Event()
        self._server: RemotingServer | None = None
        self._port = 0

    async def start(self) -> None:
        table: dict[int, Handler] = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RECALL_MESSAGE: self._recall,
            RequestCode.HEART_BEAT: self._beat,
            RequestCode.UNREGISTER_CLIENT: lambda _connection, _request: Command.response(0),
        }
        self._server = RemotingServer(table, name="half broker")
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

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something that this broker was told makes it so."""
        async with asyncio.timeout(20):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def ask(self, group: str, msg_id: str, *, body: bytes = b"half", properties: str = "", position: int = 9) -> None:
        """Send a check of a half message to the group's producer."""
        text = f"UNIQ_KEY\x01{msg_id}\x02PGROUP\x01{group}\x02TRAN_MSG\x01true\x02{properties}"
        record = encode_record(
            "Orders", 1, body, text.encode(), queue_offset=7, physical_offset=position,
            born_host=pack_host("127.0.0.1", 1), store_host=pack_host("127.0.0.1", 2),
        )  # fmt: skip
        header = CheckTransactionStateRequestHeader(
            topic=TRANS_HALF_TOPIC, tranStateTableOffset=position + 1, commitLogOffset=position, msgId=msg_id,
            transactionId=msg_id, bname="b",
        )  # fmt: skip
        self.ask_with(group, Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, record, oneway=True))

    def ask_with(self, group: str, request: Command) -> None:
        self.producers[group].send_oneway(request)

    def states(self) -> list[int]:
        return [end.commitOrRollback for end in self.ends]

    def _send(self, _connection: Connection, request: Command) -> Reply:
        asked = request.header(SendMessageRequestHeaderV2)
        self.halves.append(asked)
        self._changed.set()
        number = len(self.halves)
        uniq_key = decode_properties((asked.properties or "").encode())["UNIQ_KEY"]
        place = offset_msg_id(pack_host("127.0.0.1", self._port), POSITION * number)
        header = SendMessageResponseHeader(
            msgId=place, queueId=asked.queueId, queueOffset=number, transactionId=uniq_key, recallHandle="handle"
        )
        return Command.response(self.status, header=header)

    def _end(self, _connection: Connection, request: Command) -> Reply:
        self.ends.append(request.header(EndTransactionRequestHeader))
        self.oneways.append(request.is_oneway)
        self._changed.set()
        return None

    def _recall(self, _connection: Connection, request: Command) -> Reply:
        self.recalls.append(request.header(RecallMessageRequestHeader))
        if self.recalled is None:
            return None
        code, remark = self.recalled
        header = RecallMessageResponseHeader(msgId="ID") if not code else None
        return Command.response(code, remark, header=header)

    def _beat(self, connection: Connection, request: Command) -> Reply:
        for producer in HeartbeatData.decode(request.body).producerDataSet:
            self.producers[producer.groupName] = connection
        self._changed.set()
        return Command.response(0)


class HalfSite:
    """Two such brokers of one name, and a NameServer; `master` is the number of the one that leads, None for nobody."""

    def __init__(self) -> None:
        self.brokers = [HalfBroker(), HalfBroker()]
        self.master: int | None = 0
        self.known: set[str] = {"Orders", "TBW102"}
        self._server = RemotingServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}, name="name server")

    async def __aenter__(self) -> Self:
        try:
            for broker in self.brokers:
                await broker.start()
            await self._server.start("127.0.0.1", 0)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.kill()
        await self._server.close()

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def _route(self, _connection: Connection, request: Command) -> Reply:
        if request.ext["topic"] not in self.known:
            return Command.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        addresses = {
            0 if number == self.master else number + 1: broker.address for number, broker in enumerate(self.brokers)
        }
        data = TopicRouteData(
            brokerDatas=[BrokerData(brokerAddrs=addresses, brokerName="b", cluster="c")],
            queueDatas=[QueueData(brokerName="b", perm=6, readQueueNums=2, writeQueueNums=2)],
        )
        return Command.response(0, body=data.encode())
