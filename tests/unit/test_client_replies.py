"""client/replies.py: RocketMQ's pushes are read, replies are those of its clients, nothing is left over."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from client.compression import Codec, compress, compressed_flag
from client.errors import ArgumentRefused, ClientClosed, MessageRefused, SendBacklogFull
from client.message import Message
from client.produce.outgoing import Packer
from client.replies import Replies, ReplyMessage, answering, is_request, reply_to
from remoting.bodies.registry import MessageQueue
from remoting.codec import decode
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import HeaderError
from remoting.headers.registry import ReplyMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.message import MessageExt
from remoting.msgid import UniqKeys
from remoting.properties import decode_properties, encode_properties

FRAMES = Path(__file__).parents[1] / "golden" / "data" / "replies.jsonl"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
ASKED = {
    "CLUSTER": "DefaultCluster",
    "REPLY_TO_CLIENT": "127.0.0.1@p1",
    "CORRELATION_ID": "6bfe1f3a-2562-4863-844d-a32df7585652",
    "TTL": "20000",
    "KEYS": "rq",
}


def frames(code: int) -> list[Command]:
    entries = [json.loads(line) for line in FRAMES.read_text().splitlines()]
    return [
        decode(bytes.fromhex(entry["frame"])[4:])
        for entry in entries
        if entry["requestCode"] == code and not entry["isResponse"]
    ]


def consumed(properties: dict[str, str], broker: str = "b") -> MessageExt:
    return MessageExt(
        "T", 0, 0, 0, 0, 0, 0, ("10.0.0.1", 1), 0, ("10.0.0.2", 2), 0, 0, b"hello", 0, properties, 0, broker
    )


def pushed(number: str, body: bytes = b"reply", *, sys_flag: int = 0, born: str = "10.0.0.1:1") -> Command:
    header = ReplyMessageRequestHeader(
        producerGroup="P",
        topic="R",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=sys_flag,
        bornTimestamp=1,
        flag=0,
        properties=encode_properties({"CORRELATION_ID": number}).decode(),
        bornHost=born,
        storeHost="/10.0.0.2:2",
        storeTimestamp=2,
    )
    return Command.request(PUSH, header, body)


def come(replies: Replies, request: Command) -> Command:
    answer = replies.table()[PUSH](None, request)  # type: ignore[arg-type] # no connection is needed
    assert isinstance(answer, Command)
    return answer


async def test_what_rocketmq_pushes_is_read() -> None:
    recorded = frames(PUSH)
    assert {frame.serialize_type for frame in recorded} == {0, 1}
    for frame in recorded:
        replies = Replies()
        number = decode_properties(frame.ext["properties"].encode())["CORRELATION_ID"]
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        replies._waiting[number] = future, None
        assert come(replies, frame).code == ResponseCode.SUCCESS
        message = future.result()
        assert message.body == bytes(frame.body)
        assert message.topic == "DefaultCluster_REPLY_TOPIC"
        assert message.born_host[0] == "127.0.0.1"
        assert message.properties["MSG_TYPE"] == "reply"
        assert int(message.properties["ARRIVE_TIME"]) > int(message.properties["PUSH_REPLY_TIME"])


def test_a_reply_is_sent_as_rocketmqs_client_sends_it() -> None:
    (frame, *_) = frames(RequestCode.SEND_REPLY_MESSAGE_V2)
    reply = reply_to(consumed(ASKED), b"reply to hello")
    packer = Packer(UniqKeys(), compress_over=4096, body_bytes_max=1 << 20, codec=Codec.ZLIB)
    request = packer.pack(reply).request("FeatReplyProducer", MessageQueue(reply.topic, "broker-a", 0), 4)
    assert request.code == frame.code == RequestCode.SEND_REPLY_MESSAGE_V2
    assert (request.body, request.ext.keys()) == (bytes(frame.body), frame.ext.keys())
    for name in frame.ext.keys() - {"g", "i"}:
        assert request.ext[name] == frame.ext[name], name
    ours = decode_properties((request.header(SendMessageRequestHeaderV2).properties or "").encode())
    theirs = decode_properties((frame.header(SendMessageRequestHeaderV2).properties or "").encode())
    # WAIT stands in what is sent again.
    assert ours.keys() - {"WAIT"} == theirs.keys()
    for name in theirs.keys() - {"UNIQ_KEY"}:
        assert ours[name] == theirs[name], name


def test_a_reply_goes_first_to_the_broker_that_its_request_came_from() -> None:
    packer = Packer(UniqKeys(), compress_over=4096, body_bytes_max=1 << 20, codec=Codec.ZLIB)
    queues = [MessageQueue("R", broker, 0) for broker in ("a", "b", "c")]
    out = packer.pack(reply_to(consumed(ASKED), b"x"))
    assert out.choice(queues)[0] == [queues[1]]
    out.attempts = 1
    assert out.choice(queues)[0] == queues
    assert packer.pack(reply_to(consumed(ASKED, "gone"), b"x")).choice(queues)[0] == queues
    assert packer.pack(Message("R", b"x")).choice(queues)[0] == queues


def test_a_reply_is_one_of_a_request() -> None:
    assert is_request(consumed(ASKED))
    for name in ("CLUSTER", "REPLY_TO_CLIENT", "CORRELATION_ID"):
        lacking = consumed({key: value for key, value in ASKED.items() if key != name})
        assert not is_request(lacking)
        with pytest.raises(MessageRefused, match=f"it has no {name}"):
            reply_to(lacking, b"x")


async def test_each_reply_ends_one_wait(caplog: pytest.LogCaptureFixture) -> None:
    replies = Replies(2)
    (one, first), (two, second) = replies.expect(1), replies.expect(2)
    with pytest.raises(SendBacklogFull, match="2 requests"):
        replies.expect(3)
    assert one != two
    for _ in range(2):
        # It may come twice: a replier tries again.
        assert come(replies, pushed(two)).code == ResponseCode.SUCCESS
    assert second.result().body == b"reply"
    assert not first.done()
    replies.forget(two)
    replies.forget(two)
    with caplog.at_level(logging.WARNING):
        assert come(replies, pushed(two)).code == ResponseCode.SUCCESS
    assert "nobody waits for" in caplog.text
    replies.close(1)
    with pytest.raises(ClientClosed):
        first.result()
    replies.forget(one)
    assert not replies


async def test_one_that_was_cancelled_meanwhile_is_no_harm() -> None:
    replies = Replies()
    number, future = replies.expect(None)
    future.cancel()
    assert come(replies, pushed(number)).code == ResponseCode.SUCCESS
    replies.close(None)


async def test_a_compressed_reply_is_unpacked_and_a_broken_one_handed_on(caplog: pytest.LogCaptureFixture) -> None:
    replies = Replies()
    for codec in Codec:
        number, future = replies.expect(None)
        come(replies, pushed(number, compress(b"long " * 100, codec), sys_flag=compressed_flag(codec), born="?"))
        assert future.result().body == b"long " * 100
        assert future.result().born_host == ("0.0.0.0", 0)
        assert future.result().store_host == ("10.0.0.2", 2)
    number, future = replies.expect(None)
    come(replies, pushed(number, b"no zlib", sys_flag=1))
    assert future.result().body == b"no zlib"
    assert number in caplog.text
    with pytest.raises(HeaderError):
        come(replies, Command.request(PUSH))


async def test_a_callback_that_answers_replies_to_requests_only() -> None:
    class Sends:
        def __init__(self) -> None:
            self.sent: list[Message] = []

        async def send(self, message: Message) -> None:
            self.sent.append(message)
            if message.body == b"lost":
                raise ClientClosed("closed")

    producer, seen = Sends(), list[MessageExt]()

    async def answer(message: MessageExt) -> bytes | None:
        seen.append(message)
        return {0: b"yes", 1: None, 2: b"lost"}[message.queue_id]

    callback = answering(producer, answer)
    messages = [consumed(ASKED), consumed({"KEYS": "plain"}), consumed(ASKED), consumed(ASKED)]
    messages[2].queue_id = 1
    messages[3].queue_id = 2
    await callback(messages)
    assert seen == messages
    assert [message.body for message in producer.sent] == [b"yes", b"lost"]
    assert all(isinstance(message, ReplyMessage) for message in producer.sent)
    with pytest.raises(ArgumentRefused, match="coroutine function"):
        answering(producer, lambda message: message.body)  # type: ignore[arg-type, return-value] # what is tested
