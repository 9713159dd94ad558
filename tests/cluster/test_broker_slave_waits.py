"""A slave that may hold the only copy keeps all of it, log and tables, until a person decides (R16)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, broker_process, free_ports
from tests.cluster.classic_pair import SETTINGS, MakePair, Pair, pairs, status, until
from tests.cluster.classic_senders import TOPIC, Senders
from tests.cluster.classic_site import command, commit, follows, log_digest, offsets, offsets_are
from tests.cluster.process_group import told

ASYNC = "ASYNC_MASTER"
# Offset that the group committed in each queue; far enough from what a new log soon has.
COMMITTED = 7


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakePair]:
    with pairs(tmp_path) as start:
        yield start


async def loaded(make: MakePair) -> Pair:
    """Return a pair with messages and committed offsets that the slave has all of."""
    pair = make(ASYNC, slaveMetadataMs=200)
    await pair.send_each(COMMITTED)
    await pair.caught_up()
    await commit(pair.master.process.address, COMMITTED)
    await offsets_are(pair.slave, [COMMITTED] * 4)
    return pair


def topics_of(process: ServerProcess) -> set[str]:
    return {topic["topic"] for topic in (told(process, "/v1/topics") or {})["topics"]}


async def waits(pair: Pair) -> None:
    await until(lambda: (found := status(pair.slave)) is not None and found["master"]["waitsFor"], "it does not wait")


async def keeps_everything(pair: Pair, master: ServerProcess) -> None:
    """Check that the slave waits beside a master that is sent to, and that nothing of it is changed meanwhile."""
    await waits(pair)
    digest, topics = log_digest(pair.stores[1]), topics_of(pair.slave)
    # Offsets are of topics, and that of an empty master comes with its first send.
    await until(lambda: TOPIC in topics_of(master), "the master is not sent to")
    began = (status(master) or {})["max"]
    # Several copies of the tables later, were any made: whatever news the master has, and by the clock.
    for number in range(5):
        await commit(master.address, number)
        await asyncio.sleep(0.25)
    await until(lambda: (status(master) or {"max": began})["max"] > began, "the master is not under load")
    assert await offsets(pair.slave.address) == [COMMITTED] * 4
    assert topics_of(pair.slave) == topics
    assert log_digest(pair.stores[1]) == digest
    assert not (pair.stores[1] / "cut").exists()
    assert not pair.slave.ready()
    assert "the only copy" in (status(pair.slave) or {})["warnings"][0]


async def test_R16_a_wiped_master_under_load_takes_neither_log_nor_tables_from_its_slave(make: MakePair) -> None:
    pair = await loaded(make)
    pair.master.kill()
    pair.master.store.rename(pair.folder / "lost")
    senders = Senders(pair.master.process.address, pair.history)
    try:
        pair.master.process.launch()
        await asyncio.to_thread(pair.master.process.wait_ready)
        await keeps_everything(pair, pair.master.process)
    finally:
        await senders.stop()
    # Started again it finds the same, tables of before and all.
    assert await asyncio.to_thread(pair.slave.stop) == 0
    pair.slave.launch()
    await waits(pair)
    assert await offsets(pair.slave.address) == [COMMITTED] * 4
    # Only a person's word makes it begin anew, and what it had is kept.
    await command("accept-master", pair.slave.address, "-n", pair.namesrv.address)
    await follows(pair.slave, pair.master.process)
    assert any((pair.stores[1] / "cut").rglob("commitlog/*"))
    await until(pair.slave.ready, "it is not ready behind its new master")


async def test_R16_a_stranger_of_the_same_name_takes_nothing_from_the_slave(make: MakePair) -> None:
    pair = await loaded(make)
    pair.master.kill()
    (ha_port,) = free_ports(1)
    settings = {**SETTINGS, "brokerRole": ASYNC, "brokerId": 0, "haListenPort": ha_port, "flushDiskType": "ASYNC_FLUSH"}
    # The slave's own link leads to the old master: the stranger must be reachable for anything to go wrong.
    config = pair.folder / "slave1" / "broker.conf"
    config.write_text("\n".join(line for line in config.read_text().splitlines() if "haMasterAddress" not in line))
    assert await asyncio.to_thread(pair.slave.stop) == 0
    stranger = broker_process(
        pair.folder / "stranger", namesrv=pair.namesrv.address, name="stranger", settings=settings
    )
    try:
        await asyncio.to_thread(stranger.start)
        senders = Senders(stranger.address, pair.history)
        try:
            pair.slave.launch()
            await keeps_everything(pair, stranger)
        finally:
            await senders.stop()
    finally:
        stranger.kill()
