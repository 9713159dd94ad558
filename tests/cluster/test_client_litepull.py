import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from client.admin.client import AdminClient
from client.consume.litepull import LitePullConsumer
from client.consume.poll_queue import FetchLimits
from client.errors import ConsumeError
from client.message import ConsumeFrom, Message, MessageModel
from client.produce.producer import Producer
from remoting.bodies.registry import MessageQueue
from remoting.message import MessageExt
from tests.cluster.conftest import Cluster

QUEUE = MessageQueue("T", "broker-a", 0)


async def send(
    cluster: Cluster, count: int, *, start: int = 0, tags: Callable[[int], str | None] = lambda _n: None
) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        for number in range(start, start + count):
            message = Message("T", b"%d" % number, tags=tags(number))
            await producer.send(message, selector=lambda queues, _message, _arg: queues[0])


async def bodies(consumer: LitePullConsumer, count: int) -> list[bytes]:
    found: list[MessageExt] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += await consumer.poll(0.5)
    return [message.body for message in found]


async def test_a_seek_right_after_assign_keeps_its_effect(cluster: Cluster) -> None:
    await send(cluster, 20)
    for _ in range(10):
        async with LitePullConsumer("lite", cluster.namesrv, auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            consumer.seek(QUEUE, 15)
            assert await bodies(consumer, 5) == [b"15", b"16", b"17", b"18", b"19"]
            assert await consumer.position(QUEUE) == 20


async def test_a_seek_in_the_middle_drops_what_was_fetched(cluster: Cluster) -> None:
    await send(cluster, 20)
    async with LitePullConsumer("lite", cluster.namesrv, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        await consumer.seek_to_begin(QUEUE)
        assert (await bodies(consumer, 20))[0] == b"0"
        consumer.seek(QUEUE, 18)
        assert await bodies(consumer, 2) == [b"18", b"19"]
        # Waiting at the end, a long poll is under way.
        assert await consumer.poll(0.05) == []
        consumer.seek(QUEUE, 19)
        assert await bodies(consumer, 1) == [b"19"]


async def test_where_a_group_begins(cluster: Cluster) -> None:
    await send(cluster, 5)
    async with LitePullConsumer("first", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        await consumer.assign([QUEUE])
        assert await consumer.position(QUEUE) == 0
    async with LitePullConsumer("end", cluster.namesrv) as consumer:
        await consumer.assign([QUEUE])
        await consumer.seek_to_end(QUEUE)
        assert await consumer.position(QUEUE) == 5
        assert await consumer.poll(0.05) == []


async def test_the_committed_position_is_where_the_next_one_goes_on(cluster: Cluster) -> None:
    await send(cluster, 10)
    first = ConsumeFrom.FIRST_OFFSET
    async with LitePullConsumer("lite", cluster.namesrv, from_where=first, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        assert len(await bodies(consumer, 10)) == 10
        consumer.seek(QUEUE, 6)
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 6
    async with LitePullConsumer("lite", cluster.namesrv, from_where=first) as consumer:
        await consumer.assign([QUEUE])
        assert await bodies(consumer, 4) == [b"6", b"7", b"8", b"9"]
    # Closing stored what was returned (auto_commit).
    async with LitePullConsumer("lite", cluster.namesrv, from_where=first) as consumer:
        assert await consumer.committed(QUEUE) == 10


async def test_what_was_polled_last_is_consumed_when_the_block_ends_well_and_comes_again_otherwise(
    cluster: Cluster,
) -> None:
    await send(cluster, 6)
    limits = FetchLimits(count=2)

    def member() -> LitePullConsumer:
        return LitePullConsumer("ends", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, limits=limits)

    async def fail() -> None:
        async with member() as consumer:
            await consumer.assign([QUEUE])
            assert await bodies(consumer, 4) == [b"0", b"1", b"2", b"3"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    consumer = member()
    await consumer.start()
    await consumer.assign([QUEUE])
    assert await consumer.committed(QUEUE) == 2, "the next poll confirmed the first two"
    assert await bodies(consumer, 2) == [b"2", b"3"]
    # Nobody says how far the application has come.
    await consumer.close()
    async with member() as consumer:
        await consumer.assign([QUEUE])
        assert await bodies(consumer, 2) == [b"2", b"3"]
        await consumer.commit()
        # What the consumer stores by itself, now and then, does not go back behind it.
        await consumer._persist()  # as every COMMIT_S
        assert await consumer.committed(QUEUE) == 4
        assert await bodies(consumer, 2) == [b"4", b"5"]
    async with member() as consumer:
        assert await consumer.committed(QUEUE) == 6


async def test_another_filter_confirms_nothing(cluster: Cluster) -> None:
    await send(cluster, 2, tags=lambda _number: "a")
    async with LitePullConsumer("filters", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        await consumer.assign([QUEUE], "a")
        assert await bodies(consumer, 2) == [b"0", b"1"]
        await consumer.assign([QUEUE], "a || b")
        await consumer._persist()  # as every COMMIT_S
        assert await consumer.committed(QUEUE) == 0
        await consumer.poll(0.0)
        await consumer._persist()
        assert await consumer.committed(QUEUE) == 2


async def test_subscribers_share_the_queues_and_take_over(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
    one = LitePullConsumer("shared", cluster.namesrv)
    two = LitePullConsumer("shared", cluster.namesrv)
    one.subscribe("T")
    two.subscribe("T")

    async def until(*counts: int) -> None:
        async with asyncio.timeout(20):
            while (len(one.assignment()), len(two.assignment())) != counts:
                await asyncio.sleep(0.01)

    await one.start()
    await until(4, 0)
    await two.start()
    await until(2, 2)
    assert not set(one.assignment()) & set(two.assignment())
    await two.close()
    await until(4, 0)
    await one.close()


async def test_tags_are_filtered_and_the_position_moves_on(cluster: Cluster) -> None:
    # "Aa" and "BB" have the same hash, so brokers let both through.
    await send(cluster, 9, tags=lambda number: ("Aa", "BB", "C")[number % 3])
    async with LitePullConsumer("tags", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        await consumer.assign([QUEUE], "Aa")
        assert await bodies(consumer, 3) == [b"0", b"3", b"6"]
        async with asyncio.timeout(20):
            while await consumer.position(QUEUE) < 9:
                await consumer.poll(0.05)


async def test_paused_queues_give_nothing(cluster: Cluster) -> None:
    await send(cluster, 3)
    async with LitePullConsumer("paused", cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET) as consumer:
        await consumer.assign([QUEUE])
        consumer.pause([QUEUE])
        assert await consumer.poll(0.2) == []
        consumer.resume([QUEUE])
        assert await bodies(consumer, 3) == [b"0", b"1", b"2"]


async def test_offsets_are_found_by_time(cluster: Cluster) -> None:
    await send(cluster, 3)
    await asyncio.sleep(0.02)
    middle = time.time_ns() // 1_000_000
    await asyncio.sleep(0.02)
    await send(cluster, 3, start=3)
    async with LitePullConsumer("time", cluster.namesrv) as consumer:
        await consumer.assign([QUEUE])
        assert await consumer.offset_for_time(QUEUE, 0) == 0
        assert await consumer.offset_for_time(QUEUE, middle) == 3
        assert await consumer.offset_for_time(QUEUE, middle + 3_600_000) == 6


async def test_a_position_beyond_the_end_is_corrected(cluster: Cluster) -> None:
    await send(cluster, 3)
    async with LitePullConsumer("far", cluster.namesrv) as consumer:
        await consumer.assign([QUEUE])
        consumer.seek(QUEUE, 1000)
        async with asyncio.timeout(30):
            while await consumer.position(QUEUE) == 1000:
                assert await consumer.poll(0.05) == []
        assert await consumer.position(QUEUE) == 3, "at the end: nothing is read again"
        assert (consumer.rewinds.count, consumer.rewinds.messages) == (1, 997), "a seek is a position to be stored"
        await send(cluster, 1, start=3)
        assert await bodies(consumer, 1) == [b"3"]


async def test_misuse_is_said(cluster: Cluster) -> None:
    async with LitePullConsumer("misuse", cluster.namesrv) as consumer:
        with pytest.raises(ConsumeError, match="not assigned"):
            consumer.seek(QUEUE, 1)
        await consumer.assign([QUEUE])
        with pytest.raises(ConsumeError, match="no offset"):
            consumer.seek(QUEUE, -1)
        with pytest.raises(ConsumeError, match="do not go together"):
            consumer.subscribe("T")


async def test_broadcasting_gives_everything_to_everybody_who_polls(cluster: Cluster, tmp_path: Path) -> None:
    await send(cluster, 6)

    def member(number: int) -> LitePullConsumer:
        return LitePullConsumer(
            "everybody",
            cluster.namesrv,
            from_where=ConsumeFrom.FIRST_OFFSET,
            model=MessageModel.BROADCASTING,
            offset_dir=tmp_path,
            instance_name=f"member-{number}",
        )

    async with member(0) as first, member(1) as second:
        for consumer in (first, second):
            consumer.subscribe("T")
        for consumer in (first, second):
            assert await bodies(consumer, 6) == [b"%d" % number for number in range(6)]
    assert (tmp_path / "member-0" / "everybody" / "offsets.json").exists()
    await send(cluster, 1, start=6)
    async with member(0) as again:
        again.subscribe("T")
        assert await bodies(again, 1) == [b"6"], "it goes on where its own file says"
        assert await again.committed(QUEUE) == 6


async def test_who_listens_is_told_of_queues_that_come(cluster: Cluster) -> None:
    await send(cluster, 1)
    told: list[tuple[str, int]] = []
    news = asyncio.Event()

    def changed(topic: str, queues: list[MessageQueue]) -> None:
        told.append((topic, len(queues)))
        news.set()

    async with LitePullConsumer("listens", cluster.namesrv) as consumer, AdminClient(cluster.namesrv) as admin:
        consumer.on_queues("T", changed)
        async with asyncio.timeout(20):
            await news.wait()
        await admin.create_topic("T", read_queues=6, write_queues=6)
        news.clear()
        # Again, as the look of every 30 s: nothing is told twice.
        consumer.on_queues("U", changed)
        async with asyncio.timeout(20):
            await news.wait()
    assert told == [("T", 4), ("T", 6)]


async def test_a_topics_bound_and_the_consumers_hold_whatever_queues_there_are(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv) as producer:
        for number in range(120):
            await producer.send(Message("T", b"%d" % number))
    for limits, most in (
        (FetchLimits(topic_buffered_max=20), 20),
        (FetchLimits(buffered_max=20, all_buffered_max=10, count=2), 10 + 4 * 2),
    ):
        group = f"bounded-{most}"
        async with LitePullConsumer(
            group, cluster.namesrv, from_where=ConsumeFrom.FIRST_OFFSET, limits=limits
        ) as consumer:
            consumer.subscribe("T")

            def buffered(consumer: LitePullConsumer = consumer) -> int:
                return sum(fetched.buffered for fetched in consumer._queues.values())  # what is bounded

            async with asyncio.timeout(30):
                while len(consumer.assignment()) < 4 or buffered() < 4:
                    await asyncio.sleep(0.05)
            # Whatever would come beyond the bound would come now.
            await asyncio.sleep(0.5)
            assert 4 <= buffered() <= most
            assert len(await bodies(consumer, 120)) == 120
