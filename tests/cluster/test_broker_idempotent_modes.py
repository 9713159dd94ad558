"""Idempotent sends to real processes in every mode: killed after they stored, before they answered, and again."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers.registry import GetMaxOffsetRequestHeader
from tests.cluster.modes import SETUPS, Group, Setup
from tests.cluster.process_group import leading, process_group
from tests.cluster.raft_cluster import read_all
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_broker_promotion import Site
from tests.parts.idempotent_sends import Told, batch_once, lost_answer, once, sent, told

PATIENCE_S = 60.0


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: setup.mode)
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    setup: Setup = request.param
    made = Group(tmp_path_factory.mktemp(setup.mode), setup)
    made.cluster.start()
    try:
        yield made
    finally:
        made.cluster.kill()


async def max_offset(client: RemotingClient, address: str, topic: str) -> int:
    request = Command.request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queueId=0))
    answer = await client.invoke(address, request, 5.0)
    return int(answer.ext.get("offset", 0))


async def until_sent(client: RemotingClient, address: str, request: Command) -> Told:
    """Send until there is an answer that says what was stored: a client's attempts, one after the other."""
    last: object = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    answer = last = await client.invoke(address, request, 2.0)
                    if answer.code == 0:
                        return told(answer)
                except RemotingError as error:
                    last = error
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the last answer: {last}") from None


async def leader_of(group: Group) -> str:
    return (await asyncio.to_thread(group.cluster.wait_for_leader)).address


async def test_a_kill_between_storing_and_answering_leaves_one_record(group: Group, client: RemotingClient) -> None:
    leader, topic = await leader_of(group), "Killed"
    first = await until_sent(client, leader, once("A", topic=topic))
    batch = await until_sent(client, leader, batch_once(["B", "C"], topic=topic))
    for keys in (["D"], ["E", "F"]):
        before = await max_offset(client, leader, topic)
        await lost_answer(leader, once("D", topic=topic) if len(keys) == 1 else batch_once(keys, topic=topic))
        async with asyncio.timeout(PATIENCE_S):
            while await max_offset(client, leader, topic) < before + len(keys):
                await asyncio.sleep(0.01)
    for _ in range(2):
        # Killed, and once more.
        await group.kill_leader()
        leader = await leader_of(group)
        assert await until_sent(client, leader, once("A", topic=topic, queue_id=2)) == first
        assert await until_sent(client, leader, batch_once(["B", "C"], topic=topic, queue_id=2)) == batch
        lost = await until_sent(client, leader, once("D", topic=topic, queue_id=1))
        assert (lost.queue_id, lost.queue_offset) == (0, 3)
        both = await until_sent(client, leader, batch_once(["E", "F"], topic=topic))
        assert (both.queue_id, both.queue_offset, both.msg_id.count(",")) == (0, 4, 1)
        found = await group.read(topic, 6)
        assert Counter(message.properties["UNIQ_KEY"] for message in found) == Counter("ABCDEF")


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, list[ServerProcess]]]:
    # Its leader is to lead still when its followers have stood for a while.
    settings = {**SMALL_FILES, "raftElectionMsMin": 6000, "raftElectionMsMax": 6500, "shutdownForwardMs": 50}
    with process_group(tmp_path_factory.mktemp("group"), settings) as made:
        yield made


async def test_a_repetition_waits_for_the_first_ones_fate_in_a_group(
    members: tuple[ServerProcess, list[ServerProcess]], client: RemotingClient
) -> None:
    namesrv, all_members = members
    leader = all_members[await asyncio.to_thread(leading, all_members)]
    followers = [member for member in all_members if member is not leader]
    second = RemotingClient()
    await until_sent(client, leader.address, once("0", topic="Waits"))
    for follower in followers:
        follower.signal(signal.SIGSTOP)
    try:
        first = asyncio.create_task(sent(client, leader.address, once("A", topic="Waits"), 20.0))
        again = asyncio.create_task(sent(second, leader.address, once("A", topic="Waits", queue_id=3), 20.0))
        done, _ = await asyncio.wait({first, again}, timeout=0.3)
        assert not done, "no majority has it"
    finally:
        for follower in followers:
            follower.signal(signal.SIGCONT)
    assert await first == await again
    assert first.result().queue_offset == 1
    # A member that does not lead passes it on with its mark.
    assert await until_sent(second, followers[0].address, once("A", topic="Waits", queue_id=2)) == first.result()
    await second.close()
    found = await read_all(namesrv.address, "Waits", 2)
    assert Counter(message.properties["UNIQ_KEY"] for message in found) == Counter("0A")


async def test_a_repetition_at_a_sync_master_is_no_success_before_a_slave_has_it(
    tmp_path: Path, client: RemotingClient
) -> None:
    site = Site(tmp_path, role="SYNC_MASTER", settings={"slaveTimeout": 500})
    try:
        await site.start()
        before = await until_sent(client, site.master.address, once("0"))
        await site.caught_up(site.master, site.slave)
        site.slave.signal(signal.SIGSTOP)
        first = await sent(client, site.master.address, once("A"))
        assert (first.code, first.queue_offset) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, before.queue_offset + 1)
        again = await sent(client, site.master.address, once("A"))
        assert again == first
        # Who has forgotten that it waited in vain still knows that it must.
        site.master.kill()
        await asyncio.to_thread(site.master.launch)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(RemotingError, KeyError):
                    again = await sent(client, site.master.address, once("A"))
                    break
                await asyncio.sleep(0.05)
        assert again.code in {ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
        assert again[1:] == first[1:]
        site.slave.signal(signal.SIGCONT)
        await site.caught_up(site.master, site.slave)
        assert (await until_sent(client, site.master.address, once("A")))[1:] == first[1:]
        assert await max_offset(client, site.master.address, "T") == first.queue_offset + 1
    finally:
        site.slave.signal(signal.SIGCONT)
        site.close()


async def test_a_promoted_slave_knows_what_its_master_stored(tmp_path: Path, client: RemotingClient) -> None:
    site = Site(tmp_path, role="SYNC_MASTER")
    try:
        await site.start()
        first = await until_sent(client, site.master.address, once("A"))
        await site.caught_up(site.master, site.slave)
        site.master.kill()
        await site.promote(site.slave, "--role", "ASYNC_MASTER")
        assert await until_sent(client, site.slave.address, once("A")) == first
        assert (await until_sent(client, site.slave.address, once("B"))).queue_offset == 1
        assert await max_offset(client, site.slave.address, "T") == 2
    finally:
        site.close()
