"""Bits that flip in an old file of a follower's CommitLog, which no start and no reader comes to by itself (R18).

What is rotten must never reach a reader as if it were what was written, and is brought back from the others: when
somebody reads it, or by the scrub, which comes by once an hour. A run has no hour, so members that are to rot have no
scrub of their own (scrubBytesPerSecond=0), and are told to begin one when the fault is to be healed. A member trusts
for some minutes what it has written or checked itself; one that is to rot while it runs is started anew right before.
"""

import asyncio
import itertools
import os
import random
from collections.abc import Sequence
from pathlib import Path

from chaos.faults.base import T0, Effect, FaultSite, Node, NotHealed, Unable
from chaos.faults.running import revived
from chaos.faults.targets import pick
from chaos.faults.whole import Extent, all_whole, log_files, mended
from client.admin.client import AdminClient
from client.errors import ClientError
from remoting.errors import RemotingError
from store.files.checkpoint import load_checkpoint

FLIPS_MIN, FLIPS_MAX = 1, 3
# A file's last part may be filling, in which nothing rots that anybody wrote.
WRITTEN_SHARE = 0.5
SCRUB_PLACE, SCRUB_KEY, SCRUB_BYTES_PER_S = "scrub.json*", "scrubBytesPerSecond", 64 * 1024 * 1024


class Rot:
    """Some bits of one old file are not what was written: of a member that is down, or of one that runs."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, *, running: bool) -> None:
        self._running = running
        self.name = "rot-running-follower" if running else "rot-follower"
        self._pids: dict[str, int] = {}
        self._hurt: tuple[Node, Extent] | None = None

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Stop one in good order, start it again if it is to run, and flip bits."""
        if not site.mode.startswith("raft"):
            raise Unable(f"in a cluster of mode {site.mode} nobody brings back what has rotted")
        await all_whole(site)
        (member,) = await pick(site, "follower", rng)
        if len(log_files(member.store)) < 2:
            raise Unable(f"the log of {member.name} has no file that it is done with")
        self._pids[member.name] = member.process.pid
        await asyncio.to_thread(member.process.stop)
        # Its scrub begins at the begin of the log, and not where it was left.
        for place in member.store.glob(SCRUB_PLACE):
            place.unlink()
        old = old_file(member, rng)
        if self._running:
            await site.start(member.name)
        begin = int(old.name)
        self._hurt = member, Extent(begin, begin + int(old.stat().st_size * WRITTEN_SHARE))
        told = await asyncio.to_thread(flip, old, rng, self._hurt[1])
        return Effect(member.name, "follower", f"{member.name}: {told}")

    async def heal(self, site: FaultSite) -> str:
        """Start it if it is down, and wait until it has what the others have."""
        proof = await revived(site, self._pids)
        if self._hurt is None:
            return proof
        member, hurt = self._hurt
        other = next(one for one in site.members if one is not member)
        await scrub(site, member, SCRUB_BYTES_PER_S)
        seconds = await mended(site, member, other, hurt)
        await scrub(site, member, 0)
        self._hurt = None
        return "; ".join(part for part in (proof, f"repaired after {seconds:.1f} s") if part)


async def scrub(site: FaultSite, member: Node, rate: int) -> None:
    """Tell a member how many bytes of its log it is to check per second; raises NotHealed when it takes no orders."""
    async with AdminClient(site.namesrv) as admin:
        try:
            await admin.update_broker_config({SCRUB_KEY: rate}, address=member.process.address)
        except (ClientError, RemotingError) as error:
            raise NotHealed(f"{member.name} does not begin to check its log: {error}") from error


def old_file(member: Node, rng: random.Random) -> Path:
    """Draw a CommitLog file that the next start of a member does not read, which is down; Unable when there is none."""
    files = log_files(member.store)
    synced = load_checkpoint(member.store).dispatched
    done = [path for path, following in itertools.pairwise(files) if int(following.name) <= synced]
    if not done:
        raise Unable(f"{member.name} has no file that it is done with")
    return rng.choice(done)


def flip(path: Path, rng: random.Random, within: Extent) -> str:
    """Flip some bits of a file in a part of the log, on the disk and not only in its cache; return which."""
    told = []
    fd = os.open(path, os.O_RDWR)
    try:
        for position in sorted(rng.sample(range(within.begin, within.end), rng.randint(FLIPS_MIN, FLIPS_MAX))):
            offset = position - within.begin
            before = os.pread(fd, 1, offset)[0]
            after = before ^ 1 << rng.randrange(8)
            os.pwrite(fd, bytes([after]), offset)
            told.append(f"byte {position} was {before:#04x}, is {after:#04x}")
        os.fsync(fd)
        # Whoever reads it next reads the disk.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return ", ".join(told)
