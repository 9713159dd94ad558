"""R18: bytes of a log rot: a group mends them, anybody else serves what is right, and consumers get nothing wrong."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.processes import ServerProcess, broker_process, free_ports, raft_processes
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.consume import PullMessageRequestHeader
from tests.cluster.process_group import until
from tests.cluster.raft_site import BODY_BYTES, GROUP, LOG_FILE_BYTES, ROUND, SETTINGS, TOPIC, Site, body, stop
from tests.cluster.test_client_producer import everything
from tests.parts.ha_master import Slave

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.close()


def start(members: list[ServerProcess]) -> None:
    for member in members:
        member.launch()
    for member in members:
        member.wait_ready()


def files(site: Site, member: str) -> list[bytes]:
    folder = site.store(member) / "commitlog"
    return [(folder / f"{number * LOG_FILE_BYTES:020d}").read_bytes() for number in range(2)]


def rot(site: Site, member: str) -> None:
    """Turn a bit of a message's body, and one of another's properties, where no CRC of a record sees it."""
    path = site.store(member) / "commitlog" / f"{LOG_FILE_BYTES:020d}"
    content = path.read_bytes()
    first, second = (content.index(body(number)) for number in (40, 44))
    key = content.index(b"k44", second + BODY_BYTES)
    with path.open("r+b") as file:
        for at in (first + 700, key + 1):
            file.seek(at)
            file.write(bytes([content[at] ^ 1]))


async def integrity(member: ServerProcess) -> dict[str, Any]:
    async with asyncio.timeout(60):
        # A busy one may not answer in time.
        while (state := await asyncio.to_thread(member.state, "/v1/status")) is None:
            await asyncio.sleep(0.1)
    found: dict[str, Any] = state["integrity"]
    return found


async def check(site: Site) -> None:
    """Every message comes once, with its body and its key."""
    found = await everything(site.namesrv.address, TOPIC, site.sent)
    assert sorted((message.queue_id, message.queue_offset, message.body, message.keys) for message in found) == sorted(
        (number % 2, number // 2, body(number), [f"k{number}"]) for number in range(site.sent)
    )


@pytest.mark.parametrize("scrub", [0, 64 * 1024 * 1024])
async def test_R18_rot_in_the_leaders_log_reaches_no_consumer_and_is_mended(site: Site, scrub: int) -> None:
    settings = {**SETTINGS, "scrubBytesPerSecond": scrub}
    members = raft_processes(site.folder, 3, namesrv=site.namesrv.address, settings=settings)
    site._started += members
    start(members)
    await site.create()
    await site.until_voting(members)
    await site.send(ROUND * 2)
    stop(members)
    # What stood there before a start is the disk's.
    start(members)
    leader = (await site.until_voting(members))["self"]
    leading = members[int(leader[1:])]
    whole = files(site, leader)
    if scrub:
        async with asyncio.timeout(60):
            while (await integrity(leading))["scrubPasses"] == 0:
                await asyncio.sleep(0.1)
        # A pass has just ended: the next one comes after a start.
        assert leading.stop() == 0
        rot(site, leader)
        assert files(site, leader) != whole
        leading.start()
        async with asyncio.timeout(60):
            while (found := await integrity(leading))["damagedFound"] < 1 or files(site, leader) != whole:
                await asyncio.sleep(0.1)
    else:
        rot(site, leader)
        assert files(site, leader) != whole
        await check(site)
        async with asyncio.timeout(60):
            while files(site, leader) != whole:
                await asyncio.sleep(0.1)
        found = await integrity(leading)
        assert found["damagedFound"] >= 1
    async with asyncio.timeout(60):
        while (await integrity(leading))["damaged"]:
            await asyncio.sleep(0.1)
    await site.until_voting(members)
    await check(site)


async def test_R18_rot_in_a_single_brokers_log_reaches_neither_consumer_nor_slave(site: Site) -> None:
    (ha_port,) = free_ports(1)
    settings = {**SETTINGS, "storePathRootDir": site.store("n0"), "haListenPort": ha_port, "scrubBytesPerSecond": 0}
    broker = broker_process(site.folder / "n0-single", namesrv=site.namesrv.address, settings=settings, name="n0")
    site._started.append(broker)
    broker.start()
    await site.create()
    await site.send(ROUND * 2)
    assert broker.stop() == 0
    first = site.store("n0") / "commitlog" / f"{0:020d}"
    content = first.read_bytes()
    # The sixth of its queue, the eleventh of all.
    hurt = content.index(body(10))
    with first.open("r+b") as file:
        file.seek(hurt + 700)
        file.write(bytes([content[hurt + 700] ^ 1]))
    broker.start()
    await site.routed()
    right = [number for number in range(site.sent) if number % 2 or number < 10]
    found = await everything(site.namesrv.address, TOPIC, len(right))
    assert sorted((message.queue_id, message.queue_offset, message.body) for message in found) == sorted(
        (number % 2, number // 2, body(number)) for number in right
    )
    state = await integrity(broker)
    (place,) = state["damaged"]
    position = int(place["position"])
    assert 0 < hurt - position < 200
    assert state["damagedFound"] == 1

    def said() -> list[str]:
        return [line for line in broker.log.read_text(errors="replace").splitlines() if f"at {position} " in line]

    await asyncio.to_thread(until, "the log says so", lambda: bool(said()))
    assert len(said()) == 1, said()
    assert "cannot be served" in said()[0]
    # Whoever asks behind it gets what stands there.
    client = RemotingClient()
    try:
        header = PullMessageRequestHeader(
            consumerGroup=GROUP, topic=TOPIC, queueId=0, queueOffset=5, maxMsgNums=32, sysFlag=4, commitOffset=0,
            suspendTimeoutMillis=0, subscription="*", subVersion=0,
        )  # fmt: skip
        answer = await client.invoke(broker.address, Command.request(RequestCode.PULL_MESSAGE, header))
        assert (answer.code, f"at {position} " in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    finally:
        await client.close()
    # A slave that takes everything as it comes.
    slave = Slave(*await asyncio.open_connection("127.0.0.1", ha_port))
    slave.report(0)
    assert await slave.take(0, position) == content[:position]
    assert await slave.ended()
    await slave.close()
    async with asyncio.timeout(60):
        while "links that ended so: 1" not in str(await asyncio.to_thread(broker.state, "/v1/ha")):
            await asyncio.sleep(0.05)
    assert (await integrity(broker))["damagedFound"] == 1
