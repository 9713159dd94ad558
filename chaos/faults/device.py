"""Faults of a member's own file system: power that really fails, and a disk that is really full.

They need members whose stores are alone on an ext4 file system each (chaos/host/loopdisk.py). What the kernel had not
written is gone then, whoever wrote it and by what calls; chaos/faults/disk.py undoes what the broker noted of itself.
"""

import asyncio
import random
import time
from collections.abc import Sequence

from chaos.faults.base import T2, Device, Effect, FaultSite, Node, NotHealed, Unable
from chaos.faults.running import revived
from chaos.faults.targets import names, pick

CAPABILITY = "ext4-power"
# A disk with less room than this takes no block more of anybody's.
FULL_BYTES = 64 * 1024
# A member that was about to make a file fails half way, and gives back what it had of it: then that is taken too.
FILLS_MAX = 5
SETTLED_SECONDS = 0.05


def _devices(members: Sequence[Node]) -> dict[str, Device]:
    """Return the file systems of members; raises Unable when one has none of its own."""
    found = {member.name: member.device for member in members}
    devices = {name: device for name, device in found.items() if device is not None}
    if not devices or len(devices) < len(found):
        raise Unable("the stores of these members are on no file systems of their own")
    return devices


class DevicePower:
    """Power fails: processes end, their file systems are shut down without their journals, and mounted again."""

    tier = T2
    needs: Sequence[str] = (CAPABILITY,)

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"disk-power-{role}"
        self._pids: dict[str, int] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Cut the power of all of them at once, and see what the file systems kept."""
        members = [member for member in await pick(site, self.role, rng) if member.process.running]
        devices = _devices(members)
        self._pids = {member.name: member.process.pid for member in members}
        # All die before any file system does: else the survivors would go on writing without them.
        await asyncio.gather(*(asyncio.to_thread(member.process.kill) for member in members))
        losses = await asyncio.gather(*(asyncio.to_thread(device.lose_power) for device in devices.values()))
        told = [
            f"{member.name} pid {self._pids[member.name]} ended with {member.process.exit_code}, {lost}"
            for member, lost in zip(members, losses, strict=True)
        ]
        return Effect(names(members), self.role, ", ".join(told) if all(losses) else "")

    async def heal(self, site: FaultSite) -> str:
        """Start them again."""
        return await revived(site, self._pids)


class DeviceFull:
    """A file of ours takes all the room: every write to a new block fails with ENOSPC."""

    tier = T2
    needs: Sequence[str] = (CAPABILITY,)

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"disk-full-{role}"
        self._full: dict[str, Device] = {}
        self._pids: dict[str, int] = {}
        self._since = 0.0

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Fill the disks up."""
        members = [member for member in await pick(site, self.role, rng) if member.process.running]
        devices = _devices(members)
        self._pids = {member.name: member.process.pid for member in members}
        self._since = time.monotonic()
        told = []
        for name, device in devices.items():
            self._full[name] = device
            taken = await _filled(device)
            told.append(f"{name}: {taken} bytes taken, {device.free_bytes()} free")
        full = all(device.free_bytes() < FULL_BYTES for device in devices.values())
        return Effect(names(members), self.role, ", ".join(told) if full else "")

    async def heal(self, site: FaultSite) -> str:
        """Give the room back, and start again whoever ended; tells how full the disks were until now."""
        if not self._full:
            return ""
        left = {name: device.free_bytes() for name, device in self._full.items()}
        for name, device in self._full.items():
            await asyncio.to_thread(device.drain)
            if device.free_bytes() < FULL_BYTES:
                raise NotHealed(f"the disk of {name} is still full")
        codes = {one.name: one.process.exit_code for one in site.members if one.name in self._full}
        self._full = {}
        ended = {name: pid for name, pid in self._pids.items() if codes.get(name) is not None}
        self._pids = {}
        told = ", ".join(f"{name} {free} free" for name, free in left.items())
        parts = [f"after {time.monotonic() - self._since:.1f} s {told}"]
        parts += [f"{name} ended with {codes[name]}" for name in ended]
        parts += [await revived(site, ended)]
        return "; ".join(part for part in parts if part)


async def _filled(device: Device) -> int:
    """Take a disk's room until nobody gives any back; return how many bytes that was."""
    taken = 0
    for _ in range(FILLS_MAX):
        taken = await asyncio.to_thread(device.fill)
        await asyncio.sleep(SETTLED_SECONDS)
        if device.free_bytes() < FULL_BYTES:
            break
    return taken
