"""Brokers ask what became of a transaction (39), and are answered (37) over the connection that asked."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from client.errors import ClientError
from client.instance import ClientInstance
from client.message import Message
from client.produce import checks
from client.produce.producer import Producer
from client.produce.transaction import TransactionState
from client.produce.transactions import TransactionProducer
from client.trace.records import EndTransaction, TraceRecord
from remoting.codec import decode
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import encode_header
from remoting.message import MessageExt
from remoting.topics import TRANS_HALF_TOPIC
from tests.parts.half_brokers import HalfBroker, HalfSite

COMMIT, ROLLBACK, UNKNOWN = (state.value for state in TransactionState)
GROUP = "payers"
FRAMES = Path(__file__).parents[1] / "golden" / "data" / "transactions-timers.jsonl"


@pytest.fixture
async def site() -> AsyncIterator[HalfSite]:
    async with HalfSite() as made:
        yield made


def producer(site: HalfSite, on_check: Any, **options: Any) -> TransactionProducer:
    return TransactionProducer(GROUP, site.namesrv, on_check=on_check, **options)


async def known(broker: HalfBroker, group: str = GROUP) -> None:
    await broker.until(lambda: group in broker.producers)


async def test_a_producer_that_sent_nothing_is_known_to_brokers_and_answers(site: HalfSite) -> None:
    broker, seen = site.brokers[0], []

    async def listen(message: MessageExt) -> TransactionState:
        seen.append(message)
        return TransactionState.COMMIT

    async with producer(site, listen):
        await known(broker)
        broker.ask(GROUP, "ID", body=b"an order", properties="KEYS\x01k\x02", position=77)
        await broker.until(lambda: len(broker.ends) == 1)
    (end,), (message,) = broker.ends, seen
    assert (message.msg_id, message.topic, message.body, message.keys) == ("ID", "Orders", b"an order", ["k"])
    assert message.broker_name == "b"
    assert (end.commitOrRollback, end.fromTransactionCheck, broker.oneways) == (COMMIT, True, [True])
    assert (end.msgId, end.transactionId, end.topic, end.bname) == ("ID", "ID", TRANS_HALF_TOPIC, "b")
    assert (end.commitLogOffset, end.tranStateTableOffset, end.producerGroup) == (77, 78, GROUP)


async def test_an_answer_leaves_a_trace_where_there_are_traces(site: HalfSite) -> None:
    broker, traced = site.brokers[0], list[TraceRecord]()
    async with producer(site, lambda _half: TransactionState.ROLLBACK, trace=True) as asked:
        await known(broker)
        assert asked._extras.trace is not None
        asked._extras.trace.add = traced.append  # type: ignore[method-assign,assignment]  # what it would send
        broker.ask(GROUP, "ID", body=b"an order", properties="KEYS\x01k\x02", position=77)
        await broker.until(lambda: len(broker.ends) == 1)
        # One whose broker wants no traces is answered and not traced.
        broker.ask(GROUP, "ID2", properties="TRACE_ON\x01false\x02", position=78)
        await broker.until(lambda: len(broker.ends) == 2)
    (end,) = traced
    assert isinstance(end, EndTransaction)
    assert (end.state, end.from_check, end.msg_id, end.keys, end.topic) == (
        "ROLLBACK_MESSAGE",
        True,
        "ID",
        "k",
        "Orders",
    )


async def test_topics_of_halves_make_their_brokers_know_it_where_there_is_no_default_topic(site: HalfSite) -> None:
    site.known.discard("TBW102")
    async with producer(site, lambda _message: TransactionState.COMMIT, topics=["Orders"]):
        await known(site.brokers[0])


@pytest.mark.parametrize("how", ["plain", "async", "plain that hands on", "object"])
async def test_any_kind_of_function_answers(site: HalfSite, how: str) -> None:
    broker = site.brokers[0]
    threads: list[str] = []

    def plain(_message: MessageExt) -> TransactionState:
        threads.append(threading.current_thread().name)
        return TransactionState.ROLLBACK

    async def waits(message: MessageExt) -> TransactionState:
        await asyncio.sleep(0)
        return plain(message)

    def hands_on(message: MessageExt) -> Awaitable[TransactionState]:
        return waits(message)

    class Listener:
        async def __call__(self, message: MessageExt) -> TransactionState:
            return await waits(message)

    listener = {"plain": plain, "async": waits, "plain that hands on": hands_on, "object": Listener()}[how]
    async with producer(site, listener):
        await known(broker)
        broker.ask(GROUP, "ID")
        await broker.until(lambda: len(broker.ends) == 1)
    assert broker.states() == [ROLLBACK]
    assert ("transaction check" in threads[0]) is (how == "plain")


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no database"), "no database"),
        (SystemExit(3), "its check failed"),
        (TimeoutError("database"), "its check failed"),
        (asyncio.CancelledError(), "CancelledError of its own"),
        (None, "returned None, no TransactionState"),
    ],
)
async def test_a_listener_that_fails_says_unknown_and_the_next_is_asked(
    site: HalfSite, caplog: pytest.LogCaptureFixture, error: BaseException | None, told: str, plain: bool
) -> None:
    broker = site.brokers[0]

    def answer(message: MessageExt) -> TransactionState:
        if message.msg_id == "GOOD":
            return TransactionState.COMMIT
        if error is not None:
            raise error
        nothing: Any = None
        return nothing  # type: ignore[no-any-return] # as somebody forgets it

    async def waits(message: MessageExt) -> TransactionState:
        return answer(message)

    async with producer(site, answer if plain else waits, check_concurrency=1):
        await known(broker)
        broker.ask(GROUP, "BAD")
        broker.ask(GROUP, "GOOD")
        await broker.until(lambda: len(broker.ends) == 2)
    assert broker.states() == [UNKNOWN, COMMIT]
    assert told in caplog.text


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_listener_that_takes_too_long_says_unknown(site: HalfSite, plain: bool) -> None:
    broker, free = site.brokers[0], threading.Event()

    def hangs(_message: MessageExt) -> TransactionState:
        free.wait(20)
        return TransactionState.COMMIT

    async def sleeps(_message: MessageExt) -> TransactionState:
        await asyncio.sleep(60)
        return TransactionState.COMMIT

    async with producer(site, hangs if plain else sleeps, check_concurrency=1, check_timeout=0.1):
        await known(broker)
        broker.ask(GROUP, "A")
        broker.ask(GROUP, "B")
        await broker.until(lambda: len(broker.ends) == 2)
        free.set()
    assert broker.states() == [UNKNOWN, UNKNOWN]


async def test_what_runs_here_is_unknown_without_asking(site: HalfSite) -> None:
    broker, asked = site.brokers[0], []

    async def listen(message: MessageExt) -> TransactionState:
        asked.append(message.msg_id)
        return TransactionState.ROLLBACK

    async with producer(site, listen) as sender:
        await known(broker)
        async with sender.transaction(Message("Orders", b"x")) as tx:
            broker.ask(GROUP, tx.transaction_id)
            await broker.until(lambda: len(broker.ends) == 1)
            assert asked == []
        await broker.until(lambda: len(broker.ends) == 2)
        broker.ask(GROUP, tx.transaction_id)
        await broker.until(lambda: len(broker.ends) == 3)
    assert broker.states() == [UNKNOWN, COMMIT, ROLLBACK]
    assert asked == [tx.transaction_id]


async def test_so_many_run_at_a_time_and_so_many_wait(
    site: HalfSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checks, "WAITING_MAX", 3)
    broker, free, running = site.brokers[0], asyncio.Event(), []

    async def listen(message: MessageExt) -> TransactionState:
        running.append(message.msg_id)
        await free.wait()
        return TransactionState.COMMIT

    async with producer(site, listen, check_concurrency=2) as sender:
        await known(broker)
        for number in range(2):
            broker.ask(GROUP, f"RUNS-{number}")
        async with asyncio.timeout(20):
            while len(running) < 2:
                await asyncio.sleep(0.001)
        for number in range(6):
            broker.ask(GROUP, f"WAITS-{number}")
        # Asked again of one that waits: the newest counts, and there is room for it.
        broker.ask(GROUP, "WAITS-1", position=99)
        await sender.send(Message("Orders", b"behind all of them on the connection"))
        assert len(running) == 2
        free.set()
        await broker.until(lambda: len(broker.ends) == 5)
    assert sorted(end.msgId for end in broker.ends) == ["RUNS-0", "RUNS-1", "WAITS-0", "WAITS-1", "WAITS-2"]
    assert {end.commitLogOffset for end in broker.ends if end.msgId == "WAITS-1"} == {99}
    assert "3 checks of transactions wait already" in caplog.text


async def test_bodies_that_wait_are_bounded(site: HalfSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WAITING_BYTES_MAX", 100)
    broker, free, running = site.brokers[0], asyncio.Event(), []

    async def listen(message: MessageExt) -> TransactionState:
        running.append(message.msg_id)
        await free.wait()
        return TransactionState.COMMIT

    async with producer(site, listen, check_concurrency=1) as sender:
        await known(broker)
        for name in ("RUNS", "A", "B", "C"):
            # Even the longest body has its turn, alone.
            broker.ask(GROUP, name, body=bytes(200 if name == "RUNS" else 60))
            await sender.send(Message("Orders", b"behind it"))
        free.set()
        await broker.until(lambda: len(broker.ends) == 2)
    assert running == ["RUNS", "A"]


async def test_a_listener_may_close_its_producer(site: HalfSite) -> None:
    broker, passed = site.brokers[0], asyncio.Event()
    sender: TransactionProducer

    async def listen(_message: MessageExt) -> TransactionState:
        await sender.close()
        passed.set()
        return TransactionState.COMMIT

    sender = producer(site, listen)
    async with sender:
        await known(broker)
        broker.ask(GROUP, "ID")
        async with asyncio.timeout(20):
            while sender._starting is not None:
                await asyncio.sleep(0.001)
    assert passed.is_set(), "it waited for the end of its own check, which was given up"


async def test_checks_of_nobody_and_checks_that_cannot_be_read_harm_nobody(
    site: HalfSite, caplog: pytest.LogCaptureFixture
) -> None:
    broker = site.brokers[0]
    async with producer(site, lambda _message: TransactionState.COMMIT):
        await known(broker)
        good = broker.producers[GROUP]
        broker.producers["others"] = good
        broker.ask("others", "ID")
        code = RequestCode.CHECK_TRANSACTION_STATE
        ext = {"tranStateTableOffset": "1", "commitLogOffset": "2"}
        for request in (
            Command.request(code, oneway=True),
            Command.request(code, body=b"no record", oneway=True, ext=ext),
            Command.request(code, body=b"", oneway=True, ext=ext),
            Command.request(code, oneway=True, ext={"tranStateTableOffset": "x", "commitLogOffset": "2"}),
        ):
            broker.ask_with(GROUP, request)
        broker.ask(GROUP, "ID")
        await broker.until(lambda: len(broker.ends) == 1)
    assert "of producer group others, of which no producer here answers checks" in caplog.text


async def test_an_answer_to_a_connection_that_ended_is_left_out(site: HalfSite) -> None:
    broker, free = site.brokers[0], asyncio.Event()
    asked: list[str] = []

    async def listen(message: MessageExt) -> TransactionState:
        asked.append(message.msg_id)
        await free.wait()
        return TransactionState.COMMIT

    async with producer(site, listen, check_concurrency=1) as sender:
        await known(broker)
        broker.ask(GROUP, "FIRST")
        broker.ask(GROUP, "NEVER")
        async with asyncio.timeout(20):
            while not asked:
                await asyncio.sleep(0.001)
        connection = broker.producers.pop(GROUP)
        connection.abort()
        await known(broker)
        free.set()
        broker.ask(GROUP, "AGAIN")
        await broker.until(lambda: len(broker.ends) == 1)
        assert sender.group in sender.instance.checkers
    assert [end.msgId for end in broker.ends] == ["AGAIN"]
    assert asked == ["FIRST", "AGAIN"]


async def test_one_producer_of_a_group_answers_in_an_instance(site: HalfSite) -> None:
    instance = ClientInstance(site.namesrv)

    def listen(_message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        Producer("plain", instance=instance),
        TransactionProducer(GROUP, instance=instance, on_check=listen) as first,
        TransactionProducer("others", instance=instance, on_check=listen),
    ):
        with pytest.raises(ClientError, match="has a transaction producer of group payers already"):
            await TransactionProducer(GROUP, instance=instance, on_check=listen).start()
        assert set(instance.checkers) == {GROUP, "others"}
        # The second one's end has left the first in its place.
        await known(site.brokers[0])
        site.brokers[0].ask(GROUP, "ID")
        await site.brokers[0].until(lambda: len(site.brokers[0].ends) == 1)
        await first.close()
        assert set(instance.checkers) == {"others"}
        async with TransactionProducer(GROUP, instance=instance, on_check=listen):
            assert set(instance.checkers) == {GROUP, "others"}


async def test_recorded_checks_are_answered_as_the_java_client_answers_them(site: HalfSite) -> None:
    """What RocketMQ 5.5.0 asked, in JSON and binary; one answer of the Java client's was recorded of each kind."""
    rows = [json.loads(line) for line in FRAMES.read_text().splitlines()]
    broker, seen = site.brokers[0], []

    async def listen(message: MessageExt) -> TransactionState:
        seen.append((message.topic, message.keys, bytes(message.body)))
        return TransactionState.COMMIT

    checked = [row for row in rows if row["requestCode"] == RequestCode.CHECK_TRANSACTION_STATE]
    answers = [decode(frame(row)) for row in rows if row["requestCode"] == RequestCode.END_TRANSACTION]
    expected = [answer.ext for answer in answers if answer.ext["fromTransactionCheck"] == "true"]
    async with TransactionProducer("FeatTxGroup", site.namesrv, on_check=listen):
        await known(broker, "FeatTxGroup")
        for row in checked:
            broker.ask_with("FeatTxGroup", decode(frame(row)))
        await broker.until(lambda: len(broker.ends) == len(checked))
    assert {row["serializeType"] for row in checked} == {0, 1}
    ours = [encode_header(end) for end in broker.ends]
    assert len(ours) == 6
    assert [ext for ext in expected if ext in ours] == expected
    assert len(expected) == 2
    assert ("FeatTx", ["unknown-rollback"], b"unknown-rollback") in seen


def frame(row: dict[str, Any]) -> bytes:
    return bytes.fromhex(row["frame"])[4:]
