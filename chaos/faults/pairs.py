"""Acts of people upon master and slaves, under load: a disk is lost, a slave is promoted, an old master comes back.

Every one ends as an operator would end it: old masters follow, slaves that wait for a person are told to go on. What
another broker had when the fault began must stand in its log at the end, and in everybody's who follows it: a copy that
is gone was perhaps the last one, and ends the run (CopyLost), whatever the mode may lose.
"""

import asyncio
import functools
import hashlib
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chaos.faults.base import PATIENCE_S, T0, CopyLost, Effect, FaultSite, Node, NotHealed, Unable, wait_until
from chaos.faults.targets import followers_of, leader_of, names
from client.admin.classic import ClassicAdmin
from client.errors import ClientError
from remoting.errors import RemotingError

STATE = "/v1/ha"
MASTERS = {"async": "ASYNC_MASTER", "sync": "SYNC_MASTER"}
WAITS = "waiting for a person"
# Seconds that the load goes on between two steps, at least and at most.
STEP_S_MIN, STEP_S_MAX = 0.5, 1.5
READ_BYTES = 4 * 1024 * 1024
# A lost log is copied as a whole.
HEALED_S = 2 * PATIENCE_S


class Copy(NamedTuple):
    """What a broker had, from the begin of its log: up to where, and its digest."""

    member: str
    begin: int
    end: int
    digest: str


