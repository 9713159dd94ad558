"""Warnings about strangers, which no stranger may make a flood of: a line per address and kind in ten seconds.

What is left out is counted, and told with the last of it once the ten seconds are over. The table is bounded: while it
is full of addresses that were heard of lately, all others of a kind count as one.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from runtime.listening import origin

# Seconds in which an address has one line of a kind.
EVERY_S = 10.0
# Addresses and kinds that are told apart; some 100 KiB, and what a log takes of lines in ten seconds.
ENTRIES_MAX = 256
# Characters kept of a line until it is told.
_LINE_CHARS_MAX = 500
_OTHERS = "other addresses"
# Addresses that are named when it is told what was left out.
_NAMED_MAX = 5


@dataclass(slots=True)
class _Told:
    until: float
    left_out: int = 0
    last: str = ""


class QuietLog:
    """Takes warnings, and logs no more of them than may be; `tell` is called every few seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds that only grow."""
        self._log = log
        self._clock = clock
        # By kind and address, in the order in which their time is over.
        self._table: dict[tuple[str, str], _Told] = {}

    def warning(self, kind: str, host: str, text: str, *values: object) -> None:
        """Log a warning of a kind about an address, or count it."""
        self.tell()
        key = (kind, origin(host))
        if key not in self._table and len(self._table) >= ENTRIES_MAX:
            key = (kind, _OTHERS)
        told = self._table.get(key)
        if told is None:
            self._table[key] = _Told(self._clock() + EVERY_S)
            self._log.warning(text, *values)
        else:
            told.left_out += 1
            told.last = (text % values)[:_LINE_CHARS_MAX]

    def tell(self) -> None:
        """Tell what was left out and is due, and forget of whom nothing was."""
        now = self._clock()
        due = []
        for key, told in self._table.items():
            if told.until > now:
                break
            due.append(key)
        for key in due:
            told = self._table.pop(key)
            if told.left_out:
                self._log.warning("%s (one of %d of %s in %g s)", told.last, told.left_out, key[1], EVERY_S)
                # A flood that goes on has a line in ten seconds.
                self._table[key] = _Told(now + EVERY_S)


class FewLines:
    """So many lines in ten seconds, whoever they are about: for a log that tells each reason once, by other means."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds that only grow."""
        self._most = most
        self._clock = clock
        self._begun = float("-inf")
        self._lines = 0

    def let(self) -> bool:
        """Tell whether one more line may be written, and count it if so."""
        now = self._clock()
        if now - self._begun >= EVERY_S:
            self._begun, self._lines = now, 0
        self._lines += 1
        return self._lines <= self._most


class LineShares:
    """Lines about many strangers, of each kind one: some for each address, so many in all, in ten seconds.

    No address silences others: once half of all lines are written, an address has its first one only.
    """

    def __init__(self, most: int, of_one: int) -> None:
        """`most` lines in all, `of_one` of an address; as many addresses are told apart as there are lines."""
        self._most = most
        self._of_one = of_one
        self._begun = float("-inf")
        self._lines = 0
        self._told: dict[str, set[Hashable]] = {}
        self._left_out: Counter[str] = Counter()

    def let(self, host: str, kind: Hashable) -> bool:
        """Tell whether a line of a kind about an address may be written; count it either way."""
        of = origin(host)
        told = self._told.get(of)
        if told is None:
            may = self._lines < self._most
        else:
            may = kind not in told and len(told) < self._of_one and self._lines < self._most // 2
        if may:
            self._lines += 1
            self._told.setdefault(of, set()).add(kind)
        else:
            self._left_out[of if told is not None else _OTHERS] += 1
        return may

    def left_out(self, now: float) -> tuple[int, str]:
        """Return how many lines were left out, and of whom, once their ten seconds are over; begin anew then."""
        if now - self._begun < EVERY_S:
            return 0, ""
        left_out = self._left_out
        whose = ", ".join(f"{count} of {of}" for of, count in left_out.most_common(_NAMED_MAX))
        self._begun, self._lines, self._told, self._left_out = now, 0, {}, Counter()
        return left_out.total(), whose
