"""Compares what clients were told with what stands in the members' logs. Members must be stopped."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from store.dispatch import dispatched_from_record
from store.logscan import LogScan, Span
from tests.chaos.load import NUMBER_BYTES, TOPIC, History

COMPARE_BYTES = 4 * 1024 * 1024


@dataclass
class Verdict:
    """What was found. `lost`: acknowledged and not in the log; `repeated`: an attempt that stands there twice."""

    attempts: int = 0
    acknowledged: int = 0
    in_log: int = 0
    lost: int = 0
    misplaced: int = 0
    repeated: int = 0
    unread: int = 0
    log_bytes: int = 0
    differences: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    terms: int = 0
    offset_commits: int = 0
    reads: int = 0
    longest_gap_s: float = 0.0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        bad = self.lost + self.misplaced + self.repeated + self.unread
        return not bad and not self.differences and not self.violations and self.acknowledged > 0

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.good, **asdict(self)}


def log_spans(store: Path) -> list[Span]:
    """Return the files of a store's CommitLog."""
    files = sorted((store / "commitlog").iterdir())
    return [Span(path, int(path.name), path.stat().st_size) for path in files]


def judge(stores: Sequence[Path], history: History) -> Verdict:
    """Read the logs; the first store tells what the log holds, the others must be equal byte for byte."""
    verdict = Verdict(
        attempts=len(history.queue),
        acknowledged=history.acknowledged,
        violations=list(history.violations),
        errors=dict(history.errors),
        offset_commits=history.commits,
        reads=len(history.reads),
        longest_gap_s=round(history.longest_gap_s, 2),
    )
    count = np.zeros(verdict.attempts, np.int32)
    queue = np.full(verdict.attempts, -1, np.int8)
    offset = np.full(verdict.attempts, -1, np.int64)
    spans = log_spans(stores[0])
    scan = LogScan(spans, spans[0].start, check_crc=True)
    for found in scan:
        record = dispatched_from_record(found.view, found.at)
        if record.topic == TOPIC:
            number = int(body_of(found.view, found.at)[:NUMBER_BYTES])
            count[number] += 1
            queue[number] = record.queue_id
            offset[number] = record.queue_offset
    verdict.log_bytes = scan.end - spans[0].start
    told_queue = np.frombuffer(history.queue, np.int8)
    told_offset = np.frombuffer(history.offset, np.int64)
    acknowledged = told_queue >= 0
    verdict.in_log = int((count > 0).sum())
    verdict.lost = int((acknowledged & (count == 0)).sum())
    verdict.repeated = int((count > 1).sum())
    there = acknowledged & (count > 0)
    verdict.misplaced = int((there & ((queue != told_queue) | (offset != told_offset))).sum())
    for (read_queue, read_offset), number in history.reads.items():
        if queue[number] != read_queue or offset[number] != read_offset:
            verdict.unread += 1
    for other in stores[1:]:
        verdict.differences += differences(stores[0], other, scan.end)
    return verdict


def body_of(view: memoryview, at: int) -> bytes:
    """Return the body of an IPv4 record, which all records here are."""
    length = int.from_bytes(view[at + 84 : at + 88], "big")
    return bytes(view[at + 88 : at + 88 + length])


def differences(one: Path, other: Path, end: int) -> list[str]:
    """Return where two logs differ before `end`; the shorter one must reach it."""
    mine = {span.start: span for span in log_spans(one)}
    theirs = {span.start: span for span in log_spans(other)}
    found = []
    for start in sorted(mine):
        if start >= end:
            continue
        if start not in theirs:
            found.append(f"{other} lacks the file at {start}")
            continue
        length = min(mine[start].size, end - start)
        with mine[start].path.open("rb") as left, theirs[start].path.open("rb") as right:
            at = 0
            while at < length:
                step = min(COMPARE_BYTES, length - at)
                if left.read(step) != right.read(step):
                    found.append(f"{one} and {other} differ between {start + at} and {start + at + step}")
                    break
                at += step
    return found
