"""Schedules of several faults in one order: each finds what no single fault does.

All of them need a Raft group of three or more. Between their steps they wait by the clock, for entries to be written.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence

from chaos.faults.base import Effect, FaultSite, Node, Unable
from chaos.faults.disk import cut_power
from chaos.faults.links import LinkFault, cut_off
from chaos.faults.running import Pause, revived
from chaos.faults.targets import followers_of, leader_of, names

# Seconds between two steps: entries are written meanwhile, and members notice what happened.
STEP_S_MIN, STEP_S_MAX = 0.5, 1.5


async def some_time(rng: random.Random) -> None:
    """Let the group work between two steps."""
    await asyncio.sleep(rng.uniform(STEP_S_MIN, STEP_S_MAX))


class PartKill(LinkFault):
    """Whether a follower syncs before it acknowledges (chaos of NATS, "part-kill").

    Follower a is isolated; the leader and follower b acknowledge; b loses power; a is back, the leader is isolated, b
    starts: a and b alone elect a leader, which must know everything. It does only if b had synced what it acknowledged.
    """

    name = "part-kill"

    def __init__(self) -> None:
        super().__init__()
        self._pids: dict[str, int] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Go through all steps; at their end the old leader is cut off."""
        if len(site.members) != 3:
            raise Unable("part-kill is a schedule for three members")
        leader, others = await leader_of(site), await followers_of(site)
        if len(others) != 2:
            raise Unable("part-kill needs all three members")
        a, b = rng.sample(others, 2)
        await self.begin(site)
        await cut_off(site, a.name)
        await some_time(rng)
        lost = await cut_power([b], rng, self._pids)
        await site.links.heal()
        await cut_off(site, leader.name)
        await site.start(b.name)
        new = await self._led_by(site, (a, b))
        await some_time(rng)
        proof = f"{a.name} cut off; {lost}; {leader.name} cut off, {new} led"
        return Effect(names([a, b, leader]), "follower, follower, leader", proof if new else "")

    async def heal(self, site: FaultSite) -> str:
        """Mend the links, start who is down."""
        touched = await super().heal(site)
        back = await revived(site, self._pids)
        return "; ".join(part for part in (touched, back) if part)

    @staticmethod
    async def _led_by(site: FaultSite, members: Sequence[Node]) -> str:
        """Return which of some members came to lead, "" when none did in time."""
        with contextlib.suppress(Unable, TimeoutError):
            async with asyncio.timeout(20):
                while True:
                    found = await leader_of(site)
                    if found.name in {member.name for member in members}:
                        return found.name
                    await asyncio.sleep(0.05)
        return ""


class PauseKill(Pause):
    """A leader that stands still while the group goes on without it, and then loses its newest follower.

    The leader is paused, the others elect one of them and acknowledge; the new leader is killed at the moment at which
    the old one goes on: what it still believes, and what it forwards and answers, must not count.
    """

    name = "pause-kill"

    def __init__(self) -> None:
        super().__init__("leader")
        self.name = "pause-kill"
        self._pids: dict[str, int] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Pause, wait for a new leader, kill it, and let the old one go on."""
        old = await leader_of(site)
        if len(await followers_of(site)) < 2:
            raise Unable("pause-kill needs two followers")
        paused = await self.stop(old)
        new = await leader_of(site)
        await some_time(rng)
        self._pids[new.name] = pid = new.process.pid
        await asyncio.to_thread(new.process.kill)
        await super().heal(site)
        proof = f"{old.name} {paused}; {new.name} led, pid {pid} ended with {new.process.exit_code}"
        return Effect(names([old, new]), "leader, leader", proof if paused and new is not old else "")

    async def heal(self, site: FaultSite) -> str:
        """Let go on who stands still, start who is down."""
        await super().heal(site)
        return await revived(site, self._pids)


class Swizzle(LinkFault):
    """Links are clogged one after the other in one order, and unclogged in another (FoundationDB's swizzle-clog)."""

    name = "swizzle"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Clog member by member, then unclog member by member; what was sent is kept meanwhile."""
        members = [member.name for member in site.members]
        clogged = rng.sample(members, rng.randint(1, len(members)))
        opened = rng.sample(clogged, len(clogged))
        await self.begin(site)
        for name in clogged:
            await cut_off(site, name, hold=True)
            await some_time(rng)
        while opened:
            opened.pop()
            await site.links.heal()
            for name in opened:
                await cut_off(site, name, hold=True)
            await some_time(rng)
        return Effect(",".join(clogged), "any", "")
