"""Requests and their replies: asked by clients of the library and by bare ones, answered by whoever reads the topic.

Bare clients note every reply that a broker brings them; the library's show what an application gets. Each request is
answered once, with its own name in the reply: a reply that is another's, comes again or is withheld shows (W-replies).
"""

import asyncio
import random
import time
from typing import Any

from chaos.load.clients import BROKER, TIMEOUT_S, LoadClient, connections
from chaos.load.workload import BODY_BYTES, PAUSE_S, Load, Pace, Plain, keep_known, opened
from client.api import BrokerApi
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer
from client.replies import is_request, reply_to
from pipeline.history.body import Tag, digest, make_body, read_tag
from pipeline.history.replies import WORKLOAD
from pipeline.history.rows import UNKNOWN, Act, Kind
from remoting.bodies.client import HeartbeatData, ProducerData
from remoting.bodies.registry import MessageQueue
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import InvokeError, ResponseError
from remoting.headers.registry import ReplyMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.message import MessageExt
from remoting.msgid import parse_offset_msg_id
from remoting.properties import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    PROPERTY_UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from remoting.topics import AUTO_CREATE_TOPIC

TOPIC = "chaos_requests"
ASKERS, REPLIERS = "chaos_askers", "chaos_repliers"
QUEUES = 4
BARE, LIBRARY = 12, 12
# What a request has until its deadline, in seconds; a client that hangs for so much longer is given up.
BOUND_S = 3.0
HANGS_S = 10.0
# A reply is sent once: whoever asked has given up by the time at which it would be sent again.
ANSWER_S = 2.0
READ_EVERY_S = 0.02
REPLY = b"reply"


class RequestsWorkload(Plain):
    """Askers of both kinds, and one who answers for each queue."""

    name = WORKLOAD

    def __init__(self) -> None:
        super().__init__({TOPIC: QUEUES})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Ask until `stop`, and wait for the ends of what was asked."""
        pace, over = Pace(load.rate), asyncio.Event()
        bare = _Bare(load)
        try:
            async with (
                opened(self.name) as remoting,
                Producer(ASKERS, load.namesrv, send_timeout=BOUND_S) as producer,
                asyncio.TaskGroup() as around,
            ):
                around.create_task(keep_known(load, bare.client("greeter"), bare.greeting, over))
                for queue in range(QUEUES):
                    around.create_task(_answer(load, remoting, queue, over))
                async with asyncio.TaskGroup() as askers:
                    for number in range(BARE):
                        askers.create_task(_keep_asking(load, _BareAsker(load, bare, number), pace, stop))
                    for number in range(LIBRARY):
                        asker = _LibraryAsker(load, load.client(remoting, f"caller{number}"), producer)
                        askers.create_task(_keep_asking(load, asker, pace, stop))
                over.set()
        finally:
            await bare.remoting.close()


class _Bare:
    """Connections over which brokers bring the replies to bare askers, and the requests that these have made."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.remoting = connections("requests", {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._came})
        self.client_id = f"{ASKERS}@bare"
        self.greeting = HeartbeatData(clientID=self.client_id, producerDataSet=[ProducerData(groupName=ASKERS)])
        self.asked: dict[str, Tag] = {}
        self.waiting: dict[str, asyncio.Future[int]] = {}

    def client(self, name: str) -> LoadClient:
        """Return a recorded client of these connections."""
        return self._load.client(self.remoting, name)

    def _came(self, connection: Connection, request: Command) -> Command:
        header = request.header(ReplyMessageRequestHeader)
        number = decode_properties((header.properties or "").encode()).get(PROPERTY_CORRELATION_ID, "")
        tag, recorder = self.asked.get(number, Tag(UNKNOWN, UNKNOWN, 0)), self._load.recorder
        found = digest(request.body)
        brought = recorder.invoke(
            Act.REPLY, recorder.process(), topic=TOPIC, broker=BROKER, address=connection.address,
            writer=tag.writer, counter=tag.counter, attempt=tag.attempt, digest=_expected(tag),
        )  # fmt: skip
        recorder.ok(brought, value=found)
        waits = self.waiting.get(number)
        if waits is not None and not waits.done():
            waits.set_result(found)
        return Command.response(ResponseCode.SUCCESS)


class _Asker:
    """One who asks one thing after the other."""

    def __init__(self, load: Load, client: LoadClient) -> None:
        self.load, self.client = load, client

    async def ask(self, tag: Tag, queue: int, body: bytes) -> bool:
        """Ask, and record it with its end; tell whether the reply came."""
        raise NotImplementedError

    async def request(self, tag: Tag, queue: int, told: Any) -> bool:
        """Record a request whose reply `told` gets."""
        deadline = self.load.recorder.now() + int(BOUND_S * 1e9)
        done = await self.client.call(
            Act.REQUEST, self.load.leaders.address, told, topic=TOPIC, queue=queue, writer=tag.writer,
            counter=tag.counter, attempt=tag.attempt, digest=_expected(tag), delay_until=deadline,
        )  # fmt: skip
        return done.kind == Kind.OK


