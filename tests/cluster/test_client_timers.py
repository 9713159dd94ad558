"""Timer messages of our producer at real brokers: delivered then, not before, and not at all once they are recalled."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.host.local import LocalCluster
from client.consume.push import PushConsumer
from client.errors import RequestRefused, SendFailed
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from raftmq.cli.main import app
from remoting.message import MessageExt

RECALLS = {"recallMessageEnable": True}
TOPIC = "Reminders"
# Nothing is early, where RocketMQ's precision lets it be so by a second; times go over the wire in whole milliseconds.
GRAIN_S = 0.001


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("single"), broker_settings=RECALLS) as running:
        yield running


class Arrivals:
    """Consumes the topic, and notes when each body came first, and how often."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.at: dict[bytes, float] = {}
        self.count: dict[bytes, int] = {}
        group = f"reminded_{time.monotonic_ns()}"
        self.consumer = PushConsumer(group, cluster.address, from_where=ConsumeFrom.FIRST_OFFSET)
        self.consumer.subscribe(TOPIC)
        self.consumer.on_message(self._note)

    async def _note(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self.at.setdefault(bytes(message.body), time.time())
            self.count[bytes(message.body)] = self.count.get(bytes(message.body), 0) + 1


@pytest.fixture
async def arrivals(single: LocalCluster) -> AsyncIterator[Arrivals]:
    made = Arrivals(single)
    async with made.consumer:
        yield made


async def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.05)


async def test_a_delay_and_a_moment_are_kept(single: LocalCluster, arrivals: Arrivals) -> None:
    async with Producer("P", single.address) as producer:
        due = {}
        moment = datetime.now(UTC) + timedelta(seconds=9)
        for body, fields in (
            (b"seconds", {"delay": 8}),
            (b"milliseconds", {"delay": 7.5}),
            (b"moment", {"deliver_at": moment}),
        ):
            due[body] = moment.timestamp() if body == b"moment" else time.time() + float(fields["delay"])  # type: ignore[arg-type] # a number there
            assert (await producer.send(Message(TOPIC, body, **fields))).recall_handle
        sent = await producer.send(Message(TOPIC, b"past", deliver_at=1_000_000_000_000))
        assert sent.recall_handle is None
        await until(lambda: set(arrivals.at) >= {*due, b"past"})
    for body, at in due.items():
        assert arrivals.at[body] > at - GRAIN_S, body
    assert arrivals.at[b"past"] < min(due.values())
    assert set(arrivals.count.values()) == {1}


async def test_what_is_recalled_never_comes(single: LocalCluster, arrivals: Arrivals) -> None:
    async with Producer("P", single.address) as producer:
        sent = [await producer.send(Message(TOPIC, b"recalled", delay=8)) for _ in range(2)]
        kept = await producer.send(Message(TOPIC, b"kept", delay=9))
        for result in sent:
            assert result.recall_handle is not None
            assert await producer.recall(TOPIC, result.recall_handle) == result.msg_id
        # Again: it does no harm.
        assert sent[0].recall_handle is not None
        assert await producer.recall(TOPIC, sent[0].recall_handle) == sent[0].msg_id
        await until(lambda: b"kept" in arrivals.at)
        assert kept.recall_handle is not None
        with pytest.raises(RequestRefused, match="timestamp invalid") as late:
            await producer.recall(TOPIC, kept.recall_handle)
    assert late.value.code == 604
    assert b"recalled" not in arrivals.at


async def test_too_late_is_the_broker_s_to_refuse(single: LocalCluster) -> None:
    async with Producer("P", single.address) as producer:
        with pytest.raises(SendFailed, match="13") as failed:
            await producer.send(Message(TOPIC, b"next week", delay=timedelta(days=8)))
    assert not failed.value.sent


async def test_the_terminal_sends_and_recalls(single: LocalCluster, arrivals: Arrivals) -> None:
    def typed(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, env={"NAMESRV_ADDR": single.address, "TERM": "dumb"})
        assert done.exit_code == 0, done.output
        return done.stdout

    def work() -> None:
        shown = typed("send", TOPIC, "from the terminal", "--delay", "9s")
        handle = shown.split()[-1]
        assert "recalled" in typed("message", "recall", TOPIC, handle)
        typed("send", TOPIC, "also from there", "--delay", "9s")

    await asyncio.to_thread(work)
    await until(lambda: b"also from there" in arrivals.at)
    assert b"from the terminal" not in arrivals.at


async def test_recalls_that_are_off_are_refused(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    await asyncio.to_thread(cluster.start)
    try:
        async with Producer("P", cluster.address) as producer:
            sent = await producer.send(Message(TOPIC, b"stays", delay=600))
            # A broker that takes no recalls may tell no handle.
            with pytest.raises(RequestRefused, match="forbidden") as refused:
                await producer.recall(TOPIC, sent.recall_handle or _handle(sent.msg_id))
        assert refused.value.code == 16
    finally:
        await asyncio.to_thread(cluster.kill)


def _handle(msg_id: str) -> str:
    return base64.urlsafe_b64encode(f"v1 {TOPIC} broker-a 9999999999999 {msg_id}".encode()).decode()


@pytest.mark.timeout(180)
async def test_a_group_s_next_leader_delivers_in_time_and_takes_recalls(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=3, broker_settings=RECALLS)
    await asyncio.to_thread(cluster.start)
    try:
        arrivals = Arrivals(cluster)
        async with arrivals.consumer, Producer("P", cluster.address, send_timeout=30.0) as producer:
            due = time.time() + 20
            await producer.send(Message(TOPIC, b"in time", deliver_at=round(due * 1000)))
            sent = await producer.send(Message(TOPIC, b"never", deliver_at=round(due * 1000)))
            await asyncio.to_thread(lambda: cluster.wait_for_leader().kill())
            assert sent.recall_handle is not None
            assert await producer.recall(TOPIC, sent.recall_handle) == sent.msg_id
            await until(lambda: b"in time" in arrivals.at, 120)
            await producer.send(Message(TOPIC, b"last", delay=2))
            await until(lambda: b"last" in arrivals.at, 120)
    finally:
        await asyncio.to_thread(cluster.kill)
    assert arrivals.at[b"in time"] > due - GRAIN_S
    assert arrivals.count == {b"in time": 1, b"last": 1}
