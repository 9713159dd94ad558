"""POP in order against brokers: a queue waits for what was taken of it, over kill -9 and a change of the lead."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, broker_process, namesrv_process
from client.errors import ClientError
from raftmq import AdminClient, ConsumeFrom, Message, Producer, SimpleConsumer
from raftmq.bench.group import until_done
from remoting.bodies.registry import ConsumerOffsetTable
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import NotificationRequestHeader
from runtime.clock import SystemClock
from tests.cluster.conftest import Cluster
from tests.cluster.process_group import leader_of, process_group
from tests.cluster.raft_cluster import CALM
from tests.cluster.test_broker_promotion import Site
from tests.parts.popping import Popped, Popper, popped


class OrderPopper(Popper):
    """Pops in order."""

    async def take(self, most: int = 32, **changes: object) -> list[Popped]:
        return await self.pop(maxMsgNums=most, order=True, **changes)

    async def there_is(self, poll_ms: int = 0) -> bool:
        header = NotificationRequestHeader(
            consumerGroup=self.group, topic=self.topic, queueId=-1, pollTime=poll_ms, bornTime=SystemClock().now_ms(),
            order=True,
        )  # fmt: skip
        return (await self.ask(RequestCode.NOTIFICATION, header)).ext["hasMsg"] == "true"


@pytest.fixture
async def popper(cluster: Cluster) -> AsyncIterator[OrderPopper]:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_topic("T", read_queues=1, write_queues=1)
    client = RemotingClient()
    yield OrderPopper(client, cluster.broker_address)
    await client.close()


async def send(namesrv: str, *bodies: bytes) -> None:
    async with Producer("makers", namesrv, send_timeout=10.0) as producer:
        for body in bodies:
            await producer.send(Message("T", body))


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%02d" % number for number in range(first, end)]


def said(taken: list[Popped]) -> list[bytes]:
    return [each.body for each in taken]


async def test_a_queue_waits_for_what_was_taken_of_it(cluster: Cluster, popper: OrderPopper) -> None:
    await send(cluster.namesrv, *numbers(0, 6))
    taken = await popper.take(3)
    assert said(taken) == numbers(0, 3)
    assert await popper.take() == []
    assert not await popper.there_is()
    # Those who pop without order wait as well: else they had what follows.
    assert await popper.pop() == []
    waits = asyncio.ensure_future(popper.take(pollTime=10_000))
    assert (await popper.acknowledge(taken[1])).code == 0
    assert (await popper.acknowledge_all(taken[0])).code == 0
    assert not waits.done()
    assert (await popper.acknowledge(taken[2])).code == 0
    rest = await asyncio.wait_for(waits, 30)
    assert said(rest) == numbers(3, 6)
    assert (await popper.acknowledge_all(*rest)).code == 0
    assert (await popper.acknowledge_all(*rest)).code == 0
    assert await popper.take() == []
    wrong = await popper.acknowledge(taken[0], extraInfo="0 1 1 999 0 broker-a 0 0")
    assert wrong.code == 0


async def test_what_is_not_acknowledged_in_time_comes_again_in_order(cluster: Cluster, popper: OrderPopper) -> None:
    await send(cluster.namesrv, *numbers(0, 6))
    # Long enough for what comes before it, also on a busy machine.
    taken = await popper.take(4, invisibleTime=8000)
    assert (await popper.acknowledge(taken[1])).code == 0
    answer = await popper.answer(order=True, pollTime=18_000, invisibleTime=60_000)
    assert answer.ext["msgOffsetInfo"] == "0 0 0,2,3"
    assert answer.ext["orderCountInfo"] == "0 qo0%0 1;0 qo0%2 1;0 qo0%3 1;0 0 1"
    # From its own queue, and nothing has become of the retry topic.
    assert {each.message.topic for each in popped(answer)} == {"T"}
    # What is given back comes when the ones beside it are done with.
    again = await popper.take(pollTime=0, attemptId="x")
    assert again == []


async def test_the_same_attempt_has_the_same_again(cluster: Cluster, popper: OrderPopper) -> None:
    await send(cluster.namesrv, *numbers(0, 6))
    first = await popper.take(3, attemptId="one")
    assert await popper.take(3, attemptId="two") == []
    again = await popper.take(3, attemptId="one")
    assert said(again) == said(first)
    # Who has it now has other handles.
    assert (await popper.acknowledge_all(*first)).code == 0
    assert await popper.take(3, attemptId="two") == []
    assert (await popper.acknowledge_all(*again)).code == 0
    assert said(await popper.take(3, attemptId="two")) == numbers(3, 6)


async def test_what_is_put_off_holds_up_its_queue_for_so_long(cluster: Cluster, popper: OrderPopper) -> None:
    await send(cluster.namesrv, *numbers(0, 3))
    taken = await popper.take(2)
    changed = await popper.change(taken[1], 0)
    assert (changed.code, changed.ext["reviveQid"]) == (0, "999")
    # The first one is still somebody's.
    assert await popper.take() == []
    waits = asyncio.ensure_future(popper.there_is(10_000))
    assert (await popper.acknowledge(taken[0])).code == 0
    assert await asyncio.wait_for(waits, 30)
    (again,) = await popper.take()
    assert again.body == b"01"
    # Longer than the next question takes, also on a busy machine.
    assert (await popper.change(again, 6000)).code == 0
    assert await popper.take() == []
    assert said(await popper.take(pollTime=18_000)) == [b"01"]


async def test_a_reset_gives_all_from_there_on_once(cluster: Cluster, popper: OrderPopper) -> None:
    await send(cluster.namesrv, *numbers(0, 6))
    assert (await popper.acknowledge_all(*await popper.take(2))).code == 0
    assert said(await popper.take(2)) == numbers(2, 4)
    async with AdminClient(cluster.namesrv) as admin:
        await admin.reset_offset("Poppers", "T", timestamp_ms=0)
    taken = await popper.take(2, pollTime=5000)
    assert said(taken) == numbers(0, 2)
    assert (await popper.acknowledge_all(*taken)).code == 0
    taken = await popper.take(invisibleTime=300)
    assert said(taken) == numbers(2, 6)
    again = await popper.take(pollTime=10_000)
    assert said(again) == numbers(2, 6)


async def test_what_was_taken_out_of_order_comes_to_those_in_order_too(cluster: Cluster, popper: OrderPopper) -> None:
    await send(cluster.namesrv, *numbers(0, 3))
    assert said(await popper.pop(maxMsgNums=1, invisibleTime=0)) == [b"00"]
    seen: list[bytes] = []
    async with asyncio.timeout(60):
        while len(seen) < 3:
            for each in await popper.take(pollTime=500):
                assert (await popper.acknowledge(each)).code == 0
                seen.append(each.body)
    assert sorted(seen) == numbers(0, 3)


def poison(body: bytes, taken: Counter[bytes]) -> bool:
    return body in {b"07", b"20"} and taken[body] == 1


async def test_members_of_our_own_client_work_on_a_queue_one_after_the_other(
    cluster: Cluster, popper: OrderPopper
) -> None:
    await send(cluster.namesrv, *numbers(0, 30))
    done: list[bytes] = []
    at_work: set[str] = set()
    taken: Counter[bytes] = Counter()

    async def work(name: str) -> None:
        consumer = SimpleConsumer(
            "Workers", cluster.namesrv, ordered=True, from_where=ConsumeFrom.FIRST_OFFSET, wait=1.0, instance_name=name
        )
        consumer.subscribe("T")
        async with consumer:
            while len(done) < 30:
                found = await consumer.receive(3)
                if not found:
                    continue
                at_work.add(name)
                assert at_work == {name}, "two have messages of one queue"
                for message in found:
                    assert message.reconsume_times == taken[message.body]
                    taken[message.body] += 1
                await asyncio.sleep(0.002)
                fails = next((at for at, each in enumerate(found) if poison(each.body, taken)), len(found))
                at_work.clear()
                for message in found[:fails]:
                    done.append(message.body)
                    await message.ack()
                # It comes again, before all that follows it.
                for message in reversed(found[fails:]):
                    await message.nak()

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(name) for name in ("one", "two", "three")))
    assert done == numbers(0, 30)


async def drained(popper: OrderPopper, seen: list[bytes], most: int, end: int) -> None:
    """Take and acknowledge until message `end` - 1 has come."""
    async with asyncio.timeout(90):
        while not seen or seen[-1] != b"%02d" % (end - 1):
            found = await popper.take(most, pollTime=2000)
            for each in found:
                assert (await popper.acknowledge(each)).code == 0
                seen.append(each.body)


async def test_kill_9_keeps_order_and_loses_nothing(tmp_path: Path) -> None:
    namesrv = namesrv_process(tmp_path / "namesrv")
    settings = {"flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": "1"}
    killed: ServerProcess = broker_process(tmp_path, namesrv=namesrv.address, settings=settings)
    with ExitStack() as stack:
        for process in (namesrv, killed):
            stack.callback(process.kill)
            process.start()
        client = RemotingClient()
        popper = OrderPopper(client, killed.address)
        await send(namesrv.address, *numbers(0, 20))
        taken = await popper.take(5, attemptId="a", invisibleTime=60_000, pollTime=5000)
        assert said(taken) == numbers(0, 5)
        for each in taken[:2]:
            assert (await popper.acknowledge(each)).code == 0
        killed.kill()
        await asyncio.to_thread(killed.start)
        assert await popper.take(attemptId="b") == []
        # Handles are good as before, and who asks again by his name has what is open.
        assert (await popper.acknowledge(taken[2])).code == 0
        again = await popper.take(attemptId="a", pollTime=5000)
        assert said(again) == numbers(3, 5)
        assert (await popper.acknowledge_all(*again)).code == 0
        seen = numbers(0, 5)
        killed.kill()
        await asyncio.to_thread(killed.start)
        await drained(popper, seen, 4, 20)
        assert seen == numbers(0, 20)
        await client.close()


async def test_a_raft_group_keeps_order_when_its_leader_is_killed_between_pops(tmp_path: Path) -> None:
    with process_group(tmp_path, {**CALM, "flushDiskType": "SYNC_FLUSH"}) as (namesrv, members):
        async with AdminClient(namesrv.address) as admin:
            await leader_of(members)
            # Who leads need not be registered yet.
            await until_done(lambda: admin.create_topic("T", read_queues=1, write_queues=1))
        await send(namesrv.address, *numbers(0, 40))
        leader = await leader_of(members)
        client = RemotingClient()
        popper = OrderPopper(client, leader.address)
        seen: list[bytes] = []
        taken = await popper.take(8, attemptId="a", invisibleTime=50_000, pollTime=5000)
        assert said(taken) == numbers(0, 8)
        follower = next(member for member in members if member is not leader)
        # Acknowledged by way of another member, and put off.
        popper.address = follower.address
        assert (await popper.acknowledge_all(*taken[:3])).code == 0
        assert (await popper.change(taken[7], 60_000)).code == 0
        leader.kill()
        popper.address = (await leader_of([member for member in members if member is not leader])).address
        # The next leader knows what is held, and by whom, and that one message is longer than the others.
        assert await popper.take(attemptId="b") == []
        assert (await popper.acknowledge(taken[3])).code == 0
        again = await popper.take(attemptId="a", invisibleTime=60_000, pollTime=5000)
        assert said(again) == numbers(4, 8)
        # The first handles are over.
        assert (await popper.acknowledge(taken[4])).code == 0
        assert await popper.take(attemptId="b") == []
        for each in again:
            assert (await popper.acknowledge(each)).code == 0
        seen += numbers(0, 8)
        await drained(popper, seen, 5, 40)
        assert seen == numbers(0, 40)
        await client.close()


async def test_our_own_client_goes_on_in_order_when_the_leader_is_killed(tmp_path: Path) -> None:
    with process_group(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as (namesrv, members):
        async with AdminClient(namesrv.address) as admin:
            await leader_of(members)
            # Who leads need not be registered yet.
            await until_done(lambda: admin.create_topic("T", read_queues=1, write_queues=1))
        await send(namesrv.address, *numbers(0, 60))
        acked: set[int] = set()
        done: set[int] = set()
        tried: set[int] = set()
        half = asyncio.Event()

        async def work(name: str) -> None:
            consumer = SimpleConsumer(
                "Workers", namesrv.address, ordered=True, from_where=ConsumeFrom.FIRST_OFFSET, wait=3.0,
                invisible=15.0, instance_name=name,
            )  # fmt: skip
            consumer.subscribe("T")
            async with consumer:
                while len(done) < 60:
                    try:
                        for message in await consumer.receive(4):
                            number = int(message.body)
                            assert number not in acked, "it was acknowledged"
                            # Nothing before it is left out.
                            assert tried >= set(range(number))
                            tried.add(number)
                            await message.ack()
                            done.add(number)
                            if time.monotonic() < message.expires_at:
                                # Later it might be somebody else's by then.
                                acked.add(number)
                    except ClientError:
                        # An answer that was lost with the leader.
                        await asyncio.sleep(0.05)
                    if len(done) >= 20:
                        half.set()

        async def kill() -> None:
            await half.wait()
            (await leader_of(members)).kill()

        async with asyncio.timeout(120):
            await asyncio.gather(work("one"), work("two"), kill())
        assert done == set(range(60))


async def test_a_promoted_slave_keeps_order(tmp_path: Path) -> None:
    site = Site(tmp_path, role="SYNC_MASTER")
    client = RemotingClient()
    try:
        await site.start()
        await site.send(20)
        popper = OrderPopper(client, site.master.address)
        taken = await popper.take(5, attemptId="a", queueId=0, invisibleTime=60_000, pollTime=5000)
        # Every second message is in this queue.
        assert said(taken) == [b"%d" % number for number in range(0, 10, 2)]
        assert (await popper.acknowledge_all(*taken[:2])).code == 0

        async def copied() -> bool:
            told = await client.invoke(site.slave.address, Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET, None))
            return ConsumerOffsetTable.decode(told.body).offsetTable.get("T@Poppers") == {0: 5}

        async with asyncio.timeout(60):
            while not await copied():
                await asyncio.sleep(0.05)
        site.master.kill()
        await site.promote(site.slave, "--role", "ASYNC_MASTER")
        popper.address = site.slave.address
        assert await popper.take(queueId=0, attemptId="b") == []
        assert (await popper.acknowledge(taken[2])).code == 0
        again = await popper.take(queueId=0, attemptId="a", pollTime=5000)
        assert said(again) == [b"6", b"8"]
        assert (await popper.acknowledge_all(*again)).code == 0
        rest = await popper.take(queueId=0, pollTime=5000)
        assert said(rest) == [b"%d" % number for number in range(10, 20, 2)]
    finally:
        await client.close()
        site.close()
