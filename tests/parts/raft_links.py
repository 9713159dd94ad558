"""Members that only have a transport, for tests of what stands on it."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Self

from raft.network.link import LinkLimits
from raft.network.transport import CopyDesk, PeerEvents, PeerTransport, Tls
from raft.protocol.hello import Hello
from raft.protocol.messages import MessageKind, RaftMessage

# Quick to try again, so that tests need not wait, and patient with a machine that has much else to do.
QUICK = LinkLimits(beat_seconds=0.02, beats_max=250, backoff_first_seconds=0.005, backoff_max_seconds=0.02)
# For tests of the patience itself.
IMPATIENT = dataclasses.replace(QUICK, beats_max=10, handshake_seconds=0.3)


def hello_of(name: str, clock_ms: int = 0) -> Hello:
    """The hello of a member with an empty store."""
    return Hello("g", name, name.encode().ljust(16, b"."), b"", 0, 0, 0, 0, True, False, 1 << 20, True, clock_ms)


def note(round_: int) -> RaftMessage:
    """A message that can be told from others."""
    return RaftMessage(MessageKind.PRE_VOTE_REPLY, {"term": 1, "round": round_, "granted": True, "why": ""})


def secrets_of(secret: bytes | None) -> tuple[bytes, ...]:
    """One, or none."""
    return () if secret is None else (secret,)


class Party:
    """One member; what its transport tells is kept in queues."""

    def __init__(
        self,
        name: str,
        *,
        secret: bytes | None = None,
        limits: LinkLimits = QUICK,
        tls: Tls | None = None,
        copies: CopyDesk | None = None,
        hello: Callable[[], Hello] | None = None,
    ) -> None:
        self.name = name
        self.messages: asyncio.Queue[tuple[str, RaftMessage]] = asyncio.Queue()
        self.links: asyncio.Queue[tuple[str, Hello | None]] = asyncio.Queue()
        self.refusals: dict[str, str] = {}
        self.judged = asyncio.Event()
        events = PeerEvents(
            on_message=lambda peer, message: self.messages.put_nowait((peer, message)),
            on_connected=lambda peer, hello: self.links.put_nowait((peer, hello)),
            on_disconnected=lambda peer: self.links.put_nowait((peer, None)),
            judge=self._judge,
        )
        own = hello or (lambda: hello_of(name))
        self.transport = PeerTransport(
            name, "g", hello=own, events=events, secrets=secrets_of(secret), limits=limits, tls=tls, copies=copies
        )

    def _judge(self, hello: Hello) -> str | None:
        self.judged.set()
        return self.refusals.get(hello.self_id)

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.transport.port)

    async def start(self, port: int = 0) -> "Party":
        await self.transport.start("127.0.0.1", port)
        return self

    async def linked(self, peer: str) -> Hello:
        """Wait until the link to a peer is open."""
        while True:
            name, hello = await self.links.get()
            if name == peer and hello is not None:
                return hello

    async def parted(self, peer: str) -> None:
        """Wait until the link to a peer has ended."""
        while await self.links.get() != (peer, None):
            pass


async def introduce(*parties: Party) -> None:
    """Tell started members about one another, and wait until all links are open."""
    for party in parties:
        party.transport.set_peers({other.name: other.address for other in parties if other is not party})
    for party in parties:
        for other in parties:
            if other is not party:
                await party.linked(other.name)


@contextlib.asynccontextmanager
async def started(*parties: Party) -> AsyncIterator[None]:
    try:
        for party in parties:
            await party.start()
        yield
    finally:
        for party in parties:
            await party.transport.close()
        await no_sockets()


async def no_sockets() -> None:
    """Wait until a connection that was still shaking hands when its side closed has seen that the other one is gone."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.SelectorEventLoop):
        async with asyncio.timeout(20):
            # The loop's own pipe to itself stays.
            while len(loop._selector.get_map()) > 1:  # type: ignore[attr-defined]
                await asyncio.sleep(0)


class Proxy:
    """A wire between two members that can be cut without either of them being told. A context."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.forth = asyncio.Event()
        self.back = asyncio.Event()
        self.heal()
        self.address = ("", 0)

    def heal(self) -> None:
        """Let everything through, also what waited."""
        self.forth.set()
        self.back.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        self._writers += [writer, far_writer]
        for source, target, way in ((reader, far_writer, self.forth), (far_reader, writer, self.back)):
            task = asyncio.create_task(self._carry(source, target, way))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, way: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await way.wait()
                target.write(data)
        target.close()
