import pytest

from client.compression import Codec
from client.errors import MessageRefused
from client.message import (
    BODY_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    Message,
    batch_body,
    check_batch,
    check_message,
    split_batch,
)
from client.produce.outgoing import Packer
from remoting.bodies.registry import MessageQueue
from remoting.codes import RequestCode
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.msgid import UniqKeys
from remoting.properties import decode_properties
from remoting.record import split_batch as elements


def packer(compress_over: int = 4096, codec: Codec = Codec.ZLIB) -> Packer:
    return Packer(UniqKeys(), compress_over=compress_over, body_bytes_max=BODY_BYTES_MAX, codec=codec, idempotent=False)


def test_properties_are_written_as_brokers_read_them() -> None:
    message = Message(
        "T", b"x", tags="late", keys=["AA1", "DL2"], properties={"from": "Zürich"}, delay_level=3, wait=False
    )
    assert decode_properties(message.properties_text("ID").encode()) == {
        "UNIQ_KEY": "ID",
        "WAIT": "false",
        "TAGS": "late",
        "KEYS": "AA1 DL2",
        "DELAY": "3",
        "from": "Zürich",
    }


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("T", b"x", properties={"KEYS": "k"}), "RocketMQ's own"),
        (Message("T", b"x", properties={"UNIQ_KEY": "k"}), "RocketMQ's own"),
        (Message("T", b"x", properties={"a": ""}), "empty name or value"),
        (Message("T", b"x", properties={"a": "b\x01c"}), "separate properties"),
        (Message("T", b"x", tags="t\x02"), "separate properties"),
        (Message("T", b"x", properties={"a": "ü" * PROPERTIES_BYTES_MAX}), "put data in the body"),
    ],
)
def test_properties_that_cannot_be_written_are_refused(message: Message, words: str) -> None:
    with pytest.raises(MessageRefused, match=words):
        message.properties_text("ID")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("", b"x"), "blank"),
        (Message("no blanks", b"x"), "illegal characters"),
        (Message("T", b""), "body is empty"),
        (Message("T", b"12345"), "5 bytes, 4 at most"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused(message: Message, words: str) -> None:
    with pytest.raises(MessageRefused, match=words):
        check_message(message, 4)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ([Message("A", b"x"), Message("B", b"x")], "one topic"),
        ([Message("A", b"x"), Message("A", b"x", wait=False)], "one `wait`"),
        ([Message("A", b"x", delay_level=1)], "delay"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("A", b"x"), Message("A", b"x", properties={"MSG_TYPE": "reply"})], "reply"),
    ],
)
def test_what_cannot_travel_as_a_batch_is_refused(messages: list[Message], words: str) -> None:
    with pytest.raises(MessageRefused, match=words):
        check_batch(messages, BODY_BYTES_MAX)


def test_a_batch_too_long_is_refused_and_can_be_split() -> None:
    messages = [Message("T", bytes(100), keys=str(number)) for number in range(50)]
    with pytest.raises(MessageRefused, match="split_batch"):
        batch_body(messages, ["0" * 32] * 50, 2000)
    batches = list(split_batch(messages, 2000))
    assert [message for batch in batches for message in batch] == messages
    assert len(batches) < 50
    for batch in batches:
        assert len(batch_body(batch, ["0" * 56] * len(batch), 2000)) <= 2000


def test_a_batch_holds_each_message_with_its_own_id() -> None:
    out = packer().pack([Message("T", b"one", keys="1"), Message("T", b"two", tags="t")])
    assert out.code == RequestCode.SEND_BATCH_MESSAGE
    found = [(bytes(body), decode_properties(properties)) for _flag, body, properties in elements(out.body)]
    assert [body for body, _properties in found] == [b"one", b"two"]
    assert ",".join(properties["UNIQ_KEY"] for _body, properties in found) == out.msg_id


def test_long_bodies_are_compressed_when_that_helps() -> None:
    text, noise = b"flight " * 1000, UniqKeys().next().encode()
    compressed = packer().pack(Message("T", text))
    assert (compressed.sys_flag, len(compressed.body) < len(text)) == (0x301, True)
    assert packer(codec=Codec.LZ4).pack(Message("T", text)).sys_flag == 0x101
    assert packer(compress_over=1).pack(Message("T", noise[:20])).body == noise[:20]
    assert packer().pack(Message("T", text[:4096])).sys_flag == 0


def test_the_request_names_queue_and_broker() -> None:
    out = packer().pack(Message("T", b"x", flag=7))
    header = out.request("group", MessageQueue("T", "b", 3), 4).header(SendMessageRequestHeaderV2)
    assert (header.producerGroup, header.topic, header.queueId, header.bname) == ("group", "T", 3, "b")
    assert (header.defaultTopic, header.defaultTopicQueueNums, header.flag, header.batch) == ("TBW102", 4, 7, False)


def test_a_priority_is_a_number_from_0_on() -> None:
    assert "_SYS_MSG_PRIORITY_\x010\x02" in Message("T", b"x", priority=0).properties_text("id")
    assert "PRIORITY" not in Message("T", b"x").properties_text("id")
    check_message(Message("T", b"x", priority=7), 10)
    for wrong in (-1, 2**31, "3", 1.0, True):
        with pytest.raises(MessageRefused, match="priority"):
            check_message(Message("T", b"x", tags="a", priority=wrong), 10)  # type: ignore[arg-type] # what is tested
    with pytest.raises(MessageRefused, match="priority cannot be part of a batch"):
        check_batch([Message("T", b"x"), Message("T", b"x", priority=1)], 100)
    with pytest.raises(MessageRefused, match="own; use another"):
        Message("T", b"x", properties={"_SYS_MSG_PRIORITY_": "1"}).properties_text("id")
