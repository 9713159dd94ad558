"""Codes 203, 204, 223, 307, 309, 328."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.admin.clients import AdminClients
from remoting.bodies.registry import (
    ConsumerConnection,
    ConsumerStatusBody,
    MessageQueue,
    ProducerConnection,
    ProducerTableInfo,
)
from remoting.codes import LanguageCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import ConnectionLost, InvokeTimeout
from remoting.headers.registry import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from remoting.msgid import offset_msg_id
from remoting.record import decode_record
from tests.parts.broker_parts import HOST, Parts, Peer, broker_parts


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with broker_parts(tmp_path) as made:
        made.handlers = AdminClients(made.config, made.tables, made.store).table()
        yield made


async def test_consumer_connections(parts: Parts) -> None:
    parts.join(Peer(50_000), "ip@1", "g", "T", version=63, language=LanguageCode.CPP)
    header = GetConsumerConnectionListRequestHeader(consumerGroup="g")
    body = ConsumerConnection.decode((await parts.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)).body)
    (client,) = body.connectionSet
    assert (client.clientId, client.clientAddr, client.language, client.version) == (
        "ip@1",
        "10.0.0.9:50000",
        "CPP",
        63,
    )
    assert body.subscriptionTable["T"].subString == "TagA"
    assert (body.consumeType, body.messageModel) == ("CONSUME_PASSIVELY", "CLUSTERING")


async def test_groups_that_are_away(parts: Parts) -> None:
    header = GetConsumerConnectionListRequestHeader(consumerGroup="g")
    answer = await parts.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    assert (answer.code, answer.remark) == (ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[g] not online")
    producer = GetProducerConnectionListRequestHeader(producerGroup="g")
    answer = await parts.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producer)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_producer_connections(parts: Parts) -> None:
    parts.join(Peer(), "ip@1", "g", "T", language=77)
    header = GetProducerConnectionListRequestHeader(producerGroup="P_g")
    body = ProducerConnection.decode((await parts.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)).body)
    assert [(client.clientId, client.language) for client in body.connectionSet] == [("ip@1", "OTHER")]
    table = ProducerTableInfo.decode((await parts.ask(RequestCode.GET_ALL_PRODUCER_INFO)).body)
    (info,) = table.data["P_g"]
    assert (info.clientId, info.remoteIP, info.lastUpdateTimestamp) == ("ip@1", "/10.0.0.9:40000", parts.clock.now_ms())


def running(client_id: str = "c") -> GetConsumerRunningInfoRequestHeader:
    return GetConsumerRunningInfoRequestHeader(consumerGroup="g", clientId=client_id, jstackEnable=True)


async def test_running_info_is_passed_on_and_back(parts: Parts) -> None:
    peer = Peer(answer=Command.response(0, "remark", body=b"{...}", ext={"a": "b"}))
    parts.join(peer, "c", "g", "T")
    answer = await parts.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running())
    assert (answer.code, answer.remark, answer.body, answer.ext) == (0, "remark", b"{...}", {"a": "b"})
    (asked,) = peer.sent
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.ext == {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}


async def test_a_client_that_cannot_be_asked(parts: Parts) -> None:
    old, slow, gone = Peer(1), Peer(2, answer=InvokeTimeout("10 s")), Peer(3, answer=ConnectionLost("ended"))
    parts.join(old, "old", "g", "T", version=61)
    parts.join(slow, "slow", "g", "T")
    parts.join(gone, "gone", "g", "T")
    for client, code in {
        "nobody": ResponseCode.SYSTEM_ERROR,
        "old": ResponseCode.SYSTEM_ERROR,
        "slow": ResponseCode.CONSUME_MSG_TIMEOUT,
        "gone": ResponseCode.SYSTEM_ERROR,
    }.items():
        answer = await parts.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running(client))
        assert answer.code == code, client
        assert client in (answer.remark or "")
    assert old.sent == []


async def test_a_message_is_consumed_directly(parts: Parts) -> None:
    peer = Peer(answer=Command.response(0, body=b'{"consumeResult":"CR_SUCCESS"}'))
    parts.join(peer, "c", "g", "T")
    stored = parts.put("T", 0, b"hello")
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumerGroup="g", clientId="c", msgId=offset_msg_id(HOST, stored.physical_offset), brokerName="asked"
    )
    answer = await parts.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    assert decode_record(peer.sent[0].body).body == b"hello"
    assert peer.sent[0].ext["brokerName"] == "broker-a"


@pytest.mark.parametrize("msg_id", ["zz", "0" * 32, offset_msg_id(HOST, 10**9)])
async def test_no_such_message_to_consume(parts: Parts, msg_id: str) -> None:
    peer = Peer()
    parts.join(peer, "c", "g", "T")
    header = ConsumeMessageDirectlyResultRequestHeader(consumerGroup="g", clientId="c", msgId=msg_id)
    answer = await parts.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    assert answer.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER}
    assert peer.sent == []


async def test_status_of_all_clients_or_one(parts: Parts) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    status = ConsumerStatusBody(messageQueueTable={queue: 5}).encode()
    parts.join(Peer(1, answer=Command.response(0, body=status)), "good", "g", "T")
    parts.join(Peer(2, answer=InvokeTimeout("10 s")), "slow", "g", "T")
    parts.join(Peer(3, answer=Command.response(0, body=b"?")), "odd", "g", "T")
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = await parts.ask(code, GetConsumerStatusRequestHeader(topic="T", group="g"))
    assert ConsumerStatusBody.decode(answer.body).consumerTable == {"good": {queue: 5}}
    answer = await parts.ask(code, GetConsumerStatusRequestHeader(topic="T", group="g", clientAddr="slow"))
    assert ConsumerStatusBody.decode(answer.body).consumerTable == {}
    answer = await parts.ask(code, GetConsumerStatusRequestHeader(topic="T", group="none"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
