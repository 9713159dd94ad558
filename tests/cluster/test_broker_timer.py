"""Timer messages on real brokers: in time, over restarts, recalled."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from chaos.host.processes import free_ports
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectError
from remoting.headers.registry import RecallMessageRequestHeader
from remoting.message import MessageExt
from remoting.record import decode_record
from tests.cluster.broker_peer import SMALL, ask, messages, pull_header, running, send, v2
from tests.cluster.test_broker_delays import BROKER

RECALLS = {"recallMessageEnable": "true", "timerPrecisionMs": "100"}


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def pulled(client: RemotingClient, broker: Broker, count: int) -> list[MessageExt]:
    """Return the first messages of the queue, as soon as there are so many."""
    async with asyncio.timeout(60):
        while True:
            offset = broker.store.max_offset("T", 0)
            if offset >= count:
                # The next one may have come meanwhile.
                found = messages(await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header()))
                return found[:count]
            await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(offset, suspend_ms=2000))


def timer(key: str, name: str, value: int) -> str:
    return f"TAGS\x01A\x02UNIQ_KEY\x01{key}\x02{name}\x01{value}\x02"


async def recall(client: RemotingClient, broker: Broker, handle: str, topic: str = "T") -> Command:
    header = RecallMessageRequestHeader(producerGroup="P", topic=topic, recallHandle=handle)
    return await ask(client, broker, RequestCode.RECALL_MESSAGE, header)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_messages_come_in_time_and_a_restart_forgets_none(
    tmp_path: Path, client: RemotingClient, flush: str
) -> None:
    async with running(tmp_path, {**RECALLS, "flushDiskType": flush}) as broker:
        began = time.time()
        await send(client, broker, b"plain")
        # Before the one that follows, or that might be due by then.
        await send(client, broker, b"past", timer("K2", "TIMER_DELIVER_MS", int(began * 1000) - 5000))
        answer = await send(client, broker, b"ms", timer("K1", "TIMER_DELAY_MS", 700))
        assert set(answer.ext) >= {"recallHandle", "msgId", "transactionId", "queueId", "queueOffset"}
        await send(client, broker, b"sec", timer("K3", "TIMER_DELAY_SEC", 2))
        found = await pulled(client, broker, 3)
        assert [message.body for message in found] == [b"plain", b"past", b"ms"]
        assert time.time() - began >= 0.7
        # Not due before it is recalled, also on a busy machine.
        handle = (await send(client, broker, b"never", timer("K4", "TIMER_DELAY_SEC", 6))).ext["recallHandle"]
        wrong = await recall(client, broker, handle, "TBW102")
        assert (wrong.code, wrong.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        done = await recall(client, broker, handle)
        assert (done.code, done.ext["msgId"]) == (0, "K4")
    async with running(tmp_path, RECALLS) as broker:
        await send(client, broker, b"last", timer("K5", "TIMER_DELAY_MS", 6500))
        found = await pulled(client, broker, 5)
        assert [message.body for message in found] == [b"plain", b"past", b"ms", b"sec", b"last"]
        assert time.time() - began >= 2.0


async def invoke(client: RemotingClient, port: int, request: Command) -> Command:
    """Ask a process that may still be starting."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.invoke(f"127.0.0.1:{port}", request, 10.0)
            except ConnectError:
                await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_killed_while_it_delivers_and_again_each_message_comes_once(
    tmp_path: Path, client: RemotingClient
) -> None:
    count = 400
    (port,) = free_ports(1)
    values = {**SMALL, **RECALLS, "storePathRootDir": str(tmp_path), "listenPort": str(port)}
    values |= {"vipPortEnable": "false", "httpEnable": "false"}
    command = (sys.executable, "-c", BROKER, *(f"{key}={value}" for key, value in values.items()))
    child = await asyncio.create_subprocess_exec(*command)
    recalled = []
    try:
        for number in range(count):
            properties = timer(f"K{number}", "TIMER_DELAY_MS", 4000 + number * 10)
            request = Command.request(RequestCode.SEND_MESSAGE_V2, v2(properties=properties), b"%d" % number)
            answer = await invoke(client, port, request)
            assert answer.code == 0
            if number % 20 == 7:
                header = RecallMessageRequestHeader(
                    producerGroup="P", topic="T", recallHandle=answer.ext["recallHandle"]
                )
                answer = await invoke(client, port, Command.request(RequestCode.RECALL_MESSAGE, header))
                recalled += [number] if answer.code == 0 else []
        for delivered in (20, 60):
            # It is killed in the middle of what it does, twice.
            offset = 0
            while offset < delivered:
                pull = Command.request(RequestCode.PULL_MESSAGE, pull_header(offset, suspend_ms=2000))
                answer = await invoke(client, port, pull)
                offset = int(answer.ext["nextBeginOffset"])
            child.kill()
            await child.wait()
            child = await asyncio.create_subprocess_exec(*command)
            await invoke(client, port, Command.request(RequestCode.PULL_MESSAGE, pull_header()))
    finally:
        child.kill()
        await child.wait()
    assert len(recalled) > 10
    async with running(tmp_path, RECALLS) as broker:
        async with asyncio.timeout(60):
            while broker.store.max_offset("T", 0) < count - len(recalled):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        found = [broker.store.record_at(each.physical_offset) for each in broker.store.queue_entries("T", 0, 0, 10_000)]
        bodies = [int(decode_record(view).body) for view in found if view is not None]
    assert sorted(bodies) == sorted(set(range(count)) - set(recalled))
