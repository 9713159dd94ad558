"""Faults against a doubled cluster: who is hit, what is told, and that all of it is healed whatever happens."""

import asyncio
import random
from pathlib import Path

import orjson
import pytest

from chaos.faults.base import Effect, FaultSite, NotHealed, Unable
from chaos.faults.disk import hits_file
from chaos.faults.files import BitFlip, CutTail
from chaos.faults.links import not_beside
from chaos.faults.targets import pick
from chaos.host.powerloss import UndoFile
from chaos.runs.nemesis import FAULTS, inflict, make, well
from store.files.checkpoint import Checkpoint
from tests.parts.chaos_site import DoubledSite, Member


@pytest.fixture
def site(tmp_path: Path) -> DoubledSite:
    return DoubledSite(tmp_path)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composites wait between their steps for a group to work; this one has nothing to do."""
    monkeypatch.setattr("chaos.faults.composite.STEP_S_MIN", 0.0)
    monkeypatch.setattr("chaos.faults.composite.STEP_S_MAX", 0.0)


async def do(name: str, site: FaultSite, seed: int = 1, lasts_s: float = 0.0) -> Effect:
    return await inflict(make(name), site, random.Random(seed), lasts_s=lasts_s)


def test_faults_are_called_by_their_own_names() -> None:
    for name in FAULTS:
        assert make(name).name == name
        assert make(name).tier in {"T0", "T1", "T2"}
    with pytest.raises(Unable, match=r"no fault is called 'meteor'; there are: .*kill-leader"):
        make("meteor")


async def test_roles_are_looked_up_when_a_fault_is_fired(site: DoubledSite) -> None:
    for leader in ("n0", "n2"):
        site.leads = leader
        assert [member.name for member in await pick(site, "leader", random.Random(1))] == [leader]
        for seed in range(20):
            (follower,) = await pick(site, "follower", random.Random(seed))
            assert follower.name != leader
    for role, count in (("minority", 1), ("majority", 2), ("all", 3), ("any", 1)):
        drawn = {tuple(member.name for member in await pick(site, role, random.Random(seed))) for seed in range(40)}
        assert {len(names) for names in drawn} == {count}
        assert all(list(names) == sorted(names) for names in drawn)
        assert role == "all" or len(drawn) == 3, "every choice comes up"


@pytest.mark.parametrize(
    ("name", "count"), [("kill-leader", 1), ("kill-follower", 1), ("kill-majority", 2), ("kill-all", 3)]
)
async def test_who_was_killed_is_started_anew_and_both_pids_are_told(name: str, count: int, site: DoubledSite) -> None:
    effect = await do(name, site)
    hit = effect.target.split(",")
    assert len(hit) == count
    for member in site.members:
        assert member.process.running
        assert member.process.starts == (2 if member.name in hit else 1)
    assert effect.effect.count("ended with -9") == effect.effect.count("back as pid") == count


async def test_a_fault_ends_when_it_is_healed_and_not_when_the_cluster_is_well(
    site: DoubledSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time without a leader from then on is what A25 judges."""
    order = []

    async def well(_site: FaultSite) -> float:
        order.append("well")
        return 7.0

    monkeypatch.setattr("chaos.runs.nemesis.well", well)
    killed = make("kill-all")
    effect = await inflict(
        killed, site, random.Random(1), lasts_s=0.0,
        healed=lambda: order.append(f"healed: {[member.process.running for member in site.members]}"),
    )  # fmt: skip
    assert order == ["healed: [True, True, True]", "well"]
    assert effect.effect.endswith("well after 7.0 s")


async def test_power_is_cut_for_all_before_anything_is_undone(site: DoubledSite) -> None:
    for member in site.members:
        path = member.store / "log"
        path.write_bytes(b"new!" * 256)
        assert member.undo is not None
        UndoFile(member.undo).note_write(str(path), 0, bytes(1024))
    effect = await do("power-all", site)
    assert effect.effect.count("bytes lost") == 3
    kept = [member.store.joinpath("log").read_bytes() for member in site.members]
    assert sum(data.count(0) for data in kept) > 0
    site.members[1].undo = None
    site.leads = "n1"
    with pytest.raises(Unable, match="not noted"):
        await do("power-leader", site)
    assert site.members[1].process.starts == 2, "nobody was killed"


