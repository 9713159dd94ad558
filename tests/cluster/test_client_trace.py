"""Message traces end to end: a send and its consumption, then what `raftmq message trace` shows of them."""

import asyncio
import contextlib
import time
from base64 import b64encode

import pytest

from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.errors import ClientError, RequestRefused
from client.hooks import ConsumeCall, ConsumeOutcome
from client.message import ConsumeFrom, ConsumeResult, Message
from client.produce.batching import Batching
from client.produce.producer import Producer
from client.produce.transaction import TransactionState
from client.produce.transactions import TransactionProducer
from client.trace.records import EndTransaction, Pub, Recall, SubAfter, SubBefore, TraceRecord, decode_traces
from remoting.message import MessageExt
from remoting.topics import TRACE_TOPIC
from tests.cluster.conftest import Cluster


async def traces_of(cluster: Cluster, key: str, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    async with AdminClient(cluster.namesrv) as admin, asyncio.timeout(20):
        # The broker registers a topic that a send has created a little later.
        while await admin.route(topic) is None:
            await asyncio.sleep(0.02)
        found = await admin.messages_by_key(topic, key)
    return [record for message in found for record in decode_traces(bytes(message.body)) if record.msg_id == key]


async def test_a_send_and_its_consumption_leave_traces_under_the_messages_id_and_keys(cluster: Cluster) -> None:
    consumed = asyncio.Event()
    tries = 0

    async def callback(_messages: list[MessageExt]) -> ConsumeResult:
        nonlocal tries
        tries += 1
        if tries == 1:
            return ConsumeResult.RECONSUME_LATER
        consumed.set()
        return ConsumeResult.SUCCESS

    async with Producer("makers", cluster.namesrv, trace=True) as producer:
        result = await producer.send(Message("Traced", b"four", tags="blue", keys=["order-1", "k2"]))
        later = await producer.send(Message("Traced", b"later", delay_level=1))
    consumer = PushConsumer("takers", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, trace=True)
    consumer.subscribe("Traced", "blue")
    consumer.on_message(callback)
    async with consumer, asyncio.timeout(30):
        await consumed.wait()

    records = await traces_of(cluster, result.msg_id)
    pub = next(record for record in records if isinstance(record, Pub))
    assert (pub.group, pub.topic, pub.tags, pub.keys) == ("makers", "Traced", "blue", "order-1 k2")
    assert (pub.body_length, pub.success, pub.message_type, pub.store_host) == (4, True, 0, cluster.broker_address)
    assert pub.offset_msg_id == result.offset_msg_id
    delayed = (await traces_of(cluster, later.msg_id))[0]
    assert isinstance(delayed, Pub)
    assert delayed.message_type == 3
    before = [record for record in records if isinstance(record, SubBefore)]
    after = [record for record in records if isinstance(record, SubAfter)]
    assert [record.retry_times for record in before] == [0, 1]
    assert [(record.success, record.context_code, record.group) for record in after] == [
        (False, 4, "takers"),
        (True, 0, "takers"),
    ]
    assert [record.request_id for record in before] == [record.request_id for record in after]
    async with AdminClient(cluster.namesrv) as admin:
        assert await admin.messages_by_key(TRACE_TOPIC, "order-1")


async def test_without_the_option_there_are_no_traces_and_a_name_chooses_the_topic(cluster: Cluster) -> None:
    async with (
        Producer("quiet", cluster.namesrv) as quiet,
        Producer("other", cluster.namesrv, trace="MyTrace") as other,
    ):
        await quiet.send(Message("Traced", b"x", keys="quiet"))
        result = await other.send([Message("Traced", b"1"), Message("Traced", b"2")])
    ids = result.msg_id.split(",")
    for number, msg_id in enumerate(ids):
        found = await traces_of(cluster, msg_id, "MyTrace")
        assert [(record.offset_msg_id, record.body_length) for record in found if isinstance(record, Pub)] == [
            (result.offset_msg_id.split(",")[number], 1)
        ]
    async with AdminClient(cluster.namesrv) as admin:
        topics = await admin.topics()
    assert TRACE_TOPIC not in topics


async def test_gathered_messages_have_each_a_trace(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv, trace=True, batching=Batching(linger_ms=50)) as producer:
        results = await asyncio.gather(*(producer.send(Message("Traced", b"%d" % n)) for n in range(20)))
    for result in results:
        found = await traces_of(cluster, result.msg_id)
        assert [record.offset_msg_id for record in found if isinstance(record, Pub)] == [result.offset_msg_id]


class Counted:
    def __init__(self) -> None:
        self.before, self.after = 0, asyncio.Event()

    def before_consume(self, _call: ConsumeCall) -> None:
        self.before += 1

    def after_consume(self, call: ConsumeCall) -> None:
        assert call.group == "takers"
        self.after.set()


async def test_a_consumers_hooks_see_its_calls(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv) as producer:
        await producer.send(Message("Hooked", b"x"))
    counted = Counted()
    consumer = PushConsumer("takers", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, hooks=[counted])
    consumer.subscribe("Hooked")
    consumer.on_message(lambda _messages: None)
    async with consumer, asyncio.timeout(30):
        await counted.after.wait()
    assert counted.before == 1


class Noted:
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[bytes], ConsumeOutcome | None]] = []

    def before_consume(self, call: ConsumeCall) -> None:
        self.calls.append((call.group, [bytes(message.body) for message in call.messages], call.outcome))

    def after_consume(self, call: ConsumeCall) -> None:
        self.calls.append((call.group, [bytes(message.body) for message in call.messages], call.outcome))


