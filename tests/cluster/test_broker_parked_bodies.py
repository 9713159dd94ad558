"""Pulls and pops that wait, each sent with a body of 15 MiB that is of no use to it: the broker keeps no such body."""

import asyncio
import time
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from raftmq.bench.group import until_done
from remoting.client import RemotingClient
from remoting.codes import PullSysFlag, RequestCode
from remoting.command import Command
from remoting.headers.base import Header
from remoting.headers.registry import (
    NotificationRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PullMessageRequestHeader,
)

TOPIC, GROUP = "waited_for", "waiting"
ASKED, BODY_BYTES = 24, 15 * 1024 * 1024
LONG_MS, DEADLINE_S = 60_000, 60.0
# What is on its way, and what buffers grew to: a fraction of what all bodies take, 360 MiB.
GROWN_MB_MAX = 128.0


def pull() -> Header:
    return PullMessageRequestHeader(
        consumerGroup=GROUP, topic=TOPIC, queueId=0, queueOffset=0, maxMsgNums=32, commitOffset=0,
        sysFlag=int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION), suspendTimeoutMillis=LONG_MS, subVersion=1,
        subscription="*", expressionType="TAG",
    )  # fmt: skip


def pop() -> Header:
    return PopMessageRequestHeader(
        consumerGroup=GROUP, topic=TOPIC, queueId=0, maxMsgNums=32, invisibleTime=60_000, pollTime=LONG_MS,
        bornTime=round(time.time() * 1000), initMode=0,
    )  # fmt: skip


def notification() -> Header:
    return NotificationRequestHeader(
        consumerGroup=GROUP, topic=TOPIC, queueId=0, pollTime=LONG_MS, bornTime=round(time.time() * 1000)
    )


async def waiting(client: RemotingClient, cluster: LocalCluster) -> int:
    state = await asyncio.to_thread(cluster.broker.state, "/v1/status")
    header = PollingInfoRequestHeader(consumerGroup=GROUP, topic=TOPIC, queueId=0)
    answer = await client.invoke(cluster.broker.address, Command.request(RequestCode.POLLING_INFO, header), 10)
    pops = answer.header(PollingInfoResponseHeader).pollingNum or 0
    return pops + (0 if state is None else int(state["traffic"]["parkedPulls"]))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.PULL_MESSAGE, pull),
        (RequestCode.POP_MESSAGE, pop),
        (RequestCode.NOTIFICATION, notification),
    ],
    ids=["pull", "pop", "notification"],
)
async def test_of_what_waits_no_body_is_kept(tmp_path: Path, code: int, header: type) -> None:
    body = bytes(BODY_BYTES)
    cluster = LocalCluster(tmp_path)
    with cluster:
        async with AdminClient(cluster.address) as admin:
            await until_done(lambda: admin.create_topic(TOPIC, read_queues=1, write_queues=1))
            await admin.create_group(GROUP)
        asking, client = RemotingClient(), RemotingClient()
        before = cluster.broker.anonymous_mb()
        asked = []
        deadline = time.monotonic() + DEADLINE_S
        for number in range(1, ASKED + 1):
            asked.append(asking.submit(cluster.broker.address, Command.request(code, header(), body), DEADLINE_S))
            while await waiting(client, cluster) < number:
                assert time.monotonic() < deadline, f"of {number} fewer wait"
                assert not asked[-1].done(), asked[-1].result()
        grown = cluster.broker.anonymous_mb() - before
        await asking.close()
        await client.close()
        await asyncio.gather(*asked, return_exceptions=True)
        assert grown < GROWN_MB_MAX
