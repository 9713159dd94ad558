"""What comes after a run's end: every member is started once more, from what a kill or a power cut left on its disk.

That a member starts, gets whole and level with the others is a promise like any other, and is judged (ownchecks): what
each of them did is told as facts for run.json. In the end all are stopped in good order; then their checkpoints vouch
for everything, and what stands in their stores can be held against itself to the last record.

    {"members": {"n0": {"ended": null, "ready": true, "whole": true, "seconds": 1.2, "stopped": 0}, …},
     "level": true, "end": 1048576}
"""

import asyncio
import contextlib
import time
from typing import Any

from chaos.host.processes import ProcessError
from chaos.site.site import Site, SiteMember

# A member that does not serve within so many seconds does not start; a whole group is level within half of it.
START_S = 60.0
LEVEL_S = 30.0
POLL_S = 0.1


async def start_again(site: Site) -> dict[str, Any]:
    """Start all members, which must be down, see what becomes of them, and stop them; returns the facts."""
    for member in site.members:
        member.process.launch()
    found = await asyncio.gather(*(_started(site, member) for member in site.members))
    facts: dict[str, Any] = {"members": dict(zip((m.name for m in site.members), found, strict=True))}
    # Nobody waits for a group to get level of which one member is not even whole.
    states = await site.settle(LEVEL_S) if all(one["whole"] for one in found) else []
    facts["level"] = bool(states)
    # Of that moment: of what comes later nobody knows that all have it.
    facts["end"] = min((int(state["end"]) for state in states), default=0) if site.mode == "raft" else 0
    codes = await asyncio.gather(*(_stopped(member) for member in site.members))
    for one, code in zip(found, codes, strict=True):
        one["stopped"] = code
    return facts


async def _started(site: Site, member: SiteMember) -> dict[str, Any]:
    """Wait until a member serves, and in a Raft group is whole; tell what it came to."""
    began = time.monotonic()
    ready = whole = False
    while not (ready and whole) and member.process.running and time.monotonic() - began < START_S:
        ready = await asyncio.to_thread(member.process.ready)
        state = await asyncio.to_thread(member.state)
        whole = state is not None and (site.mode != "raft" or (state["whole"] and state["damaged"] is None))
        await asyncio.sleep(POLL_S)
    facts: dict[str, Any] = {
        "ended": member.process.exit_code,
        "ready": ready,
        "whole": whole,
        "seconds": round(time.monotonic() - began, 1),
    }
    if not (ready and whole):
        facts["words"] = member.process.last_words()
    return facts


async def _stopped(member: SiteMember) -> int | None:
    """Stop a member in good order; returns its exit code, None when it did not stop."""
    with contextlib.suppress(ProcessError):
        return await asyncio.to_thread(member.process.stop)
    return None
