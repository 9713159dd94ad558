"""R16: when a slave compares, what it cuts by itself, when it stops and says so, and what it must not forget."""

import logging
from pathlib import Path

import pytest

from broker.master_slave import ha_check, ha_client
from broker.master_slave.ha_client import NotWaiting, State
from broker.master_slave.ha_compare import VerdictKind
from broker.settings.pair_keys import ASYNC_MASTER, SYNC_MASTER
from broker.settings.pair_memory import PairMemory, load_memory, save_memory
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import InvokeTimeout
from tests.parts.ha_site import BROKER, Master, Slave, followed, pair, said, same_bytes, until
from tests.parts.slave_tools import open_master, send
from tests.parts.store_tools import expire, make_config


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make attempts follow one another quickly."""
    monkeypatch.setattr(ha_client, "BACKOFF_FIRST_SECONDS", 0.005)
    monkeypatch.setattr(ha_client, "BACKOFF_MAX_SECONDS", 0.02)


async def lose_tail(master: Master, slave: Slave, *, more: int = 0) -> int:
    """Give both some records more, and take those from the master; return where it ended then."""
    border = master.store.written
    master.send(20, 4000)
    await slave.caught_up()
    await master.restart(border)
    assert master.store.written == border
    if more:
        master.send(more, 5000)
    return border


@pytest.mark.parametrize("more", [0, 1, 60])
async def test_R16_behind_an_async_master_the_slave_is_cut_and_says_what(
    tmp_path: Path, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with followed(tmp_path) as (master, slave):
        border = await lose_tail(master, slave, more=more)
        await slave.state(State.CUTTING)
        verdict = slave.verdicts[-1]
        assert (verdict.kind, verdict.position, verdict.person) == (VerdictKind.CUT, border, False)
        await slave.obey()
        assert "20 records" in caplog.text
        (kept,) = (slave.config.root / "cut").iterdir()
        assert str(kept) in caplog.text
        await same_bytes(master, slave)


async def test_R16_behind_a_sync_master_the_slave_stops_and_says_so_until_a_person_decides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with followed(tmp_path) as (master, slave):
        master.role = SYNC_MASTER
        border = await lose_tail(master, slave, more=3)
        await slave.state(State.WAITING)
        end = slave.written
        asked = master.asked.count(ClassicCode.DIGEST)
        # However long: it looks whether the master is another by now, and does nothing.
        looks = len(master.asked) + 5
        await until(lambda: len(master.asked) > looks)
        assert (slave.client.state, slave.written, slave.actions) == (State.WAITING, end, [])
        assert master.asked.count(ClassicCode.DIGEST) == asked
        assert master.ha.status() == []
        waits = slave.client.waits_for
        assert waits is not None
        assert "accept-master" in waits
        assert slave.client.status()["waitsFor"]["position"] == border
        assert slave.client.status()["why"] == waits
        errors = [each for each in caplog.records if each.levelno >= logging.ERROR and "person" in each.message]
        assert len(errors) == 1
        verdict = slave.client.accept_master()
        assert (verdict.kind, verdict.position, verdict.lost) == (VerdictKind.CUT, border, end - border)
        await slave.obey()
        await same_bytes(master, slave)


async def test_R16_what_waits_for_a_person_ends_when_the_masters_log_is_back(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        master.role = SYNC_MASTER
        border = master.store.written
        master.send(20, 4000)
        await slave.caught_up()
        await master.stop()
        (tmp_path / "m").rename(tmp_path / "whole")
        short = open_master(tmp_path / "m")
        send(short, 300)
        short.close()
        await master.start()
        await slave.state(State.WAITING)
        await master.stop()
        (tmp_path / "m").rename(tmp_path / "short")
        (tmp_path / "whole").rename(tmp_path / "m")
        await master.start()
        await slave.state(State.FOLLOWING)
        assert slave.client.waits_for is None
        assert slave.written > border
        await same_bytes(master, slave)


async def test_R16_a_sync_master_that_became_an_async_one_still_covers_what_it_acknowledged(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        master.role = SYNC_MASTER
        slave.follow()
        await slave.caught_up()
        border = master.store.written
        master.send(20, 4000)
        await slave.caught_up()
        # Only now: what comes after the slave has heard of it is covered by nothing.
        master.role = ASYNC_MASTER
        await master.restart(border)
        await slave.state(State.WAITING)
        assert slave.verdicts[-1].person
        # Nor does another start of this broker make it forget.
        await slave.stop()
        await slave.start()
        slave.follow()
        await slave.state(State.WAITING)
        slave.client.accept_master()
        await slave.obey()
        await slave.state(State.FOLLOWING)
        # What comes from now on comes from an ASYNC_MASTER, and is covered by nothing.
        assert load_memory(slave.config.root).covered_upto(1 << 60) == border
        await lose_tail(master, slave)
        await slave.state(State.CUTTING)


async def test_R16_what_came_after_the_sync_master_became_async_is_not_covered(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        master.role = SYNC_MASTER
        slave.follow()
        await slave.caught_up()
        master.role = ASYNC_MASTER
        covered = master.store.written
        await master.restart()
        await until(lambda: len(slave.verdicts) == 2)
        await slave.state(State.FOLLOWING)
        assert load_memory(slave.config.root) == PairMemory(False, covered, None, 0, BROKER, master.log_id)
        border = await lose_tail(master, slave)
        await slave.state(State.CUTTING)
        assert border == covered
        assert slave.verdicts[-1].position == border


async def test_R16_that_a_sync_master_is_followed_is_on_disk_before_the_first_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_full = True
    reported: list[int] = []

    def save(root: Path, memory: PairMemory) -> None:
        reported.append(len(master.ha.status()))
        if disk_full:
            raise OSError("no room")
        save_memory(root, memory)

    monkeypatch.setattr(ha_client, "save_memory", save)
    async with pair(tmp_path) as (master, slave):
        master.role = SYNC_MASTER
        slave.follow()
        await until(lambda: len(reported) >= 3)
        assert slave.written == 0
        assert "no room" in slave.client.status()["why"]
        disk_full = False
        await slave.caught_up()
        assert set(reported) == {0}
        assert load_memory(slave.config.root).open


async def test_R16_without_digests_it_does_not_follow_and_asks_again(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        late = 0

        async def meddle(code: int) -> Command | None:
            nonlocal late
            if code == ClassicCode.DIGEST:
                late += 1
                raise InvokeTimeout("no answer")
            return None

        master.meddle = meddle
        await master.restart()
        await until(lambda: late >= 3)
        assert master.ha.status() == []
        assert "cannot be compared" in slave.client.status()["why"]
        assert slave.client.master_alive
        master.meddle = None
        await slave.state(State.FOLLOWING)


async def test_R16_a_master_that_is_another_by_the_second_question_is_not_followed(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        other = 0

        async def meddle(code: int) -> Command | None:
            nonlocal other
            if code == ClassicCode.DIGEST:
                other += 1
                return said({"incarnation": "another", "digests": ["0"]})
            return None

        master.meddle = meddle
        await master.restart()
        await until(lambda: other >= 2)
        assert master.ha.status() == []
        assert len(slave.verdicts) == 1
        master.meddle = None
        await slave.state(State.FOLLOWING)


async def test_R16_a_connection_that_breaks_before_the_first_report_takes_its_verdict_with_it(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        border = master.store.written
        master.send(20, 4000)
        await slave.caught_up()
        broken = False

        async def meddle(code: int) -> Command | None:
            nonlocal broken
            if code == ClassicCode.DIGEST and not broken:
                # The digests are of a master whose log is whole; by the time they arrive another one is in its place.
                broken = True
                master.meddle = None
                answer = said({"incarnation": master.name, "digests": digests})
                await master.restart(border)
                master.send(30, 5000)
                return answer
            return None

        end = master.store.written
        file = (end - 1) // master.store.file_bytes * master.store.file_bytes
        digests: list[str | None] = []
        same = slave.client._source.own_digests

        async def remember(ranges: list[tuple[int, int]]) -> list[str]:
            found = await same(ranges)
            digests.extend(found)
            return found

        slave.client._source.own_digests = remember  # type: ignore[method-assign,assignment] # to know them in time
        master.meddle = meddle
        await master.restart()
        await slave.state(State.CUTTING)
        assert broken
        assert file < border < slave.written == end
        assert [verdict.kind for verdict in slave.verdicts[-2:]] == [VerdictKind.GO_ON, VerdictKind.CUT]
        assert slave.verdicts[-1].position == border
        await slave.obey()
        await same_bytes(master, slave)


async def test_R16_a_slave_that_is_behind_what_is_kept_begins_anew(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        await slave.stop()
        master.send(1500, 6000)
        first = master.store.file_bytes
        await master.stop()
        expire(make_config(master.folder), slave.store.log_range()[1] // first * first + first)
        await master.start()
        assert master.store.log_range()[0] > slave.store.log_range()[1]
        await slave.start()
        slave.follow()
        await slave.state(State.ANEW)
        await slave.obey()
        await slave.caught_up()
        assert slave.store.log_range() == master.store.log_range()
        (kept,) = (slave.config.root / "cut").iterdir()
        assert list((kept / "commitlog").iterdir())


async def test_R16_a_master_that_lost_its_disk_empties_no_slave(tmp_path: Path) -> None:
    async with followed(tmp_path) as (master, slave):
        end = slave.written
        await master.stop()
        (tmp_path / "m").rename(tmp_path / "lost")
        await master.start()
        await slave.state(State.WAITING)
        assert (slave.written, slave.actions) == (end, [])


async def test_R16_a_deposed_master_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as (master, slave):
        slave.epoch = 2
        master.epoch = 1
        slave.follow()
        await until(lambda: len(slave.verdicts) >= 3)
        assert slave.client.state in {State.REFUSED, State.COMPARING}
        assert slave.written == 0
        assert caplog.text.count("deposed") == 1
        master.epoch = 2
        await slave.caught_up()


async def test_R16_the_epoch_of_a_followed_master_is_remembered(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        master.epoch = 5
        slave.follow()
        await slave.caught_up()
        await slave.stop()
        master.epoch = 4
        await slave.start()
        slave.follow()
        await until(lambda: any(verdict.kind is VerdictKind.REFUSE for verdict in slave.verdicts))


async def test_R16_a_haMasterAddress_that_leads_elsewhere_takes_nothing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as (master, slave):
        other = Master(tmp_path / "other", slave.threads)
        await other.start()
        send(other.store, 100, 7000)
        # Little time only where nobody will confirm: the right master has as long as ever.
        with monkeypatch.context() as impatient:
            impatient.setattr(ha_check, "CONFIRM_SECONDS", 0.05)
            slave.client.set_master(BROKER, other.address)
            await until(lambda: "haMasterAddress" in slave.client.status()["why"])
            # Several times more, and not one byte of the other log gets in.
            attempts = len(slave.verdicts) + 3
            await until(lambda: len(slave.verdicts) >= attempts)
        assert (slave.written, slave.masters, slave.actions) == (0, [], [])
        assert slave.client.why_stale is not None
        slave.follow()
        await slave.caught_up()
        assert slave.masters
        assert slave.client.why_stale is None
        await same_bytes(master, slave)
        await other.stop()


async def test_R16_what_comes_from_elsewhere_all_the_same_is_noticed(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        other = Master(tmp_path / "other", slave.threads)
        await other.start()
        send(other.store, 100, 7000)
        # As with another slave of the master that has just as much.
        master.tells_slaves = False
        slave.client.set_master(BROKER, other.address)
        await until(lambda: slave.written > 0)
        await slave.state(State.WAITING)
        assert slave.verdicts[-1].kind is VerdictKind.ANEW
        slave.client.accept_master()
        await slave.obey()
        await same_bytes(master, slave)
        await other.stop()


async def test_accepting_what_nobody_waits_for_is_refused(tmp_path: Path) -> None:
    async with followed(tmp_path) as (_master, slave):
        with pytest.raises(NotWaiting, match="following"):
            slave.client.accept_master()


# -- a master of RocketMQ's


async def test_a_rocketmq_master_is_followed_as_rocketmq_does(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):

        async def meddle(code: int) -> Command | None:
            if code in {ClassicCode.STATUS, ClassicCode.DIGEST}:
                return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type not supported")
            if code == 28:
                begin, end = master.store.log_range()
                return said({"table": {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end)}})
            assert code == 26
            text = f"brokerRole={master.role}\nmappedFileSizeCommitLog={master.store.file_bytes}\n"
            return Command.response(ResponseCode.SUCCESS, None, None, text.encode())

        master.meddle = meddle
        slave.follow()
        await slave.caught_up()
        master.role = SYNC_MASTER
        border = await lose_tail(master, slave)
        await slave.state(State.WAITING)
        slave.client.accept_master()
        await slave.obey()
        assert slave.written == border
        await same_bytes(master, slave)
