"""POP against a broker: taken, acknowledged, put off, come again, over restarts and kills."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, broker_process, namesrv_process
from raftmq import AdminClient, Message, Producer
from raftmq.bench.group import until_done
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.headers.registry import NotificationRequestHeader, PeekMessageRequestHeader, PollingInfoRequestHeader
from runtime.clock import SystemClock
from tests.cluster.conftest import Cluster
from tests.cluster.process_group import leader_of, process_group
from tests.cluster.raft_cluster import CALM
from tests.parts.popping import Popped, Popper


@pytest.fixture
async def popper(cluster: Cluster) -> AsyncIterator[Popper]:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_topic("T", read_queues=2, write_queues=2)
    client = RemotingClient()
    yield Popper(client, cluster.broker_address)
    await client.close()


async def send(namesrv: str, *bodies: bytes, **options: str) -> None:
    async with Producer("makers", namesrv, send_timeout=10.0) as producer:
        for body in bodies:
            await producer.send(Message("T", body, **options))  # type: ignore[arg-type]


async def again(popper: Popper, count: int) -> list[Popped]:
    """Pop until so many have come."""
    found: list[Popped] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await popper.pop(pollTime=5000)
    return found


async def test_what_is_acknowledged_does_not_come_again(cluster: Cluster, popper: Popper) -> None:
    await send(cluster.namesrv, *(b"%d" % number for number in range(8)))
    # Nothing may come again before it is acknowledged, also on a busy machine.
    taken = await popper.pop(invisibleTime=10_000)
    assert sorted(each.body for each in taken) == [b"%d" % number for number in range(8)]
    assert await popper.pop() == []
    for each in taken[:4]:
        assert (await popper.acknowledge(each)).code == 0
        # As often as anybody likes.
        assert (await popper.acknowledge(each)).code == 0
    assert (await popper.acknowledge_all(*taken[4:6])).code == 0
    left = await again(popper, 2)
    assert sorted(each.body for each in left) == sorted(each.body for each in taken[6:])
    assert {each.message.topic for each in left} == {"%RETRY%Poppers_T"}
    assert {each.message.reconsume_times for each in left} == {1}
    assert all(each.message.properties["1ST_POP_TIME"] for each in left)
    # The old handles are of nothing any more.
    assert (await popper.acknowledge(taken[6])).code == 0
    assert (await popper.acknowledge_all(*left)).code == 0
    assert await popper.pop(pollTime=400) == []


async def test_retry_topics_of_the_second_form_come_beside_those_of_the_first(cluster: Cluster, popper: Popper) -> None:
    await send(cluster.namesrv, b"before")
    assert len(await popper.pop(invisibleTime=200)) == 1
    (before,) = await again(popper, 1)
    assert before.message.topic == "%RETRY%Poppers_T"
    # What comes again of the first form stays there.
    # Later than the next message is sent and taken.
    assert (await popper.change(before, 10_000)).code == 0
    assert (await popper.ask(RequestCode.UPDATE_BROKER_CONFIG, None, b"enableRetryTopicV2=true")).code == 0
    await send(cluster.namesrv, b"after")
    assert len(await popper.pop(invisibleTime=200)) == 1
    found = {each.body: each for each in await again(popper, 2)}
    assert {body: each.message.topic for body, each in found.items()} == {
        b"before": "%RETRY%Poppers_T",
        b"after": "%RETRY%Poppers+T",
    }
    assert found[b"after"].handle.split(" ")[4] == "2"
    assert (await popper.acknowledge(found[b"after"])).code == 0
    assert (await popper.acknowledge_all(found[b"before"])).code == 0
    assert await popper.pop(pollTime=400) == []


async def test_what_is_put_off_comes_by_then(cluster: Cluster, popper: Popper) -> None:
    await send(cluster.namesrv, b"sooner", b"later")
    taken = {each.body: each for each in await popper.pop()}
    put_off = await popper.change(taken[b"sooner"], 200)
    assert put_off.code == 0
    (come,) = await again(popper, 1)
    assert come.body == b"sooner"
    far = await popper.change(taken[b"later"], 60_000)
    start, _, _, revive, kind, broker, queue, offset = taken[b"later"].handle.split(" ")
    renewed = f"{offset} {far.ext['popTime']} {far.ext['invisibleTime']} {revive} {kind} {broker} {queue} {offset}"
    assert start == offset or broker == "broker-a"
    # The first handle is of nothing any more, the new one is.
    assert (await popper.change(taken[b"later"], 0)).code == 0
    assert await popper.pop(pollTime=300) == []
    assert (await popper.change(Popped(taken[b"later"].message, renewed), 0)).code == 0
    assert [each.body for each in await again(popper, 1)] == [b"later"]


async def test_a_pop_waits_for_a_message_and_one_is_woken_for_it(cluster: Cluster, popper: Popper) -> None:
    waiting = [asyncio.ensure_future(popper.pop(pollTime=10_000)) for _ in range(3)]
    info = PollingInfoRequestHeader(consumerGroup="Poppers", topic="T", queueId=0)
    async with asyncio.timeout(60):
        while (await popper.ask(RequestCode.POLLING_INFO, info)).ext["pollingNum"] != "3":
            await asyncio.sleep(0.01)
    await send(cluster.namesrv, b"one")
    done, pending = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert [[each.body for each in task.result()] for task in done] == [[b"one"]]
    await send(cluster.namesrv, b"two", b"three")
    bodies = [each.body for task in pending for each in await task]
    assert sorted(bodies) == [b"three", b"two"]


async def test_a_closed_connection_takes_nothing(cluster: Cluster, popper: Popper) -> None:
    gone = RemotingClient()
    lost = asyncio.ensure_future(Popper(gone, cluster.broker_address).pop(pollTime=10_000))
    info = PollingInfoRequestHeader(consumerGroup="Poppers", topic="T", queueId=0)
    async with asyncio.timeout(60):
        while (await popper.ask(RequestCode.POLLING_INFO, info)).ext["pollingNum"] != "1":
            await asyncio.sleep(0.01)
    await gone.close()
    with pytest.raises(Exception, match="connection"):
        await lost
    await send(cluster.namesrv, b"one")
    assert [each.body for each in await again(popper, 1)] == [b"one"]


async def test_a_message_that_comes_too_often_is_a_dead_letter(cluster: Cluster, popper: Popper) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_group(SubscriptionGroupConfig("Poppers", retryMaxTimes=2))
    await send(cluster.namesrv, b"poison")
    for times in range(3):
        (taken,) = await again(popper, 1)
        assert taken.message.reconsume_times == times
        assert (await popper.change(taken, 0)).code == 0
    dead = Popper(popper.client, popper.address, "Undertakers", "%DLQ%Poppers")
    async with asyncio.timeout(60):
        while not (letters := [] if (answer := await dead.answer()).code else [answer]):
            await asyncio.sleep(0.05)
    assert b"poison" in bytes(letters[0].body)
    assert b"DLQ_ORIGIN_TOPIC\x01T\x02" in bytes(letters[0].body)
    assert await popper.pop(pollTime=300) == []


async def test_tags_are_looked_at_and_passed_over_messages_do_not_stand_in_the_way(
    cluster: Cluster, popper: Popper
) -> None:
    await send(cluster.namesrv, *[b"other"] * 4, tags="B")
    await send(cluster.namesrv, *[b"wanted"] * 2, tags="A")
    found = await popper.pop(exp="A")
    assert [each.body for each in found] == [b"wanted"] * 2
    assert (await popper.acknowledge_all(*found)).code == 0
    assert await popper.pop(exp="A") == []
    bad = await popper.answer(exp=" || ")
    assert bad.code == 23


async def test_sql_decides_too(cluster: Cluster, popper: Popper) -> None:
    async with Producer("makers", cluster.namesrv) as producer:
        for price in range(6):
            await producer.send(Message("T", b"%d" % price, properties={"price": str(price)}))
    found = await popper.pop(expType="SQL92", exp="price >= 4")
    assert sorted(each.body for each in found) == [b"4", b"5"]
    assert await popper.pop(expType="SQL92", exp="price >= 4") == []
    assert cluster.broker is not None
    cluster.broker.live.update({"enablePropertyFilter": "false"})
    assert (await popper.answer(expType="SQL92", exp="price >= 4")).code == 1


async def test_peeks_and_notifications_take_nothing(cluster: Cluster, popper: Popper) -> None:
    peek = PeekMessageRequestHeader(consumerGroup="Poppers", topic="T", queueId=-1, maxMsgNums=5)
    assert (await popper.ask(RequestCode.PEEK_MESSAGE, peek)).code == 19
    now_ms = SystemClock().now_ms()
    notify = NotificationRequestHeader(consumerGroup="Poppers", topic="T", queueId=-1, pollTime=50, bornTime=now_ms)
    assert (await popper.ask(RequestCode.NOTIFICATION, notify)).ext["hasMsg"] == "false"
    await send(cluster.namesrv, b"there")
    notify.bornTime, notify.pollTime = SystemClock().now_ms(), 5000
    assert (await popper.ask(RequestCode.NOTIFICATION, notify)).ext["hasMsg"] == "true"
    seen = await popper.ask(RequestCode.PEEK_MESSAGE, peek)
    assert (seen.code, b"there" in bytes(seen.body)) == (0, True)
    assert [each.body for each in await popper.pop()] == [b"there"]


async def test_a_reset_is_followed(cluster: Cluster, popper: Popper) -> None:
    await send(cluster.namesrv, b"one", b"two")
    assert (await popper.acknowledge_all(*await popper.pop())).code == 0
    assert await popper.pop() == []
    async with AdminClient(cluster.namesrv) as admin:
        await admin.reset_offset("Poppers", "T", timestamp_ms=0)
    assert sorted(each.body for each in await again(popper, 2)) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"maxMsgNums": 33}, 29),
        ({"queueId": 2}, 29),
        ({"topic": "NoSuch"}, 17),
        ({"bornTime": 5}, 210),
        ({"order": True, "attemptId": "a" * 256}, 29),
        ({"order": True, "attemptId": "a\x02"}, 29),
        ({"invisibleTime": -1}, 29),
        ({"invisibleTime": 2**62}, 29),
        ({"expType": "SQL92", "exp": "a >"}, 23),
        ({"expType": "OTHER", "exp": "a"}, 23),
    ],
)
async def test_what_cannot_be_asked_for(popper: Popper, changes: dict[str, object], code: int) -> None:
    answer = await popper.answer(**changes)
    assert answer.code == code
    assert answer.ext["reviveQid"] == "0"


async def test_absurd_handles_cost_an_error(cluster: Cluster, popper: Popper) -> None:
    await send(cluster.namesrv, b"one")
    (taken,) = await popper.pop()
    for handle in ("", "x", "1 2 3", "0 1 1 0 0 b 0 " + "9" * 1000, "0 1 1 999 0 b 0 0"):
        assert (await popper.acknowledge(taken, extraInfo=handle)).code in {0, 29}
    assert (await popper.acknowledge(taken, offset=9999)).code == 208
    assert (await popper.acknowledge(taken, offset=-1)).code == 208
    assert (await popper.acknowledge(taken, queueId=77)).code == 13
    assert (await popper.acknowledge(taken, topic="NoSuch")).code == 17
    assert (await popper.change(taken, -5)).code == 29
    assert (await popper.ask(RequestCode.BATCH_ACK_MESSAGE, None)).code == 208
    for body in (b"{", b"[]", b'{"acks":[{}]}', b'{"acks":' + b"[" * 5000):
        assert (await popper.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)).code == 29
    assert (await popper.acknowledge(taken)).code == 0


async def test_nobody_sends_check_points(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv) as producer:
        with pytest.raises(Exception, match="is forbidden"):
            await producer.send(Message("rmq_sys_REVIVE_LOG_DefaultCluster", b"{}", tags="ck"))


async def test_what_was_taken_is_known_after_a_stop(cluster: Cluster, popper: Popper) -> None:
    await send(cluster.namesrv, *(b"%d" % number for number in range(6)))
    # Longer than a stop and a start take, also on a busy machine.
    taken = await popper.pop(invisibleTime=15_000)
    assert (await popper.acknowledge_all(*taken[:2])).code == 0
    await cluster.stop_broker()
    await cluster.start_broker()
    assert (await popper.acknowledge(taken[2])).code == 0
    left = await again(popper, 3)
    assert sorted(each.body for each in left) == sorted(each.body for each in taken[3:])


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    namesrv = namesrv_process(tmp_path / "namesrv")
    broker = broker_process(tmp_path, namesrv=namesrv.address, settings={"flushDiskType": "SYNC_FLUSH"})
    with ExitStack() as stack:
        for process in (namesrv, broker):
            stack.callback(process.kill)
            process.start()
        yield namesrv, broker


async def test_kill_9_loses_nothing_that_was_taken(servers: tuple[ServerProcess, ServerProcess]) -> None:
    namesrv, killed = servers
    client = RemotingClient()
    popper = Popper(client, killed.address)
    await send(namesrv.address, *(b"%02d" % number for number in range(20)))
    taken = await popper.pop(maxMsgNums=10, invisibleTime=10_000)
    assert (await popper.acknowledge_all(*taken[:4])).code == 0
    killed.kill()
    await asyncio.to_thread(killed.start)
    seen = [each.body for each in taken[:4]]
    async with asyncio.timeout(90):
        while len(seen) < 20:
            for each in await popper.pop(pollTime=2000):
                assert (await popper.acknowledge(each)).code == 0
                seen.append(each.body)
    # Once each: what came again had not been acknowledged.
    assert sorted(seen) == [b"%02d" % number for number in range(20)]
    await client.close()


async def test_a_raft_group_knows_it_over_a_change_of_the_lead(tmp_path: Path) -> None:
    with process_group(tmp_path, {**CALM, "flushDiskType": "SYNC_FLUSH"}) as (namesrv, members):
        async with AdminClient(namesrv.address) as admin:
            await leader_of(members)
            # Who leads need not be registered yet.
            await until_done(lambda: admin.create_topic("T", read_queues=4, write_queues=4))
        await send(namesrv.address, *(b"%02d" % number for number in range(40)))
        leader = await leader_of(members)
        client = RemotingClient()
        popper = Popper(client, leader.address)
        taken = await popper.pop(maxMsgNums=20, invisibleTime=30_000, pollTime=5000)
        assert len(taken) == 20
        follower = next(member for member in members if member is not leader)
        # Acknowledged by way of another member; taken from there is nothing.
        popper.address = follower.address
        assert (await popper.acknowledge_all(*taken[:5])).code == 0
        assert (await popper.answer()).code == 14
        leader.kill()
        next_leader = await leader_of([member for member in members if member is not leader])
        popper.address = next_leader.address
        assert (await popper.acknowledge(taken[5])).code == 0
        seen = [each.body for each in taken[:6]]
        async with asyncio.timeout(120):
            while len(set(seen)) < 40:
                for each in await popper.pop(pollTime=2000):
                    assert (await popper.acknowledge(each)).code == 0
                    seen.append(each.body)
        assert set(seen) == {b"%02d" % number for number in range(40)}
        # What was acknowledged before the kill never came again.
        assert [body for body in seen[6:] if body in seen[:6]] == []
        await client.close()
