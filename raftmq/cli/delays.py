"""How the terminal says when a message is to be delivered."""

import re
from dataclasses import dataclass
from typing import Self

from raftmq.cli.output import fail

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
# Longer texts than this are no delay; what is too late for a broker, it says itself.
_DELAY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([smhd]?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Timing:
    """A delay in seconds or a moment in milliseconds since the epoch; neither for at once."""

    delay_s: float | None = None
    deliver_ms: int | None = None

    @classmethod
    def read(cls, delay: str, moment: str) -> Self:
        """Read --delay and --deliver-at; ends the command when they are none, or both."""
        if delay and moment:
            fail("--delay and --deliver-at: it takes one of them", code=2)
        if delay:
            found = _DELAY.fullmatch(delay)
            if found is None:
                fail(f"--delay {delay}: it takes seconds, or a number with s, m, h or d, such as 15m", code=2)
            seconds = round(float(found[1]) * SECONDS[found[2]], 3)
            return cls(delay_s=seconds)
        return cls(deliver_ms=_moment_ms(moment)) if moment else cls()


def _moment_ms(text: str) -> int:
    from raftmq.cli.group_offsets import parse_time

    ms = parse_time(text)
    # `begin` and `end` are times of a queue, not of a clock.
    if ms <= 0:
        fail(f"--deliver-at {text}: it takes milliseconds, or ISO 8601 such as 2026-01-31T12:00:00", code=2)
    return ms
