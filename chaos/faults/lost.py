"""Files that a stopped follower of a Raft group has lost: one of its CommitLog, or all of its ConsumeQueues.

It is stopped in good order, so that nothing but what was taken is missing, and started again; with "killed" in the
name it is killed while it mends, more than once, and leads in the end: what it forgot would be everybody's then.
"""

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from chaos.faults.base import T0, Effect, FaultSite, Node, NotWhole, Unable
from chaos.faults.group import hand_lead
from chaos.faults.running import revived
from chaos.faults.targets import pick
from chaos.faults.whole import (
    Extent,
    all_whole,
    at_work,
    ended,
    is_whole,
    log_end,
    log_file,
    log_files,
    mended,
    until_so,
    whole_within,
)
from remoting.topics import RAFT_TOPIC
from store.files.queuefile import ENTRY_BYTES

# How often one that mends is killed.
KILLS_MIN, KILLS_MAX = 2, 3
# Seconds of mending that it has before it is killed at most, unless it is done before: from nothing to all of it.
MENDS_S_MAX = (0.0, 0.1, 0.3, 1.0, 3.0)
# So many entries may be on their way at any moment.
APPLIED_ENTRIES = 256
QUEUES, ASIDE = "consumequeue", "consumequeue.lost"


class _Loss:
    """Stop, take away, start, kill while it mends, start: what both kinds have in common."""

    tier = T0
    needs: Sequence[str] = ()
    name: str

    def __init__(self, *, killed: bool) -> None:
        self._killed = killed
        self._pids: dict[str, int] = {}
        self._member: Node | None = None

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Stop a follower, take something away, and kill it while it mends that."""
        if not site.mode.startswith("raft"):
            raise Unable(f"in a cluster of mode {site.mode} nobody brings back what a member has lost")
        await all_whole(site)
        (member,) = await pick(site, "follower", rng)
        end = await log_end(site, member)
        self.check(member)
        self._pids[member.name] = member.process.pid
        await asyncio.to_thread(member.process.stop)
        self._member = member
        told = [await asyncio.to_thread(self.take, member, end, rng)]
        kills = rng.randint(KILLS_MIN, KILLS_MAX) if self._killed else 0
        told += [await self._kill(member, rng) for _ in range(kills)]
        return Effect(member.name, "follower", f"{member.name}: {', '.join(told)}")

    def check(self, member: Node) -> None:
        """Raise Unable when there is nothing to take from a member."""

    def take(self, member: Node, end: int, rng: random.Random) -> str:
        """Take something away from a member that is down and whose log ends at `end`; return what it was."""
        raise NotImplementedError

    async def mends(self, member: Node) -> bool:
        """Tell whether a member that was launched is mending."""
        raise NotImplementedError

    async def whole(self, site: FaultSite, member: Node) -> float:
        """Wait until it has again what it had; return how many seconds that took."""
        raise NotImplementedError

    async def heal(self, site: FaultSite) -> str:
        """Start it, and wait until it has all; who was killed while it mended is to lead then."""
        proof = await revived(site, self._pids)
        member, self._member = self._member, None
        if member is None:
            return proof
        seconds = await self.whole(site, member)
        if self._killed:
            seconds += await until_so(f"{member.name} has applied what is committed", lambda: _applied(member), member)
        led = await hand_lead(site, member.name) if self._killed else ""
        return "; ".join(part for part in (proof, f"whole after {seconds:.1f} s", led) if part)

    async def _kill(self, member: Node, rng: random.Random) -> str:
        """Start it, and kill it while it mends."""
        member.process.launch()
        seen = await at_work(member, lambda: self.mends(member))
        over = await whole_within(member, rng.uniform(0, rng.choice(MENDS_S_MAX)))
        if not member.process.running:
            raise NotWhole(ended(member))
        await asyncio.to_thread(member.process.kill)
        return f"killed {'while it mended' if seen and not over else 'when it served'}"


class LostFile(_Loss):
    """One of several CommitLog files is gone, whichever it was: the first, one in the middle, or that of the end."""

    def __init__(self, *, killed: bool = False) -> None:
        super().__init__(killed=killed)
        self.name = "lose-file-killed" if killed else "lose-file-follower"
        self._lost = Extent(0, 0)

    def check(self, member: Node) -> None:
        """Raise Unable when there is one file: what is lost then is the log, and no part of it."""
        if len(log_files(member.store)) < 2:
            raise Unable(f"the log of {member.name} has one file: without it there is none")

    def take(self, member: Node, end: int, rng: random.Random) -> str:
        """Remove a file."""
        last, _ = log_file(member.store, end - 1)
        path = rng.choice([path for path in log_files(member.store) if path <= last])
        begin = int(path.name)
        self._lost = Extent(begin, min(begin + path.stat().st_size, end))
        path.unlink()
        return f"lost {path.name}, {self._lost.end - begin} bytes"

    async def mends(self, member: Node) -> bool:
        """Tell whether it says that something is damaged."""
        state = await asyncio.to_thread(member.process.state, "/v1/raft")
        return state is not None and state["damaged"] is not None

    async def whole(self, site: FaultSite, member: Node) -> float:
        """Wait until the file is there again, byte for byte as another member has it."""
        other = next(one for one in site.members if one is not member)
        return await mended(site, member, other, self._lost)


class LostQueues(_Loss):
    """All ConsumeQueues are gone, and are built anew from the log: that gives the same bytes."""

    name = "lose-queues-killed"

    def __init__(self) -> None:
        super().__init__(killed=True)

    def take(self, member: Node, end: int, rng: random.Random) -> str:  # noqa: ARG002 # as of all kinds
        """Put the queues aside."""
        aside = member.store.parent / ASIDE
        shutil.rmtree(aside, ignore_errors=True)
        (member.store / QUEUES).rename(aside)
        return f"lost {len(kept(aside))} ConsumeQueues"

    async def mends(self, member: Node) -> bool:
        """Tell whether the first entries of messages are there again."""
        files = (member.store / QUEUES).glob("*/*/*")
        return any(path.stat().st_blocks for path in files if path.parent.parent.name != RAFT_TOPIC)

    async def whole(self, site: FaultSite, member: Node) -> float:  # noqa: ARG002 # as of all kinds
        """Wait until each queue is again what it was, and goes on from there."""
        aside = member.store.parent / ASIDE
        before = await asyncio.to_thread(kept, aside)

        async def same() -> bool:
            if not await is_whole(member):
                return False
            now = await asyncio.to_thread(kept, member.store / QUEUES)
            return all(now.get(queue, b"").startswith(entries) for queue, entries in before.items())

        seconds = await until_so(f"the ConsumeQueues of {member.name} are what they were", same, member)
        await asyncio.to_thread(shutil.rmtree, aside)
        return seconds


async def _applied(member: Node) -> bool:
    """Tell whether a member has in its queues what it knows as committed, but for what came just now: it may lead."""
    state = await asyncio.to_thread(member.process.state, "/v1/raft")
    return state is not None and state["commit"] - state["applied"] <= APPLIED_ENTRIES


def kept(queues: Path) -> dict[str, bytes]:
    """Return the entries of all ConsumeQueues below a folder, by topic and queue, without the zeros behind the last.

    Those of control records are left out: they stand above the commit too, where entries may be cut and replaced.
    """
    found = {}
    for folder in sorted(queues.glob("*/*")):
        if folder.parent.name != RAFT_TOPIC:
            data = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).rstrip(b"\0")
            found[f"{folder.parent.name}/{folder.name}"] = data.ljust(-(-len(data) // ENTRY_BYTES) * ENTRY_BYTES, b"\0")
    return found
