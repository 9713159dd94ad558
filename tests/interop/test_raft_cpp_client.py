"""The official C++ client under load, while the group's leader is killed and while all members restart in turn."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer

PROGRAM = Path(__file__).with_name("cpp_client.py")
TOPIC = "cpp_under_fire"
# Only a reader that lacks something waits so long: one that has begun may be kept from it by all that runs beside it.
QUIET_S = 20.0
# While a broker is gone each keeps half a processor busy with attempts to connect: two find what three did.
PRODUCERS = 2
# The library looks for a new route every 30 s only, and may find the old one once more.
ROUTE_WAIT_S = 75


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", nodes=3) as running:
        yield running


class CppLoad:
    """The C++ client's producer in a process of its own, sending until it is told to stop.

    One thread: the library lets one thread at a time connect to a new address, and fails the sends of all others
    meanwhile ("get timed_mutex timeout" in its log), whatever the servers do.
    """

    def __init__(self, cluster: LocalCluster, home: Path, name: str) -> None:
        order = {"do": "load", "namesrv": cluster.address, "group": "g_load", "topic": TOPIC, "name": name}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(home)},
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._sent = 0
        self._last = ""
        self._news = threading.Condition()
        # It is read all the time: a full pipe would stop the load.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._sent += line == "ok\n"
                self._last = line
                self._news.notify_all()

    def wait_sent(self, count: int) -> None:
        """Return when `count` more sends were acknowledged from now on."""
        with self._news:
            target = self._sent + count
            came = self._news.wait_for(lambda: self._sent >= target, ROUTE_WAIT_S)
            assert came, "the C++ client gets no acknowledgements"

    def stop(self) -> dict[str, Any]:
        """Let it end; returns what was acknowledged and what failed."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        self._reader.join(60)
        answer: dict[str, Any] = json.loads(self._last)
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


async def bodies(cluster: LocalCluster, wanted: set[str]) -> list[str]:
    """Read the topic until everything wanted was seen, or nothing new comes."""
    found: list[str] = []
    async with LitePullConsumer("g_reader", cluster.address) as consumer:
        queues = await consumer.queues(TOPIC)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        loop = asyncio.get_running_loop()
        last = loop.time()
        while wanted - set(found) and loop.time() - last < QUIET_S:
            for message in await consumer.poll(0.2):
                found.append(bytes(message.body).decode())
                last = loop.time()
    return found


class CppLoads:
    """Several of them at once."""

    def __init__(self, cluster: LocalCluster, home: Path) -> None:
        self._loads = [CppLoad(cluster, home, f"p{number}") for number in range(PRODUCERS)]

    def wait_sent(self, count: int) -> None:
        for load in self._loads:
            load.wait_sent(count)

    def stop(self) -> tuple[set[str], list[str]]:
        """Let all end; returns what was acknowledged and what failed."""
        results = [load.stop() for load in self._loads]
        acknowledged = {body for result in results for body in result["acknowledged"]}
        return acknowledged, [failure for result in results for failure in result["failed"]]

    def kill(self) -> None:
        for load in self._loads:
            load.kill()


@pytest.mark.timeout(240)
async def test_a_killed_leader_costs_cpp_nothing_that_was_acknowledged(group: LocalCluster, tmp_path: Path) -> None:
    load = CppLoads(group, tmp_path)
    try:
        load.wait_sent(300)
        leader = group.wait_for_leader()
        leader.kill()
        group.wait_for_leader()
        load.wait_sent(300)
        leader.start()
        acknowledged, _ = load.stop()
    finally:
        load.kill()
    assert len(acknowledged) >= 600 * PRODUCERS
    assert acknowledged <= set(await bodies(group, acknowledged))


@pytest.mark.timeout(180)
async def test_a_transfer_costs_cpp_not_one_failed_send(group: LocalCluster, tmp_path: Path) -> None:
    load = CppLoads(group, tmp_path)
    try:
        load.wait_sent(200)
        async with AdminClient(group.address) as admin:
            for _ in range(3):
                await admin.transfer_leader("broker-a")
                load.wait_sent(200)
        acknowledged, failed = load.stop()
    finally:
        load.kill()
    assert failed == []
    assert acknowledged <= set(await bodies(group, acknowledged))


@pytest.mark.timeout(300)
async def test_a_rolling_restart_costs_cpp_not_one_failed_send(group: LocalCluster, tmp_path: Path) -> None:
    load = CppLoads(group, tmp_path)
    try:
        load.wait_sent(200)
        for broker in group.brokers:
            broker.stop()
            load.wait_sent(100)
            broker.start()
            group.wait_for_leader()
            load.wait_sent(100)
        acknowledged, failed = load.stop()
    finally:
        load.kill()
    assert failed == []
    assert len(acknowledged) >= 800 * PRODUCERS
    assert acknowledged <= set(await bodies(group, acknowledged))
