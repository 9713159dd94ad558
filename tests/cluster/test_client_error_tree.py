"""One tree of errors: whatever a server answers, the library raises ClientErrors, and in time."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.errors import ClientError, RequestFailed, RequestRefused
from remoting.bodies.group import SubscriptionGroupConfig
from remoting.bodies.registry import MessageQueue
from remoting.codec import encode
from remoting.command import Command
from remoting.errors import InvokeError, ResponseError
from remoting.framing import FrameReader
from remoting.message import MessageExt

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WITHIN_S = 20.0

ARGUMENTS: dict[str, Any] = {
    "config": SubscriptionGroupConfig(groupName="g"),
    "message": MessageExt("T", 0, 0, 0, 0, 0, 0, ("127.0.0.1", 1), 0, ("127.0.0.1", 2), 0, 0, b"", 0, {}, 1),
    "queue": MessageQueue("T", "b", 0),
    "values": {"brokerIP1": "127.0.0.1"},
    "body": {},
    "step": lambda _text: None,
    "peers": "n0-127.0.0.1:1",
    "offset": 0,
    "msg_id": "7F00000100002A9F0000000000000000",
}


def answering(*, code: int = 0, body: bytes = b"", close: bool = False) -> Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(1 << 24)
        while data := await reader.read(65536):
            for request in frames.feed(data):
                if close:
                    writer.close()
                    return
                answer = Command.response(code, "not now", body=body)
                answer.flag |= 1
                answer.opaque, answer.serialize_type = request.opaque, request.serialize_type
                writer.write(encode(answer))
        writer.close()

    return serve


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


SERVERS = {
    "refuses": answering(code=1),
    "busy": answering(code=2),
    "not here": answering(code=17),
    "garbage": answering(body=b"\x00garbage"),
    "nothing": answering(),
    "wrong kind": answering(body=b'{"brokerAddrTable":7,"queueDatas":7,"table":7}'),
    "closes": answering(close=True),
}


def asks(member: object) -> bool:
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.timeout(120)
async def test_an_administrator_gets_client_errors_alone_and_in_time(kind: str) -> None:
    async with serving(SERVERS[kind]) as address:
        failed = 0
        for name, method in inspect.getmembers(AdminClient, asks):
            if name.startswith("_") or name in {"start", "close"}:
                continue
            arguments = {
                parameter.name: address if parameter.name == "address" else ARGUMENTS.get(parameter.name, "x")
                for parameter in list(inspect.signature(method).parameters.values())[1:]
                if parameter.default is inspect.Parameter.empty or parameter.name == "address"
            }
            # One for each: attempts at an address that always fails come ever later.
            async with AdminClient(address, timeout=0.5) as admin:
                try:
                    async with asyncio.timeout(WITHIN_S):
                        if inspect.isasyncgenfunction(method):
                            _ = [each async for each in method(admin, **arguments)]
                        else:
                            await method(admin, **arguments)
                except ClientError:
                    failed += 1
        assert failed or kind == "nothing"


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_polling_consumer_gets_client_errors_alone(kind: str) -> None:
    async with serving(SERVERS[kind]) as address, LitePullConsumer("g", address) as consumer:
        queue = ARGUMENTS["queue"]
        for call in (
            lambda: consumer.queues("T"),
            lambda: consumer.seek_to_begin(queue),
            lambda: consumer.seek_to_end(queue),
            lambda: consumer.committed(queue),
            lambda: consumer.offset_for_time(queue, 0),
            lambda: consumer.position(queue, timeout=0.1),
        ):
            with pytest.raises(ClientError):
                async with asyncio.timeout(WITHIN_S):
                    await call()


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_consumer_that_receives_gets_client_errors_alone_and_in_time(kind: str) -> None:
    async with serving(SERVERS[kind]) as address:
        consumer = SimpleConsumer("g", address)
        async with consumer:
            consumer.subscribe("T")
            for _ in range(2):
                with pytest.raises(ClientError):
                    async with asyncio.timeout(WITHIN_S):
                        await consumer.receive(wait=0.2)


class Broken:
    """Offsets that nobody can keep, by an error of the layer below."""

    async def persist(self, _queues: object = None) -> list[MessageQueue]:
        raise ResponseError(17, "not now", "b:1")


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, SimpleConsumer])
async def test_a_consumer_that_cannot_start_says_so_by_a_client_error(
    kind: type[PushConsumer | LitePullConsumer | SimpleConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        raise ResponseError(17, "not now", "b:1")

    consumer = kind("g", "127.0.0.1:1")
    monkeypatch.setattr(consumer.instance, "enter", refused)
    if not isinstance(consumer, LitePullConsumer):
        consumer.subscribe("T")
    if isinstance(consumer, PushConsumer):
        consumer.on_message(lambda _messages: None)
    with pytest.raises(RequestRefused) as told:
        await consumer.start()
    assert told.value.code == 17


async def test_what_a_push_consumer_cannot_do_is_told_by_client_errors() -> None:
    offsets: Any = Broken()
    consumer = PushConsumer("g", "127.0.0.1:1")
    consumer._offsets, consumer._started = offsets, True
    with pytest.raises(RequestRefused, match="not now"):
        await consumer.commit()


async def test_a_refusal_keeps_its_code_and_is_what_it_was_before() -> None:
    async with serving(answering(code=17)) as address, AdminClient(address) as admin:
        with pytest.raises(RequestRefused) as refused:
            await admin.broker_config(address)
    assert (refused.value.code, refused.value.remark) == (17, "not now")
    assert isinstance(refused.value, ResponseError)
    assert isinstance(refused.value.__cause__, ResponseError)


async def test_nobody_reached_is_told_as_not_sent() -> None:
    async with AdminClient("127.0.0.1:1") as admin:
        with pytest.raises(RequestFailed) as failed:
            await admin.broker_config("127.0.0.1:1")
    assert not failed.value.sent
    assert isinstance(failed.value, InvokeError)
