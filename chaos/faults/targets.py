"""Members by role, looked up when a fault is fired."""

import asyncio
import random
import time
from collections.abc import Sequence

from chaos.faults.base import PATIENCE_S, POLL_S, FaultSite, Node, Unable

ROLES = ("leader", "follower", "any", "minority", "majority", "all")


async def leader_of(site: FaultSite, patience_s: float = PATIENCE_S) -> Node:
    """Return who leads, waiting for one; raises Unable."""
    deadline = time.monotonic() + patience_s
    while (found := await site.leader()) is None:
        if time.monotonic() > deadline:
            raise Unable(f"nobody led within {patience_s:g} s")
        await asyncio.sleep(POLL_S)
    return found


async def followers_of(site: FaultSite) -> list[Node]:
    """Return all who run and do not lead; raises Unable when there are none."""
    leader = await leader_of(site)
    found = [member for member in site.members if member.name != leader.name and member.process.running]
    if not found:
        raise Unable("there is no other member than the leader")
    return found


async def pick(site: FaultSite, role: str, rng: random.Random) -> list[Node]:
    """Return the members that a role means just now, in the order of their names; raises Unable.

    "minority" and "majority" are drawn among all members: the largest minority and the smallest majority.
    """
    assert role in ROLES, role
    members = site.members
    match role:
        case "leader":
            return [await leader_of(site)]
        case "follower":
            return [rng.choice(await followers_of(site))]
        case "any":
            return [rng.choice(members)]
        case "all":
            return list(members)
    most = len(members) // 2 + 1
    count = most if role == "majority" else len(members) - most
    if not count:
        raise Unable(f"a group of {len(members)} has no minority")
    drawn = {member.name for member in rng.sample(list(members), count)}
    return [member for member in members if member.name in drawn]


def names(members: Sequence[Node]) -> str:
    """Return how an effect calls them."""
    return ",".join(member.name for member in members)
