"""What a producer is handed that cannot be sent is told at once, and whatever is handed in, every call ends."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.consume.simple import SimpleConsumer
from client.errors import ClientClosed, ClientError, MessageRefused, RouteError, SendFailed
from client.instance import ClientInstance
from client.message import Message, MessageModel
from client.produce.producer import DEADLINE_GRACE_S, Producer
from remoting.bodies.registry import MessageQueue
from tests.cluster.conftest import Cluster
from tests.cluster.test_client_producer import everything

NONE: Any = None


def message(**fields: Any) -> Message:
    return Message(**({"topic": "Door", "body": b"x"} | fields))


async def test_oneway_sends_in_a_loop_wait_for_the_broker_and_all_arrive(cluster: Cluster) -> None:
    # 180 MB: more than a connection holds back, so without the wait some would be refused.
    count = 45_000
    async with Producer("producers", cluster.namesrv, send_timeout=120) as producer:
        await producer.send(Message("Oneway", b"first"))
        for number in range(count):
            await producer.send_oneway(Message("Oneway", b"%d" % number + bytes(4000)))
        # Behind all of them on the same connection.
        await producer.send(Message("Oneway", b"last"))
        found = await everything(cluster.namesrv, "Oneway", count + 2)
    assert len(found) == count + 2


async def test_producers_of_one_instance_share_its_bounds(cluster: Cluster) -> None:
    instance = ClientInstance(cluster.namesrv)
    body = bytes(1024 * 1024)
    async with AsyncExitStack() as stack:
        # Each has less on its way than its own bound, and three together more than a connection holds back.
        one, *others = [
            await stack.enter_async_context(Producer(group, instance=instance, send_timeout=60, compress_over=1 << 30))
            for group in ("one", "two", "three")
        ]
        await asyncio.gather(*(one.send(Message("Shared", b"x")) for _ in range(4)))
        results = await asyncio.gather(
            *(producer.send(Message("Shared", body)) for producer in (one, *others) for _ in range(60)),
            return_exceptions=True,
        )
    assert [result for result in results if isinstance(result, BaseException)] == []


@pytest.mark.parametrize(
    ("what", "options", "told"),
    [
        (message(body="text"), {}, r"body\.encode\(\)"),
        (message(body=7), {}, "of type int: it takes bytes"),
        (message(topic=7), {}, "the topic is 7"),
        (message(flag="1"), {}, "the flag is '1'"),
        (message(flag=2**31), {}, "signed number of 32 bits"),
        (message(delay_level=-1), {}, "the delay level is -1"),
        (message(tags=7), {}, "the tag is 7"),
        (message(keys=[b"k"]), {}, "sequence of texts"),
        (message(properties={"a": 1}), {}, "a property is 1"),
        (message(properties=[("a", "b")]), {}, "it takes a dict"),
        (message(properties={"a": "\ud800" * 9000}), {}, "UnicodeEncodeError"),
        ("text", {}, "str cannot be sent"),
        ([message(), "text"], {}, "Messages only, not str"),
        (NONE, {}, "NoneType cannot be sent"),
        (message(), {"queue": 1}, "the queue is 1: it takes a MessageQueue"),
        (message(), {"selector": 1}, "the selector is 1"),
        (message(), {"selector": lambda _queues, _message, _arg: 0}, "selector returned 0"),
        (message(), {"selector": lambda _queues, _message, _arg: None}, "selector returned None"),
        (message(), {"timeout": "3"}, "the timeout is '3'"),
        (message(), {"timeout": float("nan")}, "the timeout is nan"),
        (message(), {"timeout": True}, "the timeout is True"),
        (message(), {"timeout": 10**400}, "the timeout is 1000"),
        (message(delay="soon"), {}, "the delay is 'soon'"),
        (message(deliver_at="soon"), {}, "the moment to be delivered at is 'soon'"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["known topic", "new topic"])
async def test_what_cannot_be_sent_is_refused_in_words_and_close_ends(
    cluster: Cluster, what: Any, options: dict[str, Any], told: str, known: bool
) -> None:
    async with asyncio.timeout(20):
        async with Producer("producers", cluster.namesrv) as producer:
            if known:
                await producer.send(message())
            with pytest.raises(MessageRefused, match=told):
                await producer.send(what, **options)
            future = producer.send_async(what, **options)
            with pytest.raises(MessageRefused, match=told):
                await future


@pytest.mark.parametrize("address", ["a..b:9876", "x" * 64 + ".example:9876", "[::1:9876", "127.0.0.1:99999"])
async def test_a_name_that_is_no_address_ends_the_send_by_its_deadline(address: str) -> None:
    async with asyncio.timeout(20):
        with pytest.raises((ClientError, ValueError)):
            async with Producer("producers", address, send_timeout=0.5) as producer:
                await producer.send(message())


async def test_a_selector_that_ends_the_program_ends_its_send_too(cluster: Cluster) -> None:
    def leave(_queues: Any, _message: Any, _arg: Any) -> MessageQueue:
        raise SystemExit(3)

    async with asyncio.timeout(20):
        async with Producer("producers", cluster.namesrv) as producer:
            await producer.send(message())
            with pytest.raises(SystemExit):
                await producer.send(message(), selector=leave)


async def test_an_unknown_outcome_is_told_even_when_no_nameserver_answers_any_more(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv, send_timeout=10.0) as producer:
        await producer.send(message())
        broker = producer.instance.routes.cached("Door")
        assert broker is not None
        out = producer._pack(message())
        out.may_be_stored = True
        told = out.explained(RouteError("no NameServer answered", retriable=True))
        assert isinstance(told, SendFailed)
        assert told.sent


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5), st.just([]),
    st.just(object()), st.builds(lambda: MessageQueue("Door", "nobody", 3)),
)  # fmt: skip
SELECTORS = st.one_of(
    ANYTHING,
    st.builds(lambda value: lambda _queues, _message, _arg: value, ANYTHING),
    st.sampled_from([ValueError, KeyError, StopIteration, RuntimeError, TimeoutError]).map(
        lambda kind: lambda _queues, _message, _arg: (_ for _ in ()).throw(kind("mine"))
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "topic": st.one_of(ANYTHING, st.just("Door")), "body": ANYTHING, "tags": ANYTHING, "keys": ANYTHING,
            "flag": ANYTHING, "properties": st.one_of(ANYTHING, st.dictionaries(st.text(max_size=3), ANYTHING)),
            "delay_level": ANYTHING, "wait": ANYTHING, "delay": ANYTHING, "deliver_at": ANYTHING,
        },
    ),
    options=st.fixed_dictionaries({}, optional={"queue": ANYTHING, "selector": SELECTORS, "arg": ANYTHING}),
    timeout=st.one_of(ANYTHING, st.floats(-1, 0.3)),
)  # fmt: skip
def test_whatever_is_handed_in_every_call_ends_by_its_deadline(
    fields: dict[str, Any], options: dict[str, Any], timeout: Any
) -> None:
    async def run() -> None:
        # Nobody listens there: every way through the retries is taken.
        producer = Producer("producers", "127.0.0.1:1", send_timeout=0.3)
        await producer.start()
        bound = float(timeout) if type(timeout) in {int, float} and timeout < 0.3 else 0.3
        if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0.3:
            options["timeout"] = 0.3
        else:
            options["timeout"] = timeout
        for call in (producer.send, producer.send_async):
            began = time.monotonic()
            with pytest.raises(ClientError):
                await call(message(**fields), **options)
            assert time.monotonic() - began < max(bound, 0.0) + DEADLINE_GRACE_S + 5
        await producer.close()

    asyncio.run(asyncio.wait_for(run(), 20))


async def test_frozen_nameservers_cost_an_attempt_a_slice_of_its_time(cluster: Cluster) -> None:
    # An attempt that waited for a route to the end would be the only one, however long that is.
    async with Producer("producers", cluster.namesrv, send_timeout=8.0) as producer:
        await producer.send(message(), timeout=30)

        async def never(_topic: str) -> Any:
            await asyncio.sleep(60)

        # Nobody answers any more, and the leader is gone.
        producer.instance.routes._ask = never
        await cluster.stop_broker()
        attempts = 0
        submit = producer._remoting.submit

        def count(address: str, request: Any, timeout: float = 3.0) -> Any:
            nonlocal attempts
            attempts += 1
            return submit(address, request, timeout)

        producer._remoting.submit = count  # type: ignore[method-assign]
        with pytest.raises(SendFailed, match="no connection to"):
            await producer.send(message())
    assert attempts >= 4


async def test_a_send_to_a_certain_queue_gets_the_whole_timeout(cluster: Cluster) -> None:
    async with Producer("producers", cluster.namesrv, send_timeout=30.0) as producer:
        sent = await producer.send(message())
        asked: list[float] = []
        submit = producer._remoting.submit

        def note(address: str, request: Any, timeout: float = 3.0) -> Any:
            asked.append(timeout)
            return submit(address, request, timeout)

        producer._remoting.submit = note  # type: ignore[method-assign]
        await producer.send(message(), queue=sent.queue)
        await producer.send(message(), selector=lambda queues, _message, _arg: queues[0])
        await producer.send(message())
    assert min(asked[:2]) > 25
    assert asked[2] < 20


def test_use_from_a_second_loop_is_a_clear_error() -> None:
    producer = Producer("producers", "127.0.0.1:1", send_timeout=0.3)

    async def elsewhere() -> None:
        with pytest.raises(ClientError, match="started in another event loop"):
            await producer.send(message())
        with pytest.raises(ClientError, match="started in another event loop"):
            await producer.send_oneway(message())
        with pytest.raises(ClientError, match="started in another event loop"):
            await producer.close()

    async def home() -> None:
        await producer.start()
        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        await producer.close()

    asyncio.run(home())


async def test_calls_before_the_start_say_so() -> None:
    producer = Producer("producers", "127.0.0.1:1")
    with pytest.raises(ClientClosed, match="not started"):
        await producer.send(message())
    with pytest.raises(ClientClosed, match="not started"):
        await producer.queues("Door")
    lite = LitePullConsumer("group", "127.0.0.1:1")
    queue = MessageQueue("Door", "broker-a", 0)
    for call in (lite.commit, lambda: lite.seek_to_begin(queue), lambda: lite.seek_to_end(queue), lite.poll):
        with pytest.raises(ClientClosed, match="not started"):
            await call()
    push = PushConsumer("group", "127.0.0.1:1")
    with pytest.raises(ClientClosed, match="not started"):
        await push.commit()


def test_no_home_directory_is_needed_but_for_broadcasting(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    SimpleConsumer("group", "127.0.0.1:1")
    for kind in (PushConsumer, LitePullConsumer):
        kind("group", "127.0.0.1:1")
        with pytest.raises(ClientError, match="offset_dir"):
            kind("group", "127.0.0.1:1", model=MessageModel.BROADCASTING)
