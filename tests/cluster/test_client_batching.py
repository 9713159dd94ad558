"""Automatic batching against a real broker: fewer requests, and a result of its own for each sender."""

import asyncio
from typing import Any

import pytest

from client.admin.client import AdminClient
from client.errors import ClientError, MessageRefused, RouteError
from client.hooks import SendCall
from client.message import Message
from client.produce.batching import Batching
from client.produce.producer import Producer
from client.produce.selectors import select_by_hash
from remoting.bodies.registry import MessageQueue
from tests.cluster.conftest import Cluster

NEVER = 30_000


async def test_each_sender_gets_its_own_place_and_the_broker_few_requests(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_topic("Batched", read_queues=1, write_queues=1)
        async with Producer("makers", cluster.namesrv, batching=Batching(linger_ms=100)) as producer:
            requests: list[int] = []
            submit = producer._remoting.submit

            def counted(address: str, request: Any, timeout: float) -> Any:
                requests.append(request.code)
                return submit(address, request, timeout)

            producer._remoting.submit = counted  # type: ignore[method-assign, assignment]
            results = await asyncio.gather(
                *(producer.send(Message("Batched", b"%d" % number, tags=f"t{number % 2}")) for number in range(50))
            )
            assert len(requests) <= 3
        assert [result.queue_offset for result in results] == list(range(50))
        assert len({result.msg_id for result in results}) == 50
        for number in (0, 7, 49):
            stored = await admin.message_by_id(results[number].offset_msg_id)
            assert stored is not None
            assert (bytes(stored.body), stored.msg_id, stored.tags) == (
                b"%d" % number,
                results[number].msg_id,
                f"t{number % 2}",
            )


async def test_close_sends_what_waits(cluster: Cluster) -> None:
    producer = Producer("makers", cluster.namesrv, batching=Batching(linger_ms=NEVER), send_timeout=60)
    await producer.start()
    waiting = [producer.send_async(Message("Batched", b"%d" % number)) for number in range(3)]
    await asyncio.sleep(0)
    assert not any(future.done() for future in waiting)
    await producer.close()
    assert len({future.result().offset_msg_id for future in waiting}) == 3


async def test_what_no_batch_holds_goes_alone_and_at_once(cluster: Cluster) -> None:
    options = Batching(linger_ms=NEVER, batch_bytes=1000)
    async with Producer("makers", cluster.namesrv, batching=options, send_timeout=60) as producer, asyncio.timeout(20):
        await producer.send(Message("Alone", b"x", delay_level=1))
        await producer.send(Message("Alone", b"x"), selector=select_by_hash, arg="key")
        await producer.send(Message("Alone", bytes(1000)))
        await producer.send(Message("Alone", b"x", priority=3))
        await producer.send([Message("Alone", b"x")])
        # Enough of them do not wait for the end of the time.
        await asyncio.gather(*(producer.send(Message("Alone", bytes(200))) for _ in range(4)))
    full = Batching(linger_ms=NEVER, total_bytes=1)
    async with Producer("makers", cluster.namesrv, batching=full, send_timeout=60) as producer, asyncio.timeout(20):
        first = producer.send_async(Message("Alone", b"waits"))
        await producer.send(Message("Alone", b"finds it full"))
        assert not first.done()


async def test_one_bad_message_costs_its_sender_alone_and_a_bad_topic_each(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv, batching=Batching(linger_ms=50), send_timeout=5) as producer:
        results = await asyncio.gather(
            producer.send(Message("Batched", b"good")),
            producer.send(Message("Batched", b"bad", properties={"KEYS": "x"})),
            producer.send(Message("Batched", b"")),
            producer.send(Message("Batched", b"first of all", priority=1)),
            producer.send(Message("Batched", b"x", properties=None)),  # type: ignore[arg-type] # what is tested
            producer.send(Message("Batched", b"good too")),
            return_exceptions=True,
        )
        assert [isinstance(result, MessageRefused) for result in results] == [False, True, True, False, True, False]
        assert not any(isinstance(results[number], BaseException) for number in (0, 3, 5))
        assert not isinstance(results[0], BaseException)
        await cluster.stop_broker()
        await cluster.name_server.close()
        errors = await asyncio.gather(
            *(producer.send(Message("Gone", b"%d" % number)) for number in range(2)), return_exceptions=True
        )
        assert all(isinstance(error, RouteError | ClientError) for error in errors)
        assert errors[0] is not errors[1]


async def test_who_gives_up_before_it_is_sent_does_not_have_it_sent(cluster: Cluster) -> None:
    async with Producer("makers", cluster.namesrv, batching=Batching(linger_ms=NEVER), send_timeout=60) as producer:
        first = producer.send_async(Message("Batched", b"unwanted"))
        second = producer.send_async(Message("Batched", b"wanted"))
        first.cancel()
    assert second.result().queue_offset >= 0
    async with AdminClient(cluster.namesrv) as admin:
        bodies = [bytes(message.body) for message in await admin.messages_by_time("Batched")]
    assert bodies == [b"wanted"]


@pytest.mark.parametrize(
    "fields", [{"linger_ms": 0}, {"linger_ms": 30_001}, {"batch_bytes": 2**21 + 1}, {"total_bytes": 0}]
)
def test_options_out_of_their_bounds_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Batching(**fields)
    with pytest.raises(ClientError, match="batching"):
        Producer("makers", batching=10)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="trace"):
        Producer("makers", trace=7)  # type: ignore[arg-type]


