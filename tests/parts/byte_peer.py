"""A RemotingServer on a free port, and its peer, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from remoting.codec import encode
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.connection import Connection, Handler, Reply
from remoting.framing import FrameReader
from remoting.limits import ServerLimits
from remoting.server import RemotingServer

ECHO = 34
IMPATIENT = ServerLimits(close_seconds=0.2)


class Peer:
    """The other end of a connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader()
        self._commands: list[Command] = []

    def send(self, *requests: Command) -> None:
        self.writer.write(b"".join(map(encode, requests)))

    def ask(self, code: int, opaque: int = 1, body: bytes = b"", *, oneway: bool = False) -> None:
        request = Command.request(code, body=body, oneway=oneway)
        request.opaque = opaque
        self.send(request)

    async def receive(self) -> Command:
        while not self._commands:
            data = await self.reader.read(65536)
            if not data:
                raise EOFError
            self._commands += self._frames.feed(data)
        return self._commands.pop(0)

    async def ended(self) -> bool:
        try:
            return await self.reader.read(65536) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):  # the server may have ended it first
            await self.writer.wait_closed()


async def connect(server: RemotingServer) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", server.port))


@asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler],
    limits: ServerLimits = IMPATIENT,
    on_open: Callable[[Connection], None] | None = None,
    on_close: Callable[[Connection], None] | None = None,
    congested: Callable[[], bool] = lambda: False,
) -> AsyncIterator[tuple[RemotingServer, Peer]]:
    server = RemotingServer(
        handlers, name="test", limits=limits, on_open=on_open, on_close=on_close, congested=congested
    )
    await server.start("127.0.0.1", 0)
    peer = await connect(server)
    try:
        yield server, peer
    finally:
        await peer.close()
        await server.close()


def echo(_: Connection, request: Command) -> Reply:
    return Command.response(ResponseCode.SUCCESS, body=request.body)