async def test_what_is_polled_leaves_traces_and_is_seen_by_hooks(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv) as producer:
        sent = [await producer.send(Message("Polled", b"%d" % number, keys=f"key-{number}")) for number in range(5)]
    noted, polled = Noted(), list[list[bytes]]()
    consumer = LitePullConsumer("lite", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, trace=True, hooks=[noted])
    consumer.subscribe("Polled")
    async with consumer, asyncio.timeout(30):
        while sum(map(len, polled)) < len(sent):
            # An empty answer is nothing that a hook is told of.
            if messages := await consumer.poll(0.2):
                polled.append([bytes(message.body) for message in messages])
    outcomes = (None, ConsumeOutcome.SUCCESS)
    assert noted.calls == [("lite", bodies, outcome) for bodies in polled for outcome in outcomes]
    for number, result in enumerate(sent):
        before, after = await traces_of(cluster, result.msg_id)
        assert isinstance(before, SubBefore)
        assert isinstance(after, SubAfter)
        assert (before.group, before.keys, before.retry_times) == ("lite", f"key-{number}", 0)
        assert (after.group, after.success, after.context_code) == ("lite", True, 0)
        assert before.request_id == after.request_id


async def test_what_a_simple_consumer_hands_out_leaves_traces_and_is_seen_by_hooks(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv) as producer:
        sent = [await producer.send(Message("Popped", b"%d" % number)) for number in range(4)]
    noted, handed = Noted(), list[list[bytes]]()
    consumer = SimpleConsumer(
        "simple", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, trace=True, hooks=[noted], buffer=8
    )
    consumer.subscribe("Popped")
    async with consumer, asyncio.timeout(30):
        messages = await consumer.receive(1)
        handed.append([bytes(message.body) for message in messages])
        await messages[0].ack()
        async for message in consumer:
            await message.ack()
            handed.append([bytes(message.body)])
            if len(handed) == len(sent) - 1:
                # The last one was received ahead at most: nobody was handed it.
                break
    outcomes = (None, ConsumeOutcome.SUCCESS)
    assert noted.calls == [("simple", bodies, outcome) for bodies in handed for outcome in outcomes]
    seen = {body for bodies in handed for body in bodies}
    for number, result in enumerate(sent):
        kinds = [type(record) for record in await traces_of(cluster, result.msg_id)]
        assert kinds == ([SubBefore, SubAfter] if b"%d" % number in seen else [])
    with pytest.raises(ClientError, match="the option trace is 1"):
        SimpleConsumer("simple", cluster.namesrv, trace=1)  # type: ignore[arg-type] # what is no topic


