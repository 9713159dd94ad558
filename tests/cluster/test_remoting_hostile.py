"""What strangers send to real servers: it costs them their connection, and others next to nothing."""

import asyncio
import struct
import time
from pathlib import Path

import pytest

from chaos.host.processes import namesrv_process
from remoting.client import RemotingClient
from remoting.command import Command

HALF_FRAME = 15 * 1024 * 1024
# What may be kept of frames that are not whole (128 MiB), what a buffer grows ahead, and what is on its way.
MEMORY_MB_MAX = 256 * 1.05


async def half_a_frame(port: int) -> asyncio.StreamWriter:
    """Announce 15 MiB and send all but the last byte, or as much as is taken."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">I", HALF_FRAME))
    piece = bytes(256 * 1024)
    try:
        for _ in range(HALF_FRAME // len(piece) - 1):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    return writer


@pytest.mark.timeout(120)
async def test_a_hundred_half_frames_are_not_kept(tmp_path: Path) -> None:
    namesrv = namesrv_process(tmp_path)
    await asyncio.to_thread(namesrv.start)
    try:
        client = RemotingClient()
        address = namesrv.address
        port = int(address.rpartition(":")[2])
        before = namesrv.memory_mb()
        # What has been freed may stay with the process for what comes next: again and again it takes no more than once.
        for _ in range(3):
            writers = []
            most = 0.0
            for _ in range(20):
                writers += await asyncio.gather(*(half_a_frame(port) for _ in range(5)))
                most = max(most, namesrv.memory_mb())
            began = time.monotonic()
            answer = await client.invoke(address, Command.request(106), timeout=10)
            assert answer.code == 0
            assert time.monotonic() - began < 5
            assert most - before < MEMORY_MB_MAX
            for writer in writers:
                writer.close()
        await client.close()
    finally:
        await asyncio.to_thread(namesrv.kill)
