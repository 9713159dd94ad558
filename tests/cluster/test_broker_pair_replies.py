"""Request-reply with a master and its slave, real processes: the slave takes no replies, until it is the master."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, Message
from client.produce.producer import Producer
from client.replies import answering
from raftmq.cli.main import app
from remoting.codes import ResponseCode
from remoting.message import MessageExt
from tests.cluster.modes import SMALL
from tests.cluster.test_broker_raft_replies import Stale


async def shout(request: MessageExt) -> bytes:
    return bytes(request.body).upper()


@pytest.mark.timeout(120)
async def test_replies_go_on_with_the_promoted_slave(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=2, mode="async", broker_settings=SMALL) as pair:
        master, slave = pair.brokers
        async with Producer("repliers", pair.address) as replies, Producer("askers", pair.address) as producer:
            await replies.send(Message("T", b"first"))
            consumer = PushConsumer("answering", pair.address, from_where=ConsumeFrom.FIRST_OFFSET)
            consumer.subscribe("T")
            consumer.on_message(answering(replies, shout))
            async with consumer:
                assert bytes((await producer.request(Message("T", b"one"), timeout=20)).body) == b"ONE"
                async with Stale(slave.address) as stale:
                    answer = await stale.reply("stale@1")
                    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                    assert f"ask the master at {master.address}" in (answer.remark or "")
                    assert not stale.pushed
                await _copied(pair)
                master.kill()
                typed = ["cluster", "promote", "broker-a", "--yes", "-n", pair.address]
                done = await asyncio.to_thread(CliRunner().invoke, app, typed)
                assert done.exit_code == 0, done.output
                for body in (b"two", b"three"):
                    reply = await producer.request(Message("T", body), timeout=40)
                    assert bytes(reply.body) == body.upper()


async def _copied(pair: LocalCluster) -> None:
    """Wait until the slave has all messages, and knows their topic."""
    await asyncio.to_thread(pair.wait_caught_up)
    async with AdminClient(pair.address) as admin, asyncio.timeout(30):
        while await admin.topic_config("T", pair.brokers[1].address) is None:
            await asyncio.sleep(0.02)
