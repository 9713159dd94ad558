"""Each fault that needs no privileges, once, against a real group of three under load: it is proved, and healed.

What a fault tells of itself is held against what the processes and their clients show.
"""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.faults.base import T0
from chaos.faults.pairs import PROMOTIONS
from chaos.runs.nemesis import FAULTS, inflict, make
from chaos.runs.tiers import missing
from chaos.site.site import Site
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers.registry import SendMessageRequestHeaderV2
from remoting.limits import ClientLimits
from tests.chaos.possible import capabilities

SENDERS = 4
# Between two sends of one: some hundred a second are load enough, and what they are beside is to get its time.
PACE_S, RETRY_S = 0.005, 0.02
# Acknowledged after a fault is healed: the group serves.
SERVED = 20
BODY = b"x" * 400

KILLED = r"pid \d+ ended with -9.*back as pid \d+"
LINKS = r"[1-9]\d* bytes and connections came to faulty links"
# Fault → seconds that it lasts, and what proves it. Who is to meet it must have run once in the meantime.
OF_PROCESSES = {
    "kill-leader": (0.3, KILLED),
    "pause-leader": (1.0, r"(FROZEN|frozen 1|state T).*stood still for [1-9]"),
    "starve-leader": (0.5, r"stopped [1-9]\d* times"),
    "rolling-restart": (0.0, r"(n\d pid \d+ now \d+(, |;)){3}"),
    "pause-kill": (0.0, r"n\d pid .*; n\d led, pid \d+ ended with -9; n\d back as pid"),
    "client-crash": (0.0, r"client one ended without goodbye"),
    "transfer-leader": (0.0, r"led in term \d+, n\d leads in term \d+"),
    "membership": (0.3, r"members \['n\d', 'n\d'\] since entry \d+; n\d votes again"),
}
OF_DISKS = {
    "slow-fsync-leader": (1.5, r"syncs slowed by \d+ ms: n\d [1-9]"),
    "failing-fsync-leader": (1.5, r"failed n\d [1-9]\d* times; n\d ended with [1-9]\d*; n\d back as pid"),
    "enospc-follower": (1.5, r"failed n\d [1-9]"),
    "power-all": (0.0, r"(\d+ bytes lost(, |;).*){3}back as pid"),
    "bitflip-minority": (0.0, r"byte \d+ was 0x.., is 0x..; n\d back as pid \d+; repaired n\d"),
    "truncate-minority": (0.0, r"lost [1-9]\d* of \d+ bytes; n\d back as pid \d+; repaired n\d"),
    "clock-jump-leader": (0.3, r"Date header is [+-]\d+ s from ours"),
    "clock-step-leader": (0.3, r"Date header is \+\d{6} s from ours"),
}
OF_LINKS = {
    "isolate-leader": (4.0, LINKS),  # the others elect in this time, also on a busy machine
    "isolate-leader-hold": (0.7, LINKS),
    "cut-leader-to-follower": (0.7, LINKS),
    "cut-follower-to-leader": (0.7, LINKS),
    "majority-ring": (0.7, LINKS),
    "flap": (1.5, r"healed [1-9]\d* times; " + LINKS),
    "slow-links": (0.7, LINKS),
    "lossy-links": (0.7, LINKS),
    "reset-links": (0.7, LINKS),
    "torn-frames": (0.7, LINKS),
    "swizzle": (0.0, LINKS),
    "part-kill": (0.0, r"cut off; n\d pid \d+ ended with -9, \d+ bytes lost; n\d cut off, n\d led"),
}
# What the lead is taken from who has it: the term must have risen.
DEPOSES = {"kill-leader", "isolate-leader", "transfer-leader", "part-kill", "pause-kill"}


class Senders:
    """Clients who send to whoever leads, and count what is acknowledged."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._client = RemotingClient(limits=ClientLimits(backoff_max_seconds=0.1), name="senders")
        self._address = site.addresses[0]
        self.acknowledged = 0

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._send(number)) for number in range(SENDERS)]
        tasks.append(asyncio.create_task(self._follow()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._client.close()

    async def served(self, count: int = SERVED) -> None:
        """Wait until so many more are acknowledged."""
        wanted = self.acknowledged + count
        while self.acknowledged < wanted:
            await asyncio.sleep(0.01)

    async def _follow(self) -> None:
        while True:
            leader = await self._site.leader()
            if leader is not None:
                self._address = leader.process.address
            await asyncio.sleep(0.1)

    async def _send(self, number: int) -> None:
        header = SendMessageRequestHeaderV2(
            producerGroup="p", topic="T", defaultTopic="TBW102", defaultTopicQueueNums=4, queueId=number % 4,
            sysFlag=0, bornTimestamp=1, flag=0, properties="",
        )  # fmt: skip
        while True:
            request = Command.request(RequestCode.SEND_MESSAGE_V2, header, BODY)
            try:
                answer = await self._client.invoke(self._address, request, 2.0)
                good = answer.code == ResponseCode.SUCCESS
            except RemotingError:
                good = False
            self.acknowledged += good
            await asyncio.sleep(PACE_S if good else RETRY_S)


def test_every_kind_of_fault_is_fired_here() -> None:
    tried = {type(make(name)) for name in (*OF_PROCESSES, *OF_DISKS, *OF_LINKS)}
    # Those that take namespaces: test_chaos_netns.py, test_chaos_loopdisk.py; a larger log: test_chaos_torture.py;
    # master and slaves: test_chaos_pairs.py.
    of_files = {type(make(name)) for name in FAULTS if name.startswith(("lose-", "rot-"))}
    of_pairs = {type(make(name)) for name in PROMOTIONS}
    assert tried | of_files | of_pairs == {type(factory()) for factory in FAULTS.values() if factory().tier == T0}


@pytest.mark.timeout(90)
@pytest.mark.parametrize("faults", [OF_PROCESSES, OF_DISKS, OF_LINKS], ids=["processes", "disks", "links"])
async def test_faults_take_place_and_are_healed(faults: dict[str, tuple[float, str]], tmp_path: Path) -> None:
    site = Site(tmp_path, links=faults is OF_LINKS, seed=1)

    async def gone() -> None:
        return None

    site.clients.add("one", gone)
    impossible = missing(faults, capabilities())
    await site.open()
    try:
        senders = Senders(site)
        async with senders.at_work():
            await senders.served()
            for name, (lasts_s, proof) in faults.items():
                if name in impossible:
                    continue
                await fired(name, site, lasts_s, proof)
                await senders.served()
        assert await site.settle(60), await site.states()
    finally:
        await site.close()


async def fired(name: str, site: Site, lasts_s: float, proof: str) -> None:
    """Do one fault, and hold what it tells against what is seen from outside."""
    before = {member.name: member.process.pid for member in site.members}
    term = await term_of(site)
    effect = await inflict(make(name), site, random.Random(name), lasts_s=lasts_s)
    assert re.search(proof, effect.effect), (name, effect)
    assert effect.target
    for member in site.members:
        anew = f"{member.name} back as pid" in effect.effect or name == "rolling-restart"
        assert not anew or member.process.pid != before[member.name], (name, effect)
        assert member.process.running
    if name in DEPOSES:
        assert await term_of(site) > term, (name, effect)


async def term_of(site: Site) -> int:
    states = (await site.states()).values()
    return max(int(state["term"]) for state in states if state is not None)
