"""A whole NameServer over real sockets: registration, routes, loss of a broker, the HTTP face, the process."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable, TopicRouteData
from remoting.client import RemotingClient
from remoting.command import Command
from remoting.headers.registry import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from runtime.clock import ManualClock
from runtime.config import ConfigError
from tests.parts.certificates import Authority

TOPICS = {name: TopicConfig(name, 4, 4) for name in ("t", "u")}
HEADER = RegisterBrokerRequestHeader(
    brokerName="a", brokerAddr="10.0.0.1:10911", clusterName="C", haServerAddr="10.0.0.1:10912", brokerId=0
)


def configuration(folder: Path, **changes: Any) -> NamesrvConfig:
    fields: dict[str, Any] = {
        "bindAddress": "127.0.0.1",
        "listenPort": 0,
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    return NamesrvConfig(**{**fields, **changes})


class Clients:
    """Two clients of one NameServer: a broker's, and somebody's who asks for routes."""

    def __init__(self, server: NameServer) -> None:
        self.address = f"127.0.0.1:{server.port}"
        self.broker = RemotingClient()
        self.asker = RemotingClient()

    async def register(self) -> Command:
        body = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 0, 1), topicConfigTable=TOPICS))
        return await self.broker.call(self.address, 103, HEADER, body.encode())

    async def route(self, topic: str) -> Command:
        request = Command.request(105, GetRouteInfoRequestHeader(topic=topic))
        return await self.asker.invoke(self.address, request)

    async def close(self) -> None:
        await self.broker.close()
        await self.asker.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(tmp_path: Path, clock: ManualClock) -> AsyncIterator[NameServer]:
    server = NameServer(configuration(tmp_path), clock)
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def clients(server: NameServer) -> AsyncIterator[Clients]:
    clients = Clients(server)
    yield clients
    await clients.close()


async def test_a_registered_topic_is_found(clients: Clients) -> None:
    await clients.register()
    answer = await clients.route("t")
    assert answer.code == 0
    assert TopicRouteData.decode(answer.body).brokerDatas[0].brokerAddrs == {0: "10.0.0.1:10911"}
    assert (await clients.route("unknown")).code == 17


async def test_errors_cost_the_request_alone(clients: Clients) -> None:
    missing = await clients.asker.invoke(clients.address, Command.request(105))
    assert missing.code == 1
    assert "the custom field <topic> is null" in (missing.remark or "")
    body = await clients.asker.invoke(clients.address, Command.request(103, HEADER, b"garbage"))
    assert body.code == 1
    assert (await clients.asker.invoke(clients.address, Command.request(9999))).code == 3
    assert (await clients.route("unknown")).code == 17


async def test_a_closed_connection_takes_the_brokers_topics_at_once(server: NameServer, clients: Clients) -> None:
    await clients.register()
    await clients.broker.close()
    async with asyncio.timeout(30):
        while (await clients.route("t")).code == 0:
            await asyncio.sleep(0)
    assert not server.routes.live


async def test_a_silent_broker_is_forgotten_and_its_connection_closed(
    server: NameServer, clients: Clients, clock: ManualClock
) -> None:
    await clients.register()
    clock.advance(119)
    server.scan()
    assert (await clients.route("t")).code == 0
    clock.advance(2)
    server.scan()
    assert (await clients.route("t")).code == 17
    await clients.register()
    assert (await clients.route("t")).code == 0


async def test_kv_configuration_outlives_the_process(tmp_path: Path) -> None:
    first = NameServer(configuration(tmp_path))
    await first.start()
    client = RemotingClient()
    entry = {"namespace": "ns", "key": "k", "value": "v"}
    assert (await client.invoke(f"127.0.0.1:{first.port}", Command.request(100, ext=entry))).code == 0
    await first.close()
    second = NameServer(configuration(tmp_path))
    await second.start()
    answer = await client.invoke(f"127.0.0.1:{second.port}", Command.request(101, ext=entry))
    assert answer.ext == {"value": "v"}
    await client.close()
    await second.close()


def fetch(server: NameServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_the_http_face(server: NameServer, clients: Clients) -> None:
    await clients.register()
    assert (await asyncio.to_thread(fetch, server, "/healthz"))[0] == 200
    assert (await asyncio.to_thread(fetch, server, "/readyz"))[0] == 200
    _, metrics = await asyncio.to_thread(fetch, server, "/metrics")
    assert "rocketmq_namesrv_brokers 1.0" in metrics
    assert "rocketmq_namesrv_topics 2.0" in metrics
    status = json.loads((await asyncio.to_thread(fetch, server, "/v1/status"))[1])
    assert (status["brokers"], status["topicsByBroker"], status["exposed"]) == (1, {"a": 2}, None)
    routes = json.loads((await asyncio.to_thread(fetch, server, "/v1/routes"))[1])
    assert routes["brokers"]["a"]["members"]["0"]["address"] == "10.0.0.1:10911"
    assert routes["topics"]["t"] == {"a": {"read": 4, "write": 4, "perm": 6}}


async def test_who_asks_for_tls_and_signatures_is_exposed_to_nobody(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path / "authority").sign("server")
    user = '{"username":"admin","password":"12345678"}'
    secured: dict[str, Any] = {"authenticationEnabled": True, "initAuthenticationUser": user, "bindAddress": "0.0.0.0"}
    for mode, words in (("permissive", "TLS is not enforced"), ("enforcing", None)):
        secured |= {"tlsServerMode": mode, "tlsServerCertPath": cert, "tlsServerKeyPath": key}
        server = NameServer(configuration(tmp_path, **secured))
        await server.start()
        exposed = json.loads((await asyncio.to_thread(fetch, server, "/v1/status"))[1])["exposed"]
        await server.close()
        assert exposed is None if words is None else words in exposed


async def test_it_is_not_ready_while_it_waits_for_brokers(tmp_path: Path, clock: ManualClock) -> None:
    server = NameServer(configuration(tmp_path, needWaitForService=True), clock)
    await server.start()
    status, text = await asyncio.to_thread(fetch, server, "/readyz")
    assert status == 503
    assert "not ready" in text
    clock.advance(46)
    assert (await asyncio.to_thread(fetch, server, "/readyz"))[0] == 200
    await server.close()


async def test_without_http_there_is_no_port(tmp_path: Path) -> None:
    server = NameServer(configuration(tmp_path, httpEnable=False))
    await server.start()
    assert server.http_port == 0
    await server.close()


async def test_a_taken_port_is_an_os_error_and_leaves_nothing_open(tmp_path: Path, server: NameServer) -> None:
    second = NameServer(configuration(tmp_path, listenPort=server.port))
    with pytest.raises(OSError):
        await second.start()
    third = NameServer(configuration(tmp_path, httpPort=server.http_port))
    with pytest.raises(OSError):
        await third.start()
    await third.close()


def test_a_kv_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{broken")
    with pytest.raises(ConfigError, match="kvConfigPath"):
        NameServer(configuration(tmp_path))


PROCESS = """
import logging, sys
from namesrv.config import load_namesrv_config
from namesrv.server import run_namesrv
logging.basicConfig(level="INFO", stream=sys.stdout)
values = {"bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": sys.argv[1]}
run_namesrv(load_namesrv_config(values)[0])
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_in_good_order_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", PROCESS, str(tmp_path / "kvConfig.json")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "NameServer serves on port" in line:
                process.send_signal(number)
        assert process.wait(timeout=20) == 0, lines
        assert lines[-1] == "ended\n"
