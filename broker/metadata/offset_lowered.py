"""Which consumer offsets were set back on purpose, and since when: what lets a slave give back what a crash took.

A master that was killed has forgotten the commits of its last seconds; its slaves may know them, and an offset that is
greater is the better one then. Unless somebody set it back: an administrator, or a consumer that seeks. So each change
that lowers offsets gets a number, kept in the same file as the offsets. A slave remembers the number that its copy was
made at (the mark), and whatever was lowered since is not taken from it.

Numbers count for the table of one master: each has a random name, and a promoted one begins another. They leap at each
start, to the time of day: numbers that were lost with a crash are not given twice, and a mark of a life that left
nothing in the file is known to the next one, as an older one.
"""

import secrets
from collections.abc import Callable
from typing import Any

# Keys (topic@group) whose last number is known. A mark older than what was forgotten is good for nothing.
KEYS_MAX = 1000
# So many changes a millisecond have numbers before those of a later start. JSON's numbers hold the products exactly.
PER_MS = 1024


class Lowerings:
    """The numbers of one master's table."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(8)
        self._last = 0
        self._forgotten = 0
        # Key → number of the last time that an offset of it was lowered; the oldest first.
        self._keys: dict[str, int] = {}

    @classmethod
    def resumed(cls, stored: dict[str, Any], now_ms: int) -> "Lowerings":
        """Go on at a time of day from what stored() returned; KeyError, TypeError or ValueError when it is wrong."""
        lowerings = cls()
        lowerings._name = str(stored["name"])
        lowerings._last = max(int(stored["last"]) + 1, now_ms * PER_MS)
        lowerings._forgotten = int(stored["forgotten"])
        lowerings._keys = {str(key): int(number) for key, number in dict(stored["keys"]).items()}
        return lowerings

    def stored(self) -> dict[str, Any]:
        """Return it for the file."""
        return {"name": self._name, "last": self._last, "forgotten": self._forgotten, "keys": dict(self._keys)}

    @property
    def mark(self) -> str:
        """What a copy of the table made now is marked with."""
        return f"{self._name}:{self._last}"

    def note(self, key: str) -> None:
        """Note that an offset of a key was lowered, or its offsets were forgotten."""
        self._last += 1
        self._keys.pop(key, None)
        self._keys[key] = self._last
        if len(self._keys) > KEYS_MAX:
            self._forgotten = self._keys.pop(next(iter(self._keys)))

    def since(self, mark: str) -> Callable[[str], bool] | None:
        """Return what tells whether a key was lowered since a copy was made; None when nothing can be said."""
        name, _, number = mark.partition(":")
        if name != self._name or not number.isdecimal() or not self._forgotten <= int(number) <= self._last:
            return None
        known = int(number)
        return lambda key: self._keys.get(key, 0) > known
