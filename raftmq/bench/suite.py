"""The matrix of docs/performance.md: sends and pulls against a broker that is started for it."""

import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from chaos.host.processes import ServerProcess, broker_process
from client.tls import tls_of
from raftmq.bench.frames import QUEUES
from raftmq.bench.load import LoadedBroker, Pulls, Result, Sends, run_load
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.headers.registry import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from remoting.signing import Credentials
from runtime.tls import ClientTls

Flush = Literal["async", "sync"]

IN_FLIGHT = (1, 64, 512)
BODY_BYTES = (100, 1024)
PULL_COUNT = 32
PULLS_IN_FLIGHT = 16
FILL_SECONDS = 2.0  # of sends before pulls are measured
FLUSH_TYPES = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


@contextmanager
def spawned_broker(flush: Flush, parent: Path | None = None) -> Iterator[ServerProcess]:
    """Run a broker without NameServer in a new folder, with RocketMQ's own defaults but for the flush type."""
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=parent) as folder:
        broker = broker_process(Path(folder), settings={"flushDiskType": FLUSH_TYPES[flush]})
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


async def max_offsets(
    address: str, topic: str, credentials: Credentials | None = None, tls: ClientTls | None = None
) -> list[int]:
    """Return the end of each queue of the benchmark's topic; raises InvokeError."""
    client = RemotingClient(credentials=credentials, tls=tls_of(tls or False))
    try:
        ends = []
        for queue_id in range(QUEUES):
            header = GetMaxOffsetRequestHeader(topic=topic, queueId=queue_id)
            answer = await client.call(address, RequestCode.GET_MAX_OFFSET, header)
            ends.append(answer.header(GetMaxOffsetResponseHeader).offset)
        return ends
    finally:
        await client.close()


async def send_load(
    address: str,
    *,
    in_flight: int,
    size: int,
    seconds: float,
    connections: int = 1,
    topic: str = "",
    cpu_seconds: Callable[[], float] | None = None,
) -> Result:
    """Measure sends; the topic is created by the first of them."""
    topic = topic or f"bench_{size}"
    return await run_load(
        "send",
        LoadedBroker(address, cpu_seconds),
        lambda: Sends(topic, size),
        in_flight=in_flight,
        seconds=seconds,
        body_bytes=size,
        connections=connections,
    )


async def pull_load(
    address: str,
    *,
    in_flight: int,
    size: int,
    seconds: float,
    count: int = PULL_COUNT,
    connections: int = 1,
    topic: str = "",
    cpu_seconds: Callable[[], float] | None = None,
) -> Result:
    """Measure pulls of `count` messages; a topic that holds fewer is filled by sends first."""
    topic = topic or f"bench_{size}"
    fill = LoadedBroker(address)
    await run_load("fill", fill, lambda: Sends(topic, size), in_flight=512, seconds=FILL_SECONDS, body_bytes=size)
    ends = await max_offsets(address, topic)
    return await run_load(
        f"pull of {count}",
        LoadedBroker(address, cpu_seconds),
        lambda: Pulls(topic, ends, count),
        in_flight=in_flight,
        seconds=seconds,
        body_bytes=size,
        connections=connections,
    )


async def run_suite(seconds: float, parent: Path | None = None) -> AsyncGenerator[tuple[Flush, Result]]:
    """Yield each figure as it is measured: sends by flush type, size and requests in flight, then pulls."""
    flushes: tuple[Flush, ...] = ("async", "sync")
    for flush in flushes:
        with spawned_broker(flush, parent) as broker:
            for size in BODY_BYTES:
                for in_flight in IN_FLIGHT:
                    yield (
                        flush,
                        await send_load(
                            broker.address,
                            in_flight=in_flight,
                            size=size,
                            seconds=seconds,
                            cpu_seconds=broker.cpu_seconds,
                        ),
                    )
            if flush == "sync":
                continue
            for size in BODY_BYTES:
                yield (
                    flush,
                    await pull_load(
                        broker.address,
                        in_flight=PULLS_IN_FLIGHT,
                        size=size,
                        seconds=seconds,
                        cpu_seconds=broker.cpu_seconds,
                    ),
                )
