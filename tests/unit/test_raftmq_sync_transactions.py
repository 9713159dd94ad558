"""Transactions without asyncio: the local part runs in the thread of whoever begins them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable

import pytest

from client.errors import ClientClosed, MessageRefused
from client.message import Message
from client.produce.transaction import Transaction, TransactionState
from raftmq import sync
from remoting.message import MessageExt
from tests.parts.half_brokers import HalfSite

COMMIT, ROLLBACK, UNKNOWN = (state.value for state in TransactionState)
GROUP = "payers"
ORDER = Message("Orders", b"an order")


@pytest.fixture
async def site() -> AsyncIterator[HalfSite]:
    async with HalfSite() as made:
        yield made


def commits(_message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def test_blocks_commit_roll_back_and_decide(site: HalfSite) -> None:
    broker = site.brokers[0]

    def work() -> None:
        with sync.TransactionProducer(GROUP, site.namesrv, on_check=commits) as producer:
            with producer.transaction(ORDER) as tx:
                assert tx.transaction_id
            assert tx.told
            with pytest.raises(ZeroDivisionError), producer.transaction(ORDER):
                raise ZeroDivisionError
            with producer.transaction(ORDER, timeout=5, check_after=30) as tx:
                tx.rollback()
            with pytest.raises(KeyboardInterrupt), producer.transaction(ORDER):
                raise KeyboardInterrupt
            with pytest.raises(MessageRefused, match="a batch"), producer.transaction([ORDER]):  # type: ignore[arg-type] # the point of it
                raise AssertionError("it must not begin")
        with pytest.raises(ClientClosed), producer.transaction(ORDER):
            raise AssertionError("it must not begin")

    await asyncio.to_thread(work)
    await broker.until(lambda: len(broker.ends) == 4)
    assert broker.states() == [COMMIT, ROLLBACK, ROLLBACK, UNKNOWN]


async def test_a_function_runs_in_the_calling_thread(site: HalfSite) -> None:
    broker = site.brokers[0]
    threads: list[int] = []

    def execute(tx: Transaction) -> TransactionState:
        assert tx.message is ORDER
        threads.append(threading.get_ident())
        return TransactionState.COMMIT

    async def waits(_tx: Transaction) -> TransactionState:
        await asyncio.sleep(0)
        return TransactionState.ROLLBACK

    def fails(_tx: Transaction) -> TransactionState:
        raise ZeroDivisionError

    def wrong(_tx: Transaction) -> Awaitable[TransactionState]:
        return True  # type: ignore[return-value] # the point of it

    def work() -> None:
        with sync.TransactionProducer(GROUP, site.namesrv, on_check=commits) as producer:
            done = producer.send_in_transaction(ORDER, execute)
            assert (done.state, done.told) == (TransactionState.COMMIT, True)
            assert threads == [threading.get_ident()]
            assert producer.send_in_transaction(ORDER, waits).state is TransactionState.ROLLBACK
            with pytest.raises(ZeroDivisionError):
                producer.send_in_transaction(ORDER, fails)
            with pytest.raises(MessageRefused, match="returned True"):
                producer.send_in_transaction(ORDER, wrong)

    await asyncio.to_thread(work)
    await broker.until(lambda: len(broker.ends) == 4)
    assert broker.states() == [COMMIT, ROLLBACK, UNKNOWN, UNKNOWN]


async def test_checks_are_answered_by_a_plain_function(site: HalfSite) -> None:
    broker = site.brokers[0]
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with sync.TransactionProducer(GROUP, site.namesrv, on_check=commits):
            begun.set()
            assert over.wait(20)

    working = asyncio.create_task(asyncio.to_thread(work))
    await broker.until(lambda: GROUP in broker.producers)
    broker.ask(GROUP, "ID")
    await broker.until(lambda: len(broker.ends) == 1)
    over.set()
    await working
    assert broker.states() == [COMMIT]