async def test_a_poll_that_a_hook_fails_in_returns_all_the_same(cluster: Cluster) -> None:
    class Failing(Noted):
        def before_consume(self, call: ConsumeCall) -> None:
            raise ZeroDivisionError(call.group)

    async with Producer("makers", cluster.namesrv) as producer:
        await producer.send(Message("Polled", b"x"))
    noted = Failing()
    consumer = LitePullConsumer("lite", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, hooks=[noted])
    consumer.subscribe("Polled")
    async with consumer, asyncio.timeout(30):
        while not (messages := await consumer.poll(0.5)):
            pass
    assert [bytes(message.body) for message in messages] == [b"x"]
    assert noted.calls == [("lite", [b"x"], ConsumeOutcome.SUCCESS)]
    with pytest.raises(ClientError, match="the option trace is 1"):
        LitePullConsumer("lite", cluster.namesrv, trace=1)  # type: ignore[arg-type] # what is no topic


async def test_ends_of_transactions_and_recalls_leave_traces(cluster: Cluster) -> None:
    handle = b64encode(f"v1 Traced broker-a {int(time.time() * 1000) + 3_600_000} KEY".encode()).decode()
    async with TransactionProducer(
        "payers", cluster.namesrv, on_check=lambda _half: TransactionState.COMMIT, trace=True
    ) as producer:
        async with producer.transaction(Message("Traced", b"kept", tags="blue", keys="order-7")) as kept:
            pass
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction(Message("Traced", b"undone")) as undone:
                raise ZeroDivisionError
        # Recalls are off here.
        with pytest.raises(RequestRefused):
            await producer.recall("Traced", handle)
    half, end = sorted(await traces_of(cluster, kept.half.msg_id), key=lambda record: type(record).__name__ != "Pub")
    assert isinstance(half, Pub)
    assert half.message_type == 1
    assert isinstance(end, EndTransaction)
    assert (end.group, end.topic, end.tags, end.keys) == ("payers", "Traced", "blue", "order-7")
    assert (end.state, end.from_check, end.transaction_id) == ("COMMIT_MESSAGE", False, kept.transaction_id)
    assert end.store_host == cluster.broker_address
    states = [one.state for one in await traces_of(cluster, undone.half.msg_id) if isinstance(one, EndTransaction)]
    assert states == ["ROLLBACK_MESSAGE"]
    recalls = [one for one in await traces_of(cluster, "KEY") if isinstance(one, Recall)]
    assert [(one.group, one.topic, one.success) for one in recalls] == [("payers", "Traced", False)]


async def test_a_broker_that_wants_no_traces_gets_none_of_ends_and_recalls_either(cluster: Cluster) -> None:
    handle = b64encode(f"v1 Traced broker-a {int(time.time() * 1000) + 3_600_000} KEY".encode()).decode()
    async with AdminClient(cluster.namesrv) as admin:
        await admin.update_broker_config({"traceOn": "false"})
        async with TransactionProducer(
            "payers", cluster.namesrv, on_check=lambda _half: TransactionState.COMMIT, trace=True
        ) as producer:
            dispatcher = producer._extras.trace
            assert dispatcher is not None
            async with producer.transaction(Message("Traced", b"kept")) as kept:
                pass
            with pytest.raises(RequestRefused):
                await producer.recall("Traced", handle)
            assert not dispatcher._waiting
            assert dispatcher.sent == dispatcher.dropped == 0
            # It is told by the next send when that changes.
            await admin.update_broker_config({"traceOn": "true"})
            async with producer.transaction(Message("Traced", b"kept")) as traced:
                pass
    assert kept.told
    assert {type(one) for one in await traces_of(cluster, traced.half.msg_id)} == {Pub, EndTransaction}
    assert await traces_of(cluster, kept.half.msg_id) == []
