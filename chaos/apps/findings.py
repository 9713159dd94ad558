"""How a check says what it found."""

from collections.abc import Sequence
from typing import Any

from pipeline.history.results import WITNESSES_MAX, Finding, Verdict


def judged(check: str, title: str, looked: int, bad: Sequence[dict[str, Any]], text: str = "") -> Finding:
    """Return a finding: without anything to look at nothing is proved."""
    verdict = Verdict.INVALID if bad else Verdict.VALID if looked else Verdict.UNKNOWN
    told = text or f"{len(bad):,} of {looked:,}"
    return Finding(check, title, verdict, len(bad), told, tuple(bad[:WITNESSES_MAX]))


def counted(check: str, title: str, count: int, text: str) -> Finding:
    """Return a finding that judges nothing."""
    return Finding(check, title, Verdict.INFO, count, text)


def missing(check: str, title: str, what: Sequence[str]) -> Finding:
    """Return a finding about evidence: what of it is missing makes the verdict unknown."""
    verdict = Verdict.UNKNOWN if what else Verdict.VALID
    return Finding(check, title, verdict, len(what), "; ".join(what) or "all there", ())
