"""A registration or a deposition that somebody made up fences no master (R15): real processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from chaos.host.processes import free_ports
from remoting.bodies.registry import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable
from remoting.client import RemotingClient
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.headers.registry import RegisterBrokerRequestHeader
from tests.cluster.raft_site import said
from tests.cluster.test_broker_promotion import NAME, TOPIC, Site, loaded, send_to, sites, state, until
from tests.parts.byte_peer import serving

__all__ = ["sites"]

EPOCH = 99


@asynccontextmanager
async def registered(site: Site, address: str) -> AsyncIterator[None]:
    """Somebody who has registered an address as the site's master, with a higher epoch than any, and stays."""
    header = RegisterBrokerRequestHeader(
        brokerName=NAME, brokerAddr=address, clusterName="DefaultCluster", haServerAddr=address, brokerId=0
    )
    topics = {name: TopicConfig(name, 4, 4) for name in (TOPIC, "another")}
    body = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, EPOCH, 1), topicConfigTable=topics)).encode()
    client = RemotingClient()
    try:
        await client.call(site.namesrv.address, RequestCode.REGISTER_BROKER, header, body)
        yield
    finally:
        await client.close()


async def serves(site: Site) -> None:
    """Whoever reaches the master is served, and nothing on its disk says that it should not."""
    assert (await send_to(site.master.address)).code == ResponseCode.SUCCESS
    assert (state(site.master)["fenced"], state(site.master)["epoch"]) == (None, 0)
    assert not list(site.folder.rglob("mode.json"))


@pytest.mark.timeout(90)
@pytest.mark.parametrize("whose", ["nobody's", "the slave's"])
async def test_R15_a_forged_registration_fences_no_master_also_after_a_restart(
    tmp_path: Path, sites: list[Site], whose: str
) -> None:
    site = await loaded(tmp_path, sites, settings={"registerNameServerPeriod": 10_000})
    address = site.slave.address if whose == "the slave's" else f"127.0.0.1:{free_ports(1)[0]}"
    answer = "does not answer and never was a slave" if whose == "nobody's" else "does not say so itself"

    async def doubted() -> None:
        words = f"names {address} as the master of {NAME} (epoch {EPOCH}, here 0), which {answer}"
        await until(
            lambda: any(words in each for each in state(site.master).get("warnings", [])), site.master.last_words
        )
        # The log of the process that has just learnt it.
        await said(site.master, words)

    async with registered(site, address):
        await doubted()
        await serves(site)
        site.master.kill()
        await asyncio.to_thread(site.master.start)
        await doubted()
        await serves(site)
    # The name is cleaned up by a person, and the master is found again.
    await until(lambda: state(site.master).get("fenced", "") is None, site.master.last_words)
    await site.done("forget", NAME)
    site.master.kill()
    await asyncio.to_thread(site.master.start)
    await site.send()
    assert state(site.master)["warnings"] == []


async def introduced(site: Site, address: str) -> None:
    """Somebody says to the master that the slave 1 is at an address, as slaves do."""
    client = RemotingClient()
    try:
        body = orjson.dumps({"brokerId": 1, "address": address})
        told = await client.invoke(site.master.address, Command.request(ClassicCode.STATUS, None, body))
        assert told.code == ResponseCode.SUCCESS
    finally:
        await client.close()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("slaves", [0, 1])
async def test_R15_two_forged_frames_stop_no_master_also_after_a_restart(
    tmp_path: Path, sites: list[Site], slaves: int
) -> None:
    site = await loaded(tmp_path, sites, slaves=slaves, settings={"registerNameServerPeriod": 10_000})
    address = f"127.0.0.1:{free_ports(1)[0]}"
    words = f"(epoch {EPOCH}, here 0), which does not answer and never was a slave of this broker"

    async def doubted() -> None:
        await until(
            lambda: any(words in each for each in state(site.master).get("warnings", [])), site.master.last_words
        )

    await introduced(site, address)
    async with registered(site, address):
        await doubted()
        await serves(site)
        await introduced(site, address)
        site.master.kill()
        await asyncio.to_thread(site.master.start)
        await doubted()
        await serves(site)
    if slaves:
        # Its slave is known as one, over the restart too.
        known = tmp_path.rglob("slaves.json")
        assert [orjson.loads(path.read_bytes())["slaves"] for path in known] == [[site.slave.address]]


