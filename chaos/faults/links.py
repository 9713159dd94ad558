"""Faults of links between members: partitions of every shape, slow and lossy links, torn frames.

A link has a direction: "n0>n1" carries what n0 sends to n1. What stands between two members (proxies, or a switch of
the kernel's, chaos/faults/net.py) counts what its faults did: that is the proof.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Sequence

from chaos.faults.base import T0, Effect, FaultSite, Links, NotHealed, Unable
from chaos.faults.targets import followers_of, leader_of, names, pick

# Flapping: how long a link is cut and whole by turns, in seconds. Shorter and longer than an election.
FLAP_S_MIN, FLAP_S_MAX = 0.1, 1.2
SLOW_MS_MIN, SLOW_MS_MAX = 20, 400
LOSS_MIN, LOSS_MAX = 0.1, 0.4
# A connection is closed after so many bytes: inside a handshake, a head, or the bytes of an entry.
TORN_BYTES_MIN, TORN_BYTES_MAX = 50, 20_000


class LinkFault:
    """What all have in common: links are broken by `fire` of each, and healed and counted here."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self) -> None:
        self._before: int | None = None

    async def begin(self, site: FaultSite) -> None:
        """Take note of what the proxies have counted until now. To be called before links are broken."""
        self._before = await site.links.touched()

    async def heal(self, site: FaultSite) -> str:
        """Mend all links; tells what the proxies counted meanwhile."""
        if self._before is None:
            return ""
        touched = await site.links.touched() - self._before
        await site.links.heal()
        await site.links.verify()
        self._before = None
        return f"{touched} {site.links.counted}" if touched > 0 else ""


class Isolate(LinkFault):
    """One member is cut off from all others, both ways."""

    def __init__(self, role: str, *, hold: bool = False) -> None:
        """`hold` keeps connections and what was sent: after heal, old words arrive."""
        super().__init__()
        self.role = role
        self.hold = hold
        self.name = f"isolate-{role}{'-hold' if hold else ''}"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Cut one off."""
        (member,) = await pick(site, self.role, rng)
        await self.begin(site)
        await cut_off(site, member.name, hold=self.hold)
        return Effect(member.name, self.role, "")


async def cut_off(site: FaultSite, name: str, *, hold: bool = False) -> None:
    """Cut all links of a member, both ways."""
    cut = site.links.hold if hold else site.links.cut
    for other in site.members:
        if other.name != name:
            await cut(name, other.name, both=True)


class OneWay(LinkFault):
    """A link between the leader and a follower lets nothing through in one direction."""

    def __init__(self, source: str, target: str) -> None:
        """Roles: one of them is "leader", the other "follower"."""
        super().__init__()
        assert {source, target} == {"leader", "follower"}, (source, target)
        self._from_leader = source == "leader"
        self.name = f"cut-{source}-to-{target}"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Cut the link."""
        leader, follower = await leader_of(site), rng.choice(await followers_of(site))
        await self.begin(site)
        source, target = (leader, follower) if self._from_leader else (follower, leader)
        await site.links.cut(source.name, target.name)
        return Effect(f"{source.name}>{target.name}", self.name.removeprefix("cut-"), "")


class Bridge(LinkFault):
    """Everybody sees a majority, and no two the same one: in a ring of members, those not side by side are cut.

    In a group of three, one member sees both others, and the leader is one of those who do not see each other.
    """

    name = "majority-ring"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Cut all links that are none of the ring's."""
        if len(site.members) < 3:
            raise Unable("a ring needs three members")
        leader = await leader_of(site)
        others = [member.name for member in site.members if member.name != leader.name]
        rng.shuffle(others)
        ring = [leader.name, *others]
        await self.begin(site)
        cuts = not_beside(ring)
        for one, other in cuts:
            await site.links.cut(one, other, both=True)
        return Effect(",".join(f"{one}<>{other}" for one, other in cuts), "ring", "")