class PairFault:
    """What they have in common: decisions of a person, and how all ends."""

    tier = T0
    needs: Sequence[str] = ()
    name: str

    def __init__(self) -> None:
        self._copies: list[Copy] = []
        self._begun = False

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Do it."""
        if site.mode not in MASTERS:
            raise Unable(f"a cluster of mode {site.mode} has no master whose slave could be promoted")
        old, slaves = await leader_of(site), await followers_of(site)
        for slave in slaves:
            await _follows(slave)
        self._begun = True
        proof, promoted = await self.act(site, old, slaves, rng)
        return Effect(names([old, promoted]), "master, slave", proof)

    async def act(self, site: FaultSite, old: Node, slaves: Sequence[Node], rng: random.Random) -> tuple[str, Node]:
        """Do the steps; returns what shows them, and who is, or is to be, the master."""
        raise NotImplementedError

    async def heal(self, site: FaultSite) -> str:
        """Start who is down, have everybody follow the one master, and look whether the copies are still there."""
        if not self._begun:
            await site.start_missing()
            return ""
        for member in site.members:
            if not member.process.running:
                await site.launch(member.name)
        said: list[str] = []
        settled = functools.partial(self._settled, site, said)
        seconds = await wait_until("all follow one master", settled, HEALED_S)
        for copy in self._copies:
            for member in site.members:
                await _kept(site, member, copy)
        told = f"what {','.join(copy.member for copy in self._copies)} had is with all" if self._copies else ""
        self._copies.clear()
        self._begun = False
        return "; ".join(part for part in (*said, f"all follow after {seconds:.1f} s", told) if part)

    # -- steps

    async def keep(self, member: Node) -> None:
        """Note what a running broker has at this moment, which is to be there in the end."""
        state = await _state(member)
        if state is None:
            raise Unable(f"{member.name} does not tell where its log ends")
        digest = await asyncio.to_thread(log_digest, member.store, state["min"], state["max"])
        self._copies.append(Copy(member.name, state["min"], state["max"], digest))

    async def promote(self, site: FaultSite, slave: Node, *, force: bool = False) -> str:
        """Promote a slave, and wait until it serves as the master; returns what shows it."""
        done: dict[str, Any] = await order(site, "promote", slave.process.address, role=MASTERS[site.mode], force=force)

        async def serves() -> bool:
            state = await _state(slave)
            leads = state is not None and state["brokerId"] == 0
            return bool(leads and await asyncio.to_thread(slave.process.ready))

        await wait_until(f"{slave.name} serves as the master", serves)
        return f"{slave.name} promoted at {done['end']}, epoch {done['epoch']}{' by force' if force else ''}"

    async def _settled(self, site: FaultSite, said: list[str]) -> bool:
        """Decide what waits for a person; tell whether nothing does, and all follow one master."""
        states = {member.name: await _state(member) for member in site.members}
        if any(state is None for state in states.values()):
            return False
        for member in site.members:
            state = states[member.name] or {}
            if state.get("fenced"):
                await _insist(site, "follow", member.process.address)
                said.append(f"{member.name} follows")
                return False
            if (state.get("master") or {}).get("state") == WAITS and await self.consents(site, member):
                said.append(f"{member.name} gave its surplus up")
                return False
        roles = [(state or {}).get("brokerId") == 0 for state in states.values()]
        following = [((state or {}).get("master") or {}).get("state") == "following" for state in states.values()]
        return roles.count(True) == 1 and following.count(True) == len(roles) - 1

    async def consents(self, site: FaultSite, member: Node) -> bool:
        """Let a slave that waits give its surplus up, as the person does who promoted another one."""
        await _insist(site, "accept_master", member.process.address)
        return True


class LostDisk(PairFault):
    """The master's disk is gone with all that was on it: a slave is promoted, the master comes back empty, and copies.

    With ASYNC_MASTER what no slave had is lost; nothing else may be.
    """

    name = "lose-disk"

    async def act(self, site: FaultSite, old: Node, slaves: Sequence[Node], rng: random.Random) -> tuple[str, Node]:  # noqa: ARG002 # as the others
        """Kill, wipe, promote, and start the empty one."""
        lost = await wipe(old, MASTERS[site.mode])
        slave = await longest(slaves)
        await self.keep(slave)
        promoted = await self.promote(site, slave)
        await site.launch(old.name)
        return f"{lost}; {promoted}", slave


class EmptyReturn(PairFault):
    """The master comes back with an empty disk, and is the master, before anybody has looked: clients send to it.

    Its slave must not follow it: that has the only copy. A person promotes it; what the empty one took is given up.
    """

    name = "empty-return"

    def __init__(self) -> None:
        super().__init__()
        self._slave = ""

    async def act(self, site: FaultSite, old: Node, slaves: Sequence[Node], rng: random.Random) -> tuple[str, Node]:
        """Kill, wipe, start, and let clients send."""
        lost = await wipe(old, MASTERS[site.mode])
        slave = await longest(slaves)
        self._slave = slave.name
        await self.keep(slave)
        await site.launch(old.name)
        await wait_until(f"{old.name} is back", functools.partial(_answers, old))
        await asyncio.sleep(rng.uniform(STEP_S_MIN, STEP_S_MAX))
        for copy in self._copies:
            await _kept(site, slave, copy)
        return f"{lost}, and came back empty", slave

    async def heal(self, site: FaultSite) -> str:
        """Promote the slave that has everything, then as ever."""
        promoted = ""
        if self._slave:
            (slave,) = [member for member in site.members if member.name == self._slave]
            for member in site.members:
                if not member.process.running:
                    await site.launch(member.name)
            await wait_until(f"{slave.name} answers", functools.partial(_answers, slave))
            promoted = await self.promote(site, slave, force=True)
            self._slave = ""
        return "; ".join(part for part in (promoted, await super().heal(site)) if part)


class PromoteAlive(PairFault):
    """A slave is promoted by force although its master lives and takes messages: that one is told first.

    Then nothing acknowledged is lost in any mode; where the master waits for nobody, the history counts what is.
    """

    name = "promote-alive"

    async def act(self, site: FaultSite, old: Node, slaves: Sequence[Node], rng: random.Random) -> tuple[str, Node]:
        """Promote one that is drawn."""
        slave = rng.choice(list(slaves))
        await self.keep(slave)
        promoted = await self.promote(site, slave, force=True)
        state = await _state(old)
        fenced = state is not None and bool(state.get("fenced"))
        return (f"{promoted}; {old.name} takes nothing" if fenced else ""), slave


class PromoteShorter(PairFault):
    """A slave that lacks what another one has is to be promoted: refused, and by force only.

    Behind a SYNC_MASTER a person who hears that promotes the longer one, and nothing is lost; otherwise the shorter
    one is forced, and what it lacks is given up.
    """

    name = "promote-shorter"

    async def act(self, site: FaultSite, old: Node, slaves: Sequence[Node], rng: random.Random) -> tuple[str, Node]:
        """Let one fall behind, kill the master, and try to promote the one that is behind."""
        if len(slaves) < 2:
            raise Unable("promote-shorter needs two slaves")
        shorter, *others = rng.sample(list(slaves), len(slaves))
        await asyncio.to_thread(shorter.process.kill)
        await asyncio.sleep(rng.uniform(STEP_S_MIN, STEP_S_MAX))
        await asyncio.to_thread(old.process.kill)
        await site.launch(shorter.name)
        await wait_until(f"{shorter.name} is back", functools.partial(_answers, shorter))
        await wait_until(f"the NameServer knows {shorter.name}", functools.partial(_registered, site, shorter))
        refused = await _refusal(site, shorter)
        if "bytes more than this one" not in refused:
            return "", shorter
        if site.mode == "sync":
            longer = await longest(others)
            await self.keep(longer)
            promoted = await self.promote(site, longer)
            return f"{shorter.name} refused: {refused}; {promoted}", longer
        await self.keep(shorter)
        promoted = await self.promote(site, shorter, force=True)
        return f"{shorter.name} refused: {refused}; {promoted}", shorter


class NamesrvRestart(PairFault):
    """A slave is promoted and killed, all NameServers forget it, and the old master is back: the promoted one tells it.

    The promoted one is started first: without anybody who knows of it the old one would serve (docs/classic.md).
    """

    name = "promote-namesrv-restart"

    async def act(self, site: FaultSite, old: Node, slaves: Sequence[Node], rng: random.Random) -> tuple[str, Node]:  # noqa: ARG002 # as the others
        """Kill the master, promote, kill the promoted one, restart the NameServer, start both."""
        await asyncio.to_thread(old.process.kill)
        slave = await longest(slaves)
        await self.keep(slave)
        promoted = await self.promote(site, slave)
        await asyncio.to_thread(slave.process.kill)
        restarted = await site.restart_namesrv()
        await site.start(slave.name)
        await site.launch(old.name)

        async def fenced() -> bool:
            state = await _state(old)
            return state is not None and bool(state.get("fenced"))

        seconds = await wait_until(f"{old.name} is fenced", fenced)
        return f"{promoted}, and killed; {restarted}; {old.name} takes nothing after {seconds:.1f} s", slave


PROMOTIONS = frozenset(one.name for one in (LostDisk, EmptyReturn, PromoteAlive, PromoteShorter, NamesrvRestart))
"""Faults after which another broker is the master."""


def log_digest(store: Path, begin: int, end: int) -> str:
    """Return a digest of the bytes of a CommitLog between two positions; "" when not all are there."""
    digest, at = hashlib.sha256(), begin
    for path in sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit()):
        start = int(path.name)
        if start + path.stat().st_size <= at or start >= end:
            continue
        if start > at:
            return ""
        with path.open("rb") as file:
            file.seek(at - start)
            while at < end and (part := file.read(min(READ_BYTES, end - at))):
                digest.update(part)
                at += len(part)
    return digest.hexdigest() if at >= end else ""


async def wipe(member: Node, role: str) -> str:
    """Kill a master and take its disk away; its broker.conf says what it was, whatever had been decided since."""
    await asyncio.to_thread(member.process.kill)

    def gone() -> int:
        size = sum(path.stat().st_size for path in (member.store / "commitlog").iterdir())
        shutil.rmtree(member.store)
        if member.undo is not None and member.undo.exists():
            # Notes of what was not synced, on a disk that is no more.
            (shutil.rmtree if member.undo.is_dir() else Path.unlink)(member.undo)
        with (member.store.parent / "broker.conf").open("a", encoding="utf-8") as config:
            config.write(f"brokerRole={role}\nbrokerId=0\n")
        return size

    size = await asyncio.to_thread(gone)
    return f"{member.name} lost its store, {size} bytes of log"


async def longest(members: Sequence[Node]) -> Node:
    """Return whose log ends last; raises Unable when nobody answers."""
    ends = {member.name: state["max"] for member in members if (state := await _state(member)) is not None}
    if not ends:
        raise Unable("no slave answers")
    best = max(ends, key=lambda name: (ends[name], name))
    return next(member for member in members if member.name == best)


async def order(site: FaultSite, what: str, address: str, **fields: Any) -> Any:
    """Give a broker one order of ClassicAdmin, as a person does who types it; raises NotHealed when it refuses."""
    async with ClassicAdmin(site.namesrv) as admin:
        try:
            return await getattr(admin, what)(address, **fields)
        except (ClientError, RemotingError) as error:
            raise NotHealed(f"{what} of {address}: {error}") from error


async def _insist(site: FaultSite, what: str, address: str) -> None:
    """Give an order that may come too early or twice: what is still wrong is seen at the next look."""
    try:
        await order(site, what, address)
    except NotHealed:
        await asyncio.sleep(STEP_S_MIN)


async def _refusal(site: FaultSite, slave: Node) -> str:
    """Return why a slave is not promoted without force; "" when it would be."""
    report = await order(site, "promote", slave.process.address, role=MASTERS[site.mode], only_ask=True)
    return str(report["refused"] or "")


async def _state(member: Node) -> dict[str, Any] | None:
    if not member.process.running:
        return None
    found: dict[str, Any] | None = await asyncio.to_thread(member.process.state, STATE)
    return found


async def _answers(member: Node) -> bool:
    return await _state(member) is not None


async def _registered(site: FaultSite, member: Node) -> bool:
    async with ClassicAdmin(site.namesrv) as admin:
        try:
            return member.process.address in {broker.address for broker in await admin.brokers()}
        except (ClientError, RemotingError):
            return False


async def _follows(slave: Node) -> None:
    """Return when a slave follows its master; raises Unable: what nobody had copied yet proves nothing."""

    async def follows() -> bool:
        state = await _state(slave)
        return state is not None and (state.get("master") or {}).get("state") == "following"

    try:
        await wait_until(f"{slave.name} follows", follows)
    except NotHealed as error:
        raise Unable(str(error)) from error


async def _kept(site: FaultSite, member: Node, copy: Copy, seconds: float = PATIENCE_S) -> None:
    """Make sure that a broker has what another one had; whoever copies may still be at it. Raises CopyLost."""

    async def same() -> bool:
        return await asyncio.to_thread(log_digest, member.store, copy.begin, copy.end) == copy.digest

    try:
        await wait_until(f"{member.name} has what {copy.member} had up to {copy.end}", same, seconds)
    except (NotHealed, OSError) as error:
        states = {one.name: await _state(one) for one in site.members}
        raise CopyLost(f"{error}; {states}") from error
