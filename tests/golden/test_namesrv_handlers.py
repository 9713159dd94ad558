"""A NameServer of ours, asked what RocketMQ 5.5.0's was asked in the recordings, answers the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from namesrv.config import LiveNamesrvConfig, NamesrvConfig
from namesrv.handlers import RouteHandlers
from namesrv.kv import KVConfig
from namesrv.routes import RouteTable
from remoting.codec import decode
from remoting.command import Command
from remoting.fastjson import loads
from remoting.server import Connection
from runtime.clock import ManualClock

DATA = Path(__file__).parent / "data"
NAMESERVER_PORT = 9976
RECORDINGS = ["frames-single-JSON", "frames-single-ROCKETMQ"]


def recorded(name: str) -> Iterator[Command]:
    """Yield the frames to and from the NameServer, in order of time."""
    for line in (DATA / f"{name}.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if frame["server"] == NAMESERVER_PORT:
            yield decode(bytes.fromhex(frame["frame"])[4:])


@pytest.fixture
def handlers(tmp_path: Path) -> RouteHandlers:
    clock = ManualClock()
    config = LiveNamesrvConfig(NamesrvConfig())
    table = RouteTable(clock, topics_per_broker_max=10_000, brokers_max=10, epochs_max=20)
    return RouteHandlers(table, KVConfig(tmp_path / "kv.json", entries_max=10), config, clock)


def ask(handlers: RouteHandlers, request: Command) -> Command:
    answer = handlers.table()[request.code](cast("Connection", "link"), request)
    assert isinstance(answer, Command)
    return answer


@pytest.mark.parametrize("name", RECORDINGS)
def test_registrations_and_routes(handlers: RouteHandlers, name: str) -> None:
    frames = list(recorded(name))
    registrations = [frame for frame in frames if frame.code == 103 and not frame.is_response]
    assert len(registrations) >= 2
    for registration in registrations:
        answer = ask(handlers, registration)
        assert (answer.code, answer.ext, bytes(answer.body)) == (0, {}, b"")
    routes = [frame for frame in frames if frame.is_response and b"queueDatas" in bytes(frame.body)]
    assert routes
    default = loads(bytes(ask(handlers, Command.request(105, ext={"topic": "TBW102"})).body))
    assert default in [loads(bytes(route.body)) for route in routes]


@pytest.mark.parametrize("name", RECORDINGS)
def test_unknown_topics_and_an_empty_cluster(handlers: RouteHandlers, name: str) -> None:
    frames = list(recorded(name))
    unknown = next(frame for frame in frames if frame.code == 17)
    asked = next(frame for frame in frames if frame.code == 105 and frame.ext["topic"] in (unknown.remark or ""))
    assert ask(handlers, asked).remark == unknown.remark
    empty = [frame for frame in frames if bytes(frame.body) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}']
    assert bytes(ask(handlers, Command.request(106)).body) == bytes(empty[0].body)
