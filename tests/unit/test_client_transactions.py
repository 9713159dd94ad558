"""Transactions of a producer: what brokers are told, by brokers that play their part."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import Any

import pytest

from client.errors import ClientError, MessageRefused, SendFailed
from client.message import Message, SendStatus
from client.produce.producer import Producer
from client.produce.transaction import Transaction, TransactionState
from client.produce.transactions import ProducerOptions, TransactionProducer
from remoting.codes import MessageSysFlag, ResponseCode
from remoting.message import MessageExt
from remoting.properties import decode_properties
from tests.parts.half_brokers import POSITION, HalfSite

COMMIT, ROLLBACK, UNKNOWN = (state.value for state in TransactionState)
GROUP = "payers"


def never(message: MessageExt) -> TransactionState:
    raise AssertionError(f"nobody asks of {message.msg_id}")


@pytest.fixture
async def site() -> AsyncIterator[HalfSite]:
    async with HalfSite() as made:
        yield made


def producer(site: HalfSite, **options: Any) -> TransactionProducer:
    given: dict[str, Any] = {"on_check": never, "send_timeout": 3.0} | options
    return TransactionProducer(GROUP, site.namesrv, **given)


def order(**fields: Any) -> Message:
    return Message(**{"topic": "Orders", "body": b"an order"} | fields)


async def test_a_block_that_ends_well_commits(site: HalfSite) -> None:
    broker = site.brokers[0]
    async with producer(site) as sender:
        async with sender.transaction(order(tags="t", keys="k", properties={"mine": "1"})) as tx:
            assert len(broker.halves) == 1
            assert broker.ends == []
        await broker.until(lambda: len(broker.ends) == 1)
    (half,), (end,) = broker.halves, broker.ends
    assert half.sysFlag & MessageSysFlag.TRANSACTION_PREPARED
    assert decode_properties((half.properties or "").encode()) == {
        "UNIQ_KEY": tx.transaction_id, "WAIT": "true", "TAGS": "t", "KEYS": "k", "mine": "1", "TRAN_MSG": "true",
        "PGROUP": GROUP,
    }  # fmt: skip
    assert (end.commitOrRollback, end.fromTransactionCheck, broker.oneways) == (COMMIT, False, [True])
    assert (end.producerGroup, end.topic, end.bname) == (GROUP, "Orders", "b")
    assert (end.msgId, end.transactionId) == (tx.transaction_id, tx.transaction_id)
    assert (end.tranStateTableOffset, end.commitLogOffset) == (1, POSITION)
    assert (tx.state, tx.told) == (TransactionState.COMMIT, True)
    result = tx.result
    assert (result.status, result.msg_id, result.state) == (SendStatus.SEND_OK, tx.transaction_id, tx.state)
    assert (result.queue_offset, result.queue.brokerName, result.told) == (1, "b", True)


async def test_an_exception_rolls_back_and_goes_on(site: HalfSite) -> None:
    broker = site.brokers[0]
    async with producer(site) as sender:
        with pytest.raises(ZeroDivisionError):
            async with sender.transaction(order()):
                raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            async with sender.transaction(order(), on_error=TransactionState.UNKNOWN):
                raise ZeroDivisionError
        await broker.until(lambda: len(broker.ends) == 2)
    assert broker.states() == [ROLLBACK, UNKNOWN]


async def test_a_block_may_decide_otherwise(site: HalfSite) -> None:
    broker = site.brokers[0]
    async with producer(site) as sender:
        async with sender.transaction(order()) as tx:
            tx.rollback()
        async with sender.transaction(order()) as tx:
            tx.leave_unknown()
        await broker.until(lambda: len(broker.ends) == 2)
    assert broker.states() == [ROLLBACK, UNKNOWN]


async def test_a_cancelled_block_is_left_unknown_and_keeps_nobody_waiting(site: HalfSite) -> None:
    broker = site.brokers[0]
    async with producer(site) as sender:

        async def work() -> None:
            async with asyncio.timeout(None) as limit, sender.transaction(order()):
                # The time is over inside the block: before it the half message may not have been stored.
                limit.reschedule(asyncio.get_running_loop().time())
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError):
            await work()
        await broker.until(lambda: len(broker.ends) == 1)
    assert broker.states() == [UNKNOWN]


async def test_a_commit_is_told_though_who_waits_for_it_is_cancelled(site: HalfSite) -> None:
    broker = site.brokers[0]
    async with producer(site) as sender:
        done = asyncio.Event()

        async def work() -> None:
            async with sender.transaction(order()):
                done.set()

        task = asyncio.create_task(work())
        await done.wait()
        # The block has ended well; what is left is to tell.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await broker.until(lambda: len(broker.ends) == 1)
    assert broker.states() == [COMMIT]


async def test_a_function_decides(site: HalfSite) -> None:
    broker = site.brokers[0]
    seen: list[str] = []

    def plain(tx: Transaction) -> TransactionState:
        seen.append(tx.transaction_id)
        return TransactionState.COMMIT

    async def waits(tx: Transaction) -> TransactionState:
        await asyncio.sleep(0)
        seen.append(tx.transaction_id)
        return TransactionState.ROLLBACK

    def hands_on(tx: Transaction) -> Awaitable[TransactionState]:
        return waits(tx)

    async with producer(site) as sender:
        results = [await sender.send_in_transaction(order(), execute) for execute in (plain, waits, hands_on)]
        unknown = await sender.send_in_transaction(order(), lambda _tx: TransactionState.UNKNOWN)
        await broker.until(lambda: len(broker.ends) == 4)
    assert [result.msg_id for result in results] == seen == [end.msgId for end in broker.ends][:3]
    assert broker.states() == [COMMIT, ROLLBACK, ROLLBACK, UNKNOWN]
    assert (unknown.state, unknown.told) == (TransactionState.UNKNOWN, True)


async def test_a_function_that_fails_leaves_it_unknown_and_its_error_goes_on(site: HalfSite) -> None:
    broker = site.brokers[0]

    def fails(_tx: Transaction) -> TransactionState:
        raise ZeroDivisionError

    wrong: Any = lambda _tx: True  # noqa: E731 # as somebody would write it
    async with producer(site) as sender:
        with pytest.raises(ZeroDivisionError):
            await sender.send_in_transaction(order(), fails)
        with pytest.raises(MessageRefused, match="returned True: it takes a TransactionState"):
            await sender.send_in_transaction(order(), wrong)
        await broker.until(lambda: len(broker.ends) == 2)
    assert broker.states() == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE])
async def test_a_half_message_that_is_not_safe_is_rolled_back_before_the_local_part(site: HalfSite, code: int) -> None:
    broker = site.brokers[0]
    broker.status = code
    async with producer(site) as sender:
        with pytest.raises(SendFailed, match=r"less safely .*rolled back") as failed:
            async with sender.transaction(order()):
                raise AssertionError("the local part must not begin")
        await broker.until(lambda: len(broker.ends) == 1)
    assert failed.value.sent
    assert broker.states() == [ROLLBACK]


async def test_a_half_message_that_is_refused_begins_nothing(site: HalfSite) -> None:
    broker = site.brokers[0]
    broker.status = ResponseCode.NO_PERMISSION
    async with producer(site, retries=0) as sender:
        with pytest.raises(SendFailed, match="answered 16"):
            async with sender.transaction(order()):
                raise AssertionError("the local part must not begin")
    assert broker.ends == []


async def test_the_end_goes_to_who_leads_by_then(site: HalfSite) -> None:
    first, second = site.brokers
    async with producer(site, send_timeout=10.0) as sender:
        async with sender.transaction(order()):
            await first.kill()
            site.master = 1
        await second.until(lambda: len(second.ends) == 1)
    assert second.states() == [COMMIT]
    assert (second.ends[0].commitLogOffset, second.ends[0].bname) == (POSITION, "b")


async def test_an_end_that_nobody_can_be_told_is_left_to_the_check_in_time(
    site: HalfSite, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(site, send_timeout=1.5) as sender:
        async with sender.transaction(order()) as tx:
            await site.brokers[0].kill()
            began = time.monotonic()
        assert time.monotonic() - began < 10
        assert (tx.state, tx.told) == (TransactionState.COMMIT, False)
    assert "could not be told of its commit, and will ask" in caplog.text


async def test_closing_waits_for_ends_on_their_way(site: HalfSite) -> None:
    broker = site.brokers[0]
    sender = producer(site)
    await sender.start()
    block = sender.transaction(order())
    await block.__aenter__()
    ending = asyncio.ensure_future(block.__aexit__(None, None, None))
    await asyncio.sleep(0)
    await sender.close()
    await ending
    await broker.until(lambda: len(broker.ends) == 1)
    # One that ends after the producer has is told to nobody.
    sender = producer(site)
    await sender.start()
    late = sender.transaction(order())
    tx = await late.__aenter__()
    await sender.close()
    await late.__aexit__(None, None, None)
    assert not tx.told


@pytest.mark.parametrize(
    ("what", "options", "told"),
    [
        ([order()], {}, "a batch cannot be sent in a transaction"),
        ("text", {}, "str cannot be sent in a transaction"),
        (None, {}, "NoneType cannot be sent in a transaction"),
        (order(body="text"), {}, r"body\.encode\(\)"),
        (order(body=b""), {}, "body is empty"),
        (order(properties=7), {}, "it takes a dict"),
        (order(delay_level=3), {}, "a delay cannot be sent in a transaction"),
        (order(delay=3), {}, "a delay cannot be sent in a transaction"),
        (order(deliver_at=2**41), {}, "a delay cannot be sent in a transaction"),
        (order(properties={"TIMER_DELAY_SEC": "3"}), {}, "a delay cannot be sent in a transaction"),
        (order(properties={"TRAN_MSG": "true"}), {}, "RocketMQ's own"),
        (order(properties={"a": "b" * 32_700}), {}, "with those of a half message"),
        (order(), {"timeout": "3"}, "the timeout is '3'"),
        (order(), {"queue": 7}, "the queue is 7"),
        (order(), {"selector": 7}, "the selector is 7"),
        (order(), {"check_after": 0}, "check_after is 0"),
        (order(), {"check_after": "9"}, "the timeout is '9'|check_after is '9'"),
        (order(), {"check_after": 2**31}, "check_after is"),
        (order(properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}), {"check_after": 9}, "as well as `check_after`"),
        (order(), {"on_error": 12}, "on_error is 12"),
    ],
)
async def test_what_cannot_be_sent_is_refused_and_nothing_sent(
    site: HalfSite, what: Any, options: dict[str, Any], told: str
) -> None:
    async with producer(site) as sender:
        with pytest.raises(MessageRefused, match=told):
            async with sender.transaction(what, **options):
                raise AssertionError("the local part must not begin")
        function: Any = 7
        with pytest.raises(MessageRefused, match="the local part is 7"):
            await sender.send_in_transaction(order(), function)
    assert site.brokers[0].halves == []


async def test_a_transaction_is_begun_once(site: HalfSite) -> None:
    async with producer(site) as sender:
        block = sender.transaction(order())
        async with block:
            pass
        with pytest.raises(ClientError, match="begun before"):
            async with block:
                pass


@pytest.mark.parametrize(("after", "seconds"), [(30, "30"), (0.2, "1"), (timedelta(minutes=2), "120")])
async def test_check_after_is_the_broker_s_immunity_in_whole_seconds(site: HalfSite, after: Any, seconds: str) -> None:
    async with producer(site) as sender:
        async with sender.transaction(order(), check_after=after):
            pass
        (half,) = site.brokers[0].halves
    assert decode_properties((half.properties or "").encode())["CHECK_IMMUNITY_TIME_IN_SECONDS"] == seconds


async def test_a_selector_sees_the_application_s_message(site: HalfSite) -> None:
    message, seen = order(), []

    def choose(queues: list[Any], chosen: Message, arg: Any) -> Any:
        seen.append((chosen, arg))
        return queues[1]

    async with producer(site) as sender:
        async with sender.transaction(message, selector=choose, arg="a") as tx:
            pass
        # Ordinary messages go out as they always did.
        await sender.send(order())
    assert (seen, tx.half.queue.queueId) == ([(message, "a")], 1)
    assert seen[0][0] is message
    assert not site.brokers[0].halves[1].sysFlag & MessageSysFlag.TRANSACTION_PREPARED
    assert "TRAN_MSG" not in (site.brokers[0].halves[1].properties or "")


def test_options_are_those_of_a_producer() -> None:
    taken = inspect.signature(Producer.__init__).parameters
    assert set(ProducerOptions.__annotations__) == set(taken) - {"self", "group", "namesrv"}
    for name, kind in ProducerOptions.__annotations__.items():
        assert kind == taken[name].annotation, name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_check": None}, "on_check is None"),
        ({"check_concurrency": 0}, "check_concurrency is 0"),
        ({"check_concurrency": 10_000}, "1 to 256"),
        ({"check_timeout": "9"}, "the timeout is '9'"),
        ({"topics": "Orders"}, "sequence of names"),
    ],
)
def test_a_producer_that_cannot_be_made_says_why(options: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"on_check": never} | options
    with pytest.raises(ClientError, match=told):
        TransactionProducer(GROUP, "127.0.0.1:1", **given)


async def test_calls_end_by_their_deadline_without_anybody() -> None:
    async with TransactionProducer(GROUP, "127.0.0.1:1", on_check=never, send_timeout=0.3) as sender:
        began = time.monotonic()
        with pytest.raises(ClientError):
            async with sender.transaction(order()):
                pass
        assert time.monotonic() - began < 10
