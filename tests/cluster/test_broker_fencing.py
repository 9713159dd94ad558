"""A deposed master takes nothing, whoever is away (R15): real processes, by the commands that people type."""

import asyncio
from pathlib import Path

import pytest

from client.admin.client import AdminClient
from client.errors import ClientError
from client.message import Message, SendStatus
from client.produce.producer import Producer
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from tests.cluster.test_broker_promotion import NAME, QUEUES, TOPIC, Site, loaded, send_to, sites, state, until

__all__ = ["sites"]

SENDERS = 8


async def deposed(folder: Path, sites: list[Site]) -> Site:
    """Return a site whose master died and was deposed by its slave, which serves."""
    site = await loaded(folder, sites)
    site.master.kill()
    await site.promote(site.slave)
    await site.send()
    return site


@pytest.mark.timeout(60)
async def test_R15_a_deposed_master_takes_nothing_while_the_promoted_one_is_away(
    tmp_path: Path, sites: list[Site]
) -> None:
    site = await deposed(tmp_path, sites)
    site.slave.kill()
    async with AdminClient(site.namesrv.address) as admin, asyncio.timeout(20):
        while await admin.brokers():
            await asyncio.sleep(0.05)
    await asyncio.to_thread(site.master.launch)
    await until(lambda: state(site.master).get("epoch") is not None, site.master.last_words)
    answer = await send_to(site.master.address)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert f"{site.slave.address} was promoted to master in the place of this broker (epoch 1" in str(answer.remark)
    async with AdminClient(site.namesrv.address) as admin:
        assert not await admin.brokers()
    # The promoted one is lost for good: a person makes the old one the master, with what it has.
    await site.done("promote", NAME, "--at", site.master.address, "--yes")
    await until(lambda: state(site.master).get("epoch") == 2, site.master.last_words)
    await asyncio.to_thread(site.master.wait_ready)
    await site.send(2)
    assert state(site.master)["untold"] == [site.slave.address]
    # It was not, and comes back.
    site.slave.launch()
    await until(lambda: state(site.slave).get("fenced"), site.slave.last_words)
    await until(lambda: state(site.master)["untold"] == [], site.master.last_words)


@pytest.mark.timeout(60)
async def test_R15_the_promoted_one_tells_the_old_one_itself_when_no_name_server_can(
    tmp_path: Path, sites: list[Site]
) -> None:
    site = await deposed(tmp_path, sites)
    # Whom it has still to tell outlives a kill, and all NameServers.
    site.slave.kill()
    site.namesrv.kill()
    await asyncio.to_thread(site.slave.start)
    assert state(site.slave)["untold"] == [site.master.address]
    await asyncio.to_thread(site.master.start)
    await until(lambda: state(site.master).get("fenced"), site.master.last_words)
    await until(lambda: state(site.slave)["untold"] == [], site.slave.last_words)
    assert (await send_to(site.master.address)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    # What is said once is kept on both sides.
    for process in (site.slave, site.master):
        process.kill()
        process.launch()
    await until(lambda: state(site.slave).get("epoch") == 1, site.slave.last_words)
    await until(lambda: state(site.master).get("fenced"), site.master.last_words)
    assert state(site.slave)["untold"] == []


@pytest.mark.timeout(60)
async def test_R15_an_old_master_that_was_started_first_is_told_before_the_promoted_one_serves(
    tmp_path: Path, sites: list[Site]
) -> None:
    site = await deposed(tmp_path, sites)
    site.slave.kill()
    site.namesrv.kill()
    # Nobody is there who could tell it: all NameServers are down, and the one in its place too.
    await asyncio.to_thread(site.master.start)
    assert (await send_to(site.master.address)).code == ResponseCode.SUCCESS
    await asyncio.to_thread(site.slave.start)
    assert state(site.master)["fenced"]
    assert (await send_to(site.master.address)).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.timeout(60)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_R15_a_master_that_lives_is_told_of_a_forced_promotion_and_nothing_acknowledged_is_lost(
    tmp_path: Path, sites: list[Site], role: str
) -> None:
    site = await loaded(tmp_path, sites, role=role)
    reached = asyncio.Event()

    async def sender(number: int) -> None:
        async with Producer(f"p{number}", site.namesrv.address, retries=0, send_timeout=5.0) as producer:
            for count in range(1_000_000):
                body = b"%d-%d" % (number, count)
                try:
                    sent = await producer.send(Message(TOPIC, body), queue=QUEUES[number % len(QUEUES)])
                except (ClientError, RemotingError):
                    return
                if sent.status is SendStatus.SEND_OK:
                    site.acknowledged.add(body)
                if count > 20:
                    reached.set()

    sending = [asyncio.create_task(sender(number)) for number in range(SENDERS)]
    await reached.wait()
    await site.done("promote", NAME, "--yes", "--force", "--role", "ASYNC_MASTER")
    # With the answer of the command, and before anybody else serves.
    assert state(site.master)["fenced"]
    assert (await send_to(site.master.address)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await asyncio.gather(*sending)
    await until(lambda: state(site.slave).get("role") == "ASYNC_MASTER", site.slave.last_words)
    await asyncio.to_thread(site.slave.wait_ready)
    assert state(site.slave)["untold"] == []
    assert site.acknowledged <= {message.body for message in await site.read()}
    await site.send()
