"""A producer's options against brokers that play their part: weaker answers, unreachable brokers, keys, hooks."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from client.compression import Codec
from client.errors import MessageRefused
from client.message import Message, SendResult, SendStatus
from client.produce import extras
from client.produce.detector import Detector
from client.produce.hooked import SendHooks
from client.produce.latency import LatencyTable
from client.produce.outgoing import Packer
from client.produce.producer import Producer
from client.produce.selectors import select_by_hash
from client.produce.sendpolicy import QueuePicker
from client.trace.hooks import SendTracer
from client.trace.records import MessageType
from remoting.bodies.registry import MessageQueue
from remoting.codes import MessageSysFlag, ResponseCode
from remoting.errors import ConnectionLost
from remoting.msgid import UniqKeys
from remoting.server import RemotingServer
from runtime.clock import ManualClock
from tests.parts.pair_of_masters import Pair

WEAK = [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE]


@pytest.mark.parametrize("code", WEAK)
async def test_what_is_stored_too_weakly_goes_to_another_broker_when_asked_for(pair: Pair, code: int) -> None:
    pair.codes["a"] = code
    async with Producer("p", pair.namesrv, retry_weak=True) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
    assert {result.offset_msg_id for result in results} == {"b"}
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert "a" in pair.sent


async def test_without_the_option_a_weaker_answer_is_the_result(pair: Pair) -> None:
    pair.codes = dict.fromkeys(pair.codes, int(ResponseCode.FLUSH_SLAVE_TIMEOUT))
    async with Producer("p", pair.namesrv) as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert len(pair.sent) == 1


async def test_when_no_broker_does_better_the_last_answer_is_the_result(pair: Pair) -> None:
    pair.codes = dict.fromkeys(pair.codes, int(ResponseCode.FLUSH_DISK_TIMEOUT))
    async with Producer("p", pair.namesrv, retry_weak=True, retries=2) as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT
        assert sorted(set(pair.sent)) == ["a", "b"]
        assert len(pair.sent) == 3
        # Who names the queue cares about order, which a repetition would break.
        await producer.send(Message("T", b"x"), queue=MessageQueue("T", "a", 0))
        assert len(pair.sent) == 4
    pair.codes["b"] = int(ResponseCode.SYSTEM_BUSY)
    async with Producer("p", pair.namesrv, retry_weak=True) as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(3)]
    assert {result.offset_msg_id for result in results} == {"a"}


async def test_an_order_configuration_decides_the_queues_of_a_producer(pair: Pair) -> None:
    pair.order = "b:1"
    async with Producer("p", pair.namesrv) as producer:
        assert await producer.queues("T") == [MessageQueue("T", "b", 0)]
        results = [await producer.send(Message("T", b"x")) for _ in range(3)]
    assert {result.queue for result in results} == {MessageQueue("T", "b", 0)}


async def test_the_detector_finds_out_that_a_broker_is_there_again(pair: Pair) -> None:
    clock = ManualClock()
    table = LatencyTable(clock, detected=True)
    async with Producer("p", pair.namesrv) as producer:
        await producer.send(Message("T", b"x"))
        table.failed("a")
        table.failed("gone")
        clock.advance(60)
        assert not table.available("a")
        port = pair.servers["a"].port
        await pair.servers["a"].close()
        detector = Detector(table, producer.instance)
        await detector.round()
        # One that stands in no route is nobody's concern any more.
        assert table.unreachable() == ["a"]
        again = RemotingServer({}, name="a again")
        await again.start("127.0.0.1", port)
        async with asyncio.timeout(20):
            while table.unreachable():
                await detector.round()
        # A refusal (this one knows no such request) is an answer too.
        assert table.available("a")
        await again.close()


async def test_the_broker_that_answers_a_repetition_is_not_blamed_for_the_one_that_hung(pair: Pair) -> None:
    pair.frozen = {"a"}
    options: dict[str, Any] = {"latency_tolerance": True, "idempotent": False, "send_timeout": 2.4}
    async with Producer("p", pair.namesrv, **options) as producer, asyncio.timeout(20):
        table = producer._latency
        assert table is not None
        noted: list[tuple[str, float]] = []
        answered = table.answered

        def note(broker: str, latency_ms: float) -> None:
            noted.append((broker, latency_ms))
            answered(broker, latency_ms)

        table.answered = note  # type: ignore[method-assign] # a spy
        while "a" not in pair.sent:
            await producer.send(Message("T", b"x"))
        assert pair.sent[-2:] == ["a", "b"]
        # It hung for half of the timeout; from 550 ms on the other one would be left alone as well.
        assert {broker for broker, _latency in noted} == {"b"}
        assert max(latency for _broker, latency in noted) < 550
        assert (table.available("a"), table.available("b")) == (False, True)


async def test_the_option_detector_probes_in_the_background(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "DETECT_S", 0.01)
    async with Producer("p", pair.namesrv, detector=True) as producer, asyncio.timeout(20):
        await producer.send(Message("T", b"x"))
        table = producer._latency
        assert table is not None
        table.failed("a")
        while table.unreachable():
            await asyncio.sleep(0.001)


def test_unreachable_brokers_are_the_last_choice() -> None:
    queues = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]
    clock = ManualClock()
    table = LatencyTable(clock, detected=True)
    picker = QueuePicker(table, clock=clock.monotonic)
    picker.failed("a", ConnectionLost("x"))
    table.answered("b", 20_000)
    assert {picker.pick("T", queues).brokerName for _ in range(8)} == {"b"}
    clock.advance(60)
    assert {picker.pick("T", queues).brokerName for _ in range(8)} == {"b"}
    assert {picker.pick("T", queues[:2]).brokerName for _ in range(4)} == {"a"}
    table.answered("a", 1)
    assert {picker.pick("T", queues).brokerName for _ in range(8)} == {"a", "b"}


def test_without_the_detector_only_time_counts() -> None:
    clock = ManualClock()
    table = LatencyTable(clock)
    table.failed("a")
    clock.advance(10)
    assert table.available("a")


# What Java's hashCode says: "order-1".hashCode() and so on.
@pytest.mark.parametrize(
    ("key", "java"),
    [
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        (7, 7),
        (-7, -7),
        (2**31, -(2**31)),
        (True, 1231),
    ],
)
def test_a_key_chooses_the_queue_that_a_java_producer_chooses(key: Any, java: int) -> None:
    for count in (1, 3, 4, 7, 16):
        queues = [MessageQueue("T", "a", number) for number in range(count)]
        # Java's remainder has the sign of the dividend; SelectMessageQueueByHash takes it without.
        assert select_by_hash(queues, Message("T", b"x"), key).queueId == abs(java) % count


@pytest.mark.parametrize("key", [None, b"bytes", 1.5, 2**63, ["list"]])
def test_what_has_no_hash_of_java_is_refused(key: Any) -> None:
    with pytest.raises(MessageRefused, match="needs a key"):
        select_by_hash([MessageQueue("T", "a", 0)], Message("T", b"x"), key)


def test_a_half_message_is_traced_as_such_and_never_sent_again_for_a_weak_answer() -> None:
    traced: list[Any] = []
    dispatcher: Any = SimpleNamespace(topic="Traces", add=traced.append, heard=lambda _broker, **_told: None)
    hooks = SendHooks("p", [SendTracer(dispatcher)])
    packer = Packer(UniqKeys(), compress_over=1 << 20, body_bytes_max=1 << 20, codec=Codec.ZLIB)
    out = packer.pack(Message("T", b"x"), hooks)
    out.sys_flag |= MessageSysFlag.TRANSACTION_PREPARED
    out.answer = {"MSG_REGION": "here", "TRACE_ON": "true"}
    weak = SendResult(SendStatus.FLUSH_SLAVE_TIMEOUT, out.msg_id, "p", MessageQueue("T", "a", 0), 0)
    out.want_better(weak, "a")
    hooks.ended(out, weak)
    (record,) = traced
    assert (record.message_type, record.success, record.region) == (MessageType.HALF, False, "here")
    # Told once only, and not at all where the broker does not want it.
    hooks.ended(out, weak)
    out = packer.pack(Message("T", b"x"), hooks)
    out.answer = {"MSG_REGION": "here", "TRACE_ON": "false"}
    hooks.ended(out, weak)
    assert len(traced) == 1
