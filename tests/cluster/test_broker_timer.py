"""Timer messages on real brokers: in time, over restarts, recalled."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import RecallMessageRequestHeader
from remoting.message import MessageExt
from tests.cluster.broker_peer import ask, messages, pull_header, running, send

RECALLS = {"recallMessageEnable": "true", "timerPrecisionMs": "100"}


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def pulled(client: RemotingClient, broker: Broker, count: int) -> list[MessageExt]:
    """Return the first messages of the queue, as soon as there are so many."""
    async with asyncio.timeout(20):
        while True:
            offset = broker.store.max_offset("T", 0)
            if offset >= count:
                return messages(await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header()))
            await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(offset, suspend_ms=2000))


def timer(key: str, name: str, value: int) -> str:
    return f"TAGS\x01A\x02UNIQ_KEY\x01{key}\x02{name}\x01{value}\x02"


async def recall(client: RemotingClient, broker: Broker, handle: str, topic: str = "T") -> Command:
    header = RecallMessageRequestHeader(producerGroup="P", topic=topic, recallHandle=handle)
    return await ask(client, broker, RequestCode.RECALL_MESSAGE, header)


async def test_messages_come_in_time_and_a_restart_forgets_none(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, RECALLS) as broker:
        began = time.time()
        await send(client, broker, b"plain")
        answer = await send(client, broker, b"ms", timer("K1", "TIMER_DELAY_MS", 700))
        assert set(answer.ext) >= {"recallHandle", "msgId", "transactionId", "queueId", "queueOffset"}
        await send(client, broker, b"past", timer("K2", "TIMER_DELIVER_MS", int(began * 1000) - 5000))
        await send(client, broker, b"sec", timer("K3", "TIMER_DELAY_SEC", 2))
        found = await pulled(client, broker, 3)
        assert [message.body for message in found] == [b"plain", b"past", b"ms"]
        assert time.time() - began >= 0.7
        handle = (await send(client, broker, b"never", timer("K4", "TIMER_DELAY_SEC", 2))).ext["recallHandle"]
        wrong = await recall(client, broker, handle, "TBW102")
        assert (wrong.code, wrong.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        done = await recall(client, broker, handle)
        assert (done.code, done.ext["msgId"]) == (0, "K4")
    async with running(tmp_path, RECALLS) as broker:
        await send(client, broker, b"last", timer("K5", "TIMER_DELAY_MS", 2500))
        found = await pulled(client, broker, 5)
        assert [message.body for message in found] == [b"plain", b"past", b"ms", b"sec", b"last"]
        assert time.time() - began >= 2.0
