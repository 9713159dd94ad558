"""Timer messages of a master and its slave: a promoted slave goes on where its copy of the log says."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.registry import RecallMessageRequestHeader
from tests.cluster.broker_peer import v2
from tests.cluster.classic_pair import PATIENCE_S, MakePair, pairs, status, until
from tests.cluster.classic_site import command, is_master
from tests.cluster.test_broker_pair_offsets import LATER, bodies

COUNT, RECALLED = 60, {15, 33, 59}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakePair]:
    with pairs(tmp_path) as start:
        yield start


@pytest.mark.timeout(180)
async def test_a_promoted_slave_delivers_what_is_pending_once_and_nothing_recalled(make: MakePair) -> None:
    pair = make("ASYNC_MASTER", timerPrecisionMs=100, defaultTopicQueueNums=1, recallMessageEnable=True)
    client = RemotingClient()
    for number in range(COUNT):
        properties = f"UNIQ_KEY\x01K{number}\x02TIMER_DELAY_MS\x01{2500 + number * 50}\x02"
        request = Command.request(RequestCode.SEND_MESSAGE_V2, v2(LATER, properties), b"%d" % number)
        answer = await client.invoke(pair.master.process.address, request, 10.0)
        assert answer.code == 0
        if number in RECALLED:
            header = RecallMessageRequestHeader(producerGroup="P", topic=LATER, recallHandle=answer.ext["recallHandle"])
            request = Command.request(RequestCode.RECALL_MESSAGE, header)
            answer = await client.invoke(pair.master.process.address, request, 10.0)
            assert answer.code == 0, answer.remark
    await client.close()
    await pair.caught_up()
    async with asyncio.timeout(PATIENCE_S):
        while len(await bodies(pair.slave.address)) < COUNT // 6:
            await asyncio.sleep(0.02)
    pair.master.kill()
    await until(lambda: not (status(pair.slave) or {"master": {"alive": True}})["master"]["alive"], "it still lives")
    await command("promote", "broker-a", "--yes", "-n", pair.namesrv.address)
    await is_master(pair.slave)
    async with asyncio.timeout(PATIENCE_S):
        while len(await bodies(pair.slave.address)) < COUNT - len(RECALLED):
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    assert Counter(await bodies(pair.slave.address)) == Counter(set(range(COUNT)) - RECALLED)
