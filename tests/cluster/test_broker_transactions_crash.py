"""10,000 transactions of producers that are killed and started again, in a group whose leader is killed three times.

Their local databases say what had to come of each: what was committed there is delivered once, all else never, and what
nobody told the group was asked about.
"""

import asyncio
import contextlib
import itertools
import random
import sys
import time
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess
from tests.cluster.crashing_producer import TOPIC, Journal, journal_path, leaves
from tests.cluster.process_group import leader_of, process_group
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

pytestmark = pytest.mark.long

COUNT, PRODUCERS, LEADER_KILLS = 10_000, 4, 3
SETTINGS = {**SMALL_FILES, "transactionTimeOut": 1000, "transactionCheckInterval": 500, "transactionCheckMax": 1000}
SETTINGS |= {"mappedFileSizeCommitLog": 8 << 20, "mappedFileSizeConsumeQueue": 200_000}
# A producer lives for so many seconds before it is killed.
LIFE_S = (1.0, 4.0)
DOWN_S = 3.0
WAIT_S = 300.0


class Producers:
    """The processes, and their journals."""

    def __init__(self, namesrv: str, folder: Path) -> None:
        self._namesrv, self._folder = namesrv, folder
        self.journals = [Journal(journal_path(folder, own)) for own in range(PRODUCERS)]
        self._processes: dict[int, Process] = {}
        self.kills = 0

    async def start(self, own: int) -> None:
        self._processes[own] = await create_subprocess_exec(
            sys.executable, "-m", "tests.cluster.crashing_producer", self._namesrv, str(self._folder), str(own),
            str(PRODUCERS), str(COUNT), stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip

    async def kill(self, own: int) -> None:
        process = self._processes.pop(own)
        assert process.returncode is None, "it goes on until it is killed"
        process.kill()
        await process.wait()

    async def kill_and_start(self, rng: random.Random) -> None:
        """Do so with one after the other until all have done all of theirs."""
        while not self.ended:
            await asyncio.sleep(rng.uniform(*LIFE_S) / PRODUCERS)
            own = rng.choice(sorted(self._processes))
            await self.kill(own)
            self.kills += 1
            await self.start(own)

    @property
    def ended(self) -> bool:
        for journal in self.journals:
            journal.refresh()
        return all(journal.ended for journal in self.journals)

    @property
    def begun(self) -> int:
        for journal in self.journals:
            journal.refresh()
        return sum(len(journal.begun) for journal in self.journals)


@contextlib.asynccontextmanager
async def started(namesrv: str, folder: Path) -> AsyncIterator[Producers]:
    folder.mkdir()
    made = Producers(namesrv, folder)
    try:
        for own in range(PRODUCERS):
            await made.start(own)
        yield made
    finally:
        for own in range(PRODUCERS):
            with contextlib.suppress(KeyError, ProcessLookupError):
                await made.kill(own)


async def kill_leaders(producers: Producers, members: list[ServerProcess]) -> None:
    """Kill the leader each time that another part of the transactions has begun, and start it again."""
    for number in range(1, LEADER_KILLS + 1):
        while producers.begun < COUNT * number // (LEADER_KILLS + 1):
            await asyncio.sleep(0.1)
        leader = await leader_of(members)
        await asyncio.to_thread(leader.kill)
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(leader.start)


async def nothing_pending(members: list[ServerProcess]) -> None:
    """Wait until the leader has come to the end of all halves, for as long as a check takes."""
    calm_since = time.monotonic()
    while time.monotonic() - calm_since < 3:
        leader = await leader_of(members)
        page = await asyncio.to_thread(leader.state, "/v1/transactions")
        if not page or not page["read"] or page["pending"]:
            calm_since = time.monotonic()
        await asyncio.sleep(0.2)


@pytest.mark.timeout(600)
async def test_what_was_committed_comes_once_whoever_is_killed(tmp_path: Path) -> None:
    with process_group(tmp_path, SETTINGS) as (namesrv, members):
        async with started(namesrv.address, tmp_path / "journals") as producers, asyncio.timeout(WAIT_S):
            await asyncio.gather(producers.kill_and_start(random.Random(1)), kill_leaders(producers, members))
            await nothing_pending(members)
        journals = producers.journals
        for journal in journals:
            journal.refresh()
        committed = set(itertools.chain.from_iterable(journal.committed for journal in journals))
        rolled_back = set(itertools.chain.from_iterable(journal.rolled_back for journal in journals))
        asked = set(itertools.chain.from_iterable(journal.asked for journal in journals))
        assert producers.kills >= PRODUCERS
        assert committed | rolled_back == set(range(COUNT))
        assert not committed & rolled_back
        assert len(committed) > COUNT // 2
        # One more than there is to come, so that it looks for more until it is tired.
        found = await everything(namesrv.address, TOPIC, len(committed) + 1, within_s=30)
        came = Counter(int(message.body) for message in found)
        assert {number: times for number, times in came.items() if times > 1} == {}, "none twice"
        assert came.keys() - committed == set(), "nothing that was not committed"
        assert committed - came.keys() == set(), "all that was"
        assert {number for number in committed if leaves(number)} <= asked
