"""fencing.py and deposing.py: a master that another was promoted in the place of takes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.master_slave import fencing, known_slaves
from broker.settings import decision as override
from broker.settings.decision import Fence
from broker.settings.pair_proof import PairProof
from remoting.codes import ClassicCode
from tests.parts.decisions import MASTER, NAMESRV, OTHER, OWN, Setting

# What one that was promoted says of itself.
PROMOTED: dict[str, Any] = {"broker": "b", "role": "ASYNC_MASTER", "epoch": 3}


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


async def test_R15_a_master_that_a_name_server_refuses_asks_the_one_that_it_names(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    await setting.fencing.start()
    for nobody in (None, "", OWN):
        setting.fencing.heard(nobody)
    await asyncio.sleep(0)
    assert setting.role.leads
    setting.net.states[MASTER] = PROMOTED
    setting.fencing.heard(MASTER)
    assert await fenced(setting) == Fence(MASTER, 3)
    assert (setting.role.leads, setting.deposed) == (False, 1)
    await setting.fencing.close()


async def heard(setting: Setting, master: str) -> None:
    """Have a NameServer refuse this master, and wait until that has been looked into."""
    setting.fencing.heard(master)
    async with asyncio.timeout(20):
        while setting.fencing._deposing:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (None, "does not answer and never was a slave of this broker"),
        ({}, "does not say so itself"),
        ({"role": "SLAVE", "epoch": 2}, "does not say so itself"),
        ({"role": "ASYNC_MASTER", "epoch": 1}, "does not say so itself"),
        ({"role": "ASYNC_MASTER", "epoch": 9, "broker": "another"}, "does not say so itself"),
    ],
)
async def test_R15_a_forged_registration_fences_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, state: dict[str, Any] | None, answer: str
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    await setting.fencing.start()
    if state is not None:
        setting.net.states[MASTER] = state
    setting.net.members[NAMESRV] = {0: MASTER}
    setting.net.remembered[NAMESRV] = {"epoch": 99, "holder": MASTER, "members": {"0": MASTER}}
    for _ in range(3):
        await heard(setting, MASTER)
    assert (setting.role.leads, setting.role.fenced, setting.deposed) == (True, None, 0)
    assert override.read(tmp_path) is None
    # Loud, once in a while, and in every status for as long as it is said.
    (warning,) = setting.fencing.warnings()
    assert f"names {MASTER} as the master of b (epoch 99, here 2), which {answer}: this broker goes on" in warning
    assert [record.message for record in caplog.records if record.levelname == "ERROR"].count(warning) == 1
    setting.net.members[NAMESRV] = {0: OWN}
    setting.net.remembered[NAMESRV] = {"epoch": 2, "holder": OWN, "members": {"0": OWN}}
    await setting.fencing.look()
    assert setting.fencing.warnings() == []
    await setting.fencing.close()

    # Nor at a restart.
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER}
    setting.net.remembered[NAMESRV] = {"epoch": 99, "holder": MASTER, "members": {"0": MASTER}}
    await setting.fencing.start()
    assert (setting.role.leads, len(setting.fencing.warnings())) == (True, 1)
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


def gone(setting: Setting, epoch: int = 3) -> None:
    """Have a NameServer remember a master that is there no more."""
    setting.net.members[NAMESRV] = {}
    setting.net.remembered[NAMESRV] = {"epoch": epoch, "holder": MASTER, "members": {"0": MASTER}}


async def with_slave(folder: Path, **values: str) -> Setting:
    """A master that has been started again, and had MASTER as its slave before."""
    before = Setting(folder, slave=False, epoch=2)
    before.fencing.slaves.heard(MASTER)
    async with asyncio.timeout(20):
        while not (folder / known_slaves.NAME).exists():
            await asyncio.sleep(0.001)
    await before.fencing.close()
    return Setting(folder, slave=False, epoch=2, **values)


@pytest.mark.parametrize("epoch", [2, 3])
async def test_R15_a_master_takes_nothing_while_its_slave_that_was_promoted_is_gone(tmp_path: Path, epoch: int) -> None:
    setting = await with_slave(tmp_path)
    gone(setting, epoch)
    await setting.fencing.start()
    assert setting.role.leads is (epoch == 2)
    # Not for good.
    assert (setting.deposed, override.read(tmp_path)) == (0, None)
    if epoch > 2:
        assert setting.role.suspect == Fence(MASTER, 3)
        assert f"{MASTER} was promoted to master in the place of this broker (epoch 3, here 2), as" in str(
            setting.role.fenced
        )
        # A person decides, as with one that is fenced.
        assert (await setting.ask(ClassicCode.PROMOTE))["epoch"] == 4
        assert setting.decided().deposes == (MASTER,)
        await setting.restarted()
    await setting.fencing.close()


async def test_R15_a_serving_master_stops_for_its_own_slave_only_when_that_is_named_and_does_not_answer(
    tmp_path: Path,
) -> None:
    setting = await with_slave(tmp_path)
    await setting.fencing.start()
    assert setting.role.leads
    await heard(setting, OTHER)
    assert (setting.role.leads, len(setting.fencing.warnings())) == (True, 1)
    await heard(setting, MASTER)
    assert (setting.role.leads, setting.role.suspect, setting.deposed) == (False, Fence(MASTER, 3), 0)
    await setting.fencing.close()


@pytest.mark.parametrize(
    ("state", "leads", "good"),
    [
        (PROMOTED, False, True),
        ({"broker": "b", "role": "SLAVE", "epoch": 2}, True, False),
        ({}, True, False),
        # Somebody else was promoted after it, and it is not known who.
        ({**PROMOTED, "fenced": "by another"}, False, False),
    ],
)
async def test_R15_a_slave_that_may_have_been_promoted_is_asked_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], leads: bool, good: bool
) -> None:
    monkeypatch.setattr(fencing, "SUSPECT_SECONDS", 0.001)
    setting = await with_slave(tmp_path)
    gone(setting)
    await setting.fencing.start()
    assert not setting.role.leads
    asked = setting.net.asked[MASTER]
    setting.net.states[MASTER] = state
    async with asyncio.timeout(20):
        while setting.net.asked[MASTER] < asked + 3 and setting.role.suspect is not None:
            await asyncio.sleep(0.001)
    if good:
        assert await fenced(setting) == Fence(MASTER, 3)
    await setting.fencing.close()
    assert (setting.role.leads, setting.deposed) == (leads, int(good))
    assert (override.read(tmp_path) is not None) is good


async def test_R15_a_slave_that_answers_keeps_its_master_from_nothing_whatever_is_registered(tmp_path: Path) -> None:
    setting = await with_slave(tmp_path)
    gone(setting, 99)
    setting.net.states[MASTER] = {"broker": "b", "role": "SLAVE", "epoch": 2}
    await setting.fencing.start()
    assert (setting.role.leads, len(setting.fencing.warnings())) == (True, 1)
    await setting.fencing.close()


async def test_its_own_epoch_of_before_is_nobody_elses(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=0)
    setting.net.members[NAMESRV] = {}
    setting.net.remembered[NAMESRV] = {"epoch": 3, "holder": OWN, "members": {"0": OWN}}
    await setting.fencing.look()
    assert setting.role.leads


SECRET = PairProof((b"the pair's secret",))


@pytest.mark.parametrize("knows", [False, True])
async def test_R15_with_a_secret_only_who_knows_it_deposes(tmp_path: Path, knows: bool) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.proof.take((b"the pair's secret",))
    setting.net.states[MASTER] = PROMOTED
    if knows:
        setting.net.proofs[MASTER] = SECRET
    await setting.fencing.start()
    gone(setting)
    await heard(setting, MASTER)
    assert (setting.role.leads, setting.deposed) == (not knows, int(knows))
    if knows:
        assert setting.decided().fenced == Fence(MASTER, 3)
    else:
        (warning,) = setting.fencing.warnings()
        assert f"{fencing.UNPROVED} and never was a slave of this broker: this broker goes on" in warning
        assert override.read(tmp_path) is None
    await setting.fencing.close()


async def test_R15_what_a_known_slave_says_without_the_secret_counts_as_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "SUSPECT_SECONDS", 0.001)
    setting = await with_slave(tmp_path)
    setting.proof.take((b"the pair's secret",))
    gone(setting)
    # Whoever has its address now: it may have been promoted all the same.
    setting.net.states[MASTER] = {"broker": "b", "role": "SLAVE", "epoch": 2}
    await setting.fencing.start()
    assert (setting.role.leads, setting.role.suspect) == (False, Fence(MASTER, 3))
    assert fencing.UNPROVED in str(setting.role.fenced)
    setting.net.proofs[MASTER] = SECRET
    async with asyncio.timeout(20):
        while not setting.role.leads:
            await asyncio.sleep(0.001)
    await setting.fencing.close()
    assert override.read(tmp_path) is None
