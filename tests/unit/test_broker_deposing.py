"""deposing.py and fencing.py: who was promoted tells the master before it, which asks back before it believes that."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker.master_slave import deposing, fencing
from broker.settings import decision as override
from broker.settings.decision import Fence
from broker.settings.pair_proof import PairProof
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from tests.parts.decisions import LOCKS, MASTER, NAMESRV, NOBODY, OTHER, OWN, Setting

# What one that was promoted says of itself.
PROMOTED: dict[str, Any] = {"broker": "b", "role": "ASYNC_MASTER", "epoch": 3}


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
        await started(master)
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


async def started(master: Setting) -> None:
    """Start telling, as a broker does around its listening: it takes nothing before."""
    await master.deposing.prepare()
    assert not master.role.leads
    assert master.role.holds == f"first it tells {', '.join(master.deposing.left)} that it was promoted"
    await master.deposing.open()
    assert master.role.holds is None


async def test_a_master_with_nobody_to_tell_holds_nothing_back(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=4)
    await setting.deposing.prepare()
    assert setting.role.leads
    await setting.deposing.open()
    assert setting.net.told == []
    await setting.deposing.close()


async def test_R15_who_refuses_to_be_deposed_may_be_the_one_in_force(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=4)
    override.decide(setting.live, {"brokerId": "0"}, why="promoted", epoch=4, deposes=[MASTER, OTHER])
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 5}
    setting.net.states[OTHER] = {}
    setting.net.refuses = {MASTER: ResponseCode.SYSTEM_ERROR, OTHER: ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    await started(setting)
    assert setting.decided().fenced == Fence(MASTER, 5)
    assert (setting.deposing.left, setting.role.leads) == ((), False)
    await setting.deposing.close()


async def depose(setting: Setting, body: bytes | None = None, **fields: object) -> Command:
    given = orjson.dumps({"broker": "b", "by": MASTER, "epoch": 3, **fields}) if body is None else body
    return await setting.fencing.deposed(NOBODY, Command(code=int(ClassicCode.DEPOSED), body=given))


async def test_R15_a_master_that_is_told_takes_nothing_more_and_keeps_that(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.states[MASTER] = PROMOTED
    answer = await depose(setting)
    assert (answer.code, answer.body) == (ResponseCode.SUCCESS, LOCKS), "the queue locks are handed over"
    assert (setting.role.leads, setting.settled, setting.deposed) == (False, 1, 1)
    assert setting.decided().fenced == Fence(MASTER, 3)
    # The one who tells may not have heard the answer.
    setting.deposed = 0
    assert (await depose(setting)).code == ResponseCode.SUCCESS
    assert setting.decided().fenced == Fence(MASTER, 3)


async def test_who_reads_at_a_deposed_master_is_not_left_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull was parked for its 15 s, where no message comes any more, whatever the route said by then."""
    monkeypatch.setattr(fencing, "WAKE_SECONDS", 0.01)
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.states[MASTER] = PROMOTED
    await setting.fencing.start()
    try:
        await asyncio.sleep(0.05)
        assert not setting.woken.is_set()
        await depose(setting)
        for _ in range(2):
            async with asyncio.timeout(5):
                await setting.woken.wait()
            setting.woken.clear()
    finally:
        await setting.fencing.close()


@pytest.mark.parametrize(
    ("state", "deposes"),
    [
        (None, False),
        ({}, False),
        ({"broker": "b", "role": "SLAVE", "epoch": 2}, False),
        ({"broker": "b", "role": "SLAVE", "epoch": 9}, False),
        ({"broker": "b", "role": "SLAVE", "epoch": 2, "promoting": None}, False),
        ({"broker": "b", "role": "SLAVE", "epoch": 2, "promoting": 2}, False),
        ({"broker": "another", "role": "ASYNC_MASTER", "epoch": 3}, False),
        ({"broker": "b", "role": "ASYNC_MASTER", "epoch": 3, "fenced": "by another"}, False),
        # In the midst of it, and afterwards.
        ({"broker": "b", "role": "SLAVE", "epoch": 2, "promoting": 3}, True),
        ({"broker": "b", "role": "ASYNC_MASTER", "epoch": 3}, True),
        ({"broker": "b", "role": "ASYNC_MASTER", "epoch": 4}, True),
    ],
)
async def test_R15_only_the_promoted_ones_own_word_deposes(
    tmp_path: Path, state: dict[str, Any] | None, deposes: bool
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    if state is not None:
        setting.net.states[MASTER] = state
    if deposes:
        assert (await depose(setting)).code == ResponseCode.SUCCESS
        return
    with pytest.raises(CommandError, match="only its own word deposes a master; try again") as refused:
        await depose(setting)
    assert refused.value.code in deposing._LATER
    assert (setting.role.leads, setting.settled, override.read(tmp_path)) == (True, 0, None)


async def test_R15_with_a_secret_a_word_without_its_proof_deposes_nobody(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.proof.take((b"the pair's secret",))
    setting.net.states[MASTER] = PROMOTED
    with pytest.raises(
        CommandError, match=f"{fencing.UNPROVED}, so it is not believed that it was promoted"
    ) as refused:
        await depose(setting)
    assert refused.value.code in deposing._LATER
    assert (setting.role.leads, override.read(tmp_path)) == (True, None)
    # Of a slave that it has had it may be true.
    setting.fencing.slaves.heard(MASTER)
    with pytest.raises(CommandError):
        await depose(setting)
    assert (setting.role.leads, setting.role.suspect, override.read(tmp_path)) == (False, Fence(MASTER, 3), None)
    setting.net.proofs[MASTER] = PairProof((b"the pair's secret",))
    assert (await depose(setting)).code == ResponseCode.SUCCESS
    assert setting.decided().fenced == Fence(MASTER, 3)
    # Nor does a later word without a proof make less of it.
    setting.net.proofs.clear()
    with pytest.raises(CommandError):
        await depose(setting)
    assert (setting.role.leads, setting.role.suspect) == (False, None)
    await setting.fencing.close()


async def test_strangers_cannot_have_everybody_asked_at_once(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    many = 3 * fencing.ASKED_BACK_MAX
    told = await asyncio.gather(*(depose(setting) for _ in range(many)), return_exceptions=True)
    codes = [answer.code for answer in told if isinstance(answer, CommandError)]
    assert codes.count(ResponseCode.SYSTEM_BUSY) == many - fencing.ASKED_BACK_MAX
    assert codes.count(ResponseCode.SERVICE_NOT_AVAILABLE) == fencing.ASKED_BACK_MAX
    setting.net.states[MASTER] = PROMOTED
    assert (await depose(setting)).code == ResponseCode.SUCCESS


async def test_R15_what_cannot_be_kept_is_told_again(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.states[MASTER] = PROMOTED
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
    setting.net.states["10.0.0.3:10911"] = PROMOTED
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
