"""Transactions and timer messages beside the official C++ client, as far as its Python package has them.

It cannot end a transaction or answer a check (nothing of that is in its C interface), but it consumes what others have
committed, prepares messages by their property, and sends timer messages by theirs.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.host.local import LocalCluster
from client.message import Message
from client.produce.transaction import TransactionState
from client.produce.transactions import TransactionProducer
from remoting.message import MessageExt
from tests.cluster.test_client_producer import everything
from tests.interop.test_broker_cpp_client import Order

pytestmark = pytest.mark.timeout(120)

GROUP = "cpp_shop"


@pytest.fixture(scope="module", params=[1, 3], ids=["single", "raft"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """In place of the folder's: brokers that ask of transactions soon."""
    settings = {"transactionTimeOut": 1000, "transactionCheckInterval": 500}
    with LocalCluster(tmp_path_factory.mktemp("soon"), nodes=request.param, broker_settings=settings) as running:
        yield running


def unasked(message: MessageExt) -> TransactionState:
    raise AssertionError(f"nobody asks of {message.msg_id}")


async def test_cpp_consumes_what_we_have_committed_and_nothing_else(cluster: LocalCluster, cpp: Order) -> None:
    names: dict[str, str] = {}
    async with TransactionProducer(GROUP, cluster.address, on_check=unasked) as producer:
        for body in ("committed", "rolled back", "committed too"):
            message = Message("cpp_committed", body.encode(), tags="paid", keys=body.split()[0], properties={"a": "b"})
            async with producer.transaction(message) as tx:
                if body == "rolled back":
                    tx.rollback()
            names[body] = tx.transaction_id
        got = await asyncio.to_thread(
            cpp, "push", group="cpp_delivery", topic="cpp_committed", count=2, linger_s=2, names=["a", "PGROUP"]
        )
    assert sorted(one["body"] for one in got) == ["committed", "committed too"]
    for one in got:
        assert (one["tags"], one["id"]) == ("paid", names[one["body"]])
        assert one["properties"] == {"a": "b", "PGROUP": GROUP}


async def test_what_cpp_has_prepared_is_committed_by_the_check_that_we_answer(
    cluster: LocalCluster, cpp: Order
) -> None:
    asked: list[bytes] = []
    both = asyncio.Event()

    async def on_check(message: MessageExt) -> TransactionState:
        asked.append(bytes(message.body))
        if len(set(asked)) == 2:
            both.set()
        return TransactionState.COMMIT if message.body == b"paid" else TransactionState.ROLLBACK

    sent: list[dict[str, Any]] = [
        {"body": body, "properties": {"TRAN_MSG": "true", "PGROUP": GROUP}} for body in ("paid", "unpaid")
    ]
    async with TransactionProducer(GROUP, cluster.address, on_check=on_check):
        results = await asyncio.to_thread(cpp, "send", group=GROUP, topic="cpp_prepared", how="sync", messages=sent)
        assert [result["status"] for result in results] == [0, 0]
        got = await asyncio.to_thread(cpp, "push", group="cpp_checked", topic="cpp_prepared", count=1, linger_s=3)
        # Each is asked about by a check of its own, and again by the next one when an answer is late.
        async with asyncio.timeout(30):
            await both.wait()
    assert [one["body"] for one in got] == ["paid"]
    assert set(asked) == {b"paid", b"unpaid"}


async def test_cpp_sends_and_receives_timer_messages(cluster: LocalCluster, cpp: Order) -> None:
    sent = [{"body": "later", "properties": {"TIMER_DELAY_SEC": "3"}}]
    began_ms = int(time.time() * 1000)
    await asyncio.to_thread(cpp, "send", group="cpp_timers", topic="cpp_timed", how="sync", messages=sent)
    got = await asyncio.to_thread(cpp, "push", group="cpp_woken", topic="cpp_timed", count=1, linger_s=1)
    assert [one["body"] for one in got] == ["later"]
    # Its own queue says when it came there: never early, where RocketMQ's precision lets it be so by a second.
    [stored] = await everything(cluster.address, "cpp_timed", 1)
    assert stored.store_timestamp >= began_ms + 3000
