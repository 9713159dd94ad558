"""R17: the wall clock of a member that leads is set wrong while it runs; real processes, whose clocks take orders."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.faults.clock import set_clock
from chaos.site.site import Site, SiteMember
from client.message import Message
from client.produce.producer import Producer
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

HOURS_80 = 80 * 3600
FILE_BYTES = 64 * 1024
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": FILE_BYTES,
    # Files are looked at often, at any hour of the day, and kept for less than the clock will jump.
    "cleanResourceInterval": 100,
    "flushConsumerOffsetInterval": 100,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "fileReservedTime": 72,
    "messageDelayLevel": "1s 5s 10s",
}
FILES = 5
# Real time that anything may take on a busy machine.
WITHIN_S = 60.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path, settings=SETTINGS)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def first_kept(site: Site) -> dict[str, int]:
    """Where the logs begin, of those who answer in time."""
    found = {}
    for member in site.members:
        status: Any = member.process.state("/v1/status")
        if status is not None:
            found[member.name] = status["positions"]["minPhysical"]
    return found


async def until(what: str, true: Callable[[dict[str, Any]], bool], member: SiteMember) -> dict[str, Any]:
    """Wait until a member says so of its group."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            state = await asyncio.to_thread(member.state)
            if state is not None and true(state):
                return state
            await asyncio.sleep(0.05)
    raise AssertionError(what)


async def leader_of(site: Site) -> SiteMember:
    async with asyncio.timeout(WITHIN_S):
        while (found := await site.leader()) is None:
            await asyncio.sleep(0.05)
    return found


async def fill(site: Site) -> int:
    """Send more than FILES files of messages; return how many."""
    count = FILES * FILE_BYTES // 8000
    async with Producer("producers", site.namesrv) as producer:
        for number in range(count):
            await producer.send(Message("T", b"%d " % number + bytes(8000)))
    return count


@pytest.mark.timeout(120)
async def test_R17_a_leader_whose_clock_jumps_deletes_nothing_stamps_nothing_and_comes_back(site: Site) -> None:
    sent = await fill(site)
    leader = await leader_of(site)
    assert leader.clock is not None
    set_clock(leader.clock, HOURS_80)
    began = time.monotonic()
    while (found := await site.leader()) in {None, leader}:
        assert set((await asyncio.to_thread(first_kept, site)).values()) <= {0}, "messages of a minute ago are deleted"
        assert time.monotonic() - began < WITHIN_S, "it still leads"
        await asyncio.sleep(0.02)
    assert found is not None
    said = await until("it says so", lambda state: bool(state["clock"]["apart"]), leader)
    assert "R17" in said["clock"]["apart"]
    assert said["clock"]["apart"] in said["warnings"]
    # In the same words, which change as more is heard of the others' clocks: they agree at some moment.
    status: Any = None
    async with asyncio.timeout(WITHIN_S):
        while status is None or status["clockApart"] != said["clock"]["apart"]:
            await asyncio.sleep(0.05)
            status = await asyncio.to_thread(leader.process.state, "/v1/status")
            said = await until("it says so", lambda state: bool(state["clock"]["apart"]), leader)

    async with Producer("producers", site.namesrv) as producer:
        await producer.send(Message("T", b"after"))
        await producer.send(Message("T", b"delayed", delay_level=1))
    # The delayed one comes in a second of the right time: not after 80 h, which is where a poisoned store stands.
    messages = await everything(site.namesrv, "T", sent + 2)
    now_ms = time.time() * 1000
    assert {message.body for message in messages} >= {b"after", b"delayed"}
    assert max(message.store_timestamp for message in messages) < now_ms + 30_000
    assert set((await asyncio.to_thread(first_kept, site)).values()) == {0}

    set_clock(leader.clock, 0)
    await until("its clock is right again", lambda state: not state["clock"]["apart"], leader)
    assert leader.process.running


@pytest.mark.timeout(120)
async def test_R17_a_follower_whose_clock_jumped_is_not_handed_the_lead(site: Site) -> None:
    sent = await fill(site)
    leader = await leader_of(site)
    odd, other = (member for member in site.members if member is not leader)
    assert odd.clock is not None
    set_clock(odd.clock, -HOURS_80)
    await until("it says so", lambda state: bool(state["clock"]["apart"]), odd)
    # One that stops hands over: to the one whose clock is right.
    await asyncio.to_thread(leader.process.stop)
    assert await leader_of(site) is other
    async with Producer("producers", site.namesrv) as producer:
        await producer.send(Message("T", b"after"))
    assert len(await everything(site.namesrv, "T", sent + 1)) == sent + 1
