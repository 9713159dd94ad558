"""What a master and a slave may lose: {ASYNC, SYNC} x {ASYNC_FLUSH, SYNC_FLUSH} x four faults, counted exactly.

`MATRIX` is the table of docs/durability.md. What is acknowledged is a send answered with SUCCESS; what is lost is
counted while the fault lasts, from the broker that is left, and at its end.
"""

import asyncio
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.host.processes import ServerProcess
from raftmq.cli.main import app
from remoting.codes import ResponseCode
from store.log.logscan import LogScan
from tests.cluster.classic_pair import PATIENCE_S, Pair, only_tails, read_all, status, until
from tests.cluster.classic_senders import differences_of, log_spans

PAGE = Path(__file__).resolve().parents[2] / "docs" / "durability.md"
ASYNC, SYNC = "ASYNC_MASTER", "SYNC_MASTER"
LAZY, FLUSHED = "ASYNC_FLUSH", "SYNC_FLUSH"
LOAD_S = 0.4
FSYNC_MS = 20.0
POWER_LOSSES_MAX = 10
NO_SLAVE = f"code {int(ResponseCode.SLAVE_NOT_AVAILABLE)}"
SLOW_SLAVE = f"code {int(ResponseCode.FLUSH_SLAVE_TIMEOUT)}"


class Lost(Enum):
    """Of what was acknowledged, as docs/durability.md says it."""

    NOTHING = "nothing"
    MASTERS_OWN = "nothing, once the master is back; until then what the slave had not got"
    NOT_COPIED = "nothing; the slave lacks what was sent meanwhile until the link is back"
    NOT_FLUSHED = "what the master had not flushed; the slave cuts it off and keeps it aside"


KILL_MASTER, KILL_SLAVE, CUT_LINK, DIVERGENCE = (
    "kill -9 of the master",
    "kill -9 of the slave",
    "link cut",
    "power loss of the master, restart with less than the slave",
)
MATRIX = {
    (ASYNC, LAZY, KILL_MASTER): Lost.MASTERS_OWN,
    (ASYNC, FLUSHED, KILL_MASTER): Lost.MASTERS_OWN,
    (SYNC, LAZY, KILL_MASTER): Lost.NOTHING,
    (SYNC, FLUSHED, KILL_MASTER): Lost.NOTHING,
    (ASYNC, LAZY, KILL_SLAVE): Lost.NOTHING,
    (ASYNC, FLUSHED, KILL_SLAVE): Lost.NOTHING,
    (SYNC, LAZY, KILL_SLAVE): Lost.NOTHING,
    (SYNC, FLUSHED, KILL_SLAVE): Lost.NOTHING,
    (ASYNC, LAZY, CUT_LINK): Lost.NOT_COPIED,
    (ASYNC, FLUSHED, CUT_LINK): Lost.NOT_COPIED,
    (SYNC, LAZY, CUT_LINK): Lost.NOTHING,
    (SYNC, FLUSHED, CUT_LINK): Lost.NOTHING,
    (ASYNC, LAZY, DIVERGENCE): Lost.NOT_FLUSHED,
    (ASYNC, FLUSHED, DIVERGENCE): Lost.NOTHING,
    (SYNC, LAZY, DIVERGENCE): Lost.NOTHING,
    (SYNC, FLUSHED, DIVERGENCE): Lost.NOTHING,
}


