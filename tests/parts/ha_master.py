"""What the tests of the HA port share: a log in memory, keys, and a slave that is driven byte by byte."""

import asyncio
import sys
from array import array
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from broker.master_slave.ha_server import HaServer
from broker.settings.pair_keys import ClassicKeys
from remoting.haframes import HaFrameReader, report
from store.integrity.pushed import PushedPiece

FILE_BYTES = 1024


class MemoryLog:
    """A log of files of FILE_BYTES, kept from `least` on; what lies before `cold` must be read by a thread."""

    def __init__(self, data: bytes = b"", *, least: int = 0, file_bytes: int = FILE_BYTES) -> None:
        self.data = bytearray(data)
        self.least = least
        self.cold = 0
        self.cold_reads = 0
        self.broken = False
        self.file_bytes = file_bytes

    def log_range(self) -> tuple[int, int]:
        return self.least, len(self.data)

    def fresh_piece(self, position: int, size_max: int) -> memoryview | bytes | None:
        return None if position < self.cold else self._piece(position, size_max)

    def checked_piece(self, position: int, size_max: int, _border: int = -1) -> PushedPiece:
        if self.broken:
            raise OSError("the disk fails")
        self.cold_reads += 1
        return PushedPiece(self._piece(position, size_max), -1, None)

    def note_damaged(self, position: int, reason: str) -> None:
        raise AssertionError(f"{position}: {reason}")

    def _piece(self, position: int, size_max: int) -> bytes:
        assert position >= self.least
        end = min(position + size_max, len(self.data), position - position % self.file_bytes + self.file_bytes)
        return bytes(self.data[position:end])


def content(size: int) -> bytes:
    """Bytes of which no stretch looks like another."""
    words = array("I", range(size // 4 + 1))
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()[:size]


class Master:
    """A server with its log and keys, as the tests change them."""

    def __init__(self, log: MemoryLog, threads: ThreadPoolExecutor, **keys: Any) -> None:
        self.log = log
        self.values = ClassicKeys(**keys)
        self.acks = 0
        self.server = HaServer(log, lambda: self.values, asyncio.get_running_loop(), threads, self._acked)
        self.slaves: list[Slave] = []

    def _acked(self) -> None:
        self.acks += 1

    def grow(self, data: bytes) -> None:
        self.log.data += data
        self.server.advanced()

    async def until_acked(self, position: int, slaves: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.server.acked_by(slaves) < position:
                await asyncio.sleep(0.001)


class Slave:
    """The other end of a connection. `position` is what it was sent so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames: list[tuple[int, bytes]] = []
        self._cut = HaFrameReader(4 * 1024 * 1024)

    def report(self, offset: int) -> None:
        self.writer.write(report(offset))

    async def frame(self) -> tuple[int, bytes]:
        """Return the next frame, signs of life included; EOFError when the connection has ended."""
        while not self.frames:
            async with asyncio.timeout(20):
                data = await self.reader.read(65536)
            if not data:
                raise EOFError
            self.frames += self._cut.feed(data)
        return self.frames.pop(0)

    async def take(self, position: int, end: int) -> bytes:
        """Return the log from a position to another, as it is sent; frames must follow one another."""
        data = bytearray()
        while position + len(data) < end:
            at, piece = await self.frame()
            assert at == position + len(data)
            data += piece
        assert position + len(data) == end
        return bytes(data)

    async def ended(self) -> bool:
        try:
            while True:
                await self.frame()
        except (EOFError, ConnectionError):
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):  # the master may have ended it first
            await self.writer.wait_closed()


@asynccontextmanager
async def serving(log: MemoryLog, **keys: Any) -> AsyncIterator[Master]:
    threads = ThreadPoolExecutor(1)
    master = Master(log, threads, **keys)
    await master.server.start("127.0.0.1", 0)
    try:
        yield master
    finally:
        await asyncio.gather(*[slave.close() for slave in master.slaves])
        await master.server.close()
        threads.shutdown()


async def connect(master: Master, offset: int | None = None) -> Slave:
    """Connect a slave, and report at once unless `offset` is None."""
    slave = Slave(*await asyncio.open_connection("127.0.0.1", master.server.port))
    master.slaves.append(slave)
    if offset is not None:
        slave.report(offset)
    return slave