def not_beside(ring: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs that are cut so that each member sees a majority, itself included.

    A ring of three has no pair that is not side by side: there the first two are cut, and a line is left.
    """
    count = len(ring)
    if count == 3:
        return [(ring[0], ring[1])]
    reach = (count // 2 + 1) // 2  # so many on each side, and itself, are a majority
    return [
        (ring[one], ring[other])
        for one in range(count)
        for other in range(one + 1, count)
        if min(other - one, count - other + one) > reach
    ]


class Flap(LinkFault):
    """A link of the leader that is cut and whole by turns, too short for either to be believed."""

    name = "flap"

    def __init__(self) -> None:
        super().__init__()
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._turns = 0

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Begin to flap."""
        leader, follower = await leader_of(site), rng.choice(await followers_of(site))
        await self.begin(site)
        await site.links.hold(leader.name, follower.name, both=True)
        self._task = asyncio.create_task(self._flap(site, leader.name, follower.name, rng))
        return Effect(f"{leader.name}<>{follower.name}", "leader, follower", "")

    async def _flap(self, site: FaultSite, leader: str, follower: str, rng: random.Random) -> None:
        while not await self._over_within(rng.uniform(FLAP_S_MIN, FLAP_S_MAX)):
            await site.links.heal()
            self._turns += 1
            if await self._over_within(rng.uniform(FLAP_S_MIN, FLAP_S_MAX)):
                return
            await site.links.hold(leader, follower, both=True)

    async def _over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return self._over.is_set()

    async def heal(self, site: FaultSite) -> str:
        """Leave it whole."""
        error: BaseException | None = None
        if self._task is not None:
            # Not cancelled: what it does to the link just now is to be done before the link is healed.
            self._over.set()
            (error,) = await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        proof = await super().heal(site)
        if isinstance(error, Exception):
            raise NotHealed(f"the link no longer flapped: {error}") from error
        return f"healed {self._turns} times; {proof}" if proof else ""


class SlowLinks(LinkFault):
    """Everything to and from one member is late."""

    name = "slow-links"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Slow its links down."""
        (member,) = await pick(site, rng.choice(("leader", "follower")), rng)
        ms = rng.randint(SLOW_MS_MIN, SLOW_MS_MAX)
        await self.begin(site)
        for other in site.members:
            if other.name != member.name:
                await site.links.slow(member.name, other.name, ms, ms // 2)
                await site.links.slow(other.name, member.name, ms, ms // 2)
        return Effect(member.name, "any", "")


class ShareFault(LinkFault):
    """Something happens to a share of what all links carry, or of their connections."""

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Draw the share, and do it to every link."""
        share = round(rng.uniform(LOSS_MIN, LOSS_MAX), 2)
        await self.begin(site)
        for source, target in all_pairs(site):
            await self.spoil(site.links, source, target, share)
        return Effect(names(site.members), "all", "")

    async def spoil(self, links: Links, source: str, target: str, share: float) -> None:
        """Do it to one link."""
        raise NotImplementedError


class LossyLinks(ShareFault):
    """All links lose a share of what they carry, as packets are lost: it comes later, and in order."""

    name = "lossy-links"

    async def spoil(self, links: Links, source: str, target: str, share: float) -> None:
        """Let a link lose."""
        await links.loss(source, target, share)


class ResetLinks(ShareFault):
    """All links reset a share of their connections, soon after they came about."""

    name = "reset-links"

    async def spoil(self, links: Links, source: str, target: str, share: float) -> None:
        """Let a link reset."""
        await links.resets(source, target, share)


def all_pairs(site: FaultSite) -> list[tuple[str, str]]:
    """Return the names of all pairs of members, in both directions."""
    return list(itertools.permutations((member.name for member in site.members), 2))


class TornFrames(LinkFault):
    """Connections of the leader end in the middle of a frame, again and again."""

    name = "torn-frames"

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Let connections end after some bytes, other ones for each link."""
        leader = await leader_of(site)
        others = await followers_of(site)
        await self.begin(site)
        for other in others:
            for source, target in ((leader.name, other.name), (other.name, leader.name)):
                await site.links.tear(source, target, rng.randint(TORN_BYTES_MIN, TORN_BYTES_MAX))
        return Effect(leader.name, "leader", "")