class _BareAsker(_Asker):
    def __init__(self, load: Load, bare: _Bare, number: int) -> None:
        super().__init__(load, bare.client(f"asker{number}"))
        self._bare = bare
        self._sender = bare.client(f"asker{number}-sender")

    async def ask(self, tag: Tag, queue: int, body: bytes) -> bool:
        bare, number = self._bare, f"{tag.writer}-{tag.counter}"
        bare.asked[number] = tag
        reply = bare.waiting[number] = asyncio.get_running_loop().create_future()
        sending = asyncio.create_task(self._send(tag, queue, body, number))

        async def told() -> dict[str, Any]:
            async with asyncio.timeout(BOUND_S):
                await asyncio.wait({sending, reply}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and not reply.done() and sending.result() == Kind.FAIL:
                    raise InvokeError("the request was refused")
                return {"value": await reply}

        try:
            return await self.request(tag, queue, told)
        finally:
            del bare.waiting[number]
            await sending

    async def _send(self, tag: Tag, queue: int, body: bytes, number: str) -> str:
        """Send the request's message, once; return how that ended."""
        address = self.load.leaders.address
        properties = {
            PROPERTY_UNIQ_KEY: f"{tag.writer:08X}{tag.counter:016X}{tag.attempt:08X}",
            PROPERTY_CORRELATION_ID: number,
            PROPERTY_REPLY_TO_CLIENT: self._bare.client_id,
            PROPERTY_TTL: str(int(BOUND_S * 1000)),
        }
        request = Command.request(RequestCode.SEND_MESSAGE_V2, _header(ASKERS, TOPIC, queue, properties), body)

        async def told() -> dict[str, Any]:
            answer = await _asked(self._sender.api, address, request, TIMEOUT_S)
            position = parse_offset_msg_id(answer.ext["msgId"])[1]
            return {"offset": int(answer.ext["queueOffset"]), "position": position}

        done = await self._sender.call(Act.SEND, address, told, **_sent(tag, queue, body))
        if done.kind != Kind.OK:
            self.load.leaders.failed(address)
        return done.kind


class _LibraryAsker(_Asker):
    def __init__(self, load: Load, client: LoadClient, producer: Producer) -> None:
        super().__init__(load, client)
        self._producer = producer

    async def ask(self, tag: Tag, queue: int, body: bytes) -> bool:
        recorder = self.load.recorder
        sent = recorder.invoke(Act.SEND, recorder.process(), broker=BROKER, **_sent(tag, queue, body))

        async def told() -> dict[str, Any]:
            asking = self._producer.request(
                Message(TOPIC, body), queue=MessageQueue(TOPIC, BROKER, queue), timeout=BOUND_S
            )
            try:
                reply = await asyncio.wait_for(asking, BOUND_S + HANGS_S)
            except ClientError as error:
                # Whether its message is stored, nobody knows.
                raise TimeoutError(str(error)) from error
            return {"value": digest(reply.body)}

        replied = await self.request(tag, queue, told)
        if replied:
            # Somebody has read it: it is stored, wherever.
            recorder.ok(sent)
        else:
            recorder.info(sent, "no reply")
        return replied


async def _keep_asking(load: Load, asker: _Asker, pace: Pace, stop: asyncio.Event) -> None:
    rng, writer, counter = random.Random(load.rng.random()), load.names.writer(), 0
    rest = rng.randbytes(BODY_BYTES)
    while not stop.is_set():
        await pace.turn()
        tag = Tag(writer, counter, 0)
        counter += 1
        if not await asker.ask(tag, rng.randrange(QUEUES), make_body(tag, rest)):
            await asyncio.sleep(PAUSE_S)


async def _answer(load: Load, remoting: RemotingClient, queue: int, over: asyncio.Event) -> None:
    """Read a queue, and answer every request in it once."""
    client, at = load.client(remoting, f"replier{queue}"), 0
    found: list[MessageExt] = []
    while not over.is_set():
        address = load.leaders.address
        done = await client.poll(address, REPLIERS, TOPIC, queue, at, seen=found.extend)
        if done.kind == Kind.OK:
            at = max(done.value, 0)
        else:
            load.leaders.failed(address)
        requests = [message for message in found if message.queue_offset < at and is_request(message)]
        found.clear()
        await asyncio.gather(*(_reply(load, load.client(remoting, "answer"), message) for message in requests))
        if not requests:
            await asyncio.sleep(READ_EVERY_S)


async def _reply(load: Load, client: LoadClient, message: MessageExt) -> None:
    tag = read_tag(message.body)
    if tag is None:
        return
    address, body = load.leaders.address, make_body(tag, REPLY)
    reply = reply_to(message, body)
    header = _header(REPLIERS, reply.topic, 0, reply.properties)
    request = Command.request(RequestCode.SEND_REPLY_MESSAGE_V2, header, body)

    async def told() -> dict[str, Any]:
        await _asked(client.api, address, request, ANSWER_S)
        return {}

    await client.call(
        Act.ANSWER, address, told, topic=TOPIC, queue=message.queue_id, writer=tag.writer, counter=tag.counter,
        attempt=tag.attempt, digest=digest(body),
    )  # fmt: skip


async def _asked(api: BrokerApi, address: str, request: Command, timeout_s: float) -> Command:
    answer = await api.remoting.invoke(address, request, timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, address)
    return answer


def _expected(tag: Tag) -> int:
    """Return the digest of the reply that belongs to a request."""
    return digest(make_body(tag, REPLY)) if tag.writer != UNKNOWN else 0


def _sent(tag: Tag, queue: int, body: bytes) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "queue": queue,
        "writer": tag.writer,
        "counter": tag.counter,
        "attempt": tag.attempt,
        "digest": digest(body),
    }


def _header(group: str, topic: str, queue: int, properties: dict[str, str]) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producerGroup=group,
        topic=topic,
        defaultTopic=AUTO_CREATE_TOPIC,
        defaultTopicQueueNums=QUEUES,
        queueId=queue,
        sysFlag=0,
        bornTimestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=encode_properties(properties).decode(),
    )