async def test_a_disk_is_told_what_to_do_and_told_when_it_is_over(site: DoubledSite) -> None:
    nemesis = make("slow-fsync-leader")
    disk = site.members[0].disk
    assert disk is not None
    await nemesis.fire(site, random.Random(3))
    ordered = orjson.loads(disk.read_bytes())
    assert 50 <= ordered["fsync_ms"] <= 500
    hits_file(disk).write_text("7")
    proof = await nemesis.heal(site)
    assert f"{ordered['fsync_ms']} ms: n0 7 times" in proof
    assert not disk.exists()
    # The count of an earlier fault is no proof of a later one.
    effect = await do("slow-fsync-leader", site)
    assert effect.effect == ""


async def test_a_broker_that_ends_on_a_failing_disk_is_started_again(site: DoubledSite) -> None:
    nemesis = make("failing-fsync-leader")
    disk, process = site.members[0].disk, site.members[0].process
    assert disk is not None
    effect = await nemesis.fire(site, random.Random(3))
    assert effect == Effect("n0", "leader", "")
    hits_file(disk).write_text("1")
    process.exit_code = 1
    assert "failed n0 1 times; n0 ended with 1; n0 back as pid" in await nemesis.heal(site)
    assert process.running


LINK_FAULTS = (
    "isolate-leader",
    "isolate-leader-hold",
    "isolate-follower",
    "majority-ring",
    "flap",
    "cut-leader-to-follower",
    "cut-follower-to-leader",
    "slow-links",
    "lossy-links",
    "reset-links",
    "torn-frames",
    "swizzle",
)


@pytest.mark.parametrize("name", LINK_FAULTS)
async def test_links_are_healed_and_without_traffic_nothing_is_proved(name: str, site: DoubledSite) -> None:
    effect = await do(name, site)
    assert "came to faulty links" in effect.effect
    assert not site.links.broken
    site.links.silent = True
    assert (await do(name, site)).effect == ""


async def test_partitions_have_the_shape_that_they_are_called_after(site: DoubledSite) -> None:
    async def shape(name: str) -> set[tuple[str, str]]:
        nemesis = make(name)
        await nemesis.fire(site, random.Random(1))
        broken = set(site.links.broken)
        await nemesis.heal(site)
        return broken

    assert await shape("isolate-leader") == {("n0", "n1"), ("n1", "n0"), ("n0", "n2"), ("n2", "n0")}
    ((source, target),) = await shape("cut-leader-to-follower")
    assert source == "n0"
    ((source, target),) = await shape("cut-follower-to-leader")
    assert target == "n0"
    assert len(await shape("majority-ring")) == 2


