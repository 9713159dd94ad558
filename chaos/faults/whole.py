"""Whether members are whole: nothing of a log is damaged or missing, and what was hurt is again what the others have.

Damage is done to one member at a time, and only where all others are whole and have on disk what is committed: what
two of three have lost is lost, in any design. Who does not get whole in time is a finding, and no accident of a run.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.faults.base import POLL_S, FaultSite, Node, NotHealed, NotWhole, Unable, wait_until

# Seconds within which a member must have what it lost: a gigabyte is to be back within a minute, logs here are smaller.
WHOLE_S = 90.0
SAID = ("role", "term", "last", "commit", "durable", "end", "whole", "damaged")


class Extent(NamedTuple):
    """A part of the log, in positions of the CommitLog."""

    begin: int
    end: int


async def all_whole(site: FaultSite) -> None:
    """Wait until every member has all that is committed on its disk, and nothing is damaged; raises NotWhole.

    What was committed at the look before counts: members are asked one after the other, and more is committed by then.
    """
    newest: int | None = None

    async def whole() -> bool:
        nonlocal newest
        states = [await asyncio.to_thread(member.process.state, "/v1/raft") for member in site.members]
        before, newest = newest, max([newest or 0, *(int(state["commit"]) for state in states if state is not None)])
        return before is not None and all(
            state is not None and state["whole"] and state["damaged"] is None and state["durable"] >= before
            for state in states
        )

    await _in_time("all members are whole, and have what is committed", whole, site.members)


async def mended(site: FaultSite, member: Node, other: Node, hurt: Extent) -> float:
    """Wait until a member serves, calls itself whole, and holds what another one does; raises NotWhole."""
    what = f"{member.name} holds again what {other.name} does at {hurt.begin} to {hurt.end}"
    return await _in_time(what, functools.partial(_repaired, site, member, other, hurt), [member])


async def until_so(what: str, true: Callable[[], Awaitable[bool]], member: Node) -> float:
    """Wait until something is true of a member, and return how many seconds that took; raises NotWhole."""
    return await _in_time(what, true, [member])


async def at_work(member: Node, working: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until a member that was launched does what `working` asks for; False when it was ready before it was seen.

    Raises NotWhole for one that ends by itself, or does neither in time.
    """
    deadline = time.monotonic() + WHOLE_S
    while not await working():
        if not member.process.running:
            raise NotWhole(ended(member))
        if await asyncio.to_thread(member.process.ready):
            return await working()
        if time.monotonic() > deadline:
            raise NotWhole(
                f"{member.name} neither mends nor serves after {WHOLE_S:g} s:\n{member.process.last_words()}"
            )
        await asyncio.sleep(POLL_S / 10)
    return True


def ended(member: Node) -> str:
    """Say that a member ended by itself."""
    return f"{member.name} ended by itself with {member.process.exit_code}:\n{member.process.last_words()}"


async def _in_time(what: str, true: Callable[[], Awaitable[bool]], members: Sequence[Node]) -> float:
    async def true_or_over() -> bool:
        for member in members:
            if not member.process.running:
                raise NotWhole(ended(member))
        return await true()

    try:
        return await wait_until(what, true_or_over, WHOLE_S)
    except NotWhole:
        raise
    except NotHealed as late:
        said = [f"{member.name}: {await _said(member)}" for member in members]
        raise NotWhole(f"{late}; {'; '.join(said)}") from None


async def _said(member: Node) -> str:
    """Return what a member says of its log, in short."""
    state = await asyncio.to_thread(member.process.state, "/v1/raft") or {}
    return ", ".join(f"{key} {state[key]}" for key in SAID if key in state) or "it does not answer"


async def is_whole(member: Node) -> bool:
    """Tell whether a member of a group serves and says that nothing of its log is damaged."""
    if not await asyncio.to_thread(member.process.ready):
        return False
    state = await asyncio.to_thread(member.process.state, "/v1/raft")
    return state is not None and state["damaged"] is None and bool(state["whole"])


async def whole_within(member: Node, seconds: float) -> bool:
    """Wait until a member is whole, and no longer than so many seconds; tell whether it is."""
    with contextlib.suppress(NotHealed):
        await wait_until(f"{member.name} is whole", functools.partial(is_whole, member), seconds)
        return True
    return False


async def _repaired(site: FaultSite, member: Node, other: Node, hurt: Extent) -> bool:
    """Tell whether a member serves, says that nothing is damaged, and has the same bytes as another one."""
    raft = site.mode.startswith("raft")
    if not (await is_whole(member) if raft else await asyncio.to_thread(member.process.ready)):
        return False
    return await asyncio.to_thread(_bytes_at, member.store, hurt) == await asyncio.to_thread(
        _bytes_at, other.store, hurt
    )


def log_files(store: Path) -> list[Path]:
    """Return the CommitLog files of a store, oldest first."""
    return sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())


def log_file(store: Path, position: int) -> tuple[Path, int]:
    """Return the CommitLog file that holds a position, and the offset in it; raises Unable when none does."""
    for path in reversed(log_files(store)):
        if int(path.name) <= position:
            return path, position - int(path.name)
    raise Unable(f"no file of {store} holds position {position}")


async def log_end(site: FaultSite, member: Node) -> int:
    """Return where a running member's log ends: what it wrote outlives its process. Raises Unable."""
    raft = site.mode.startswith("raft")
    state = await asyncio.to_thread(member.process.state, "/v1/raft" if raft else "/v1/ha")
    end = 0 if state is None else int(state["end" if raft else "max"])
    if not end:
        raise Unable(f"{member.name} does not tell where its log ends, or it is empty")
    return end


def _bytes_at(store: Path, extent: Extent) -> bytes:
    """Return what stands there, nothing when no file does: one that was lost and never made again is not mended."""
    try:
        path, offset = log_file(store, extent.begin)
    except Unable:
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(extent.end - extent.begin)
