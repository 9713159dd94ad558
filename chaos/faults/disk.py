"""Faults of disks: slow syncs, syncs that fail, disks that are full, and power that fails.

They need members whose disks are watched (chaos.site.member): a running one looks into its disk file before each write
and sync, and counts what it played. What a power cut takes is undone in the files of the dead process.
"""

import asyncio
import contextlib
import errno
import random
from collections.abc import Sequence
from pathlib import Path

import orjson

from chaos.faults.base import T0, Effect, FaultSite, Node, NotHealed, Unable, wait_until
from chaos.faults.running import revived
from chaos.faults.targets import names, pick
from chaos.host.powerloss import lose_power

# How slow a slow disk is, in milliseconds for each sync: above a beat, around an election's timeout.
SLOW_MS_MIN, SLOW_MS_MAX = 50, 500
# Seconds that a broker whose disk failed may take to say so and end.
ENDED_WITHIN_S = 5.0


class DiskOrders:
    """The disk files of some members: what their disks are told, and how often they obeyed."""

    def __init__(self) -> None:
        self._given: list[tuple[Node, Path]] = []

    @property
    def members(self) -> list[Node]:
        """Whose disks were told something."""
        return [member for member, _ in self._given]

    def give(self, members: Sequence[Node], orders: dict[str, int]) -> None:
        """Tell the disks of all of them the same; raises Unable when one takes no orders, and then none is told."""
        paths = [member.disk for member in members]
        if None in paths:
            raise Unable("the disks of these members are not watched: start them by chaos.site.member")
        for member in members:
            path = member.disk
            assert path is not None, "looked at above"
            hits_file(path).unlink(missing_ok=True)
            fresh = path.with_name(path.name + ".new")
            fresh.write_bytes(orjson.dumps(orders))
            fresh.replace(path)
            self._given.append((member, path))

    def obeyed(self) -> str:
        """Return how often each disk obeyed, "" unless all did."""
        found = {member.name: hits(path) for member, path in self._given}
        return ", ".join(f"{name} {count} times" for name, count in found.items()) if all(found.values()) else ""

    def end(self) -> None:
        """Let all disks be sound again."""
        for _, path in self._given:
            path.unlink(missing_ok=True)
        self._given.clear()


def hits_file(disk: Path) -> Path:
    """Return where a member counts what its disk played."""
    return disk.with_name(disk.name + ".hits")


def hits(disk: Path) -> int:
    """Return how many faults a member's disk has played since they were ordered."""
    try:
        # It is being written perhaps: then it is empty.
        return int(hits_file(disk).read_text(encoding="ascii") or 0)
    except FileNotFoundError:
        return 0


class SlowSync:
    """Every sync takes long: acknowledgements wait, and what is not synced is much."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"slow-fsync-{role}"
        self._orders = DiskOrders()
        self._ms = 0

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Slow the syncs down."""
        members = await pick(site, self.role, rng)
        self._ms = rng.randint(SLOW_MS_MIN, SLOW_MS_MAX)
        self._orders.give(members, {"fsync_ms": self._ms})
        return Effect(names(members), self.role, "")

    async def heal(self, site: FaultSite) -> str:  # noqa: ARG002 # every fault is handed its site
        """Let them be as fast as the disk; tells how many were slow."""
        obeyed = self._orders.obeyed()
        self._orders.end()
        return f"syncs slowed by {self._ms} ms: {obeyed}" if obeyed else ""


class _FailingDisk:
    """A disk that refuses: a broker must say so and end, or refuse, and never acknowledge what it could not keep."""

    tier = T0
    needs: Sequence[str] = ()
    orders: dict[str, int]
    ends: bool
    """Whether the broker's policy is to end."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._orders = DiskOrders()
        self._pids: dict[str, int] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Let the disk fail."""
        members = [member for member in await pick(site, self.role, rng) if member.process.running]
        if not members:
            raise Unable(f"no {self.role} runs")
        self._pids = {member.name: member.process.pid for member in members}
        self._orders.give(members, self.orders)
        return Effect(names(members), self.role, "")

    async def heal(self, site: FaultSite) -> str:
        """Let the disk be sound, and start again whoever ended."""
        obeyed = self._orders.obeyed()
        if obeyed and self.ends:
            await self._ended()
        codes = {member.name: member.process.exit_code for member in self._orders.members}
        self._orders.end()
        ended = {name: pid for name, pid in self._pids.items() if codes.get(name) is not None}
        told = ", ".join(f"{name} ended with {codes[name]}" for name in ended) or "nobody ended"
        self._pids = {}
        back = await revived(site, ended)
        if not obeyed:
            return ""
        return "; ".join(part for part in (f"failed {obeyed}", told, back) if part)

    async def _ended(self) -> None:
        """Wait for those whose disk failed to end: they take their time, and are not to be started while they do."""

        async def gone() -> bool:
            return not any(member.process.running for member in self._orders.members)

        with contextlib.suppress(NotHealed):
            await wait_until("brokers whose disk failed have ended", gone, ENDED_WITHIN_S)


class FailingSync(_FailingDisk):
    """Syncs fail with EIO. What was written before one is nowhere for certain: the policy is that the broker ends."""

    orders = {"fsync_errno": errno.EIO}  # noqa: RUF012 # read only
    ends = True

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.name = f"failing-fsync-{role}"


class DiskFull(_FailingDisk):
    """Writes and new files fail with ENOSPC."""

    orders = {"write_errno": errno.ENOSPC}  # noqa: RUF012 # read only
    ends = False

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.name = f"enospc-{role}"


class PowerLoss:
    """Power fails: processes end, and of what no completed sync covered all or some sectors were never written."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"power-{role}"
        self._pids: dict[str, int] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Cut the power of all of them at once, and see what the disks kept."""
        members = [member for member in await pick(site, self.role, rng) if member.process.running]
        lost = await cut_power(members, rng, self._pids)
        return Effect(names(members), self.role, lost)

    async def heal(self, site: FaultSite) -> str:
        """Start them again."""
        return await revived(site, self._pids)


async def cut_power(members: Sequence[Node], rng: random.Random, pids: dict[str, int]) -> str:
    """Kill all, undo what was not synced, note the pids; return the proof. Raises Unable, and then nobody is killed."""
    undos = {member.name: member.undo for member in members}
    if not members or None in undos.values():
        raise Unable("what these members wrote is not noted: start them by chaos.site.member")
    pids.update({member.name: member.process.pid for member in members})
    # All die before anything is undone: else the survivors would go on writing without them.
    await asyncio.gather(*(asyncio.to_thread(member.process.kill) for member in members))
    told = []
    for member in members:
        undo = undos[member.name]
        assert undo is not None, "looked at above"
        lost = await asyncio.to_thread(lose_power, undo, random.Random(rng.getrandbits(64)))
        told.append(f"{member.name} pid {pids[member.name]} ended with {member.process.exit_code}, {lost} bytes lost")
    return ", ".join(told)
