"""Lines in the log "audit" about who was refused at a door, before any request of his was served: TLS, HTTP, HA, Raft.

They have the fields of the lines about requests (remoting/audit.py), and such bounds: a line for each address and
reason in some seconds, and so many in all; the others are counted, and told with the next line.
"""

import logging
import time
from collections.abc import Callable

from runtime.listening import origin

_log = logging.getLogger("audit")

# Of one door: a line for each address and kind of refusal, and so many in all, in so many seconds.
EVERY_S = 10.0
LINES_MAX = 100
# Characters that a line shows of what was asked for, and of the reason: both may be a stranger's.
SHOWN_CHARS_MAX = 200


class DoorRefusals:
    """Tells the audit log who was refused at one door."""

    def __init__(self, door: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`door` is what lines call it; `clock` gives seconds that only grow."""
        self._door = door
        self._clock = clock
        self._since = float("-inf")
        self._told: set[tuple[str, str]] = set()
        self._silent = 0

    def tell(self, host: str, kind: str, why: str, *, asked: str = "connection", code: int | None = None) -> None:
        """Write a line about one who came from an address and was refused, or count it.

        `kind`: one of a few words, of which each has a line of its own; `code`: what he was answered with.
        """
        if not self._worth_a_line(host, kind):
            return
        what = _shown(f"{self._door} {asked}")
        outcome = f"refused{'' if code is None else f' with {code}'} ({_shown(why)})"
        told = {"from": host, "user": "", "asked": self._door, "fields": what, "bodyBytes": "0"}
        told |= {"code": "" if code is None else str(code), "outcome": outcome}
        _log.info("%s asked for %s: %s", host, what, outcome, extra={"audit": told})

    def _worth_a_line(self, host: str, kind: str) -> bool:
        now = self._clock()
        if now - self._since >= EVERY_S:
            if self._silent:
                _log.info("%s: %d more were refused since the last such lines", self._door, self._silent)
            self._since, self._silent = now, 0
            self._told.clear()
        key = origin(host), kind
        if key in self._told or len(self._told) >= LINES_MAX:
            self._silent += 1
            return False
        self._told.add(key)
        return True


def _shown(text: str) -> str:
    """Return a text on one line, cut."""
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain if len(plain) <= SHOWN_CHARS_MAX else plain[:SHOWN_CHARS_MAX] + "…"
