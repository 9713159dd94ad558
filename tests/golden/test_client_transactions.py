"""Transactions, timer messages and recalls as RocketMQ 5.5.0's Java client sent them: ours say the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from client.errors import MessageRefused
from client.message import Message, SendResult, SendStatus
from client.produce.transaction import HalfMessage, Transaction, TransactionState, end_header, half_message
from client.produce.transactions import TransactionProducer
from client.timers import TimerHandle, read_handle
from remoting.bodies.registry import MessageQueue
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import (
    RecallMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    encode_header,
)
from remoting.properties import decode_properties

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "transactions-timers.jsonl").read_text("utf-8").splitlines()
]
KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["JSON", "ROCKETMQ"])


def frames(kind: int, code: int, *, answers: bool = False) -> list[Command]:
    """Recorded requests of a code, or the answers to them, in their order."""
    return [
        decode(bytes.fromhex(row["frame"])[4:])
        for row in ROWS
        if (row["serializeType"], row["requestCode"], row["isResponse"]) == (kind, code, answers)
    ]


def properties(request: Command) -> dict[str, str]:
    return decode_properties((request.header(SendMessageRequestHeaderV2).properties or "").encode())


async def packed(group: str, message: Message) -> Any:
    """What is sent of a half message; nobody is asked for a route."""
    asked = lambda _message: TransactionState.UNKNOWN  # noqa: E731  # in short
    async with TransactionProducer(group, "127.0.0.1:1", on_check=asked, idempotent=False) as producer:
        half: Any = half_message(group, message, None)
        assert type(half) is HalfMessage
        sent: Any = half
        return producer._pack(sent)


@KINDS
async def test_a_half_message_has_the_properties_and_flag_of_the_java_client_s(kind: int) -> None:
    sent = [request for request in frames(kind, RequestCode.SEND_MESSAGE_V2) if "TRAN_MSG" in properties(request)]
    assert [bytes(request.body) for request in sent] == [b"commit", b"rollback", b"unknown-commit"]
    for request in sent:
        header = request.header(SendMessageRequestHeaderV2)
        message = Message("FeatTx", bytes(request.body), tags="Tx", keys=bytes(request.body).decode())
        out = await packed(header.producerGroup, message)
        ours, theirs = decode_properties(out.properties.encode()), properties(request)
        assert ours == theirs | {"UNIQ_KEY": out.msg_id}
        assert out.sys_flag == header.sysFlag == 4


@KINDS
def test_the_end_of_a_transaction_says_what_the_java_client_said(kind: int) -> None:
    sent = [request for request in frames(kind, RequestCode.SEND_MESSAGE_V2) if "TRAN_MSG" in properties(request)]
    answered = {answer.opaque: answer for answer in frames(kind, RequestCode.SEND_MESSAGE_V2, answers=True)}
    ends = frames(kind, RequestCode.END_TRANSACTION)
    states = (TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN)
    for request, end, state in zip(sent, ends, states, strict=False):
        place = answered[request.opaque].header(SendMessageResponseHeader)
        result = SendResult(
            SendStatus.SEND_OK, properties(request)["UNIQ_KEY"], place.msgId,
            MessageQueue("FeatTx", "broker-a", place.queueId), place.queueOffset, place.transactionId,
        )  # fmt: skip
        tx = Transaction(Message("FeatTx", b"x"), result)
        tx.state = state
        assert encode_header(end_header("FeatTxGroup", tx)) == end.ext
        assert end.is_oneway
    assert len(ends) == 4


@KINDS
def test_a_delay_of_seconds_is_the_java_client_s(kind: int) -> None:
    timed = [request for request in frames(kind, RequestCode.SEND_MESSAGE_V2) if "TRAN_MSG" not in properties(request)]
    for request, delay, keys in zip(timed, (3, 345_600), ("soon", "long"), strict=True):
        ours = Message("FeatTimer", bytes(request.body), tags="D", keys=keys, delay=delay)
        theirs = properties(request)
        assert decode_properties(ours.properties_text(theirs["UNIQ_KEY"]).encode()) == theirs


@KINDS
def test_recall_handles_are_read_and_recalls_say_what_the_java_client_said(kind: int) -> None:
    (sent, *_), (answer, *_) = (
        frames(kind, RequestCode.SEND_MESSAGE_V2, answers=answers)[3:] for answers in (False, True)
    )
    handle = answer.header(SendMessageResponseHeader).recallHandle
    named = read_handle(handle)
    assert named == TimerHandle("FeatTimer", "broker-a", named.deliver_ms, properties(sent)["UNIQ_KEY"])
    born = sent.header(SendMessageRequestHeaderV2).bornTimestamp
    assert 0 < named.deliver_ms - born <= 3_500
    by_client = [request for request in frames(kind, RequestCode.RECALL_MESSAGE) if "bname" in request.ext]
    assert len(by_client) == 2
    for request in by_client:
        asked = request.header(RecallMessageRequestHeader)
        assert read_handle(asked.recallHandle).broker == asked.bname
        assert encode_header(asked) == request.ext


@KINDS
def test_a_handle_that_the_broker_calls_invalid_is_none_here_either(kind: int) -> None:
    asked = [request.ext["recallHandle"] for request in frames(kind, RequestCode.RECALL_MESSAGE)]
    with pytest.raises(MessageRefused, match="'nonsense' is no recall handle"):
        read_handle(asked[2])
