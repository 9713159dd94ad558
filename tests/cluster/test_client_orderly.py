"""Consumption in order over everything that comes and goes: no key out of order, and no long stall.

Real processes: a Raft group whose lead is transferred and whose leader is killed (kill -9), consumers that join, leave
and are killed.
"""

import asyncio
import contextlib
import json
import math
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from raftmq.bench.orderly import BROKER_GROUP, GROUP, KEYS, TOPIC, OrderBook, OrderedGroup, happens, load
from raftmq.cli.main import app
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster

QUEUES = 6
RATE = 120
# It stood still for 18 s; a machine that is busy with other tests may not run a process for seconds.
BUSY_MS = 12_000
# Of the load with all of its keys: each has to come a few times, or nothing is said of its order.
KEYS_RATE, KEY_TIMES = 600, 5
# A consumer in a process of its own, to be killed: it prints each message that it has consumed.
CHILD = f"""
import asyncio, sys, time
from client.consume.push import PushConsumer
from client.message import ConsumeFrom

async def main():
    consumer = PushConsumer({GROUP!r}, sys.argv[1], from_where=ConsumeFrom.FIRST_OFFSET, orderly=True)
    consumer.subscribe({TOPIC!r})
    async def take(messages):
        for message in messages:
            sys.stdout.write(f"{{message.queue_id}} {{message.body.decode()}} {{time.monotonic()}}\\n")
        sys.stdout.flush()
    consumer.on_message(take)
    async with consumer:
        print("started", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def raft_cluster(folder: Path) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(folder, nodes=3)
    try:
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(cluster.wait_for_leader)
        async with AdminClient(cluster.address) as admin:
            await admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        yield cluster
    finally:
        cluster.kill()


@contextlib.asynccontextmanager
async def child(namesrv: str, book: OrderBook) -> AsyncIterator["asyncio.subprocess.Process"]:
    """Run a consumer as a process; what it prints goes into the book."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, namesrv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    out, started = process.stdout, asyncio.Event()

    async def read() -> None:
        async for line in out:
            words = line.split()
            if len(words) != 3:
                started.set()
                continue
            book.consumed(int(words[0]), words[1], float(words[2]))

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(60):
            await started.wait()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


@pytest.mark.timeout(300)
async def test_R14_no_key_comes_out_of_order_whoever_comes_and_goes(tmp_path: Path) -> None:
    book = OrderBook()
    async with raft_cluster(tmp_path) as cluster, AdminClient(cluster.address) as admin:
        group = OrderedGroup(cluster.address, book.consumed)
        try:
            first = await group.join()
            async with load(cluster.address, book.acknowledged, QUEUES, KEYS_RATE):
                await group.join()
                async with child(cluster.address, book) as process:
                    await asyncio.sleep(1.0)
                    await admin.transfer_leader(BROKER_GROUP)
                    await group.leave(first)
                    await group.join()
                    await asyncio.sleep(1.0)
                    process.kill()
                    await process.wait()
                leader = await asyncio.to_thread(cluster.wait_for_leader)
                leader.kill()
                await group.join()
                await asyncio.sleep(2.0)
                await asyncio.to_thread(leader.start)
                await asyncio.sleep(1.0)
                async with asyncio.timeout(90):
                    while min(map(len, book.sends.values())) < KEY_TIMES * math.ceil(KEYS / QUEUES):
                        await asyncio.sleep(0.1)
            await book.complete(90.0)
        finally:
            await group.close()
    assert (book.inversions, book.out_of_turn) == (0, 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("event", ["transfer", "kill", "brokers"])
async def test_a_change_of_the_lead_stops_consumption_in_order_no_longer_than_sends(tmp_path: Path, event: str) -> None:
    """It stood still for 18 s: until nobody could trust a lock that the old leader had granted."""
    book = OrderBook()
    async with raft_cluster(tmp_path) as cluster, AdminClient(cluster.address) as admin:
        group = OrderedGroup(cluster.address, book.consumed)
        try:
            for _ in range(2):
                await group.join()
            async with load(cluster.address, book.acknowledged, QUEUES, RATE):
                await asyncio.sleep(2.0)
                await happens(event, cluster, admin, group)
                # A consumer that is new to the leader, whose lock nobody has renewed: it is taken over as well.
                await asyncio.sleep(3.0)
                await group.join()
                await asyncio.sleep(3.0)
            await book.complete(90.0)
        finally:
            await group.close()
    row = book.row(event, 3)
    assert (row.inversions, row.lost, row.out_of_turn) == (0, 0, 0), row
    # The aims are 2 s after a kill -9, election included, and 0.5 s else; on an idle machine it is 0.6 s and 0.14 s,
    # and what is acknowledged waits 0.1 s. The machine of the tests is not idle (BUSY_MS).
    assert row.wait_ms < BUSY_MS, row
    assert row.consume_silence_ms < row.send_silence_ms + BUSY_MS, row


async def test_R14_a_broker_that_starts_again_knows_who_holds_its_queues(cluster: Cluster) -> None:
    held = asyncio.Event()

    async def take(_messages: list[MessageExt]) -> None:
        held.set()

    async with Producer("P", cluster.namesrv) as producer:
        place = MessageQueue("T", "broker-a", 0)
        await producer.send(Message("T", b"0"), selector=lambda queues, _message, _arg: queues[0])
        holder = PushConsumer("G", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, orderly=True)
        holder.subscribe("T")
        holder.on_message(take)
        async with holder:
            async with asyncio.timeout(60):
                await held.wait()
            await cluster.stop_broker()
            await cluster.start_broker()
            assert cluster.broker is not None
            # Whoever asks first, before the holder is heard of again.
            granted, _unsaved = cluster.broker._parts.locks.lock("G", "somebody else", [place])
            assert granted == []
            granted, _unsaved = cluster.broker._parts.locks.lock("G", holder.instance.client_id, [place])
            assert granted == [place]


def test_the_bench_tells_what_it_can_do() -> None:
    done = CliRunner().invoke(app, ["bench", "orderly", "--event", "flood"])
    assert done.exit_code == 2
    assert "--event flood: it takes none, transfer, kill, brokers, consumers" in done.stderr


@pytest.mark.parametrize("more", [[], ["--concurrent"]])
def test_the_bench_prints_a_row_of_each_event(more: list[str]) -> None:
    done = CliRunner().invoke(
        app, ["bench", "orderly", "--event", "consumers", "--rate", "40", "--queues", "2", "--json", *more]
    )
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert (row["event"], row["consumers"], row["queues"], row["lost"]) == ("consumers", 3, 2, 0)
    assert more or row["inversions"] == 0
    assert row["repeated_most"] <= 32, "a batch"
    assert row["consume_silence_ms"] > 0
