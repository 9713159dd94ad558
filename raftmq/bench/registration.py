"""What a large broker costs a NameServer: registrations of many topics over the wire, against a real process."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.host.processes import ServerProcess, namesrv_process
from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.headers.registry import (
    GetRouteInfoRequestHeader,
    Header,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
)
from runtime.crc import crc32

# One broker may register so many (namesrv/config.py); more would measure the refusal.
TOPICS_MAX = 1_000_000
ROUNDS = 5
TIMEOUT_S = 60.0
_CRC_MASK = 0x7FFFFFFF
# The broker that registers; nobody connects to its address.
_BROKER, _ADDRESS, _CLUSTER = "bench", "127.0.0.1:10911", "DefaultCluster"


@dataclass(frozen=True, slots=True)
class RegistrationCost:
    """One kind of request: its body, the best time of some rounds until the answer, what it cost the NameServer."""

    what: str
    topics: int
    body_bytes: int
    took_ms: float
    server_cpu_ms: float
    server_memory_mb: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


async def registration_load(topics: int) -> list[RegistrationCost]:
    """Register `topics` topics, plain where they fit a frame and compressed, and then only their version."""
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-") as folder:
        server = namesrv_process(Path(folder))
        server.start()
        client = RemotingClient()
        try:
            return await _measure(server, client, topics)
        finally:
            await client.close()
            server.stop()


async def _measure(server: ServerProcess, client: RemotingClient, topics: int) -> list[RegistrationCost]:
    version = DataVersion()

    def registering(*, compressed: bool) -> tuple[int, Header, bytes]:
        nonlocal version
        # A new version each time, else nothing would be taken over.
        version = version.next(time.time_ns() // 1_000_000)
        body = _table(topics, version)
        data = body.encode_compressed() if compressed else body.encode()
        header = RegisterBrokerRequestHeader(
            brokerName=_BROKER,
            brokerAddr=_ADDRESS,
            clusterName=_CLUSTER,
            brokerId=0,
            haServerAddr="",
            compressed=compressed,
            bodyCrc32=crc32(data) & _CRC_MASK,
        )
        return RequestCode.REGISTER_BROKER, header, data

    def unchanged() -> tuple[int, Header, bytes]:
        header = QueryDataVersionRequestHeader(
            brokerName=_BROKER, brokerAddr=_ADDRESS, clusterName=_CLUSTER, brokerId=0
        )
        return RequestCode.QUERY_DATA_VERSION, header, version.encode()

    def route() -> tuple[int, Header, bytes]:
        return RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=_name(topics // 2)), b""

    kinds: list[tuple[str, Callable[[], tuple[int, Header, bytes]]]] = [
        ("full, compressed", lambda: registering(compressed=True)),
        ("version only (322)", unchanged),
        ("route of one topic", route),
    ]
    if len(_table(topics, DataVersion()).encode()) < 15 * 1024 * 1024:
        kinds.insert(0, ("full, plain", lambda: registering(compressed=False)))
    return [await _best(what, topics, make, server, client) for what, make in kinds]


async def _best(
    what: str,
    topics: int,
    make: Callable[[], tuple[int, Header, bytes]],
    server: ServerProcess,
    client: RemotingClient,
) -> RegistrationCost:
    took, size = float("inf"), 0
    used = server.cpu_seconds()
    for _ in range(ROUNDS):
        code, header, body = make()
        size = len(body)
        began = time.perf_counter()
        await client.call(server.address, code, header, body, timeout=TIMEOUT_S)
        took = min(took, time.perf_counter() - began)
    cpu = (server.cpu_seconds() - used) / ROUNDS
    return RegistrationCost(what, topics, size, round(took * 1000, 2), round(cpu * 1000), round(server.memory_mb()))


def _table(topics: int, version: DataVersion) -> RegisterBrokerBody:
    table = {(name := _name(number)): TopicConfig(topicName=name) for number in range(topics)}
    return RegisterBrokerBody(topicConfigSerializeWrapper=TopicConfigTable(dataVersion=version, topicConfigTable=table))


def _name(number: int) -> str:
    return f"bench-topic-{number:06d}"
