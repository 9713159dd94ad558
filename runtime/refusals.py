"""Lines in the log "audit" about who was refused at a door, before any request of his was served: TLS, HTTP, HA, Raft.

They have the fields of the lines about requests (remoting/audit.py), and are bounded as those: a line for each address
and reason, so many of an address and in all; the others are counted, and told with the next line.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

from runtime.quiet import LineShares

_log = logging.getLogger("audit")

# Of one door in ten seconds: lines in all, and of one address.
LINES_MAX, OF_ONE_MAX = 100, 10
# Characters that a line shows of what was asked for, and of the reason: both may be a stranger's.
SHOWN_CHARS_MAX = 200


class DoorRefusals:
    """Tells the audit log who was refused at one door."""

    def __init__(self, door: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`door` is what lines call it; `clock` gives seconds that only grow."""
        self._door = door
        self._clock = clock
        self._shares = LineShares(LINES_MAX, OF_ONE_MAX)
        self.counts: Counter[str] = Counter()
        """All that were refused, by kind, whether a line tells of them or not."""

    def tell(self, host: str, kind: str, why: str, *, asked: str = "connection", code: int | None = None) -> None:
        """Write a line about one who came from an address and was refused, or count it.

        `kind`: one of a few words, of which each has a line of its own; `code`: what he was answered with.
        """
        self.counts[kind] += 1
        count, whose = self._shares.left_out(self._clock())
        if count:
            _log.info("%d more were refused at %s since the last such lines: %s", count, self._door, whose)
        if not self._shares.let(host, kind):
            return
        what = _shown(f"{self._door} {asked}")
        outcome = f"refused{'' if code is None else f' with {code}'} ({_shown(why)})"
        told = {"from": host, "user": "", "asked": self._door, "fields": what, "bodyBytes": "0"}
        told |= {"code": "" if code is None else str(code), "outcome": outcome}
        _log.info("%s asked for %s: %s", host, what, outcome, extra={"audit": told})


def _shown(text: str) -> str:
    """Return a text on one line, cut."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain if len(plain) <= SHOWN_CHARS_MAX else plain[:SHOWN_CHARS_MAX] + "…"
