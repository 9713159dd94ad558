"""Logs of a master and a slave that went different ways (R16): what is cut, what is kept, and who must decide."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client.message import Message
from client.produce.producer import Producer
from raftmq.cli.main import app
from tests.cluster.classic_pair import MakePair, Pair, pairs, read_all, status, until
from tests.cluster.classic_site import command, follows, is_master, log_digest, said
from tests.cluster.raft_site import log_of

ASYNC, SYNC = "ASYNC_MASTER", "SYNC_MASTER"
LOAD_S = 0.2
FILE_BYTES = 256 * 1024
FORGETFUL = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "fileReservedTime": 0,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": 200,
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakePair]:
    with pairs(tmp_path) as start:
        yield start


def kept(store: Path) -> list[Path]:
    """Return the files that hold what was cut off."""
    return sorted(path for path in (store / "cut").rglob("*") if path.is_file())


def stopped_equal(pair: Pair) -> None:
    for process in (pair.slave, pair.master.process):
        assert process.stop() == 0, process.last_words()
    assert log_of(pair.stores[0]) == log_of(pair.stores[1])


@pytest.mark.parametrize("role", [ASYNC, SYNC])
async def test_R16_a_deposed_master_with_a_tail_of_its_own_follows_the_promoted_one(make: MakePair, role: str) -> None:
    pair = make(role, haHousekeepingInterval=1000)
    await pair.send_for(LOAD_S)
    await pair.caught_up()
    await read_all(pair.master.process.address)
    # What follows only the master gets.
    pair.cut_link()
    await pair.send_for(LOAD_S)
    lost = await pair.missing_at(pair.slave)
    assert bool(lost) is (role == ASYNC)
    pair.master.kill()
    # The proxy holds what was open, and what it takes: the master seems to live until it was not heard of for a second.
    typed = ["cluster", "promote", "broker-a", "--yes", "-n", pair.namesrv.address]
    await until(lambda: CliRunner().invoke(app, typed).exit_code == 0, "the slave was not promoted")
    await is_master(pair.slave)
    # Only now: what is under way in the link arrives when it is mended.
    pair.heal_link()
    async with Producer("P", pair.namesrv.address) as producer:
        for number in range(10):
            await producer.send(Message("After", b"%d" % number))
    # The old master comes back, learns that another was promoted, and takes nothing.
    pair.master.process.launch()
    old = pair.master.process
    await until(lambda: (found := status(old)) is not None and bool(found["fenced"]), "the old master is not fenced")
    assert not any(place for place in (await pair.send_for(LOAD_S / 2)).values() if place == 0)
    before = dict(pair.acknowledged())
    await command("follow", old.address, "-n", pair.namesrv.address)
    if role == SYNC:
        # Its tail may have been acknowledged, for all that it knows.
        await said(old, "accept-master")
        await command("accept-master", old.address, "-n", pair.namesrv.address)
    await follows(old, pair.slave)
    assert pair.acknowledged() == before
    assert (await pair.missing_at(pair.slave)).keys() == lost.keys()
    # What was cut off is all there.
    cut = kept(pair.stores[0])
    assert cut
    assert _numbers_in(cut) >= {b"%012d" % number for number in lost}
    await asyncio.to_thread(stopped_equal, pair)


@pytest.mark.parametrize("role", [ASYNC, SYNC])
async def test_R16_another_log_is_never_mixed_with_the_masters(make: MakePair, tmp_path: Path, role: str) -> None:
    pair = make(role)
    await pair.send_for(LOAD_S)
    await pair.caught_up()
    assert await asyncio.to_thread(pair.slave.stop) == 0
    other = tmp_path / "other"
    # A store that has nothing in common with the master's, of a master that is gone.
    pair.stores[1].rename(other)
    pair.master.kill()
    pair.master.store.rename(tmp_path / "copy")
    pair.master.process.launch()
    await asyncio.to_thread(pair.master.process.wait_ready)
    pair.history.queue = type(pair.history.queue)("b")
    pair.history.offset = type(pair.history.offset)("q")
    async with Producer("P", pair.namesrv.address) as producer:
        for number in range(20):
            await producer.send(Message("Other", b"%d" % number))
    other.rename(pair.stores[1])
    digest = log_digest(pair.stores[1])
    pair.slave.launch()
    await said(pair.slave, "accept-master")
    assert log_digest(pair.stores[1]) == digest, "the log was touched before anybody consented"
    await command("accept-master", pair.slave.address, "-n", pair.namesrv.address)
    await follows(pair.slave, pair.master.process)
    assert kept(pair.stores[1])
    await asyncio.to_thread(stopped_equal, pair)


async def test_R16_a_slave_behind_retention_copies_anew_and_says_so(make: MakePair) -> None:
    pair = make(ASYNC, **FORGETFUL)
    await _fill(pair, 5)
    await pair.caught_up()
    pair.slave.kill()
    await _fill(pair, 120)
    await until(lambda: min(map(_number, _log_files(pair.stores[0]))) >= 2 * FILE_BYTES, "nothing was deleted")
    pair.slave.launch()
    pid = pair.slave.pid
    await follows(pair.slave, pair.master.process)
    assert (pair.slave.running, pair.slave.pid) == (True, pid), "it began anew in the same process"
    assert kept(pair.stores[1])
    await _fill(pair, 5)
    await follows(pair.slave, pair.master.process)


async def _fill(pair: Pair, count: int) -> None:
    async with Producer("P", pair.namesrv.address, send_timeout=10.0) as producer:
        for _ in range(count):
            await producer.send(Message("Fill", os.urandom(10_000)))


def _log_files(store: Path) -> list[Path]:
    return list((store / "commitlog").iterdir())


def _number(path: Path) -> int:
    return int(path.name)


def _numbers_in(files: list[Path]) -> set[bytes]:
    """Return the bodies' numbers in whatever form the cut bytes are kept."""
    content = b"".join(path.read_bytes() for path in files)
    return {content[at - 12 : at] for at in _places(content, b"x" * 88)}


def _places(content: bytes, what: bytes) -> Iterator[int]:
    at = content.find(what)
    while at >= 0:
        yield at
        at = content.find(what, at + len(what))
