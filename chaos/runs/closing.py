"""Four closings, each independent of the others: a barrier, scans through every member, group drains, store folders.

Each has a time limit. What did not come in time is noted in run.json (`closings`: name → true or what was missing), and
leaves the scan or the drain incomplete in the history, so that a verdict is unknown there, never valid.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from chaos.load.clients import Leaders, LoadClient, connections
from chaos.load.workload import PAUSE_S, Load, Workload
from chaos.site.site import Site, SiteMember
from pipeline.history.body import MARKER, Tag
from pipeline.history.folder import AFTER, DATA, LOGS
from pipeline.history.rows import UNKNOWN, Act, Kind

HEAL_S = 60.0
BARRIER_S = 45.0
ASK_S = 45.0
SCAN_S = 120.0
DRAIN_S = 60.0
# What is read through each member besides, on a busy machine: messages a second. Half an hour leaves millions.
SCANNED_A_SECOND = 4000
SCAN_COUNT = 1024
SCAN_GROUP = "chaos_scan"

Queue = tuple[str, int]
"""Topic, queue."""
Ends = dict[Queue, int]


class Closings:
    """All of them, in their order; `told` is for run.json."""

    def __init__(self, site: Site, load: Load, workloads: Sequence[Workload]) -> None:
        self._site = site
        self._load = load
        self._workloads = workloads
        self._topics = {topic: count for one in workloads for topic, count in one.topics.items()}
        self._groups = {group: topic for one in workloads for group, topic in one.groups.items()}
        self.told: dict[str, object] = {}

    async def run(self) -> None:
        """Close the run while the cluster lives."""
        self.told["settled"] = await self._settled()
        remoting = connections("closing")
        try:
            client = self._load.client(remoting, "closing")
            ends = await self._within("barrier", BARRIER_S, self._barrier(client))
            self.told["settled_again"] = await self._settled()
            if ends is not None:
                await self._within("workloads", ASK_S, self._ask(client, ends))
                reading = reading_s(ends, len(self._site.addresses))
                await self._within("scan", SCAN_S + reading, self._scan(client, ends))
                await self._within("drain", DRAIN_S + reading, self._drain(client, ends))
        finally:
            await remoting.close()

    async def _settled(self) -> bool | str:
        if await self._site.settle(HEAL_S):
            return True
        states = "; ".join(f"{name}: {state}" for name, state in (await self._site.states()).items())
        return f"not within {HEAL_S:g} s: {states}"

    async def _within(self, name: str, seconds: float, closing: Awaitable[Ends]) -> Ends | None:
        try:
            async with asyncio.timeout(seconds):
                found = await closing
        except TimeoutError:
            self.told[name] = f"not done within {seconds:g} s"
            return None
        self.told[name] = True
        return found

    async def _barrier(self, client: LoadClient) -> Ends:
        """Send a marker to every queue until it is acknowledged; return the end of each queue behind its marker."""
        ends = {}
        leaders = Leaders(self._load.leaders.addresses)
        queues = [(topic, queue) for topic, count in sorted(self._topics.items()) for queue in range(count)]
        for counter, (topic, queue) in enumerate(queues):
            attempt = 0
            while True:
                done = await client.send(leaders.address, topic, queue, Tag(MARKER, counter, attempt))
                if done.kind == Kind.OK:
                    break
                leaders.failed(leaders.address)
                attempt += 1
                await asyncio.sleep(PAUSE_S)
            ends[topic, queue] = done.offset + 1
            await client.edge(Act.MAX, leaders.address, topic, queue)
        return ends

    async def _ask(self, client: LoadClient, ends: Ends) -> Ends:
        for workload in self._workloads:
            await workload.close(self._load, client)
        return ends

    async def _scan(self, client: LoadClient, ends: Mapping[Queue, int]) -> Ends:
        """Read every queue from its begin to the barrier, through each member."""
        leading = await self._site.leader()
        leader = leading.process.address if leading is not None else ""
        for address in self._site.addresses:
            for (topic, queue), end in ends.items():
                offset = 0
                while offset < end:
                    done = await client.poll(
                        address, SCAN_GROUP, topic, queue, offset, count=SCAN_COUNT, act=Act.SCAN, leader=leader
                    )
                    if done.kind == Kind.OK and done.value > offset:
                        offset = done.value
                    else:
                        await asyncio.sleep(PAUSE_S)
        return dict(ends)

    async def _drain(self, client: LoadClient, ends: Mapping[Queue, int]) -> Ends:
        """Consume for each group what it has not consumed yet, and store its offsets."""
        leaders = Leaders(self._load.leaders.addresses)
        for group, topic in sorted(self._groups.items()):
            for queue in range(self._topics[topic]):
                at = UNKNOWN
                while at < ends[topic, queue]:
                    address = leaders.address
                    if not await _drain_some(client, address, group, topic, queue):
                        leaders.failed(address)
                        await asyncio.sleep(PAUSE_S)
                        continue
                    stored = await client.query(address, group, topic, queue)
                    at = stored.value if stored.kind == Kind.OK else UNKNOWN
        return dict(ends)


def reading_s(ends: Mapping[Queue, int], members: int) -> float:
    """Return the seconds that reading all of it may take through so many members: a long run leaves more to read."""
    return members * sum(ends.values()) / SCANNED_A_SECOND


async def _drain_some(client: LoadClient, address: str, group: str, topic: str, queue: int) -> bool:
    """Consume one answer's worth; False when something was not answered well."""
    stored = await client.query(address, group, topic, queue)
    if stored.kind != Kind.OK:
        return False
    found = await client.poll(address, group, topic, queue, max(stored.value, 0), count=SCAN_COUNT)
    if found.kind != Kind.OK:
        return False
    return (await client.commit(address, group, topic, queue, max(found.value, 0))).kind == Kind.OK


