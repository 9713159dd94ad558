"""Losses and rot against a doubled group: what is taken from whom, who is killed when, and what counts as mended."""

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos.faults.base import Effect, FaultSite, NotWhole, Unable
from chaos.faults.clock import STEP_S_MIN, ClockStep
from chaos.faults.lost import KILLS_MAX, KILLS_MIN, LostFile, LostQueues, kept
from chaos.faults.rot import FLIPS_MAX, SCRUB_BYTES_PER_S, Rot
from chaos.faults.whole import all_whole
from chaos.runs.nemesis import inflict, make
from store.files.checkpoint import Checkpoint
from tests.parts.chaos_site import DoubledSite, Member

SIZE, END = 4096, 3 * 4096 + 1000
LOG = random.Random(1).randbytes(END)
LOSSES = ("lose-file-follower", "lose-file-killed", "lose-queues-killed")
DAMAGES = (*LOSSES, "rot-follower", "rot-running-follower")
SEEDS = range(8)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(_site: FaultSite, to: str) -> str:
        return f"{to} leads"

    async def told(_site: FaultSite, member: Any, rate: int) -> None:
        member.process.rates = [*getattr(member.process, "rates", []), rate]

    monkeypatch.setattr("chaos.faults.rot.scrub", told)
    monkeypatch.setattr("chaos.faults.lost.MENDS_S_MAX", (0.0,))
    monkeypatch.setattr("chaos.faults.lost.hand_lead", nobody)


