"""Faults that the kernel does, against doubles: packets dropped, file systems shut down or full; what is survivable."""

import random
import re
from pathlib import Path

import pytest

from chaos.faults.base import PACKETS, Effect, FaultSite, NotHealed, Unable
from chaos.faults.survivable import survivable
from chaos.runs.nemesis import FAULTS, inflict, make
from tests.parts.chaos_site import DoubledSite, Member


@pytest.fixture
def site(tmp_path: Path) -> DoubledSite:
    return DoubledSite(tmp_path)


async def do(name: str, site: FaultSite, seed: int = 1) -> Effect:
    return await inflict(make(name), site, random.Random(seed), lasts_s=0.0)


NET_FAULTS = {
    "net-isolate-leader": 4,
    "net-isolate-follower": 4,
    "net-one-way": 1,
    "net-majority-ring": 2,
    "net-flap": 2,
    "net-loss": 6,
}


@pytest.mark.parametrize(("name", "links"), NET_FAULTS.items())
async def test_packets_are_dropped_in_the_shape_of_the_name_and_only_between_namespaces(
    name: str, links: int, site: DoubledSite
) -> None:
    with pytest.raises(Unable, match="in no network namespaces"):
        await do(name, site)
    site.links.counted = PACKETS
    nemesis = make(name)
    await nemesis.fire(site, random.Random(1))
    assert len(site.links.broken) == links
    assert not any(kind == "cut" for kind in site.links.broken.values()) or name in {"net-one-way", "net-majority-ring"}
    assert re.search(r"[1-9]\d* packets were dropped", await nemesis.heal(site))
    assert not site.links.broken
    site.links.silent = True
    assert (await do(name, site)).effect == "", "the kernel counted nothing"


async def test_one_way_goes_either_way(site: DoubledSite) -> None:
    site.links.counted = PACKETS
    effects = [await do("net-one-way", site, seed) for seed in range(20)]
    assert {effect.wanted for effect in effects} == {"leader-to-follower", "follower-to-leader"}
    assert all((effect.target.startswith("n0>")) == (effect.wanted == "leader-to-follower") for effect in effects)


async def test_links_that_still_have_faults_are_not_healed(site: DoubledSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing() -> None:
        return None

    monkeypatch.setattr(site.links, "heal", nothing)
    with pytest.raises(NotHealed, match="still broken"):
        await do("isolate-leader", site)


class Device:
    """A file system that does what it is told; a process that still ran when its power failed is noted."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.free = self.room = 1_000_000
        self.given_back = 0
        self.lost = "ext4 shut down, 4096 bytes and 0 files lost"

    def lose_power(self) -> str:
        assert not self.member.process.running
        return self.lost

    def fill(self) -> int:
        """Its member gives something back as soon as it finds no room."""
        self.free, self.given_back = self.given_back, 0
        return self.room - self.free

    def drain(self) -> None:
        self.free = self.room

    def free_bytes(self) -> int:
        return self.free


@pytest.fixture
def devices(site: DoubledSite) -> dict[str, Device]:
    found = {}
    for member in site.members:
        member.device = found[member.name] = Device(member)
    return found


@pytest.mark.parametrize(
    ("name", "count"),
    [("disk-power-leader", 1), ("disk-power-follower", 1), ("disk-power-majority", 2), ("disk-power-all", 3)],
)
async def test_file_systems_lose_power_when_all_processes_are_dead(
    name: str, count: int, site: DoubledSite, devices: dict[str, Device]
) -> None:
    effect = await do(name, site)
    assert effect.effect.count("ended with -9, ext4 shut down, 4096 bytes") == count
    assert effect.effect.count("back as pid") == count
    devices["n0"].lost = ""
    effect = await do("disk-power-all", site)
    assert effect.effect.startswith("n0 back as pid"), "one that did not shut down: its loss is not proved"
    site.members[1].device = None
    starts = site.members[0].process.starts
    with pytest.raises(Unable, match="no file systems of their own"):
        await do("disk-power-all", site)
    assert site.members[0].process.starts == starts, "nobody was killed"


async def test_a_full_disk_is_full_until_it_is_healed(site: DoubledSite, devices: dict[str, Device]) -> None:
    nemesis = make("disk-full-leader")
    effect = await nemesis.fire(site, random.Random(1))
    assert effect.effect == "n0: 1000000 bytes taken, 0 free"
    assert [device.free for device in devices.values()] == [0, 1_000_000, 1_000_000]
    await nemesis.heal(site)
    devices["n0"].given_back = 400_000
    effect = await nemesis.fire(site, random.Random(1))
    assert effect.effect == "n0: 1000000 bytes taken, 0 free"
    site.members[0].process.exit_code = 1
    assert re.fullmatch(r"after \d\.\d s n0 0 free; n0 ended with 1; n0 back as pid \d+", await nemesis.heal(site))
    assert devices["n0"].free == 1_000_000
    assert await nemesis.heal(site) == ""
    devices["n0"].room = 0
    with pytest.raises(NotHealed, match="disk of n0 is still full"):
        await do("disk-full-leader", site)


def test_what_is_survivable_are_faults_that_one_member_has() -> None:
    group = set(survivable("raft", 3))
    assert group <= FAULTS.keys()
    assert {"kill-leader", "pause-leader", "isolate-leader-hold", "net-isolate-leader", "disk-power-leader"} <= group
    assert {"kill-follower", "slow-fsync-follower", "enospc-follower", "failing-fsync-leader"} <= group
    assert not {name for name in group if name.endswith(("-all", "-majority"))}
    assert not group & {"part-kill", "majority-ring", "flap", "lossy-links", "enospc-leader", "clock-jump-leader"}
    assert survivable("raft", 1) == survivable("single", 1) == survivable("sync", 2) == ()
    assert all("follower" in name for name in (*survivable("async", 2), *survivable("sync", 3)))


async def test_a_clock_jumps_and_goes_right_again(
    site: DoubledSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unable, match="take no orders"):
        await do("clock-jump-leader", site)
    clock = site.members[0].clock = tmp_path / "clock"
    seen: list[float] = []

    def shows(_member: Member) -> float | None:
        seen.append(float(clock.read_text()))
        # At first it does not answer.
        return seen[-1] if len(seen) > 1 else None

    monkeypatch.setattr("chaos.faults.clock.ahead_s", shows)
    effect = await do("clock-jump-leader", site)
    assert 60 <= abs(seen[0]) <= 7200
    assert effect.effect.startswith(f"its Date header is {seen[0]:+.0f} s from ours")
    assert seen[-1] == 0
    monkeypatch.setattr("chaos.faults.clock.ahead_s", lambda _member: 100.0)
    monkeypatch.setattr("chaos.faults.clock.wait_until.__defaults__", (0.1,))
    nemesis = make("clock-jump-leader")
    with pytest.raises(NotHealed):
        await nemesis.fire(site, random.Random(1))
    with pytest.raises(NotHealed, match=r"the clock of n0 is \+0 s from ours: not within"):
        await nemesis.heal(site)
