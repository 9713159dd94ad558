"""A classic group becomes a Raft group, and back: the orders to each broker, in their order (see to_raft).

Both ways may be taken again after whatever went wrong: first everybody is asked what he is, and what is done already is
not done again. What may be slow is waited for, and told step by step.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from client.admin.classic import ClassicAdmin
from client.admin.raft import RaftAdmin
from client.errors import RouteError
from raft.protocol.settings import parse_peers
from remoting.codes import ClassicCode, RaftCode
from remoting.errors import ConnectError, ConnectionLost, InvokeError, InvokeTimeout, ResponseError

RAFT = "RAFT"
SLAVE = "SLAVE"
# Seconds between two looks at a broker that is becoming something else.
LOOK_SECONDS = 0.2
# Seconds that a broker may take to tell the NameServers of itself.
REGISTER_SECONDS = 5.0
# Seconds that a broker may take to start again, and a group to agree.
STEP_SECONDS = 60.0
# Seconds that a broker may take to copy what it lacks.
COPY_SECONDS = 3600.0
# Seconds between two words about what is waited for.
WORDS_SECONDS = 5.0

Step = Callable[[str], None]
T = TypeVar("T")


class Present(NamedTuple):
    """A broker that answers."""

    number: int
    """Of the member: "n1" is 1. Of a classic broker: its brokerId."""
    address: str
    raft: bool
    state: dict[str, Any]
    """raft-status of a member, else ha-status."""


class ConvertAdmin(ClassicAdmin, RaftAdmin):
    """Conversions of whole groups. `step` is told, in words, what has been done."""

    async def convert_to_raft(self, name: str, peers: str, step: Step) -> dict[str, Any]:
        """Make a master and its slaves a Raft group with these dLegerPeers; returns the leader's raft-status.

        The member n<brokerId> is the broker of that id, so n0 is the master, whose log the group begins with. Raises
        ConfigError (peers), InvokeError, RouteError: the text says what state all are in.
        """
        addresses = {peer.id: peer.address for peer in parse_peers(peers)}
        async with self._told_as_it_stands(name):
            return await self._to_raft(name, peers, addresses, step)

    async def _to_raft(self, name: str, peers: str, addresses: dict[str, str], step: Step) -> dict[str, Any]:
        present = await self._present(name, set(addresses), step)
        await self._check_peers(name, present, addresses, peers, step)
        leader = await self._begun(name, present, peers, step)
        for broker in present:
            if not broker.raft and broker.address != leader:
                body = {"peers": peers, "self": f"n{broker.number}", "leader": leader}
                await self.to_raft(broker.address, body)
                step(f"n{broker.number} at {broker.address} starts again as a member")
        here = [f"n{broker.number}" for broker in present]
        for member in here:
            await self._added(leader, member, addresses[member], step)
        for missing in sorted(addresses.keys() - set(here)):
            step(f"{missing} has not registered: repeat the command when it is there, and it is brought in")
        return await self._voting(leader, here, step)

    async def _check_peers(
        self, name: str, present: list[Present], addresses: dict[str, str], peers: str, step: Step
    ) -> None:
        """Make sure before anything is changed that every broker could do its part."""
        if not present:
            raise RouteError(f"no broker named {name} answers", retriable=True)
        sizes = {}
        for broker in present:
            member = f"n{broker.number}"
            if member not in addresses:
                raise RouteError(
                    f"the broker at {broker.address} would be {member}, which --peers does not name: name all, or stop "
                    "it first",
                    retriable=False,
                )
            if not broker.raft:
                told = await self.to_raft(broker.address, {"peers": peers, "self": member, "check": True})
                sizes[member] = told["fileBytes"]
                for warning in told["warnings"]:
                    step(f"warning: {warning}")
        if len(set(sizes.values())) > 1:
            words = ", ".join(f"{member} {size}" for member, size in sorted(sizes.items()))
            raise RouteError(f"mappedFileSizeCommitLog must be equal in a group, and is: {words}", retriable=False)

    async def _begun(self, name: str, present: list[Present], peers: str, step: Step) -> str:
        """Have the group begin unless it has; return the leader's address."""
        members = [broker.address for broker in present if broker.raft]
        if not members:
            masters = [broker for broker in present if broker.number == 0]
            if not masters:
                raise RouteError(
                    f"{name} has no master, whose log the group could begin with: start it, or promote a slave",
                    retriable=True,
                )
            master = masters[0].address
            step(f"the master at {master} takes nothing more (clients try again) and writes all to disk")
            done = await self.to_raft(master, {"peers": peers, "self": "n0"})
            behind = ", ".join(done["slavesBehind"])
            lacking = f"; behind, and to be copied: {behind}" if behind else ""
            step(f"its log ends at {done['end']}, {len(done['slavesWithAll'])} slaves have all of it{lacking}")
            members = [master]
        leader = await self._until(f"nobody leads {name}", STEP_SECONDS, lambda: self._leader_of(members))
        step(f"{leader} leads the group and takes messages; it is on one disk until others vote")
        return leader

    async def _leader_of(self, addresses: list[str]) -> str | None:
        for address in addresses:
            try:
                if (await self.raft_status(address))["leads"]:
                    return address
            except InvokeError:
                continue
        return None

    async def _added(self, leader: str, member: str, address: str, step: Step) -> None:
        """Have the leader list a member; it learns first."""

        async def add() -> bool | None:
            if member in _members(await self.raft_status(leader)):
                return False
            await self._raft(leader, RaftCode.ADD_PEER, id=member, address=address)
            return True

        if await self._until(f"{member} is not added", STEP_SECONDS, add):
            step(f"{member} learns")

    async def _voting(self, leader: str, members: list[str], step: Step) -> dict[str, Any]:
        """Wait until all vote; return the leader's state."""
        loop = asyncio.get_running_loop()
        told = loop.time()

        async def look() -> dict[str, Any] | None:
            nonlocal told
            state = await self.raft_status(leader)
            learning = [member for member in members if not _members(state).get(member)]
            if learning and loop.time() - told >= WORDS_SECONDS:
                told = loop.time()
                lags = (f"{each} lacks {state['peers'].get(each, {}).get('lag', 'all')} entries" for each in learning)
                step(", ".join(lags))
            return None if learning else state

        state = await self._until("not all members vote", COPY_SECONDS, look)
        step(f"{', '.join(members)} vote: the group is complete")
        return state

    async def convert_to_classic(self, name: str, role: str, step: Step) -> dict[str, Any]:
        """Make a Raft group a master (`role`) and slaves; returns the master's ha-status.

        The leader becomes the master, member n<k> the slave k (n0 takes the lowest id that is free). Raises
        InvokeError, RouteError: the text says what state all are in.
        """
        async with self._told_as_it_stands(name):
            return await self._to_classic(name, role, step)

    async def _to_classic(self, name: str, role: str, step: Step) -> dict[str, Any]:
        present = await self._present(name, set(), step)
        # One whose group has ended leads no more.
        ended = [broker for broker in present if broker.raft and broker.state["classic"]]
        leaders = ended or [broker for broker in present if broker.raft and broker.state["leads"]]
        masters = [broker for broker in present if not broker.raft and broker.number == 0]
        if masters:
            master = masters[0]
            step(f"{master.address} is the master already")
        elif leaders:
            master = leaders[0]
            # Before the group is ended, which leaves nobody who takes messages.
            await self.to_classic(master.address, {"role": role, "brokerId": 0, "check": True})
            if not ended:
                await self._end(master, step)
            await self.to_classic(master.address, {"role": role, "brokerId": 0})
        else:
            raise RouteError(f"nobody leads {name}: see raftmq cluster raft-status", retriable=True)
        state = await self._until("the master does not answer", STEP_SECONDS, lambda: self._master(master.address))
        step(f"{master.address} is the master ({state['role']}) and takes messages")
        others = [broker for broker in present if broker.address != master.address]
        for broker, broker_id in _slave_ids(others):
            if broker.raft:
                body = {"role": SLAVE, "brokerId": broker_id, "master": master.address}
                await self.to_classic(broker.address, body)
                step(f"n{broker.number} at {broker.address} starts again as the slave {broker_id}")
        for broker in others:
            follows = partial(self._follows, broker.address)
            await self._until(f"{broker.address} does not follow", COPY_SECONDS, follows)
            step(f"{broker.address} follows")
        return await self.ha_status(master.address)

    async def _end(self, leader: Present, step: Step) -> None:
        """Shrink a group to its leader, and end it (R2)."""
        own = f"n{leader.number}"
        for member in sorted(_members(leader.state).keys() - {own}):

            async def remove(member: str = member) -> bool | None:
                if member in _members(await self.raft_status(leader.address)):
                    await self._raft(leader.address, RaftCode.REMOVE_PEER, id=member)
                return True

            await self._until(f"{member} is not removed", STEP_SECONDS, remove)
            step(f"{member} is no member any more")

        async def leave() -> bool | None:
            if not (await self.raft_status(leader.address))["classic"]:
                await self._raft(leader.address, RaftCode.LEAVE)
            return True

        await self._until("the group is not ended", STEP_SECONDS, leave)
        step(f"the group has ended in the log of {leader.address}, which takes nothing until it is the master")

    async def _master(self, address: str) -> dict[str, Any] | None:
        state = await self.ha_status(address)
        return state if state["role"] not in {RAFT, SLAVE} else None

    async def _follows(self, address: str) -> bool | None:
        state = await self.ha_status(address)
        if state["role"] != SLAVE:
            return None
        found = state["master"]
        if found.get("waitsFor"):
            raise RouteError(f"{address} waits for a person: {found['waitsFor']['why']}", retriable=False)
        return True if found["state"] == "following" else None

    async def _present(self, name: str, wanted: set[str], step: Step) -> list[Present]:
        """Return the brokers of a name that the NameServers know and that answer, by number.

        `wanted`: members that are given a moment to register. A member that follows and a slave that looks for its
        master may have the same brokerId, and then take turns.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + REGISTER_SECONDS
        known: set[str] = set()
        found: dict[str, Present] = {}
        while True:
            known |= {broker.address for broker in await self.brokers(None) if broker.name == name}
            for address in known - found.keys():
                with contextlib.suppress(ConnectError, ConnectionLost, InvokeTimeout):
                    found[address] = await self._one(address)
            here = {f"n{broker.number}" for broker in found.values()}
            if (wanted <= here and known == found.keys()) or loop.time() >= until:
                break
            await asyncio.sleep(LOOK_SECONDS)
        for address in sorted(known - found.keys()):
            step(f"{address} does not answer: repeat the command when it is there")
        return sorted(found.values())

    async def _one(self, address: str) -> Present:
        state = await self._classic(address, ClassicCode.STATUS)
        raft = state["role"] == RAFT
        if raft:
            state = await self.raft_status(address)
        return Present(int(state["self"][1:]) if raft else int(state["brokerId"]), address, raft, state)

    async def _until(self, what: str, seconds: float, act: Callable[[], Awaitable[T | None]]) -> T:
        """Try again until something comes of it. Raises RouteError when it takes too long, naming the last failure."""
        last = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        result = await act()
                        if result is not None:
                            return result
                    except ResponseError as error:
                        last = f": {error.remark}"
                    except InvokeError as error:
                        last = f": {error}"
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise RouteError(f"{what} after {seconds:g} s{last}", retriable=True) from None

    @contextlib.asynccontextmanager
    async def _told_as_it_stands(self, name: str) -> AsyncIterator[None]:
        """Add to whatever ends a conversion half way in which state it leaves everybody."""
        try:
            yield
        except (InvokeError, RouteError) as error:
            if isinstance(error, RouteError) and not error.retriable:
                # Found before anything was changed, or a person's to decide: the text says it all.
                raise
            try:
                known = sorted({broker.address for broker in await self.brokers(None) if broker.name == name})
            except (InvokeError, RouteError):
                known = []
            stand = "; ".join([await self._stands(address) for address in known]) or "no broker is known"
            raise RouteError(
                f"{error}. As it stands: {stand}. What was done stays done: repeat the command to go on",
                retriable=True,
            ) from error

    async def _stands(self, address: str) -> str:
        """Return in a few words what a broker is now."""
        try:
            number, _, raft, state = await self._one(address)
        except InvokeError as error:
            return f"{address} does not answer ({error})"
        if raft and state["classic"]:
            return f"{address} is n{number} of a group that has ended"
        if raft:
            return f"{address} is n{number} of a Raft group" + (", which it leads" if state["leads"] else "")
        fenced = f", and takes nothing: {state['fenced']}" if state.get("fenced") else ""
        return f"{address} is {state['role']} with brokerId {number}{fenced}"


def _members(state: dict[str, Any]) -> dict[str, bool]:
    """Return who belongs to a group, and whether he votes."""
    return {member["id"]: member["voter"] for member in state["members"]}


def _slave_ids(others: list[Present]) -> list[tuple[Present, int]]:
    """Return each broker's brokerId as a slave: its number, and for n0 the lowest that nobody has."""
    taken = {broker.number for broker in others}
    free = next(number for number in range(1, len(taken) + 2) if number not in taken)
    return [(broker, broker.number or free) for broker in others]