@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_in_a_ring_everybody_sees_a_majority_and_no_two_the_same(count: int) -> None:
    ring = [f"n{number}" for number in range(count)]
    cuts = {frozenset(pair) for pair in not_beside(ring)}
    views = [frozenset(other for other in ring if frozenset((one, other)) not in cuts) for one in ring]
    assert all(len(view) > count // 2 for view in views)
    if count > 4:
        assert len(set(views)) == count


async def test_what_was_begun_is_healed_when_firing_fails_or_is_cancelled(
    site: DoubledSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = site.links.cut

    async def second_fails(source: str, target: str, *, both: bool = False) -> None:
        if site.links.broken:
            raise OSError("the proxy is gone")
        await whole(source, target, both=both)

    monkeypatch.setattr(site.links, "cut", second_fails)
    with pytest.raises(OSError, match="the proxy is gone"):
        await do("isolate-leader", site)
    assert not site.links.broken
    task = asyncio.create_task(do("isolate-leader-hold", site, lasts_s=60))
    while len(site.links.broken) < 4:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not site.links.broken


async def test_a_cluster_that_nobody_leads_is_not_well(site: DoubledSite) -> None:
    site.leads = None
    with pytest.raises(NotHealed, match="every member runs and one leads"):
        await well(site, 0.1)
    site.leads = "n1"
    site.members[2].paused = True
    with pytest.raises(NotHealed):
        await well(site, 0.1)


async def test_part_kill_goes_through_its_steps_in_order(site: DoubledSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old leader is cut off: one of the two others leads."""
    heal = site.links.heal

    async def healed() -> None:
        await heal()
        site.leads = "n1"

    started = []

    async def start(name: str) -> None:
        started.append((name, {pair for pair in site.links.broken if "n0" in pair}))
        site.member(name).process.launch()

    monkeypatch.setattr(site.links, "heal", healed)
    monkeypatch.setattr(site, "start", start)
    effect = await do("part-kill", site)
    a, b, leader = effect.target.split(",")
    assert leader == "n0"
    assert {a, b} == {"n1", "n2"}
    cut = [line for line in site.links.asked if line != "heal"]
    assert all(a in line for line in cut[:4])
    assert all("n0" in line for line in cut[4:])
    assert [name for name, _ in started] == [b]
    assert len(started[0][1]) == 4, "the old leader is cut off before b starts"
    assert "bytes lost" in effect.effect
    assert "n1 led" in effect.effect


async def test_a_rolling_restart_restarts_all_and_a_client_crashes_once(site: DoubledSite) -> None:
    effect = await do("rolling-restart", site)
    assert effect.effect.count(" now ") == 3
    assert [member.process.starts for member in site.members] == [2, 2, 2]
    assert "client is gone" in (await do("client-crash", site)).effect
    with pytest.raises(Unable, match="no client"):
        await do("client-crash", site)


SIZE, END, CHECKPOINT = 4096, 4096 + 1000, 4096 + 300
WHOLE = b"a" * SIZE + b"b" * 1000


@pytest.fixture
def stored(site: DoubledSite) -> DoubledSite:
    """A group whose members hold the same log of two files, the first one full."""
    for member in site.members:
        folder = member.store / "commitlog"
        folder.mkdir()
        (folder / f"{0:020d}").write_bytes(WHOLE[:SIZE])
        (folder / f"{SIZE:020d}").write_bytes(WHOLE[SIZE:].ljust(SIZE, b"\0"))
        (member.store / "checkpoint").write_bytes(Checkpoint(dispatched=CHECKPOINT).encode())
        member.process.said = {"end": END, "damaged": None, "whole": True}
    return site


def log_of(member: Member) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((member.store / "commitlog").iterdir()))


@pytest.mark.parametrize("kind", [BitFlip, CutTail])
@pytest.mark.parametrize("seed", range(8))
async def test_one_stopped_members_log_is_damaged_where_its_next_start_reads(
    kind: type[BitFlip | CutTail], seed: int, stored: DoubledSite
) -> None:
    nemesis = kind()
    effect = await nemesis.fire(stored, random.Random(seed))
    (hurt,) = [member for member in stored.members if log_of(member)[:END] != WHOLE]
    assert hurt.name == effect.target
    assert not hurt.process.running
    data = log_of(hurt)
    assert len(data) == 2 * SIZE, "files keep their size"
    differing = [at for at in range(END) if data[at] != WHOLE[at]]
    assert differing[0] >= CHECKPOINT
    if kind is BitFlip:
        (at,) = differing
        assert (data[at] ^ WHOLE[at]).bit_count() == 1
    else:
        assert differing == list(range(differing[0], END))
    for path in (hurt.store / "commitlog").iterdir():
        path.write_bytes(
            (stored.member("n0" if hurt.name != "n0" else "n1").store / "commitlog" / path.name).read_bytes()
        )
    assert f"repaired {hurt.name}" in await nemesis.heal(stored)


@pytest.mark.parametrize("name", ["bitflip-minority", "truncate-minority"])
async def test_a_member_that_goes_on_with_damage_is_not_healed(
    name: str, stored: DoubledSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says of itself: what counts is what the others hold."""
    monkeypatch.setattr("chaos.faults.whole.WHOLE_S", 0.1)
    with pytest.raises(NotHealed, match=r"holds again what n. does at .*: not within"):
        await do(name, stored)


async def test_where_the_next_start_reads_nothing_there_is_nothing_to_damage(stored: DoubledSite) -> None:
    for member in stored.members:
        (member.store / "checkpoint").write_bytes(Checkpoint(dispatched=END).encode())
    with pytest.raises(Unable, match="reads nothing"):
        await do("bitflip-minority", stored)
    assert all(member.process.running for member in stored.members)


async def test_what_needs_a_raft_group_says_so(site: DoubledSite) -> None:
    site.mode = "async"
    for name in ("transfer-leader", "membership"):
        with pytest.raises(Unable, match="no Raft group"):
            await do(name, site)
