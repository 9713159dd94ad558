"""A real broker on free ports, and a client that speaks its protocol: what the tests of the broker share."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import (
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from remoting.message import MessageExt
from remoting.record import decode_records

# Whoever is alive answers by then on a busy machine too.
ASKED_S = 30.0
SMALL = {
    "listenPort": "0",
    "haListenPort": "-1",  # by default the port after listenPort, which another test may have
    "bindAddress": "127.0.0.1",
    "brokerName": "b",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


@contextlib.asynccontextmanager
async def running(folder: Path, values: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
    settings = {**SMALL, "storePathRootDir": str(folder), **(values or {})}
    config, store_config, unknown = load_broker_config(settings)
    assert unknown == []
    broker = Broker(config, store_config)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


def v2(topic: str = "T", properties: str = "TAGS\x01A\x02", queue_id: int = 0) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producerGroup="P",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=queue_id,
        sysFlag=0,
        bornTimestamp=1_700_000_000_000,
        flag=7,
        properties=properties,
        reconsumeTimes=0,
    )


def pull_header(offset: int = 0, *, topic: str = "T", tags: str = "*", suspend_ms: int = 0) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumerGroup="G",
        topic=topic,
        queueId=0,
        queueOffset=offset,
        maxMsgNums=32,
        sysFlag=6 if suspend_ms else 4,
        commitOffset=0,
        suspendTimeoutMillis=suspend_ms,
        subVersion=0,
        subscription=tags,
        expressionType="TAG",
    )


async def ask(
    client: RemotingClient, broker: Broker, code: int, header: Header | None = None, body: bytes = b"", kind: int = 0
) -> Command:
    request = Command.request(code, header, body)
    request.serialize_type = kind
    return await client.invoke(broker.address, request, ASKED_S)


async def send(
    client: RemotingClient, broker: Broker, body: bytes = b"body", properties: str = "TAGS\x01A\x02"
) -> Command:
    answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, v2(properties=properties), body)
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer


def messages(answer: Command) -> list[MessageExt]:
    return decode_records(memoryview(answer.body))
