"""Verdicts and how they come together: results.json, version 1, and the exit codes of whatever judges a run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1
WITNESSES_MAX = 32

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_USAGE, EXIT_CRASH = 0, 1, 2, 254, 255


class Verdict(StrEnum):
    """From best to worst."""

    INFO = "info"
    """Counted, and not judged: the promise allows it."""
    VALID = "valid"
    SKIPPED = "skipped"
    """Not looked at: what it needs is missing here, or was never promised."""
    UNKNOWN = "unknown"
    """It cannot be told: evidence is missing."""
    INVALID = "invalid"


_WORST_LAST = list(Verdict)
_EXIT = {Verdict.INVALID: EXIT_INVALID, Verdict.UNKNOWN: EXIT_UNKNOWN}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: `witnesses` are the smallest cases, `count` is of all."""

    check: str
    """A1 to A26, B1 to B14 (pipeline/catalogue), or V… for a guard against empty verdicts."""
    title: str
    verdict: Verdict
    count: int = 0
    text: str = ""
    witnesses: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for results.json."""
        return {
            "check": self.check,
            "title": self.title,
            "verdict": str(self.verdict),
            "count": self.count,
            "text": self.text,
            "witnesses": list(self.witnesses),
        }


@dataclass(frozen=True, slots=True)
class Results:
    """All findings of a run, with what the report shows beside them."""

    findings: tuple[Finding, ...]
    figures: dict[str, Any] = field(default_factory=dict)
    """Counts, recovery times, availability: for people, judged by none."""

    @property
    def verdict(self) -> Verdict:
        """The worst of all; what was skipped or only counted does not make a run worse, nor a run of nothing valid."""
        judged = [f.verdict for f in self.findings if f.verdict not in {Verdict.INFO, Verdict.SKIPPED}]
        return worst(judged) if judged else Verdict.UNKNOWN

    @property
    def exit_code(self) -> int:
        """What a command that judged this run ends with."""
        return _EXIT.get(self.verdict, EXIT_VALID)

    def as_dict(self) -> dict[str, Any]:
        """Return results.json."""
        return {
            "schema": SCHEMA,
            "verdict": str(self.verdict),
            "findings": [finding.as_dict() for finding in self.findings],
            "figures": self.figures,
        }


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of some verdicts."""
    return max(verdicts, key=_WORST_LAST.index)