class Seen:
    """A hook that keeps what it sees, and adds a property."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.ended: list[SendCall] = []

    def before_send(self, sending: SendCall) -> None:
        self.story.append("before")
        sending.properties["colour"] = "sky"

    def after_send(self, sending: SendCall) -> None:
        self.story.append("after")
        self.ended.append(sending)
        raise ValueError("a hook's mistake is not the sender's")


@pytest.mark.parametrize("batching", [None, Batching()])
async def test_hooks_see_every_send_and_may_add_properties(cluster: Cluster, batching: Batching | None) -> None:
    seen = Seen()
    mine = Message("Hooked", b"x", properties={"a": "b"})
    async with Producer("makers", cluster.namesrv, hooks=[seen], batching=batching) as producer:
        result = await producer.send(mine)
        await producer.send_oneway(Message("Hooked", b"x"))
        with pytest.raises(MessageRefused):
            await producer.send(Message("Hooked", b""))
        with pytest.raises(ClientError):
            await producer.send(Message("Hooked", b"x"), queue=MessageQueue("Hooked", "nobody", 0), timeout=0.3)
        await producer.send([mine, mine])
    assert seen.story == ["before", "after"] * 5
    assert mine.properties == {"a": "b"}
    assert [len(sending.results) for sending in seen.ended] == [1, 0, 0, 0, 2]
    assert [sending.error is None for sending in seen.ended] == [True, True, False, False, True]
    assert seen.ended[1].oneway
    assert seen.ended[0].address == cluster.broker_address
    async with AdminClient(cluster.namesrv) as admin:
        stored = await admin.message_by_id(result.offset_msg_id)
    assert stored is not None
    assert (stored.properties["a"], stored.properties["colour"]) == ("b", "sky")


async def test_order_topics_are_written_to_the_queues_that_their_configuration_names(cluster: Cluster) -> None:
    async with AdminClient(cluster.namesrv) as admin:
        await admin.create_topic("Ordered", read_queues=8, write_queues=8)
        await admin.update_namesrv_config({"orderMessageEnable": "true"})
        await admin.kv_put("ORDER_TOPIC_CONFIG", "Ordered", "broker-a:2")
    async with Producer("makers", cluster.namesrv) as producer:
        assert [queue.queueId for queue in await producer.queues("Ordered")] == [0, 1]
        results = [await producer.send(Message("Ordered", b"x")) for _ in range(6)]
    assert {result.queue.queueId for result in results} == {0, 1}