@contextmanager
def never(match: str) -> Iterator[None]:
    """Expect that something is waited for in vain: not for as long as of a real group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chaos.faults.whole.WHOLE_S", 0.1)
        with pytest.raises(NotWhole, match=match):
            yield


@pytest.fixture
def site(tmp_path: Path) -> DoubledSite:
    """A group whose members hold the same log of four files, all but the last of them full, and the same queue."""
    made = DoubledSite(tmp_path)
    for member in made.members:
        folder = member.store / "commitlog"
        folder.mkdir()
        for begin in range(0, END, SIZE):
            (folder / f"{begin:020d}").write_bytes(LOG[begin : begin + SIZE].ljust(SIZE, b"\0"))
        for queue in ("T/0", "RMQ_SYS_RAFT/0"):
            (member.store / "consumequeue" / queue).mkdir(parents=True)
            (member.store / "consumequeue" / queue / f"{0:020d}").write_bytes(b"e" * 200 + bytes(800))
        (member.store / "checkpoint").write_bytes(Checkpoint(dispatched=2 * SIZE + 5).encode())
        member.process.said = said()
    return made


def said(**changes: Any) -> dict[str, Any]:
    return {"end": END, "damaged": None, "whole": True, "commit": 9, "durable": 9, "applied": 9, **changes}


def files(member: Member) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((member.store / "commitlog").iterdir())}


def bring_back(site: DoubledSite, name: str) -> None:
    """What the group does for a member that lacks something."""
    hurt, other = site.member(name), next(one for one in site.members if one.name != name)
    for folder in ("commitlog", "consumequeue"):
        shutil.copytree(other.store / folder, hurt.store / folder, dirs_exist_ok=True)


async def fired(name: str, site: DoubledSite, seed: int = 1) -> tuple[Any, Effect]:
    nemesis = make(name)
    return nemesis, await nemesis.fire(site, random.Random(seed))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_stopped_follower_loses_one_file_and_nobody_else_anything(seed: int, site: DoubledSite) -> None:
    nemesis, effect = await fired("lose-file-follower", site, seed)
    hurt = site.member(effect.target)
    assert effect.target != "n0", "the leader keeps what it has"
    assert hurt.process.exit_code == 0, "stopped in good order: nothing but the file is missing"
    (gone,) = files(site.members[0]).keys() - files(hurt).keys()
    assert f"lost {gone}" in effect.effect
    assert all(files(member) == files(site.members[0]) for member in site.members if member is not hurt)
    bring_back(site, hurt.name)
    assert re.fullmatch(r"n\d back as pid \d+; whole after .* s", await nemesis.heal(site))
    assert await nemesis.heal(site) == "", "healing twice does no harm"


async def test_any_file_may_be_the_lost_one(site: DoubledSite) -> None:
    lost = set()
    for seed in range(40):
        nemesis, effect = await fired("lose-file-follower", site, seed)
        lost.update(files(site.members[0]).keys() - files(site.member(effect.target)).keys())
        bring_back(site, effect.target)
        await nemesis.heal(site)
    assert lost == files(site.members[0]).keys(), "the first, those in the middle, that of the end"


async def test_who_goes_on_without_its_first_file_is_a_finding(site: DoubledSite) -> None:
    """A log may begin anywhere: that it now begins behind what was lost is no reason to call the fault undone."""
    for seed in range(40):
        nemesis, effect = await fired("lose-file-follower", site, seed)
        if f"lost {0:020d}" in effect.effect:
            break
        bring_back(site, effect.target)
        await nemesis.heal(site)
    with never(rf"{effect.target} holds again .* at 0 to {SIZE}: not within"):
        await nemesis.heal(site)


async def test_a_log_of_one_file_is_left_alone(site: DoubledSite) -> None:
    for member in site.members:
        for name in list(files(member))[1:]:
            (member.store / "commitlog" / name).unlink()
        member.process.said = said(end=SIZE)
    for name in ("lose-file-follower", "rot-follower"):
        with pytest.raises(Unable, match=r"has one file|has no file that it is done with"):
            await fired(name, site)
    assert all(member.process.starts == 1 and member.process.running for member in site.members)


@pytest.mark.parametrize("name", DAMAGES)
async def test_who_does_not_get_back_what_it_lost_is_a_finding(name: str, site: DoubledSite) -> None:
    """Whatever it says of itself: zeros where messages stood are no repair."""
    nemesis, effect = await fired(name, site)
    hurt = site.member(effect.target)
    for path in (hurt.store / "commitlog").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    for begin in range(0, END, SIZE):
        path = hurt.store / "commitlog" / f"{begin:020d}"
        if not path.exists():
            path.write_bytes(bytes(SIZE))
    with never(rf"{hurt.name}.*: not within .*; {hurt.name}: .*whole True"):
        await nemesis.heal(site)


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("other", [{"damaged": [3, 4]}, {"whole": False}, {"durable": 8}])
async def test_nothing_is_damaged_while_another_member_lacks_something(
    name: str, other: dict[str, Any], site: DoubledSite
) -> None:
    site.members[2].process.said = said(**other)
    with never("all members are whole, and have what is committed: not within"):
        await fired(name, site)
    assert all(member.process.starts == 1 for member in site.members)
    assert all(b"".join(files(member).values())[:END] == LOG for member in site.members)


async def test_a_group_that_goes_on_committing_is_whole_all_the_same(site: DoubledSite) -> None:
    """Members are asked one after the other: who was asked first always has less than the last one says."""
    commit = 9

    def state(_path: str) -> dict[str, Any]:
        nonlocal commit
        commit += 1
        return said(commit=commit, durable=commit)

    for member in site.members:
        member.process.state = state  # type: ignore[method-assign]
    await all_whole(site)


async def test_who_has_not_applied_what_is_committed_is_not_handed_the_lead(site: DoubledSite) -> None:
    for member in site.members:
        member.process.said = said(commit=9000, durable=9000, applied=9000)
    nemesis = LostFile(killed=True)
    effect = await nemesis.fire(site, random.Random(1))
    bring_back(site, effect.target)
    site.member(effect.target).process.said = said(commit=9000, durable=9000, applied=5000)
    with never(f"{effect.target} has applied what is committed: not within"):
        await nemesis.heal(site)


@pytest.mark.parametrize("name", DAMAGES)
async def test_nobody_mends_a_classic_pair(name: str, site: DoubledSite) -> None:
    site.mode = "async"
    with pytest.raises(Unable, match="mode async nobody brings back"):
        await fired(name, site)


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_that_mends_is_killed_more_than_once_and_leads_in_the_end(seed: int, site: DoubledSite) -> None:
    for member in site.members:
        member.process.said = said()
    nemesis = LostFile(killed=True)
    for member in site.members:
        member.process.ready = lambda: False  # type: ignore[method-assign] # it is mending all the time
    states = iter([said()] * 3)

    async def damaged(_member: Member) -> bool:
        return next(states, None) is None

    nemesis.mends = damaged  # type: ignore[method-assign, assignment]
    effect = await nemesis.fire(site, random.Random(seed))
    hurt = site.member(effect.target)
    kills = effect.effect.count("killed while it mended")
    assert KILLS_MIN <= kills <= KILLS_MAX
    assert hurt.process.starts == 1 + kills
    assert hurt.process.exit_code == -9
    hurt.process.ready = lambda: True  # type: ignore[method-assign]
    bring_back(site, hurt.name)
    assert (await nemesis.heal(site)).endswith(f"{hurt.name} leads")


@pytest.mark.parametrize("name", ["lose-file-killed", "lose-queues-killed"])
async def test_who_ends_by_itself_at_a_start_is_a_finding(name: str, site: DoubledSite) -> None:
    for member in site.members:
        member.process.launch = lambda process=member.process: setattr(process, "exit_code", 1)  # type: ignore[method-assign, misc]
    with pytest.raises(NotWhole, match=r"n\d ended by itself with 1:\nits last words"):
        await fired(name, site)


async def test_queues_are_mended_when_they_are_what_they_were(site: DoubledSite) -> None:
    nemesis = LostQueues()
    effect = await nemesis.fire(site, random.Random(1))
    hurt = site.member(effect.target)
    queues = hurt.store / "consumequeue"
    assert "lost 1 ConsumeQueues" in effect.effect, "that of the control records does not count"
    assert not queues.exists()
    hurt.process.launch()
    bring_back(site, hurt.name)
    file = queues / "T" / "0" / f"{0:020d}"
    whole = file.read_bytes()
    # 2 of 10 entries, and the others given again to something else.
    for wrong in (whole[:40] + bytes(960), whole[:40] + b"f" * 200, b""):
        file.write_bytes(wrong)
        with never("are what they were: not within"):
            await nemesis.whole(site, hurt)
    file.write_bytes(whole[:200] + b"more" * 5)
    assert await nemesis.whole(site, hurt) < 1
    assert not (hurt.store.parent / "consumequeue.lost").exists()


def test_entries_end_behind_the_last_that_is_not_zeros(tmp_path: Path) -> None:
    (tmp_path / "T" / "3").mkdir(parents=True)
    entry = b"\1" * 12 + bytes(8)
    (tmp_path / "T" / "3" / "00000000000000000000").write_bytes(entry * 2)
    (tmp_path / "T" / "3" / "00000000000000000040").write_bytes(entry + bytes(20))
    assert kept(tmp_path) == {"T/3": entry * 3}


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
async def test_bits_flip_in_an_old_file_alone(running: bool, seed: int, site: DoubledSite) -> None:
    for member in site.members:
        (member.store / "scrub.json.bak").write_text("{}")
    nemesis = Rot(running=running)
    effect = await nemesis.fire(site, random.Random(seed))
    hurt = site.member(effect.target)
    assert effect.target != "n0"
    assert not (hurt.store / "scrub.json.bak").exists(), "its scrub begins at the begin"
    assert hurt.process.running == running
    assert hurt.process.exit_code in {None, 0}
    assert hurt.process.starts == 1 + running, "one that runs trusts nothing of what it had written before"
    data = b"".join(files(hurt).values())
    rotten = [at for at in range(END) if data[at] != LOG[at]]
    assert 1 <= len(rotten) <= FLIPS_MAX
    assert all(at < 2 * SIZE and at % SIZE < SIZE // 2 for at in rotten), "behind the checkpoint, and no filling"
    assert all((data[at] ^ LOG[at]).bit_count() == 1 for at in rotten)
    assert all(f"byte {at} was" in effect.effect for at in rotten)
    bring_back(site, hurt.name)
    await nemesis.heal(site)
    assert hurt.process.rates == [SCRUB_BYTES_PER_S, 0], "checked when it is healed, and then no more"  # type: ignore[attr-defined]


async def test_a_leaders_clock_steps_days_ahead_and_never_back(
    site: DoubledSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = site.members[0].clock = tmp_path / "clock"
    seen: list[float] = []

    def shows(_member: Member) -> float:
        seen.append(float(clock.read_text()))
        return seen[-1]

    monkeypatch.setattr("chaos.faults.clock.ahead_s", shows)
    effect = await inflict(ClockStep("leader"), site, random.Random(1), lasts_s=0.0)
    assert effect.target == "n0"
    assert seen[0] >= STEP_S_MIN > 72 * 3600, "more than messages are kept"
    assert seen[-1] == 0
    assert all(ClockStep("leader").drawn(random.Random(seed)) >= STEP_S_MIN for seed in SEEDS)
