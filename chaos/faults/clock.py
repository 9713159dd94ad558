"""A wall clock that jumps, by libfaketime in one member's process; the monotonic clock goes on as it does.

Members of a site that is asked for it are started with the library, at the true time, so that the clock of one jumps
while it runs and leads. What it says the time is stands in the Date header of its HTTP face: that is the proof.
"""

import asyncio
import email.utils
import http.client
import random
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.faults.base import T0, Effect, Member, Site, Unable, wait_until
from chaos.faults.targets import pick

CAPABILITY = "faketime"
# Where distributions put the library. Not the one for threads, whose lock makes each look at the clock take 0.2 ms as
# soon as two threads look: in Python the interpreter's own lock keeps them apart.
LIBRARIES = (
    "/usr/lib/*/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
    "/usr/local/lib/faketime/libfaketime.so.1",
)
# Seconds that a clock jumps, either way.
JUMP_S_MIN, JUMP_S_MAX = 60, 7200
# Of what was asked for: the Date header has whole seconds, and is kept for one.
CLOSE_S = 5


class ClockJump:
    """A member's wall clock jumps forward or back while it runs, and back again at heal."""

    tier = T0
    needs: Sequence[str] = (CAPABILITY,)

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"clock-jump-{role}"
        self._member: Member | None = None

    async def fire(self, site: Site, rng: random.Random) -> Effect:
        """Let it jump."""
        (member,) = await pick(site, self.role, rng)
        if member.clock is None:
            raise Unable("the clocks of these members take no orders: start them by libfaketime")
        jump = rng.choice((-1, 1)) * rng.randint(JUMP_S_MIN, JUMP_S_MAX)
        self._member = member
        set_clock(member.clock, jump)
        await _shows(member, jump)
        return Effect(member.name, self.role, f"its Date header is {jump:+d} s from ours, as ordered")

    async def heal(self, site: Site) -> str:  # noqa: ARG002 # every fault is handed its site
        """Let its clock go right again; one that is down is started with a clock that does."""
        member, self._member = self._member, None
        if member is None or member.clock is None:
            return ""
        set_clock(member.clock, 0)
        if member.process.running:
            await _shows(member, 0)
        return ""


async def _shows(member: Member, wanted_s: int) -> None:
    """Wait until a member's clock is so far from ours; raises NotHealed."""

    async def shown() -> bool:
        found = await asyncio.to_thread(ahead_s, member)
        return found is not None and abs(found - wanted_s) < CLOSE_S

    await wait_until(f"the clock of {member.name} is {wanted_s:+d} s from ours", shown)


def set_clock(told: Path, ahead: int) -> None:
    """Let the clock of whoever was started with `environment` be so many seconds ahead of ours, or behind below 0."""
    # It is read at any time: never half written.
    fresh = told.with_name(told.name + ".new")
    fresh.write_text(f"{ahead:+d}\n", encoding="ascii")
    fresh.replace(told)


def find_library() -> Path | None:
    """Return libfaketime, None where it is not installed."""
    for pattern in LIBRARIES:
        found = sorted(Path("/").glob(pattern.lstrip("/")))
        if found:
            return found[0]
    return None


def environment(library: Path, told: Path) -> dict[str, str]:
    """Return the variables that let a process have the clock that the file tells."""
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(told),
        # The file is looked at once in a second: at every look at the clock a broker would do little else.
        "FAKETIME_CACHE_DURATION": "1",
        # Timeouts run by the monotonic clock, which never jumps. (time.sleep fails then, and no server uses it.)
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Nor do the times of files that were written before the jump.
        "NO_FAKE_STAT": "1",
    }


def ahead_s(member: Member) -> float | None:
    """Return how many seconds a member's clock is ahead of ours, None when it does not answer."""
    host, _, _ = member.process.address.rpartition(":")
    connection = http.client.HTTPConnection(host, member.process.http_port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        date = connection.getresponse().getheader("Date")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return None if date is None else email.utils.parsedate_to_datetime(date).timestamp() - time.time()
