"""Members of a group whose disks are really full: none ends, nothing acknowledged is lost, all go on by themselves."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.host.processes import ServerProcess
from remoting.client import RemotingClient
from remoting.codes import ResponseCode
from runtime.clock import SystemClock
from runtime.gaps import LoopGaps
from tests.cluster.raft_site import log_of, stop
from tests.cluster.small_disk import SmallDisk
from tests.cluster.test_broker_full import PATIENT, FullSite, page

pytestmark = pytest.mark.timeout(150)
# From the first refusal on, of two times the quicker one. What this machine gave its processes no time for does not
# count: the test's own loop tells of what it met itself.
MOVED_SECONDS = 3.0


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

    async def until_refused(self) -> None:
        """Send until some are refused, which the lead may end within a second."""
        await self.until(ResponseCode.SERVICE_NOT_AVAILABLE, 5)

    async def press(self, enough: asyncio.Event) -> None:
        """Send one by one, each until it is known what became of it."""
        client = RemotingClient()
        try:
            while not enough.is_set():
                await self.give(client)
        finally:
            await client.close()

    async def state(self, number: int) -> dict[str, Any]:
        """Return what a member says of itself, once it says anything."""
        async with asyncio.timeout(60):
            while True:
                assert self.members[number].running, self.members[number].last_words()
                state: dict[str, Any] | None = await asyncio.to_thread(self.members[number].state, "/v1/raft")
                if state is not None:
                    return state
                await asyncio.sleep(0.05)

    async def find_leader(self) -> int:
        """Wait until one leads; sends go to it from now on."""
        async with asyncio.timeout(60):
            while True:
                for number, member in enumerate(self.members):
                    if member.running and (await self.state(number))["leads"]:
                        self.leader = member.address
                        return number
                await asyncio.sleep(0.05)

    async def until_full(self, number: int, *, full: bool) -> None:
        async with asyncio.timeout(60):
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

    async def until_equal(self) -> int:
        """Wait until all members have come to the same end, and return it: an entry may follow at any moment."""
        async with asyncio.timeout(60):
            while True:
                states = [await self.state(number) for number in range(len(self.members))]
                ends: set[int] = {state["end"] for state in states}
                if len(ends) == 1 and all(state["applied"] == state["last"] == state["durable"] for state in states):
                    return ends.pop()
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """All is there, and after a stop in good order the logs are equal."""
        end = await self.until_equal()
        await self.check_full()
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


@pytest.mark.parametrize("ext4", [False, True], ids=["tmpfs", "ext4"])
async def test_the_lead_leaves_a_full_disk_and_nothing_acknowledged_is_lost(site: GroupSite, *, ext4: bool) -> None:
    site.ext4 = ext4
    await site.begin()
    took: list[float] = []
    for _ in range(2):
        full = await site.find_leader()
        before = await site.state(full)
        site.disk_of(full).fill()
        # Sends go to the member that led, whoever leads: at first it refuses, then it sends them on.
        await site.until(ResponseCode.SERVICE_NOT_AVAILABLE, 1)
        refused_at, gaps = time.monotonic(), LoopGaps(SystemClock())
        await site.until(ResponseCode.SUCCESS, 1)
        moved = time.monotonic() - refused_at
        gaps.close()
        stalled = sum(gap["ms"] for gap in gaps.status()["last"]) / 1000
        print(
            f"\nthe first send is taken again {moved:.2f} s after the first one was refused, {stalled:.2f} s of stalls"
        )
        took.append(moved - stalled)
        after = await site.state(full)
        assert not after["leads"]
        assert after["term"] > before["term"]
        assert after["writesRefused"]
        assert site.members[full].ready(), "it sends on, and so serves"
        await site.until_taken()
        leader = await site.find_leader()
        assert leader != full
        assert not (await site.state(leader))["peers"][f"n{full}"]["room"]
        await site.check_full()
        # The lead stays where there is room, also when the full one's process begins anew.
        term = (await site.state(leader))["term"]
        site.members[full].kill()
        site.disk_of(full).fill()
        site.members[full].start()
        await site.until_full(full, full=True)
        await site.until_taken()
        assert (await site.state(leader))["term"] == term
        site.disk_of(full).drain()
        await site.until_full(full, full=False)
        await site.until_taken()
        await site.until_equal()
    assert min(took) < MOVED_SECONDS, took
    await site.end()


async def test_a_group_without_any_room_keeps_a_leader_that_serves_and_takes_messages_again(site: GroupSite) -> None:
    await site.begin()
    leader = await site.find_leader()
    for disk in site.disks:
        disk.fill()
    await site.until_refused()
    leader = await site.find_leader()
    await site.until_full(leader, full=True)
    # For its own disk or the others': which of them are asked for room first is chance.
    code, said = await asyncio.to_thread(page, site.members[leader], "/readyz")
    assert code == 503
    assert "the disk is full" in said["reason"] or "no majority of the group has room" in said["reason"]
    # What was acknowledged is read, and the group has its leader when that one is stopped.
    await site.check_full()
    site.members[leader].kill()
    site.disk_of(leader).fill()
    other = await site.find_leader()
    await site.check_full()
    # One that has room, as far as it knows, leads until all have it again.
    third = ({0, 1, 2} - {leader, other}).pop()
    site.disk_of(third).drain()
    async with asyncio.timeout(60):
        while (await site.state(await site.find_leader()))["refused"]:
            await asyncio.sleep(0.1)
    for number in (leader, other):
        site.disk_of(number).drain()
    site.members[leader].start()
    for number in range(3):
        await site.until_full(number, full=False)
        await site.until_ready(site.members[number])
    await site.until_taken()
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


async def test_a_leader_whose_followers_are_full_refuses_until_one_has_room(site: GroupSite) -> None:
    await site.begin()
    leader = await site.find_leader()
    followers = [number for number in range(3) if number != leader]
    for number in followers:
        site.disk_of(number).fill()
    # What none of them takes is not answered; what they have no room for the leader refuses, once it knows.
    enough = asyncio.Event()
    sending = asyncio.create_task(site.press(enough))
    async with asyncio.timeout(60):
        while "no majority of the group has room" not in ((await site.state(leader))["writesRefused"] or ""):
            await asyncio.sleep(0.05)
    code, said = await asyncio.to_thread(page, site.members[leader], "/readyz")
    assert code == 503
    assert "no majority of the group has room" in said["reason"]
    await site.until(ResponseCode.SERVICE_NOT_AVAILABLE, 3)
    enough.set()
    site.disk_of(followers[0]).drain()
    # The one that was on its way is stored now, or was refused.
    await sending
    await site.until_ready(site.members[leader])
    await site.until_taken()
    site.disk_of(followers[1]).drain()
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
