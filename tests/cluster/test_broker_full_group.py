"""Members of a group whose disks are really full: none ends, nothing acknowledged is lost, all go on by themselves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.processes import ServerProcess
from remoting.codes import ResponseCode
from tests.cluster.raft_site import log_of, stop
from tests.cluster.small_disk import SmallDisk
from tests.cluster.test_broker_full import PATIENT, FullSite

pytestmark = pytest.mark.timeout(150)


class GroupSite(FullSite):
    """Three members, each on a small disk of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.members: list[ServerProcess] = []

    async def begin(self) -> None:
        """Start the group; from now on the first disk is that of member 0, and so on."""
        self.members = self.group(wait=False, launch=False)
        for number, member in enumerate(self.members):
            self.put_on_disk(member, self.store(f"n{number}"))
            member.launch()
        for member in self.members:
            member.wait_ready()
        await self.find_leader()
        await self.create()
        await self.until_taken()

    async def state(self, number: int) -> dict[str, Any]:
        """Return what a member says of itself, once it says anything."""
        async with asyncio.timeout(20):
            while True:
                assert self.members[number].running, self.members[number].last_words()
                state: dict[str, Any] | None = await asyncio.to_thread(self.members[number].state, "/v1/raft")
                if state is not None:
                    return state
                await asyncio.sleep(0.05)

    async def find_leader(self) -> int:
        """Wait until one leads; sends go to it from now on."""
        async with asyncio.timeout(30):
            while True:
                for number, member in enumerate(self.members):
                    if member.running and (await self.state(number))["leads"]:
                        self.leader = member.address
                        return number
                await asyncio.sleep(0.05)

    async def until_full(self, number: int, *, full: bool) -> None:
        async with asyncio.timeout(30):
            while bool((await self.state(number))["writesRefused"]) != full:
                await asyncio.sleep(0.05)

    async def until_stuck(self, number: int) -> None:
        """Send until a follower whose disk is full takes nothing more, however much the others do."""
        async with asyncio.timeout(60):
            while True:
                before = await self.state(number)
                await self.until_taken()
                after = await self.state(number)
                if after["writesRefused"] and after["durable"] == after["last"] == before["last"]:
                    return

    async def until_equal(self) -> None:
        """Wait until all members have come to the same end."""
        async with asyncio.timeout(40):
            while True:
                states = [await self.state(number) for number in range(len(self.members))]
                ends = {(state["end"], state["applied"] == state["last"] == state["durable"]) for state in states}
                if len(ends) == 1 and next(iter(ends))[1]:
                    return
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """All is there, and after a stop in good order the logs are equal."""
        await self.until_equal()
        await self.check_full()
        (end,) = {(await self.state(number))["end"] for number in range(len(self.members))}
        stop(self.members)
        assert len({log_of(disk.path, end) for disk in self.disks}) == 1

    def disk_of(self, number: int) -> SmallDisk:
        return self.disks[number]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupSite]:
    monkeypatch.setattr("tests.cluster.raft_site.SETTINGS", PATIENT)
    running = GroupSite(tmp_path)
    yield running
    running.close()


async def test_a_leader_on_a_full_disk_refuses_sends_lives_and_recovers(site: GroupSite) -> None:
    await site.begin()
    for _ in range(2):
        leader = await site.find_leader()
        before = await site.state(leader)
        site.disk_of(leader).fill()
        await site.until(ResponseCode.SERVICE_NOT_AVAILABLE, 30)
        assert site.members[leader].running, site.members[leader].last_words()
        await site.until_full(leader, full=True)
        await site.check_full()
        site.disk_of(leader).drain()
        await site.until_full(leader, full=False)
        await site.until_taken()
        after = await site.state(leader)
        assert (after["term"], after["leads"]) == (before["term"], True)
    await site.end()


async def test_a_follower_on_a_full_disk_stays_behind_and_catches_up(site: GroupSite) -> None:
    await site.begin()
    for _ in range(2):
        leader = await site.find_leader()
        full = (leader + 1) % 3
        site.disk_of(full).fill()
        await site.until_stuck(full)
        assert (await site.state(leader))["leads"]
        await site.check_full()
        site.disk_of(full).drain()
        await site.until_taken()
        await site.until_equal()
    await site.end()


@pytest.mark.parametrize(("role", "stop"), [("leader", False), ("follower", False), ("leader", True)])
async def test_a_member_that_ends_on_a_full_disk_starts_on_it(site: GroupSite, role: str, *, stop: bool) -> None:
    await site.begin()
    leader = await site.find_leader()
    number = leader if role == "leader" else (leader + 1) % 3
    disk, member = site.disk_of(number), site.members[number]
    disk.fill()
    await (site.until_refused() if role == "leader" else site.until_stuck(number))
    if stop:
        # It may have no room for its queues; that is no failure.
        assert member.stop() == 0, member.last_words()
    else:
        member.kill()
    # Whatever that gave back.
    disk.fill()
    await site.find_leader()
    await site.until_taken()
    member.start()
    await site.check_full()
    await site.until_full(number, full=True)
    disk.drain()
    await site.until_taken()
    await site.end()
