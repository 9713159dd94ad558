"""Transactions in a Raft group: ends that come to any member, a lead that is handed over, and progress for all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.server import Broker
from broker.transactions.loading import GROUP as PROGRESS_GROUP
from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import InvokeTimeout
from remoting.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.cluster.broker_peer import ask, messages, pull_header
from tests.cluster.raft_cluster import CALM, RaftCluster
from tests.parts.transaction_parts import COMMIT, GROUP, ROLLBACK, UNKNOWN, ends, prepared

END, OK = RequestCode.END_TRANSACTION, ResponseCode.SUCCESS
QUICK = {**CALM, "transactionTimeOut": "100", "transactionCheckInterval": "200"}


class Asked:
    """A producer that keeps what it is asked."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[Command] = asyncio.Queue()
        self.client = RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: self._take})

    def _take(self, _connection: Connection, request: Command) -> None:
        self.questions.put_nowait(request)

    async def beat(self, brokers: dict[str, Broker]) -> None:
        body = HeartbeatData(clientID="c", producerDataSet=[ProducerData(groupName=GROUP)]).encode()
        for broker in brokers.values():
            assert (await ask(self.client, broker, RequestCode.HEART_BEAT, body=body)).code == OK

    async def prepare(self, broker: Broker, key: str) -> dict[str, str]:
        answer = await ask(self.client, broker, RequestCode.SEND_MESSAGE_V2, prepared(key), key.encode())
        assert answer.code == OK, answer.remark
        return dict(answer.ext)

    async def end(self, broker: Broker, stored: dict[str, str], how: int) -> int:
        return (await ask(self.client, broker, END, ends(stored, how))).code


@contextlib.asynccontextmanager
async def group(folder: Path, **values: str) -> AsyncIterator[tuple[RaftCluster, Asked]]:
    cluster, asked = RaftCluster(folder, 3, {**QUICK, **values}), Asked()
    try:
        await cluster.start()
        await cluster.leader()
        yield cluster, asked
    finally:
        await asked.client.close()
        await cluster.close()


async def delivered(asked: Asked, broker: Broker) -> list[bytes]:
    answer = await ask(asked.client, broker, RequestCode.PULL_MESSAGE, pull_header())
    return [bytes(message.body) for message in messages(answer)] if answer.code == OK else []


async def until_equal(cluster: RaftCluster, wanted: tuple[int, int]) -> None:
    """Wait until every member knows this progress."""
    async with asyncio.timeout(20):
        while True:
            known = {
                tuple(
                    broker._parts.offsets.query(PROGRESS_GROUP, topic, 0)
                    for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
                )
                for broker in cluster.brokers.values()
            }
            if known == {wanted}:
                return
            await asyncio.sleep(0.02)


async def test_ends_at_any_member_and_the_progress_that_all_know(tmp_path: Path) -> None:
    # Nobody is asked before it has ended: a half that is asked about is put anew, and counts once more.
    async with group(tmp_path, transactionTimeOut="60000") as (cluster, asked):
        leader = await cluster.leader()
        follower = next(broker for member, broker in cluster.brokers.items() if member != leader)
        stored = [await asked.prepare(follower, f"K{number}") for number in range(4)]
        assert [one["queueOffset"] for one in stored] == ["0", "1", "2", "3"]
        for one, how in zip(stored, (COMMIT, ROLLBACK, COMMIT, COMMIT), strict=True):
            for _ in range(2):
                assert await asked.end(follower, one, how) == OK
        with pytest.raises(InvokeTimeout):
            await asked.client.invoke(follower.address, Command.request(END, ends(stored[0], UNKNOWN)), 0.3)
        assert await delivered(asked, cluster.brokers[leader]) == [b"K0", b"K2", b"K3"]
        await until_equal(cluster, (4, 4))


async def test_the_next_leader_asks_about_what_is_undecided_and_ends_nothing_twice(tmp_path: Path) -> None:
    async with group(tmp_path) as (cluster, asked):
        await asked.beat(cluster.brokers)
        leader = await cluster.leader()
        done, open_one = [await asked.prepare(cluster.brokers[leader], key) for key in ("done", "open")]
        assert await asked.end(cluster.brokers[leader], done, COMMIT) == OK
        assert await cluster.brokers[leader].hand_over()
        async with asyncio.timeout(20):
            while (following := await cluster.leader()) == leader:
                await asyncio.sleep(0.02)
        # Whatever the old leader asked about before is answered to the new one.
        while not asked.questions.empty():
            asked.questions.get_nowait()
        question = await asyncio.wait_for(asked.questions.get(), 20)
        assert question.ext["msgId"] == "open"
        broker = cluster.brokers[following]
        for one, how, code in (
            (done, COMMIT, OK),
            (done, ROLLBACK, ResponseCode.SYSTEM_ERROR),
            (open_one, COMMIT, OK),
            (open_one, COMMIT, OK),
        ):
            assert await asked.end(broker, one, how) == code
        assert await delivered(asked, broker) == [b"done", b"open"]


async def test_what_nobody_ends_is_given_up_by_the_group(tmp_path: Path) -> None:
    async with group(tmp_path, transactionCheckMax="2") as (cluster, asked):
        leader = await cluster.leader()
        await asked.prepare(cluster.brokers[leader], "K")
        async with asyncio.timeout(20):
            while {broker.store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) for broker in cluster.brokers.values()} != {
                1
            }:
                await asyncio.sleep(0.02)
        assert all(
            broker._parts.topics.get(TRANS_CHECK_MAX_TIME_TOPIC) is not None for broker in cluster.brokers.values()
        )
        await until_equal(cluster, (3, 1))
