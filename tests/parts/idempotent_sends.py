"""Sends by raw frames that ask to be stored once, and what is stored of them."""

import asyncio
from typing import NamedTuple

from remoting.client import RemotingClient
from remoting.codec import encode
from remoting.codes import MessageSysFlag, RequestCode
from remoting.command import Command
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.record import encode_batch


class Told(NamedTuple):
    """An answer to a send, as far as two of them must be equal."""

    code: int
    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str


def told(answer: Command) -> Told:
    ext = answer.ext
    return Told(answer.code, ext["msgId"], int(ext["queueId"]), int(ext["queueOffset"]), ext.get("transactionId", ""))


def once(
    key: str, *, topic: str = "T", queue_id: int = 0, properties: str = "", asks: bool = True, body: bytes = b"body"
) -> Command:
    """Return a send; `asks`: with our clients' mark."""
    header = _header(topic, queue_id, f"UNIQ_KEY\x01{key}\x02{properties}", asks)
    return Command.request(RequestCode.SEND_MESSAGE_V2, header, body)


def batch_once(keys: list[str], *, topic: str = "T", queue_id: int = 0) -> Command:
    body = encode_batch([(0, b"body of " + key.encode(), f"UNIQ_KEY\x01{key}\x02".encode()) for key in keys])
    header = _header(topic, queue_id, "", asks=True)
    header.batch = True
    return Command.request(RequestCode.SEND_BATCH_MESSAGE, header, body)


def _header(topic: str, queue_id: int, properties: str, asks: bool) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producerGroup="P",
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=queue_id,
        sysFlag=int(MessageSysFlag.IDEMPOTENT) if asks else 0,
        bornTimestamp=1_700_000_000_000,
        flag=0,
        properties=properties,
        reconsumeTimes=0,
    )


async def sent(client: RemotingClient, address: str, request: Command, timeout: float = 5.0) -> Told:
    return told(await client.invoke(address, request, timeout))


async def lost_answer(address: str, request: Command) -> None:
    """Send a request and be gone before its answer."""
    host, _, port = address.rpartition(":")
    _reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(encode(request))
    await writer.drain()
    writer.close()
