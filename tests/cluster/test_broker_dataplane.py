"""A real broker on free ports, spoken to through RemotingClient: every data-plane code and its answers."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from broker.server import Broker
from remoting.bodies.registry import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerData,
    SubscriptionData,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ROCKETMQ, Command
from remoting.connection import Connection
from remoting.errors import ConnectionLost
from remoting.headers.registry import (
    GetConsumerListByGroupRequestHeader,
    Header,
    SendMessageRequestHeader,
    UnregisterClientRequestHeader,
)
from remoting.record import encode_batch
from tests.cluster.broker_peer import ask, messages, pull_header, running, send, v2


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


@pytest.mark.parametrize("kind", [0, ROCKETMQ])
async def test_send_and_pull_in_both_serialize_types(broker: Broker, client: RemotingClient, kind: int) -> None:
    properties = "KEYS\x01k1 k2\x02UNIQ_KEY\x010A01\x02WAIT\x01true\x02TAGS\x01A\x02p\x01ü\x02"
    stored = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, v2(properties=properties), b"hello", kind)
    assert stored.serialize_type == kind
    assert stored.code == ResponseCode.SUCCESS
    assert set(stored.ext) == {"queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "queueOffset"}
    assert stored.ext["transactionId"] == "0A01"
    assert (stored.ext["queueId"], stored.ext["queueOffset"]) == ("0", "0")

    pulled = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(), kind=kind)
    assert pulled.serialize_type == kind
    assert (pulled.code, pulled.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert pulled.ext == {
        "suggestWhichBrokerId": "0",
        "groupSysFlag": "0",
        "nextBeginOffset": "1",
        "maxOffset": "1",
        "minOffset": "0",
        "topicSysFlag": "0",
    }
    [message] = messages(pulled)
    assert (message.topic, message.body, message.flag) == ("T", b"hello", 7)
    assert message.keys == ["k1", "k2"]
    assert message.properties["p"] == "ü"
    assert message.properties["CLUSTER"] == "DefaultCluster"
    assert message.offset_msg_id == stored.ext["msgId"]


async def test_code_10_and_a_unique_key_of_the_broker(broker: Broker, client: RemotingClient) -> None:
    fields = v2()
    header = SendMessageRequestHeader(**{name: getattr(fields, name) for name in fields.__struct_fields__})
    stored = await ask(client, broker, RequestCode.SEND_MESSAGE, header, b"x")
    [message] = messages(await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header()))
    assert message.properties["UNIQ_KEY"] == stored.ext["transactionId"]
    assert len(stored.ext["transactionId"]) == 32


async def test_a_batch_is_unpacked(broker: Broker, client: RemotingClient) -> None:
    elements = [(0, b"one", b"TAGS\x01A\x02"), (3, b"two", b"TAGS\x01B")]
    stored = await ask(
        client, broker, RequestCode.SEND_BATCH_MESSAGE, v2(properties="UNIQ_KEY\x01AB,CD\x02"), encode_batch(elements)
    )
    assert stored.code == ResponseCode.SUCCESS
    assert stored.ext["transactionId"] == "AB,CD"
    found = messages(await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header()))
    assert [(message.body, message.flag, message.tags) for message in found] == [(b"one", 0, "A"), (b"two", 3, "B")]
    assert stored.ext["msgId"] == ",".join(message.offset_msg_id for message in found)


async def test_only_true_unpacks_a_batch_of_code_10(broker: Broker, client: RemotingClient) -> None:
    body = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    fields = v2()
    ext = {name: str(getattr(fields, name)) for name in fields.__struct_fields__ if getattr(fields, name) is not None}
    for batch in ("1", "true"):
        request = Command.request(RequestCode.SEND_MESSAGE, None, body, ext={**ext, "batch": batch, "unitMode": "0"})
        answer = await client.invoke(broker.address, request, 5.0)
        assert answer.code == ResponseCode.SUCCESS, answer
    found = messages(await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header()))
    assert [message.body for message in found] == [body, b"one", b"two"]


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        (v2(topic="no spaces"), b"", ResponseCode.INVALID_PARAMETER),
        (v2(topic="SCHEDULE_TOPIC_XXXX"), b"", ResponseCode.NO_PERMISSION),
        (v2(queue_id=99), b"", ResponseCode.INVALID_PARAMETER),
        (v2(properties="DELAY\x01soon\x02"), b"", ResponseCode.MESSAGE_ILLEGAL),
        (v2(properties="a\x01b\x02TIMER_DELAY_SEC\x01300000\x02"), b"", ResponseCode.MESSAGE_ILLEGAL),
        (v2(properties=f"p\x01{'x' * 33_000}\x02"), b"", ResponseCode.MESSAGE_ILLEGAL),
        (v2(), b"x" * (4 * 1024 * 1024 + 1), ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_what_is_refused(broker: Broker, client: RemotingClient, header: Header, body: bytes, code: int) -> None:
    answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, body)
    assert answer.code == code, answer
    assert answer.remark
    assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, v2(), b"still well")).code == 0


async def test_an_unknown_topic_without_auto_creation(tmp_path: Path, client: RemotingClient) -> None:
    async with running(tmp_path, {"autoCreateTopicEnable": "false"}) as broker:
        answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, v2(topic="New"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(topic="New"))).code == 17


async def test_one_connection_makes_so_many_topics_and_groups_at_once(tmp_path: Path, client: RemotingClient) -> None:
    slow = {"autoCreateBurst": "5", "autoCreatePerSecond": "1", "namesrvAddr": ""}
    async with running(tmp_path, slow) as broker:
        for prefix in ("New-", "%RETRY%New-"):
            codes = []
            for number in range(40):
                header = v2(topic=f"{prefix}{number}")
                codes.append((await ask(client, broker, RequestCode.SEND_MESSAGE_V2, header, b"x")).code)
            assert codes[:5] == [0] * 5
            assert set(codes) == {0, ResponseCode.SYSTEM_BUSY}
        # Who has come by another connection is let.
        other = RemotingClient()
        try:
            assert (await ask(other, broker, RequestCode.SEND_MESSAGE_V2, v2(topic="Other"), b"x")).code == 0
        finally:
            await other.close()
        # What is there is served as before.
        assert (await ask(client, broker, RequestCode.SEND_MESSAGE_V2, v2(topic="New-0"), b"x")).code == 0


async def test_a_negative_queue_is_chosen_by_the_broker(broker: Broker, client: RemotingClient) -> None:
    answer = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, v2(queue_id=-1))
    assert answer.code == ResponseCode.SUCCESS
    assert 0 <= int(answer.ext["queueId"]) < 4


async def test_one_way_sends_are_stored_and_never_answered(broker: Broker, client: RemotingClient) -> None:
    await client.oneway(broker.address, Command.request(RequestCode.SEND_MESSAGE_V2, v2(), b"quiet", oneway=True))
    await client.oneway(broker.address, Command.request(RequestCode.SEND_MESSAGE_V2, v2(queue_id=99), oneway=True))
    await send(client, broker)
    found = messages(await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header()))
    assert [message.body for message in found] == [b"quiet", b"body"]


async def test_tags_are_filtered_by_the_broker(broker: Broker, client: RemotingClient) -> None:
    for tag in ("A", "B", "A"):
        await send(client, broker, tag.encode(), f"TAGS\x01{tag}\x02")
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(tags="A || C"))
    assert [message.body for message in messages(answer)] == [b"A", b"A"]
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(tags="C"))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert answer.ext["nextBeginOffset"] == "3"
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(tags="||"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [(1, 19, "OFFSET_OVERFLOW_ONE", "1"), (9, 21, "OFFSET_OVERFLOW_BADLY", "1")],
)
async def test_offsets_beyond_the_end(
    broker: Broker, client: RemotingClient, offset: int, code: int, remark: str, following: str
) -> None:
    await send(client, broker)
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(offset))
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext["nextBeginOffset"] == following


async def test_a_parked_pull_is_woken_by_the_message_it_wants(broker: Broker, client: RemotingClient) -> None:
    await send(client, broker)
    parked = client.submit(
        broker.address, Command.request(RequestCode.PULL_MESSAGE, pull_header(1, tags="B", suspend_ms=20_000)), 10.0
    )
    await send(client, broker, b"not wanted")
    await asyncio.sleep(0.05)
    assert not parked.done()
    await send(client, broker, b"wanted", "TAGS\x01B\x02")
    # Long before its own deadline, or not at all: the client waits for half of that.
    answer = await parked
    assert [message.body for message in messages(answer)] == [b"wanted"]


async def test_a_parked_pull_is_answered_at_its_deadline(broker: Broker, client: RemotingClient) -> None:
    await send(client, broker)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, pull_header(1, suspend_ms=200))
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    # Who never answered would meet the time-out of the request.
    assert loop.time() - began >= 0.15


async def test_a_closed_connection_leaves_nothing_parked(broker: Broker, client: RemotingClient) -> None:
    await send(client, broker)
    other = RemotingClient()
    parked = other.submit(
        broker.address, Command.request(RequestCode.PULL_MESSAGE, pull_header(1, suspend_ms=20_000)), 10.0
    )
    async with asyncio.timeout(20):
        while not broker._parts.backlog().parked_pulls:
            await asyncio.sleep(0.01)
        await other.close()
        while broker._parts.backlog().parked_pulls:
            await asyncio.sleep(0.01)
    with pytest.raises(ConnectionLost):
        await parked


def heartbeat(client_id: str, topics: Mapping[str, str], *, version: int = 1) -> bytes:
    subscriptions = [
        SubscriptionData(topic=topic, subString=text, subVersion=version) for topic, text in topics.items()
    ]
    consumer = ConsumerData(groupName="G", subscriptionDataSet=subscriptions)
    return HeartbeatData(clientID=client_id, consumerDataSet=[consumer], producerDataSet=[ProducerData("P")]).encode()


async def test_a_group_its_members_and_their_notices(broker: Broker) -> None:
    told: list[str] = []

    def notice(_connection: Connection, request: Command) -> None:
        told.append(request.ext["consumerGroup"])

    one, two = (RemotingClient({RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: notice}) for _ in range(2))
    listing = GetConsumerListByGroupRequestHeader(consumerGroup="G")
    assert (await ask(one, broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, listing)).code == 1
    answer = await ask(one, broker, RequestCode.HEART_BEAT, body=heartbeat("one", {"T": "*"}))
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    await ask(two, broker, RequestCode.HEART_BEAT, body=heartbeat("two", {"T": "*"}))
    answer = await ask(one, broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, listing)
    assert ConsumerIdList.decode(answer.body).consumerIdList == ["one", "two"]
    async with asyncio.timeout(20):
        while told.count("G") < 2:
            await asyncio.sleep(0.01)
    locked = LockBatchBody(clientId="two", consumerGroup="G", mqSet=[MessageQueue("T", "b", 0)])
    await ask(two, broker, RequestCode.LOCK_BATCH_MQ, body=locked.encode())

    told.clear()
    await two.close()
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.01)
    # What the one that left had locked is free at once.
    mine = LockBatchBody(clientId="one", consumerGroup="G", mqSet=[MessageQueue("T", "b", 0)])
    answer = await ask(one, broker, RequestCode.LOCK_BATCH_MQ, body=mine.encode())
    assert LockBatchResponseBody.decode(answer.body).lockOKMQSet == [MessageQueue("T", "b", 0)]
    header = UnregisterClientRequestHeader(clientID="one", consumerGroup="G")
    assert (await ask(one, broker, RequestCode.UNREGISTER_CLIENT, header)).code == 0
    assert (await ask(one, broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, listing)).code == 1
    await one.close()


async def test_the_subscription_of_the_heartbeat_counts(broker: Broker, client: RemotingClient) -> None:
    for tag in ("A", "B"):
        await send(client, broker, tag.encode(), f"TAGS\x01{tag}\x02")
    header = pull_header()
    header.sysFlag, header.subscription = 2, ""
    assert (await ask(client, broker, RequestCode.PULL_MESSAGE, header)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await ask(client, broker, RequestCode.HEART_BEAT, body=heartbeat("one", {"T": "B"}))
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, header)
    assert [message.body for message in messages(answer)] == [b"B"]
    # A consumer whose heartbeat is older than itself is served with what is known, not sent away with 25.
    header.subVersion = 2
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, header)
    assert [message.body for message in messages(answer)] == [b"B"]
    header.subscription = "A"
    answer = await ask(client, broker, RequestCode.PULL_MESSAGE, header)
    assert [message.body for message in messages(answer)] == [b"A"]
