"""A wall clock that jumps, by libfaketime in one member's process; the monotonic clock goes on as it does.

The member is started anew with the library, at the true time, and then its clock jumps while it runs. What it says
the time is stands in the Date header of its HTTP face: that is the proof.
"""

import asyncio
import email.utils
import http.client
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.faults.base import T0, Effect, Member, NotHealed, Site, Unable, wait_until
from chaos.faults.targets import pick

CAPABILITY = "faketime"
# Where distributions put the library.
LIBRARIES = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
# Seconds that a clock jumps, either way.
JUMP_S_MIN, JUMP_S_MAX = 60, 7200
# Of what was asked for: the Date header has whole seconds, and is kept for one.
CLOSE_S = 5
HOST = "127.0.0.1"


class ClockJump:
    """A member's wall clock jumps forward or back while it runs, and back again at heal."""

    tier = T0
    needs: Sequence[str] = (CAPABILITY,)

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"clock-jump-{role}"
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._member: Member | None = None

    async def fire(self, site: Site, rng: random.Random) -> Effect:
        """Let it jump."""
        library = find_library()
        if library is None:
            raise Unable("libfaketime is not installed (Debian: apt install libfaketime)")
        (member,) = await pick(site, self.role, rng)
        jump = rng.choice((-1, 1)) * rng.randint(JUMP_S_MIN, JUMP_S_MAX)
        self._member, self._folder = member, tempfile.TemporaryDirectory(prefix="raftmq-clock-")
        told = Path(self._folder.name) / "faketime"
        told.write_text("+0\n", encoding="ascii")
        member.process.environment |= environment(library, told)
        await _start_anew(site, member)
        told.write_text(f"{jump:+d}\n", encoding="ascii")

        async def jumped() -> bool:
            found = await asyncio.to_thread(ahead_s, member.process.http_port)
            return found is not None and abs(found - jump) < CLOSE_S

        await wait_until(f"the clock of {member.name} jumps", jumped)
        return Effect(member.name, self.role, f"its Date header is {jump:+d} s from ours, as ordered")

    async def heal(self, site: Site) -> str:
        """Start it without the library."""
        member, folder = self._member, self._folder
        if member is None or folder is None:
            return ""
        for name in environment(Path(), Path()):
            member.process.environment.pop(name, None)
        await _start_anew(site, member)
        found = await asyncio.to_thread(ahead_s, member.process.http_port)
        if found is None or abs(found) >= CLOSE_S:
            raise NotHealed(f"the clock of {member.name} is {found} s from ours")
        folder.cleanup()
        self._member = self._folder = None
        return ""


async def _start_anew(site: Site, member: Member) -> None:
    """Kill a member and start it: an orderly stop would wait for its clients to turn elsewhere."""
    await asyncio.to_thread(member.process.kill)
    await site.start(member.name)


def find_library() -> Path | None:
    """Return libfaketime for programs with threads, None where it is not installed."""
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
        # Looked at for every call, so that the clock jumps when the file changes.
        "FAKETIME_NO_CACHE": "1",
        # Timeouts run by the monotonic clock, which never jumps.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def ahead_s(http_port: int) -> float | None:
    """Return how many seconds a server's clock is ahead of ours, None when it does not answer."""
    connection = http.client.HTTPConnection(HOST, http_port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        date = connection.getresponse().getheader("Date")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return None if date is None else email.utils.parsedate_to_datetime(date).timestamp() - time.time()