def keep_stores(site: Site, run: Path) -> None:
    """Copy all members' stores, whose processes must be dead, to data/<member>, and their logs.

    No links: the members are started again, and what they then write is to be told from what they had.
    """
    for member in site.members:
        assert not member.process.running, f"{member.name} still writes"
        target = run / DATA / member.name
        shutil.rmtree(target, ignore_errors=True)
        if member.store.is_dir():
            shutil.copytree(member.store, target, copy_function=_sparse)
        if member.process.log.exists():
            (run / LOGS).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(member.process.log, run / LOGS / f"{member.name}.log")


def keep_after(site: Site, run: Path) -> None:
    """Move all members' stores, whose processes must be dead, to data-after/<member>, and copy their logs again."""
    for member in site.members:
        assert not member.process.running, f"{member.name} still writes"
        target = run / AFTER / member.name
        target.parent.mkdir(exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        if member.store.is_dir():
            member.store.rename(target)
        if member.process.log.exists():
            shutil.copyfile(member.process.log, run / LOGS / f"{member.name}.log")


def keep_earlier(member: SiteMember, folder: Path) -> bool:
    """Copy the store of a member that is down; what stood there before is replaced. False when it has none."""
    assert not member.process.running, f"{member.name} writes"
    shutil.rmtree(folder, ignore_errors=True)
    if not member.store.is_dir():
        return False
    # No links: the member goes on to write into the same files.
    shutil.copytree(member.store, folder)
    return True


def _sparse(source: str, target: str) -> None:
    """Copy a file without the parts that were never written: files are made at their full size."""
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        size, at = os.fstat(old.fileno()).st_size, 0
        new.truncate(size)
        while at < size:
            try:
                begin = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:
                # Nothing but holes from here on.
                break
            at = os.lseek(old.fileno(), begin, os.SEEK_HOLE)
            os.lseek(new.fileno(), begin, os.SEEK_SET)
            while begin < at:
                begin += os.sendfile(new.fileno(), old.fileno(), begin, at - begin)
    shutil.copystat(source, target)
