"""Acts of an administrator while everything is under load: the lead is handed over, members leave and come back."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from chaos.faults.base import PATIENCE_S, T0, Effect, FaultSite, NotHealed, Unable, wait_until
from chaos.faults.targets import followers_of, leader_of
from client.admin.raft import RaftAdmin
from client.errors import ClientError
from remoting.errors import RemotingError

STATE = "/v1/raft"
# A refusal ("try again") is answered by trying again after so many seconds.
AGAIN_S = 0.2


class Transfer:
    """The lead is handed to another member, as before an upgrade."""

    name = "transfer-leader"
    tier = T0
    needs: Sequence[str] = ()

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Hand the lead over."""
        state = await state_of_group(site)
        to = rng.choice(await followers_of(site)).name
        answer = await _insist(site, lambda admin: admin.transfer_leader(state["group"], to))
        after = await state_of_group(site)
        moved = after["term"] > state["term"] and after["leader"] != state["leader"]
        told = f"{state['leader']} led in term {state['term']}, {after['leader']} leads in term {after['term']}"
        return Effect(answer["leader"], "follower", told if moved else "")

    async def heal(self, site: FaultSite) -> str:  # noqa: ARG002 # every fault is handed its site
        """Nothing to do: whoever leads may lead."""
        return ""


async def hand_lead(site: FaultSite, to: str) -> str:
    """Hand the lead to a member, and return what shows it; "" when the group does not do it just now: it may refuse."""
    before = await site.leader()
    if before is not None and before.name == to:
        return f"{to} leads already"
    async with RaftAdmin(site.namesrv) as admin:
        try:
            state = await state_of_group(site)
            await admin.transfer_leader(state["group"], to)
        except (Unable, ClientError, RemotingError):
            return ""
    after = await site.leader()
    return f"{to} leads" if after is not None and after.name == to else ""


class MembershipChange:
    """A follower is taken out of the group, and added again: quorums change while entries are under way."""

    name = "membership"
    tier = T0
    needs: Sequence[str] = ()

    def __init__(self) -> None:
        self._gone = self._address = self._group = ""

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Take one out."""
        follower = rng.choice(await followers_of(site)).name
        state = await state_of_group(site)
        addresses = {member["id"]: member["address"] for member in state["members"]}
        if follower not in addresses:
            raise Unable(f"{follower} is no member of the group")
        self._gone, self._address, self._group = follower, addresses[follower], state["group"]
        await _insist(site, lambda admin: admin.remove_peer(self._group, follower))
        after = await state_of_group(site)
        left = [member["id"] for member in after["members"]]
        proof = f"members {left} since entry {after['config_index']}" if follower not in left else ""
        return Effect(follower, "follower", proof)

    async def heal(self, site: FaultSite) -> str:
        """Add it again, and wait until it has learned all and votes."""
        if not self._gone:
            return ""
        await site.start_missing()
        if self._gone not in await _members(site):
            await _insist(site, lambda admin: admin.add_peer(self._group, self._gone, self._address))
        seconds = await wait_until(f"{self._gone} votes again", lambda: self._votes(site))
        gone, self._gone = self._gone, ""
        return f"{gone} votes again after {seconds:.1f} s"

    async def _votes(self, site: FaultSite) -> bool:
        return (await _members(site)).get(self._gone, False)


async def state_of_group(site: FaultSite) -> dict[str, Any]:
    """Return what the leader knows of its group; raises Unable where there is none."""
    if not site.mode.startswith("raft"):
        raise Unable(f"a cluster of mode {site.mode} is no Raft group")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        leader = await leader_of(site)
        state: dict[str, Any] | None = await asyncio.to_thread(leader.process.state, STATE)
        if state is not None:
            return state
    raise Unable("no leader tells the state of its group")


async def _members(site: FaultSite) -> dict[str, bool]:
    """Return member → whether it votes."""
    state = await state_of_group(site)
    return {member["id"]: bool(member["voter"]) for member in state["members"]}


async def _insist(site: FaultSite, act: Any) -> dict[str, Any]:
    """Ask the group until it does it; raises NotHealed with its last words when it does not."""
    deadline = time.monotonic() + PATIENCE_S
    async with RaftAdmin(site.namesrv) as admin:
        while True:
            try:
                done: dict[str, Any] = await act(admin)
            except (ClientError, RemotingError) as error:
                if time.monotonic() > deadline:
                    raise NotHealed(f"the group does not do it: {error}") from error
                await asyncio.sleep(AGAIN_S)
            else:
                return done