@pytest.fixture(scope="module", params=[(ASYNC, LAZY), (ASYNC, FLUSHED), (SYNC, LAZY), (SYNC, FLUSHED)], ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    role, flush = request.param
    made = Pair(tmp_path_factory.mktemp("pair"), role, flush)
    try:
        if flush == FLUSHED:
            # So slow that there is always something on its way to the disk, which the slave may have already.
            made.slow_disk(FSYNC_MS)
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
async def whole(pair: Pair) -> Pair:
    """The pair, mended, with a slave that knows the group of the readers."""
    await pair.whole()
    await pair.send_for(LOAD_S / 4)
    # As many as it takes: without processor for slaveTimeout the slave has a send of a SYNC_MASTER answered without it.
    await pair.send_each(1)
    await pair.caught_up()
    await read_all(pair.master.process.address)
    assert await pair.missing_at(pair.slave) == {}
    return pair


def allowed(pair: Pair, fault: str) -> Lost:
    return MATRIX[pair.role, pair.flush, fault]


async def test_kill_of_the_master(whole: Pair) -> None:
    pair = whole
    await pair.send_for(LOAD_S, pair.master.kill)
    on_slave = await read_all(pair.slave.address)
    missing = await pair.missing_at(pair.slave)
    if allowed(pair, KILL_MASTER) is Lost.NOTHING:
        assert missing == {}
    assert only_tails(missing, on_slave)
    await pair.whole()
    assert await pair.missing_at(pair.master.process) == {}
    assert await pair.missing_at(pair.slave) == {}


async def test_kill_of_the_slave(whole: Pair) -> None:
    pair = whole
    before = pair.history.acknowledged
    wrong = await pair.send_for(LOAD_S, pair.slave.kill)
    assert pair.history.acknowledged > before
    if pair.role == SYNC:
        # Stored, and never called safe: those under way waited for it, later ones, for which a moment may be too short,
        # found no slave.
        async with asyncio.timeout(PATIENCE_S):
            while not wrong.get(NO_SLAVE, 0):
                more = await pair.send_for(LOAD_S / 4)
                wrong = {what: wrong.get(what, 0) + more.get(what, 0) for what in {*wrong, *more}}
        assert {what for what, count in wrong.items() if count} <= {NO_SLAVE, SLOW_SLAVE}
    else:
        assert not any(wrong.values())
    assert await pair.missing_at(pair.master.process) == {}
    await pair.whole()
    assert await pair.missing_at(pair.slave) == {}
    # Once at least: a slave that gets no processor for slaveTimeout has a send of a SYNC_MASTER answered without it.
    async with asyncio.timeout(PATIENCE_S):
        while any((await pair.send_for(LOAD_S / 4)).values()):
            pass


async def test_cut_of_the_link(whole: Pair) -> None:
    pair = whole
    wrong = await pair.send_for(LOAD_S, pair.cut_link)
    on_slave = await read_all(pair.slave.address)
    missing = await pair.missing_at(pair.slave)
    if allowed(pair, CUT_LINK) is Lost.NOTHING:
        assert wrong.get(SLOW_SLAVE, 0) + wrong.get(NO_SLAVE, 0) > 0
        assert missing == {}
    else:
        # The negative control: the link was cut, and sends went on.
        assert not any(wrong.values())
        assert missing
    assert only_tails(missing, on_slave)
    assert await pair.missing_at(pair.master.process) == {}
    await pair.whole()
    assert await pair.missing_at(pair.slave) == {}


async def test_power_loss_of_the_master_and_restart_with_less_than_its_slave(whole: Pair) -> None:
    pair = whole
    had = await less_than_its_slave(pair)
    pair.master.process.launch()
    await asyncio.to_thread(pair.master.process.wait_ready)
    if pair.role == SYNC:
        left = await decided_by_a_person(pair)
        assert await pair.missing_at(left) == {}
        return
    await pair.caught_up()
    missing = await pair.missing_at(pair.slave)
    assert missing.keys() == (await pair.missing_at(pair.master.process)).keys()
    if allowed(pair, DIVERGENCE) is Lost.NOTHING:
        assert missing == {}
    else:
        # Nothing was synced for seconds: what had been copied since is what the slave cut off, and keeps.
        assert missing
        cut = pair.stores[1] / "cut"
        assert {numbers for numbers in missing.values() if numbers in had}
        assert sum(path.stat().st_size for path in cut.rglob("*") if path.is_file()) > 0
    await all_stopped_and_equal(pair, lost=len(missing))


async def less_than_its_slave(pair: Pair) -> set[tuple[int, int]]:
    """Take the master's power while the slave has more than the master's disk; return what the slave has to read."""
    # Something is on its disk for certain: an empty store would be another story.
    await pair.send_for(LOAD_S / 4)
    assert await asyncio.to_thread(pair.master.process.stop) == 0
    await pair.whole()
    for seed in range(POWER_LOSSES_MAX):
        await pair.send_for(LOAD_S, pair.master.kill)
        if pair.role == SYNC:
            assert await pair.missing_at(pair.slave) == {}
        await pair.dispatched(pair.slave)
        had = set(await read_all(pair.slave.address))
        pair.lose_power(seed)
        state = status(pair.slave)
        assert state is not None
        if log_end(pair.stores[0]) < state["max"]:
            return had
        # The moment fell between two syncs of everything: nothing was lost.
        await pair.whole()
    raise AssertionError(f"{POWER_LOSSES_MAX} times in a row the master's disk had all that the slave has")


def log_end(store: Path) -> int:
    """Return where the log on a disk ends."""
    scan = LogScan(log_spans(store), 0, check_crc=True)
    for _ in scan:
        pass
    return scan.end


def files_with_data(store: Path) -> set[int]:
    """Return the files of a log without those that were made ahead."""
    end = log_end(store)
    return {span.start for span in log_spans(store) if span.start < end}


async def decided_by_a_person(pair: Pair) -> ServerProcess:
    """A slave with more than its SYNC_MASTER stands still until somebody decides; return who is the master then."""
    log = pair.slave.log
    await until(lambda: "accept-master" in log.read_text(errors="replace"), "the slave did not say what to do")
    assert not pair.slave.ready()
    # Nothing was cut, and everything can still be read there.
    assert await pair.missing_at(pair.slave) == {}
    if pair.flush == FLUSHED:
        # What the master lost was never acknowledged: its fdatasync comes first.
        assert await pair.missing_at(pair.master.process) == {}
        await command("accept-master", pair.slave.address)
        await pair.caught_up()
        return pair.master.process
    assert await pair.missing_at(pair.master.process)
    promote = ["promote", "broker-a", "--yes", "-n", pair.namesrv.address]
    assert "not promoted" in await command(*promote, fails=True)
    pair.master.kill()
    await command(*promote)
    await until(lambda: (found := status(pair.slave)) is not None and found["brokerId"] == 0, "not promoted")
    await asyncio.to_thread(pair.slave.wait_ready)
    return pair.slave


async def command(*typed: str, fails: bool = False) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, app, ["cluster", *typed])
    assert bool(done.exit_code) is fails, done.output
    return done.output


async def all_stopped_and_equal(pair: Pair, *, lost: int) -> None:
    """Compare every attempt with both logs, and the logs with one another."""
    assert await asyncio.to_thread(pair.slave.stop) == 0
    assert await asyncio.to_thread(pair.master.process.stop) == 0
    found = differences_of(pair.stores, pair.history)
    assert (found.lost, found.misplaced, found.repeated) == (lost, 0, 0)
    assert found.between_logs == []
    assert files_with_data(pair.stores[0]) == files_with_data(pair.stores[1])


def test_the_page_says_what_is_tested() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| (ASYNC|SYNC)_MASTER \|", line)
    ]
    assert {(row[0], row[1], row[2]): row[3] for row in rows} == {key: lost.value for key, lost in MATRIX.items()}
