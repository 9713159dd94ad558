"""Offsets and delays of a pair over kills: what a slave knows better comes back, what was delivered does not (R15)."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.admin.client import AdminClient
from client.message import Message
from client.produce.producer import Producer
from remoting.bodies.base import MessageQueue
from remoting.client import RemotingClient
from remoting.codes import PullSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import PullMessageRequestHeader
from remoting.record import decode_records
from tests.cluster.classic_pair import PATIENCE_S, MakePair, Pair, pairs, status, until
from tests.cluster.classic_senders import GROUP, TOPIC
from tests.cluster.classic_site import command, commit, is_master, offsets, offsets_are

ASYNC = "ASYNC_MASTER"
LATER = "Later"
DELAYED = 40
# What the master's file has, and how far consumers were when it was killed.
STORED, KNOWN, SET_BACK = 2, 7, 1


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakePair]:
    with pairs(tmp_path) as start:
        yield start


async def killed_behind_its_slave(make: MakePair) -> Pair:
    """Return a pair whose master was killed with offsets in its file that are behind what its slave knows."""
    # Nothing is written by the clock: what is in the file an administrator's reset has put there.
    pair = make(ASYNC, flushConsumerOffsetInterval=3_600_000)
    master = pair.master.process
    await pair.send_each(KNOWN)
    await pair.caught_up()
    await commit(master.address, STORED)
    await commit(master.address, STORED, group="other")
    async with AdminClient(pair.namesrv.address) as admin:
        await admin.reset_queue_offset("other", MessageQueue(TOPIC, "broker-a", 0), 0)
    await commit(master.address, KNOWN)
    await offsets_are(pair.slave, [KNOWN] * 4)
    pair.master.kill()
    return pair


async def test_a_killed_master_gets_the_offsets_back_that_its_slave_knows(make: MakePair) -> None:
    pair = await killed_behind_its_slave(make)
    master = pair.master.process
    master.launch()
    await offsets_are(master, [KNOWN] * 4)
    await pair.caught_up()
    # It may have copied the older ones in the meantime.
    await offsets_are(pair.slave, [KNOWN] * 4)
    # The second time too, and with another start of the slave between the kills.
    await asyncio.to_thread(pair.slave.stop)
    pair.master.kill()
    pair.slave.launch()
    await until(pair.slave.ready, "a slave whose master is away is ready")
    master.launch()
    await offsets_are(master, [KNOWN] * 4)


async def test_an_administrators_reset_wins_over_the_greater_offset_of_a_slave(make: MakePair) -> None:
    pair = await killed_behind_its_slave(make)
    master = pair.master.process
    # The slave does not hear of what follows, until the master was killed again.
    await asyncio.to_thread(pair.slave.stop)
    master.launch()
    await asyncio.to_thread(master.wait_ready)
    async with AdminClient(pair.namesrv.address) as admin:
        await admin.reset_queue_offset(GROUP, MessageQueue(TOPIC, "broker-a", 0), SET_BACK)
    before = await offsets(master.address)
    assert before[0] == SET_BACK
    pair.master.kill()
    master.launch()
    pair.slave.launch()
    await asyncio.to_thread(master.wait_ready)
    await until(pair.slave.ready, "the slave does not follow")
    await offsets_are(pair.slave, await offsets(master.address))
    assert (await offsets(master.address))[0] == SET_BACK


async def test_a_promoted_slave_delivers_nothing_again_that_its_log_has(make: MakePair) -> None:
    pair = make(ASYNC, messageDelayLevel="1s 2s", defaultTopicQueueNums=1)
    async with Producer("P", pair.namesrv.address) as producer:
        for number in range(DELAYED):
            await producer.send(Message(LATER, b"%d" % number, delay_level=1))
            await asyncio.sleep(0.05)
    # Some deliveries are in the slave's copy of the progress; then some more are made.
    await until_progress(pair.slave.address, DELAYED // 4)
    await pair.caught_up()
    pair.master.kill()
    await until(lambda: not (status(pair.slave) or {"master": {"alive": True}})["master"]["alive"], "it still lives")
    delivered = await bodies(pair.slave.address)
    await command("promote", "broker-a", "--yes", "-n", pair.namesrv.address)
    await is_master(pair.slave)
    async with asyncio.timeout(PATIENCE_S):
        while len(set(found := await bodies(pair.slave.address))) < DELAYED:
            await asyncio.sleep(0.1)
    assert Counter(found) == Counter(range(DELAYED)), "all, and none twice, whatever the copied progress says"
    assert found[: len(delivered)] == delivered


async def until_progress(address: str, least: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await progress(address) < least:
            await asyncio.sleep(0.02)


async def progress(address: str) -> int:
    """Return how many messages of the first delay level are known to be delivered at a broker."""
    client = RemotingClient()
    try:
        answer = await client.invoke(address, Command.request(RequestCode.GET_ALL_DELAY_OFFSET))
        return int(json.loads(bytes(answer.body)).get("offsetTable", {}).get("1", 0))
    finally:
        await client.close()


async def bodies(address: str) -> list[int]:
    """Return the numbers of all delivered messages at a broker, in their order."""
    client = RemotingClient()
    found: list[int] = []
    try:
        offset = 0
        while True:
            header = PullMessageRequestHeader(
                consumerGroup=GROUP,
                topic=LATER,
                queueId=0,
                queueOffset=offset,
                maxMsgNums=512,
                sysFlag=int(PullSysFlag.SUBSCRIPTION),
                commitOffset=0,
                suspendTimeoutMillis=0,
                subVersion=0,
                subscription="*",
            )
            answer = await client.invoke(address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE_S)
            if answer.code != ResponseCode.SUCCESS:
                return found
            found += [int(message.body) for message in decode_records(bytes(answer.body))]
            offset = int(answer.ext["nextBeginOffset"])
    finally:
        await client.close()
