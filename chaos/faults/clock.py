"""A wall clock that jumps in one member's process; the monotonic clock goes on as it does.

Members look into a file for how far their clock is ahead (chaos/site/member.py), so that the clock of one jumps while
it runs and leads. What it says the time is stands in the Date header of its HTTP face: that is the proof. libfaketime
would do the same to any program, and makes a broker of several threads so slow that what breaks then is no clock.
"""

import asyncio
import email.utils
import http.client
import random
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.faults.base import T0, Effect, FaultSite, Node, Unable, wait_until
from chaos.faults.targets import pick

# Seconds that a clock jumps, either way.
JUMP_S_MIN, JUMP_S_MAX = 60, 7200
# Seconds that one steps forward: beyond the 72 hours that messages are kept by default.
STEP_S_MIN, STEP_S_MAX = 75 * 3600, 100 * 3600
# Of what was asked for: the Date header has whole seconds, and is kept for one.
CLOSE_S = 5


class ClockJump:
    """A member's wall clock jumps forward or back while it runs, and back again at heal."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"clock-jump-{role}"
        self._member: Node | None = None

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Let it jump."""
        (member,) = await pick(site, self.role, rng)
        if member.clock is None:
            raise Unable("the clocks of these members take no orders: start them by chaos.site.member")
        jump = self.drawn(rng)
        self._member = member
        set_clock(member.clock, jump)
        await _shows(member, jump)
        return Effect(member.name, self.role, f"its Date header is {jump:+d} s from ours, as ordered")

    def drawn(self, rng: random.Random) -> int:
        """Return how many seconds it jumps."""
        return rng.choice((-1, 1)) * rng.randint(JUMP_S_MIN, JUMP_S_MAX)

    async def heal(self, site: FaultSite) -> str:  # noqa: ARG002 # every fault is handed its site
        """Let its clock go right again; one that is down is started with a clock that does."""
        member, self._member = self._member, None
        if member is None or member.clock is None:
            return ""
        set_clock(member.clock, 0)
        if member.process.running:
            await _shows(member, 0)
        return ""


class ClockStep(ClockJump):
    """The clock of one that leads steps days ahead for some seconds: by it, whatever is kept has expired.

    What that must not do: remove messages, or stamp new ones with a time from which store times cannot come back.
    """

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.name = f"clock-step-{role}"

    def drawn(self, rng: random.Random) -> int:
        """Return how many seconds it steps: always forward."""
        return rng.randint(STEP_S_MIN, STEP_S_MAX)


async def _shows(member: Node, wanted_s: int) -> None:
    """Wait until a member's clock is so far from ours; raises NotHealed."""

    async def shown() -> bool:
        found = await asyncio.to_thread(ahead_s, member)
        return found is not None and abs(found - wanted_s) < CLOSE_S

    await wait_until(f"the clock of {member.name} is {wanted_s:+d} s from ours", shown)


def set_clock(told: Path, ahead: int) -> None:
    """Let the clock of whoever looks into that file be so many seconds ahead of ours, or behind below 0."""
    # It is read at any time: never half written.
    fresh = told.with_name(told.name + ".new")
    fresh.write_text(f"{ahead:+d}\n", encoding="ascii")
    fresh.replace(told)


def ahead_s(member: Node) -> float | None:
    """Return how many seconds a member's clock is ahead of ours, None when it does not answer."""
    connection = member.process.http()
    try:
        connection.request("GET", "/healthz")
        date = connection.getresponse().getheader("Date")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return None if date is None else email.utils.parsedate_to_datetime(date).timestamp() - time.time()
