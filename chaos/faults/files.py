"""Damage to the log files of stopped members: a bit that flips, a tail that is missing.

Only ever of a minority: what a majority's disks have lost is lost, in any design. In the classic modes it is a slave.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

from chaos.faults.base import T0, Effect, FaultSite, Node, Unable
from chaos.faults.running import revived
from chaos.faults.targets import followers_of, names, pick
from chaos.faults.whole import Extent, log_end, log_file, mended
from store.files.checkpoint import load_checkpoint

# Bytes at the end of the log that a cut takes away at most.
CUT_BYTES_MAX = 64 * 1024


class _Damage:
    """Kill, damage, start: what both kinds have in common."""

    tier = T0
    needs: Sequence[str] = ()
    name: str

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        # Member → what was damaged.
        self._hurt: dict[str, Extent] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Kill a minority and damage what it has."""
        members = await _minority(site, rng)
        ends = {member.name: await log_end(site, member) for member in members}
        told = []
        for member in members:
            self._pids[member.name] = member.process.pid
            await asyncio.to_thread(member.process.kill)
            read = readable(member.store, ends[member.name])
            hurt, text = await asyncio.to_thread(self.damage, member, read, rng)
            self._hurt[member.name] = hurt
            told.append(f"{member.name}: {text}")
        return Effect(names(members), "minority", ", ".join(told))

    def damage(self, member: Node, read: Extent, rng: random.Random) -> tuple[Extent, str]:
        """Damage the files of a member that is down, in what its next start reads; returns where, and what was done."""
        raise NotImplementedError

    async def heal(self, site: FaultSite) -> str:
        """Start them again, and wait until their peers have repaired them: until they hold what the others hold."""
        proof = await revived(site, self._pids)
        for member in site.members:
            hurt = self._hurt.get(member.name)
            if hurt is not None:
                other = next(one for one in site.members if one.name not in self._hurt)
                await mended(site, member, other, hurt)
        repaired = f"repaired {','.join(self._hurt)}" if self._hurt else ""
        self._hurt.clear()
        return "; ".join(part for part in (proof, repaired) if part)


class BitFlip(_Damage):
    """One bit somewhere in the log is not what was written."""

    name = "bitflip-minority"

    def damage(self, member: Node, read: Extent, rng: random.Random) -> tuple[Extent, str]:
        """Flip one bit."""
        position = rng.randrange(read.begin, read.end)
        path, offset = log_file(member.store, position)
        fd = os.open(path, os.O_RDWR)
        try:
            before = os.pread(fd, 1, offset)[0]
            after = before ^ 1 << rng.randrange(8)
            os.pwrite(fd, bytes([after]), offset)
            os.fsync(fd)
        finally:
            os.close(fd)
        return Extent(position, position + 1), f"byte {position} was {before:#04x}, is {after:#04x}"


class CutTail(_Damage):
    """The last bytes of the log are missing: the file system has cut them off, and gives zeros in their place.

    The file keeps its size: one that is shorter than the others is what a broker refuses to start with, in words.
    """

    name = "truncate-minority"

    def damage(self, member: Node, read: Extent, rng: random.Random) -> tuple[Extent, str]:
        """Cut the tail."""
        path, offset = log_file(member.store, read.end - 1)
        lost = rng.randint(1, min(CUT_BYTES_MAX, read.end - read.begin))
        size = offset + 1 - lost
        was = path.stat().st_size
        os.truncate(path, size)
        os.truncate(path, was)
        return Extent(read.end - lost, read.end), f"{path.name} lost {lost} of {offset + 1} bytes"


async def _minority(site: FaultSite, rng: random.Random) -> list[Node]:
    if site.mode.startswith("raft"):
        return await pick(site, "minority", rng)
    return [rng.choice(await followers_of(site))]


def readable(store: Path, end: int) -> Extent:
    """Return the part of a dead member's log that its next start reads; raises Unable when there is none.

    It begins where the checkpoint says that the queues have everything before. What lies there is read when somebody
    asks for it, and repaired by nobody until then: damage there proves nothing in a run. Nor does damage to the filling
    at a file's end, so that it begins in the file that the log ends in.
    """
    path, _ = log_file(store, end - 1)
    begin = max(int(path.name), load_checkpoint(store).dispatched)
    if begin >= end:
        raise Unable(f"the next start from {store} reads nothing of its log")
    return Extent(begin, end)
