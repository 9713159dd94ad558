"""fencing.py and deposing.py: a master that another was promoted in the place of takes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.master_slave import deposing, fencing
from broker.settings import decision as override
from broker.settings.decision import Fence
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from tests.parts.decisions import MASTER, NAMESRV, NOBODY, OTHER, OWN, Setting


async def fenced(setting: Setting) -> Fence:
    """Wait until a fence is written down."""
    async with asyncio.timeout(20):
        while (found := override.read(setting.folder)) is None or found.fenced is None:
            await asyncio.sleep(0.001)
    return found.fenced


async def test_R15_a_master_that_comes_back_finds_the_one_in_its_place_before_it_serves(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER, 1: "10.0.0.4:10911"}
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3}
    await setting.fencing.start()
    await setting.fencing.close()
    assert (setting.role.leads, setting.deposed) == (False, 1)
    assert setting.role.fenced is not None
    assert f"{MASTER} was promoted to master in the place of this broker (epoch 3, here 2)" in setting.role.fenced
    assert f"`raftmq cluster follow {OWN}`" in setting.role.fenced
    assert setting.decided().fenced == Fence(MASTER, 3)
    # Its own epoch stays what it was: with the other's it could claim the route.
    assert override.kept_epoch(tmp_path) == 2

    # Not forgotten when it starts while nobody else is there.
    again = Setting(tmp_path, slave=False, epoch=2)
    await again.fencing.start()
    await again.fencing.close()
    assert (again.role.fenced, again.deposed) == (setting.role.fenced, 1)

    # The way back to being a master is a promotion, above the one that deposed it.
    assert (await again.ask(ClassicCode.PROMOTE))["epoch"] == 4
    assert again.decided().fenced is None
    await again.restarted()


async def test_R15_a_master_that_a_name_server_refuses_is_fenced(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    await setting.fencing.start()
    for nobody in (None, "", OWN):
        setting.fencing.heard(nobody)
    await asyncio.sleep(0)
    assert setting.role.leads
    # Nothing can be learnt from it: that the NameServer refuses is enough.
    setting.fencing.heard(MASTER)
    assert await fenced(setting) == Fence(MASTER, 3)
    assert (setting.role.leads, setting.deposed) == (False, 1)
    await setting.fencing.close()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, False),
        ({}, False),
        ({"role": "ASYNC_MASTER", "epoch": 1}, False),
        ({"role": "ASYNC_MASTER", "epoch": "9"}, False),
        ({"role": "SLAVE", "epoch": 9}, False),
        ({"role": "ASYNC_MASTER", "epoch": 9, "fenced": "by another"}, False),
        ({"role": "ASYNC_MASTER", "epoch": 2}, True),
    ],
)
async def test_R15_only_a_living_master_of_a_higher_epoch_deposes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, state: dict[str, Any] | None, said: bool
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER}
    if state is not None:
        setting.net.states[MASTER] = state
    await setting.fencing.look()
    assert setting.role.leads
    assert override.read(tmp_path) is None
    assert ("another master of the name b" in caplog.text) is said
    # In every status, also when the NameServers name this one by now; until it is gone.
    setting.net.members[NAMESRV] = {0: OWN}
    await setting.fencing.look()
    assert len(setting.fencing.warnings()) == said
    setting.net.states.pop(MASTER, None)
    await setting.fencing.look()
    assert setting.fencing.warnings() == []


async def test_a_persons_edit_ends_a_fence(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER}
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3}
    await setting.fencing.look()
    edited = Setting(tmp_path, slave=False, brokerRole="SYNC_MASTER")
    assert edited.live.broker.brokerRole == "SYNC_MASTER"
    assert override.read(tmp_path) is None


# ---- the master that is deposed


async def test_R15_a_master_that_lives_takes_nothing_more_before_the_new_one_serves(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3, "max": 4096}
    done = await setting.ask(ClassicCode.PROMOTE, force=True)
    assert setting.net.told == [(MASTER, {"broker": "b", "by": OWN, "epoch": 4})]
    assert (done["untold"], setting.decided().deposes, setting.restarts) == ([], (), [])
    await setting.restarted()


@pytest.mark.parametrize("how", ["away", "busy"])
async def test_R15_who_could_not_be_told_is_told_at_each_start_until_it_was(tmp_path: Path, how: str) -> None:
    setting = Setting(tmp_path, slave=True)
    if how == "busy":
        setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3}
        setting.net.refuses[MASTER] = ResponseCode.SYSTEM_BUSY
    done = await setting.ask(ClassicCode.PROMOTE, force=True)
    assert done["untold"] == ([MASTER] if how == "busy" else [])
    assert setting.decided().deposes == (MASTER,)
    await setting.restarted()
    for _ in range(2):
        master = Setting(tmp_path, slave=True, epoch=4)
        if how == "busy":
            master.net.states[MASTER], master.net.refuses[MASTER] = {"role": "ASYNC_MASTER"}, ResponseCode.SYSTEM_BUSY
        await master.deposing.start()
        assert (master.deposing.left, setting.decided().deposes) == ((MASTER,), (MASTER,))
        await master.deposing.close()
    # It comes back; nobody need ask.
    master.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3}
    master.net.refuses.clear()
    await master.deposing.tell_all()
    assert master.net.told == [(MASTER, {"broker": "b", "by": OWN, "epoch": 4})]
    assert (master.deposing.left, setting.decided().deposes) == ((), ())
    await master.deposing.tell_all()
    assert len(master.net.told) == 1


async def test_R15_who_refuses_to_be_deposed_may_be_the_one_in_force(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=4)
    override.decide(setting.live, {"brokerId": "0"}, why="promoted", epoch=4, deposes=[MASTER, OTHER])
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 5}
    setting.net.states[OTHER] = {}
    setting.net.refuses = {MASTER: ResponseCode.SYSTEM_ERROR, OTHER: ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    await setting.deposing.start()
    assert setting.decided().fenced == Fence(MASTER, 5)
    assert (setting.deposing.left, setting.role.leads) == ((), False)
    await setting.deposing.close()


async def depose(setting: Setting, body: bytes | None = None, **fields: object) -> Command:
    given = orjson.dumps({"broker": "b", "by": MASTER, "epoch": 3, **fields}) if body is None else body
    return await setting.fencing.deposed(NOBODY, Command(code=int(ClassicCode.DEPOSED), body=given))


async def test_R15_a_master_that_is_told_takes_nothing_more_and_keeps_that(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    assert (await depose(setting)).code == ResponseCode.SUCCESS
    assert (setting.role.leads, setting.settled, setting.deposed) == (False, 1, 1)
    assert setting.decided().fenced == Fence(MASTER, 3)
    # The one who tells may not have heard the answer.
    setting.deposed = 0
    assert (await depose(setting)).code == ResponseCode.SUCCESS
    assert setting.decided().fenced == Fence(MASTER, 3)


async def test_R15_what_cannot_be_kept_is_told_again(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    (tmp_path / "config").write_text("in the way")
    with pytest.raises(CommandError, match="cannot be kept") as refusal:
        await depose(setting)
    assert refusal.value.code in deposing._LATER
    assert not setting.role.leads


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": 2}, ResponseCode.SYSTEM_ERROR),
        ({"epoch": 0}, ResponseCode.INVALID_PARAMETER),
        ({"epoch": 1 << 62}, ResponseCode.INVALID_PARAMETER),
        ({"epoch": "3"}, ResponseCode.INVALID_PARAMETER),
        ({"broker": "another"}, ResponseCode.INVALID_PARAMETER),
        ({"by": OWN}, ResponseCode.INVALID_PARAMETER),
        ({"by": ""}, ResponseCode.INVALID_PARAMETER),
        ({"body": b"{"}, ResponseCode.INVALID_PARAMETER),
        ({"body": b"{" + b" " * fencing.BODY_BYTES_MAX + b"}"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_R15_nobody_is_deposed_by_what_is_no_promotion(
    tmp_path: Path, fields: dict[str, Any], code: ResponseCode
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    with pytest.raises(CommandError) as refusal:
        await depose(setting, **fields)
    assert refusal.value.code == code
    assert setting.role.leads
    assert override.read(tmp_path) is None


@pytest.mark.parametrize("epoch", [2, 3])
async def test_R15_a_master_is_fenced_by_the_epoch_of_one_that_is_gone(tmp_path: Path, epoch: int) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {}
    setting.net.remembered[NAMESRV] = {"epoch": epoch, "holder": MASTER, "members": {"0": MASTER}}
    await setting.fencing.start()
    await setting.fencing.close()
    assert setting.role.leads is (epoch == 2)
    if epoch > 2:
        assert setting.decided().fenced == Fence(MASTER, epoch)


async def test_its_own_epoch_of_before_is_nobody_elses(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=0)
    setting.net.members[NAMESRV] = {}
    setting.net.remembered[NAMESRV] = {"epoch": 3, "holder": OWN, "members": {"0": OWN}}
    await setting.fencing.look()
    assert setting.role.leads


@pytest.mark.parametrize(
    ("code", "role", "epoch"), [(ClassicCode.FOLLOW, "SLAVE", 2), (ClassicCode.PROMOTE, "ASYNC_MASTER", 4)]
)
async def test_R15_a_fence_that_comes_late_undoes_no_decision(
    tmp_path: Path, code: ClassicCode, role: str, epoch: int
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.depose()
    setting.net.members[NAMESRV] = {0: MASTER}
    await setting.ask(code)
    decided = setting.decided()
    assert (decided.keys["brokerRole"], decided.epoch, decided.fenced) == (role, epoch, None)
    # Who was promoted tells it again, in the moment before this broker starts as what was decided.
    told = Command(
        code=int(ClassicCode.DEPOSED), body=orjson.dumps({"broker": "b", "by": "10.0.0.3:10911", "epoch": 3})
    )
    with pytest.raises(CommandError, match="another decision is being carried out") as refused:
        await setting.fencing.deposed(NOBODY, told)
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert setting.decided() == decided
    await setting.restarted()