@pytest.mark.timeout(60)
async def test_R15_with_a_secret_a_listener_that_answers_as_promoted_deposes_nobody(
    tmp_path: Path, sites: list[Site]
) -> None:
    claim = {"broker": NAME, "role": "ASYNC_MASTER", "epoch": EPOCH, "fenced": None, "promoting": EPOCH}

    def promoted(_connection: Connection, _request: Command) -> Command:
        return Command.response(ResponseCode.SUCCESS, None, None, orjson.dumps({**claim, "proof": "0" * 64}))

    path = tmp_path / "secret"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    path.chmod(0o600)
    site = await loaded(tmp_path, sites, settings={"haSecretFile": path})
    async with serving({int(ClassicCode.STATUS): promoted}) as (liar, _):
        by = f"127.0.0.1:{liar.port}"
        await introduced(site, by)
        client = RemotingClient()
        try:
            body = orjson.dumps({"broker": NAME, "by": by, "epoch": EPOCH})
            refused = await client.invoke(site.master.address, Command.request(ClassicCode.DEPOSED, None, body))
        finally:
            await client.close()
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "does not prove that it knows the secret of haSecretFile" in str(refused.remark)
        async with registered(site, by):
            words = f"names {by} as the master of {NAME} (epoch {EPOCH}, here 0), which does not prove"
            await until(
                lambda: any(words in each for each in state(site.master).get("warnings", [])), site.master.last_words
            )
            await serves(site)


@pytest.mark.timeout(60)
async def test_R15_nobody_deposes_a_master_by_telling_so(tmp_path: Path, sites: list[Site]) -> None:
    site = await loaded(tmp_path, sites)
    client = RemotingClient()
    try:
        for by in (site.slave.address, f"127.0.0.1:{free_ports(1)[0]}"):
            body = orjson.dumps({"broker": NAME, "by": by, "epoch": EPOCH})
            refused = await client.invoke(site.master.address, Command.request(ClassicCode.DEPOSED, None, body))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"{by} does not" in str(refused.remark)
            assert "only its own word deposes a master" in str(refused.remark)
    finally:
        await client.close()
    await serves(site)
    site.master.kill()
    await asyncio.to_thread(site.master.start)
    await serves(site)


async def _digest(site: Site) -> Command:
    client = RemotingClient()
    try:
        body = orjson.dumps({"ranges": [[0, 64]]})
        return await client.invoke(site.master.address, Command.request(ClassicCode.DIGEST, None, body))
    finally:
        await client.close()


@pytest.mark.timeout(60)
async def test_a_stranger_has_no_log_read(tmp_path: Path, sites: list[Site]) -> None:
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    path.chmod(0o600)
    # Nobody may administer: who asks is on this machine.
    keys = {"haSecretFile": path, "adminAllowFrom": "192.0.2.1", "autoCreateTopicEnable": True}
    site = Site(tmp_path, settings=keys)
    sites.append(site)
    for process in (site.master, site.slave):
        await asyncio.to_thread(process.start)
    await site.caught_up(site.master, site.slave)
    # From the slave's host; and from nobody's, once it is gone.
    assert (await _digest(site)).code == ResponseCode.SUCCESS
    site.slave.kill()
    await until(lambda: state(site.master).get("slaves") == [], site.master.last_words)
    refused = await _digest(site)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "does not prove that it knows the secret of haSecretFile" in str(refused.remark)
    # It compares logs when it comes again.
    await asyncio.to_thread(site.slave.start)
    await site.caught_up(site.master, site.slave)
