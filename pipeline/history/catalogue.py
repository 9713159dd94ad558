"""The anomalies that are looked for: A on what clients saw, B on what replicas hold, V against empty verdicts."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pipeline.history.results import WITNESSES_MAX, Finding, Verdict

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "A1": "acknowledged, and lost",
        "A2": "passed over by an answer, and never read",
        "A3": "acknowledged, and never seen",
        "A4": "read, and never sent so",
        "A5": "refused, and there",
        "A6": "twice in the log",
        "A7": "delivered again",
        "A8": "two messages at one offset",
        "A9": "not where the acknowledgement said",
        "A10": "a sender's order reversed",
        "A11": "order against real time",
        "A12": "a poll skips or goes back",
        "A13": "a hole in a queue",
        "A14": "a leader's stale read",
        "A15": "a queue's end goes back",
        "A16": "a committed offset, topic or group lost",
        "A17": "behind the committed offset, and never delivered",
        "A18": "a transaction torn or misjudged",
        "A19": "two consumers hold one queue",
        "A20": "delivered before its time",
        "A21": "transactions in a circle",
        "A22": "an older term acknowledges after a newer one",
        "A23": "two leaders in one term",
        "A24": "recorded as done, and it is not certain",
        "A25": "unavailable for too long",
        "A26": "a consumer group that does not move on",
        "B1": "replicas disagree about an entry",
        "B2": "acknowledged, and not on a majority's disks",
        "B3": "a log's chain is broken",
        "B4": "bytes that fail their checksum",
        "B5": "commit beyond the log, or going back",
        "B6": "two votes or two leaders in one term",
        "B7": "queue and log disagree",
        "B8": "a replica holds something else than was acknowledged",
        "B9": "committed, and gone later",
        "B10": "refused, and committed",
        "B11": "an index that disagrees with the log",
        "B12": "stored offsets beyond the end, or going back",
        "B13": "replicas differ in bytes",
        "B14": "a snapshot or vote that does not belong",
        "V1": "enough was acknowledged",
        "V2": "faults took effect",
        "V3": "leaders changed where they must",
        "V4": "the final scan reached every end",
        "V5": "few operations of unknown end",
        "V6": "every fault was healed",
        "V7": "the history is well-formed",
        "V8": "every promised store was judged",
    }
)


def finding(
    check: str,
    witnesses: Iterable[dict[str, Any]],
    *,
    judged: bool = True,
    bad: Verdict = Verdict.INVALID,
    text: str = "",
) -> Finding:
    """Return what a check found: `bad` if there is a witness; INFO in any case where the promise makes it a count."""
    some: list[dict[str, Any]] = []
    count = 0
    for witness in witnesses:
        count += 1
        if count <= WITNESSES_MAX:
            some.append(witness)
    verdict = (bad if count else Verdict.VALID) if judged else Verdict.INFO
    return Finding(check, TITLES[check], verdict, count, text, tuple(some))


def skipped(check: str, why: str) -> Finding:
    """Return that a check had nothing to look at, or that nothing was promised."""
    return Finding(check, TITLES[check], Verdict.SKIPPED, 0, why)


def unknown(check: str, why: str) -> Finding:
    """Return that a check cannot be decided because evidence is missing."""
    return Finding(check, TITLES[check], Verdict.UNKNOWN, 0, why)
