"""Two masters without a store, and their NameServer: what producers meet when brokers answer weakly, or not at all."""

from functools import partial

from remoting.bodies.registry import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2, SendMessageResponseHeader
from remoting.server import Connection, Handler, RemotingServer, Reply


class Pair:
    """Two masters `a` and `b` of a topic of two queues each, and their NameServer; `codes` is what each answers."""

    def __init__(self) -> None:
        self.codes = {"a": 0, "b": 0}
        # Those that take what they get and answer nothing.
        self.frozen: set[str] = set()
        self.sent: list[str] = []
        # Heartbeats that came, and how many of the next ones are refused.
        self.beats: list[str] = []
        self.beats_refused = 0
        self.order = ""
        self._name_server = RemotingServer({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}, name="name server")
        ok: Handler = lambda _connection, _request: Command.response(0)  # noqa: E731 # twice the same answer
        self.servers = {
            name: RemotingServer(
                {
                    RequestCode.SEND_MESSAGE_V2: self._send,
                    RequestCode.SEND_BATCH_MESSAGE: self._send,
                    RequestCode.HEART_BEAT: partial(self._beat, name),
                    RequestCode.UNREGISTER_CLIENT: ok,
                    RequestCode.GET_MAX_OFFSET: ok,
                },
                name=name,
            )
            for name in self.codes
        }

    async def start(self) -> None:
        for server in (*self.servers.values(), self._name_server):
            await server.start("127.0.0.1", 0)

    async def close(self) -> None:
        for server in (*self.servers.values(), self._name_server):
            await server.close()

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self._name_server.port}"

    def _send(self, _connection: Connection, request: Command) -> Reply:
        sent = request.header(SendMessageRequestHeaderV2)
        broker = sent.bname or ""
        self.sent.append(broker)
        if broker in self.frozen:
            return None
        header = SendMessageResponseHeader(msgId=broker, queueId=sent.queueId, queueOffset=0)
        return Command.response(self.codes[broker], header=header)

    def _beat(self, broker: str, _connection: Connection, _request: Command) -> Reply:
        self.beats.append(broker)
        if self.beats_refused:
            self.beats_refused -= 1
            return Command.response(ResponseCode.SYSTEM_BUSY, "busy")
        return Command.response(0)

    def _route(self, _connection: Connection, _request: Command) -> Reply:
        data = TopicRouteData(
            brokerDatas=[
                BrokerData(brokerAddrs={0: f"127.0.0.1:{server.port}"}, brokerName=name, cluster="c")
                for name, server in self.servers.items()
            ],
            queueDatas=[QueueData(brokerName=name, perm=6, readQueueNums=2, writeQueueNums=2) for name in self.servers],
        )
        data.orderTopicConf = self.order or None
        return Command.response(0, body=data.encode())
