"""What strangers send to real servers: it costs them their connection, and others next to nothing."""

import asyncio
import struct
import time
from pathlib import Path

import pytest

from broker.server import VIP_OFFSET
from chaos.host.processes import ServerProcess, broker_process, namesrv_process
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from tests.cluster.small_files import SMALL_FILES

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


def victim(kind: str, folder: Path) -> ServerProcess:
    """A NameServer, or a broker that has a second port for VIPs."""
    if kind == "namesrv":
        return namesrv_process(folder)
    return broker_process(folder, settings={**SMALL_FILES, "vipPortEnable": True})


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["namesrv", "broker"])
async def test_a_hundred_half_frames_are_not_kept(tmp_path: Path, kind: str) -> None:
    process = victim(kind, tmp_path)
    await asyncio.to_thread(process.start)
    try:
        client = RemotingClient()
        address = process.address
        port = int(address.rpartition(":")[2])
        ports = (port,) if kind == "namesrv" else (port, port + VIP_OFFSET)
        code = RequestCode.GET_BROKER_CLUSTER_INFO if kind == "namesrv" else RequestCode.GET_BROKER_RUNTIME_INFO
        before = process.memory_mb()
        # What has been freed may stay with the process for what comes next: again and again it takes no more than once.
        for _ in range(3):
            writers = []
            most = 0.0
            for _ in range(20):
                writers += await asyncio.gather(*(half_a_frame(ports[each % len(ports)]) for each in range(5)))
                most = max(most, process.memory_mb())
            began = time.monotonic()
            answer = await client.invoke(address, Command.request(code), timeout=30)
            assert answer.code == 0
            assert time.monotonic() - began < 15
            assert most - before < MEMORY_MB_MAX
            for writer in writers:
                writer.close()
        await client.close()
    finally:
        await asyncio.to_thread(process.kill)
