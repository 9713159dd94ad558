"""The real mqadmin reads the traces of our clients: queryMsgTraceById finds and decodes them."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from client.consume.litepull import LitePullConsumer
from client.consume.push import PushConsumer
from client.message import ConsumeFrom, ConsumeResult, Message
from client.produce.producer import Producer
from raftmq.bench.peers.maven import TOOLS, NoJava, class_path
from remoting.message import MessageExt

pytestmark = pytest.mark.long  # a Java process a test, and what Maven brings the first time
MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        return class_path(tmp_path_factory.mktemp("maven-tools"), TOOLS)
    except NoJava as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module", params=[1, 3], ids=["single", "raft"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("java-trace"), nodes=request.param) as running:
        yield running


async def traced(cluster: LocalCluster) -> str:
    """Send a message, and have it consumed: pushed, the first time in vain, and polled. Returns its id."""
    done, tries = asyncio.Event(), 0

    async def callback(_messages: list[MessageExt]) -> ConsumeResult:
        nonlocal tries
        tries += 1
        if tries == 1:
            return ConsumeResult.RECONSUME_LATER
        done.set()
        return ConsumeResult.SUCCESS

    async with Producer("makers", cluster.address, trace=True) as producer:
        sent = await producer.send(Message("Traced", b"four", tags="blue", keys=["order-1", "k2"]))
    pushed = PushConsumer("pushed", cluster.address, from_where=ConsumeFrom.FIRST_OFFSET, trace=True)
    pushed.subscribe("Traced")
    pushed.on_message(callback)
    async with pushed, asyncio.timeout(60):
        await done.wait()
    polled = LitePullConsumer("polled", cluster.address, from_where=ConsumeFrom.FIRST_OFFSET, trace=True)
    polled.subscribe("Traced")
    async with polled, asyncio.timeout(60):
        while not await polled.poll(0.5):
            pass
    return sent.msg_id


@pytest.mark.timeout(400)
async def test_mqadmin_shows_a_send_and_its_consumptions(cluster: LocalCluster, tools: str, tmp_path: Path) -> None:
    msg_id = await traced(cluster)
    command = ["java", f"-Duser.home={tmp_path}", f"-Drocketmq.home.dir={tmp_path}", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [tools, MQADMIN, "queryMsgTraceById", "-n", cluster.address, "-i", msg_id]
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith(("Pub", "Sub"))]
    found = sorted((kind, group, rest[-1]) for kind, group, *rest in rows)
    assert found == [
        ("Pub", "makers", "success"),
        ("Sub", "polled", "success"),
        ("Sub", "pushed", "failed"),
        ("Sub", "pushed", "success"),
    ], ran.stdout[-2000:] + ran.stderr[-2000:]
