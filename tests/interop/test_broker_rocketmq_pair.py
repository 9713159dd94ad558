"""The real RocketMQ as a slave of our master, and as the master of our slave: the logs are equal, byte for byte.

`make interop-java` runs all with 100,000 messages; `make test`, one direction with fewer.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.processes import HOST, ServerProcess, broker_process, free_ports, namesrv_process
from client.admin.client import AdminClient
from client.message import Message
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from store.log.logscan import LogScan, Span
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything
from tests.interop.java_broker import JavaBroker

MESSAGES = int(os.environ.get("RAFTMQ_INTEROP_MESSAGES", "5000"))
NAME = "broker-a"
TOPIC = "between_two_worlds"
QUEUES = 4
FILE_BYTES = 4 * 1024 * 1024
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": FILE_BYTES,
    "slaveReadEnable": True,
}
IN_FLIGHT = 64
EQUAL_TIMEOUT_S = 60
POLL_S = 0.1


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[ServerProcess]:
    made = namesrv_process(tmp_path / "namesrv")
    made.start()
    yield made
    made.kill()


def body(number: int) -> bytes:
    """Of different lengths, so that records begin everywhere."""
    return f"message {number} ".encode() + b"x" * (number * 37 % 300)


async def prepare(address: str) -> None:
    """Make the topic, once the master stands in the route."""
    async with AdminClient(address) as admin, asyncio.timeout(30):
        while not any(broker.broker_id == 0 for broker in await admin.brokers(None)):
            await asyncio.sleep(POLL_S)
        await admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)


async def send(address: str, first: int, count: int) -> None:
    """Send so many messages, each acknowledged."""
    queues = [MessageQueue(TOPIC, NAME, queue) for queue in range(QUEUES)]
    numbers = iter(range(first, first + count))
    async with Producer("producers", address, send_timeout=10) as producer:

        async def work() -> None:
            for number in numbers:
                message = Message(TOPIC, body(number), keys=f"k{number}", tags=f"t{number % 3}")
                await producer.send(message, queue=queues[number % QUEUES])

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


def log_files(store: Path) -> list[Path]:
    return sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())


def scanned(store: Path) -> tuple[int, int]:
    """Return how many whole records a log has, and where it ends."""
    scan = LogScan([Span(path, int(path.name), FILE_BYTES) for path in log_files(store)], 0, check_crc=True)
    return sum(1 for _ in scan), scan.end


def read_log(store: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in log_files(store))[:end]


async def until_equal(master: Path, slave: Path) -> int:
    """Wait until the slave's log is the master's, byte for byte; returns the number of records."""
    records, end = scanned(master)
    expected = read_log(master, end)
    deadline = time.monotonic() + EQUAL_TIMEOUT_S
    while True:
        if (slave / "commitlog").is_dir() and read_log(slave, end) == expected:
            assert scanned(slave) == (records, end)
            return records
        assert time.monotonic() < deadline, f"the slave has {scanned(slave)}, the master {(records, end)}"
        await asyncio.sleep(POLL_S)


async def check_readable(address: str) -> None:
    found = await everything(address, TOPIC, MESSAGES)
    assert sorted(bytes(message.body) for message in found) == sorted(body(number) for number in range(MESSAGES))


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_RocketMQ_follows_our_master(jars: str, namesrv: ServerProcess, tmp_path: Path) -> None:
    (ha_port,) = free_ports(1)
    # RocketMQ's slaves copy the metadata through the VIP port.
    settings = {
        **SETTINGS,
        "haListenPort": ha_port,
        "brokerRole": "SYNC_MASTER",
        "slaveTimeout": 10_000,
        "listenPort": port_with_vip(),
        "vipPortEnable": True,
    }
    ours = broker_process(tmp_path / "ours", namesrv=namesrv.address, settings=settings)
    slave = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": 1, "haListenPort": free_ports(1)[0]}
    java = JavaBroker(tmp_path / "java", tmp_path / "java" / "store", jars, namesrv.address, slave)
    try:
        ours.start()
        await prepare(namesrv.address)
        java.start()
        await until_in_sync(ours)
        # Each of these is acknowledged by RocketMQ too.
        await send(namesrv.address, 0, MESSAGES // 2)
        java.stop()
        java.start()
        await until_in_sync(ours)
        await send(namesrv.address, MESSAGES // 2, MESSAGES - MESSAGES // 2)
        records = await until_equal(tmp_path / "ours" / "store", tmp_path / "java" / "store")
        assert records >= MESSAGES
        await until_known(tmp_path / "java" / "store")
        ours.kill()
        # What was acknowledged is read from RocketMQ, which is all there is now.
        await check_readable(namesrv.address)
        java.stop()
    finally:
        java.kill()
        ours.kill()
    print(f"{records} records in RocketMQ's log, equal to ours byte for byte")


def port_with_vip() -> int:
    """Return a free port whose VIP port is free too."""
    while True:
        (port,) = free_ports(1)
        with socket.socket() as vip, contextlib.suppress(OSError):
            vip.bind((HOST, port - 2))
            return port


async def until_known(store: Path) -> None:
    """Wait until RocketMQ has copied the topic, which it does every 10 s."""
    deadline = time.monotonic() + EQUAL_TIMEOUT_S
    while TOPIC not in (store / "config" / "topics.json").read_text():
        assert time.monotonic() < deadline, "RocketMQ does not copy the topics"
        await asyncio.sleep(POLL_S)


async def until_in_sync(master: ServerProcess) -> None:
    """Wait until the master counts a slave as in sync."""
    deadline = time.monotonic() + EQUAL_TIMEOUT_S
    while True:
        state = await asyncio.to_thread(master.state, "/v1/ha")
        if state is not None and any(slave["inSync"] for slave in state["slaves"]):
            return
        assert time.monotonic() < deadline, f"no slave in sync: {state}"
        await asyncio.sleep(POLL_S)


@pytest.mark.timeout(600)
async def test_our_slave_follows_RocketMQ(jars: str, namesrv: ServerProcess, tmp_path: Path) -> None:
    ha_port, port = free_ports(2)
    master = {**SETTINGS, "brokerRole": "ASYNC_MASTER", "haListenPort": ha_port, "listenPort": port, "brokerIP2": HOST}
    java = JavaBroker(tmp_path / "java", tmp_path / "java" / "store", jars, namesrv.address, master)
    slave = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": 1}
    ours = broker_process(tmp_path / "ours", namesrv=namesrv.address, settings=slave)
    try:
        java.start()
        # From the start: RocketMQ sends an empty slave only its newest file.
        ours.start()
        await prepare(namesrv.address)
        await send(namesrv.address, 0, MESSAGES // 2)
        ours.kill()
        await send(namesrv.address, MESSAGES // 2, MESSAGES // 4)
        ours.start()
        await send(namesrv.address, MESSAGES // 2 + MESSAGES // 4, MESSAGES - MESSAGES // 2 - MESSAGES // 4)
        records = await until_equal(tmp_path / "java" / "store", tmp_path / "ours" / "store")
        assert records >= MESSAGES
        java.kill()
        await check_readable(namesrv.address)
        assert ours.stop() == 0
    finally:
        java.kill()
        ours.kill()
    print(f"{records} records of RocketMQ's log, and ours is equal byte for byte")
