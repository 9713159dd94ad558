"""A TCP proxy in front of each member's Raft port, which knows who dials and can cut one direction of one pair.

Members dial from an address of their own (127.0.0.11, .12, …; all of 127/8 is loopback on Linux), so that the proxy of
member B sees that A is calling. A's messages to B, and nothing else, travel on the connections that A dials: to cut
A → B is to freeze these. A frozen connection stays open and silent, as one through a broken switch does.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

PIECE_BYTES = 256 * 1024
PROXY_HOST = "127.0.0.1"
# Who dials from the ordinary loopback address and is no member.
ANYBODY = 1 - 11
Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def member_host(number: int) -> str:
    """Return the address that member `number` listens on and dials from."""
    return f"127.0.0.{11 + number}"


class Proxies:
    """All proxies of a group, in one thread with a loop of its own."""

    def __init__(self, ports: list[int], real_ports: list[int], host: str | None = None) -> None:
        """`ports[n]` stands in front of `real_ports[n]` at member_host(n), or at `host`."""
        self._ports = ports
        self._real = [(host or member_host(number), port) for number, port in enumerate(real_ports)]
        self._cut: set[tuple[int, int]] = set()
        self._pipes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._changed: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10), "the proxies did not come up"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self, source: int, target: int) -> None:
        """Let nothing more through from `source` to `target`."""
        self._loop.call_soon_threadsafe(self._cut.add, (source, target))

    def heal(self) -> None:
        """Mend everything; frozen connections go on where they stood."""
        self._loop.call_soon_threadsafe(self._heal)

    def _heal(self) -> None:
        self._cut.clear()
        assert self._changed is not None
        self._changed.set()
        self._changed.clear()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._changed = asyncio.Event()
        servers = [
            self._loop.run_until_complete(asyncio.start_server(self._acceptor(number), PROXY_HOST, port))
            for number, port in enumerate(self._ports)
        ]
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        for server in servers:
            server.close()
        for pipe in self._pipes:
            pipe.cancel()
        if self._pipes:
            self._loop.run_until_complete(asyncio.gather(*self._pipes, return_exceptions=True))
        self._loop.close()

    def _acceptor(self, target: int) -> Accept:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host: str = writer.get_extra_info("peername")[0]
            source = int(host.rpartition(".")[2]) - 11
            task = asyncio.current_task()
            assert task is not None
            self._pipes.add(task)
            try:
                await self._carry(source, target, reader, writer)
            finally:
                self._pipes.discard(task)
                writer.close()

        return accept

    async def _carry(
        self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(*self._real[target])
            try:
                there = asyncio.ensure_future(self._pipe(source, target, reader, far_writer))
                back = asyncio.ensure_future(self._pipe(source, target, far_reader, writer))
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
                for pipe in (there, back):
                    pipe.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
            finally:
                far_writer.close()

    async def _pipe(self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._changed is not None
        while data := await reader.read(PIECE_BYTES):
            while (source, target) in self._cut:
                await self._changed.wait()
            writer.write(data)
            await writer.drain()
