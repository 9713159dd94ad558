"""Run folders as chaos/runs/run.py leaves them, made up from a seed: a small cluster whose leader dies now and then."""

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from pipeline.history.folder import INFO, RESULTS, SCHEDULE, RunFolder
from pipeline.history.parquet import write_rows
from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Results, Verdict
from pipeline.history.rows import Act, Fault, Kind, Look, Op, Read

S = 1_000_000_000
START = 5_000 * S
MEMBERS = ("n0", "n1", "n2")
HOSTILE = (
    "</td><script>console.error('broken out')</script><img src=x onerror=alert(1)> \u202e\x1b[31m | `x`" + "\0" * 200
)
"""A text as a body or an error may hold it."""

FAULTS = (
    (5.0, 8.0, "kill-leader", "n0", "leader", "pid 4101 is gone, started again as 4190"),
    (12.0, 15.5, "pause-follower", "n2", "follower", "state T for 3.5 s"),
    (14.0, 17.0, "slow-links", "n1→n2", "any", "3,120 frames held back"),
    (21.0, 25.0, "isolate-leader", "n1", "leader", "18 connections refused"),
    (30.0, 32.0, "power-loss-all", "n0, n1, n2", "all", "81,233 bytes lost"),
    (38.0, 38.4, "transfer", "n2", "leader", "term 5 led by n0"),
)
LEADERS = ((0.0, "n0", 1), (6.1, "n1", 2), (22.4, "n2", 4), (34.2, "n2", 5), (38.2, "n0", 6), (60.0, "", 0))
SILENT = ((5.0, 6.1), (21.3, 22.4), (30.0, 34.2))
LOAD_S = 45.0


def leader_at(at: float) -> tuple[str, int]:
    """The leader and its term, at a second of the run."""
    return next((who, term) for (start, who, term), after in pairwise(LEADERS) if at < after[0])


def silent(at: float) -> bool:
    return any(start <= at < end for start, end in SILENT)


def operations(seed: int, count: int = 6_000) -> tuple[list[Op], list[Read]]:
    """Sends to four queues over the whole load, then scans that read what was acknowledged."""
    rng = random.Random(seed)
    ops: list[Op] = []
    reads: list[Read] = []
    ends = [0, 0, 0, 0]
    held: list[list[Op]] = [[], [], [], []]
    for number in range(count):
        at = LOAD_S * number / count
        queue, (who, term) = rng.randrange(4), leader_at(at)
        took = math.exp(rng.gauss(1.4, 0.6)) / 1000 * (6 if 14 <= at < 17 else 1)
        kind, error, offset = Kind.OK, "", ends[queue]
        if silent(at):
            kind, error = rng.choice(((Kind.INFO, "timeout after 3 s"), (Kind.FAIL, "connection refused")))
            took, offset = (3.0, -1) if kind is Kind.INFO else (0.001, -1)
        ends[queue] += kind is Kind.OK
        begun = START + round(at * S)
        op = Op(
            number, number % 16, Act.SEND, kind, begun, begun + round(took * S), topic="orders", queue=queue,
            broker="g", address=who, writer=number % 16, counter=number // 16, digest=number, offset=offset,
            position=number * 231 if kind is Kind.OK else -1, term=term, leader=who, error=error,
        )  # fmt: skip
        ops.append(op)
        if kind is Kind.OK:
            held[queue].append(op)
    for queue, sent in enumerate(held):
        for place in range(0, len(sent), 64):
            number = len(ops)
            begun = START + round((1.5 + 46 * place / len(sent)) * S)
            chunk = sent[place : place + 64]
            begun = max(begun, chunk[-1].completed)
            ops.append(
                Op(number, 20 + queue, Act.SCAN, Kind.OK, begun, begun + S // 50, topic="orders", queue=queue,
                   offset=place, value=place + len(chunk), end=len(sent))
            )  # fmt: skip
            reads += [
                Read(number, "orders", queue, op.offset, op.position, op.writer, op.counter, 0, op.digest)
                for op in chunk
            ]
    return ops, reads


def looks() -> list[Look]:
    """Each member five times a second, but for the times at which it was down or paused."""
    found = []
    down = {"n0": ((5.0, 8.0), (30.0, 32.5)), "n1": ((30.0, 32.5),), "n2": ((12.0, 15.5), (30.0, 32.5))}
    for step in range(round(LOAD_S * 5)):
        at = step / 5
        who, term = leader_at(at)
        for member in MEMBERS:
            if any(start <= at < end for start, end in down[member]):
                continue
            behind = 40 if member == "n2" and 15.5 <= at < 18 else 0
            role = "leader" if member == who else "follower"
            commit = max(step * 9 - behind, 0)
            found.append(Look(START + round(at * S), member, role, term, who, commit + 2, commit, commit, commit * 231))
    return found


def findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Some of the catalogue; of an invalid run two that found something, of an unknown one a guard."""
    found = [Finding(f"A{n}", f"what A{n} looks for", Verdict.VALID, 0, "") for n in range(2, 26)]
    found += [Finding(f"B{n}", f"what B{n} looks for", Verdict.VALID) for n in range(1, 15)]
    found[5] = Finding("A7", "delivered again", Verdict.INFO, 12, "the promise allows it")
    found[16] = Finding("A18", "a transaction torn or misjudged", Verdict.SKIPPED, 0, "no transactions in this run")
    found += [Finding("V1", "enough was acknowledged", Verdict.VALID, 0, "5,021 of 1,000 asked")]
    found += [Finding("V2", "faults took effect", Verdict.VALID, 0, "6 of 6")]
    lost = Finding("A1", "acknowledged, and lost", Verdict.VALID)
    if verdict == Verdict.INVALID:
        witness = {"op": 3000, "topic": "orders", "queue": 1, "offset": 700, "position": 231, "body": HOSTILE}
        lost = Finding("A1", "acknowledged, and lost", verdict, 3, "in the middle", (witness, {"op": 3100}))
        found[8] = Finding("A10", "a sender's order reversed", verdict, 1, HOSTILE, ({"ops": [100, 116]},))
    if verdict == Verdict.UNKNOWN:
        found[-1] = Finding("V2", "faults took effect", verdict, 1, "slow-links: nothing was held back")
    return (lost, *found)


CAPABILITIES: list[dict[str, Any]] = [
    {"name": "fault proxies", "tier": "T0", "ok": True, "why": "in the tree"},
    {"name": "power loss by undoing unsynced writes", "tier": "T0", "ok": True, "why": ""},
    {"name": "network namespaces", "tier": "T1", "ok": False, "why": "unshare: operation not permitted"},
    {"name": "ext4 on a loop file", "tier": "T2", "ok": False, "why": "not root"},
]


def write_run(
    folder: Path, verdict: Verdict = Verdict.VALID, *, seed: int = 7, name: str = "kill-leader", faults: bool = True
) -> Path:
    """Write a judged run that no report was made of yet, and return its folder."""
    run = RunFolder(folder)
    ops, reads = operations(seed)
    done = [Fault(n, name, *target) for n, (name, target) in enumerate(_faults() if faults else ())]
    for kind, rows in ((Op, ops), (Read, reads), (Fault, done), (Look, looks())):
        write_rows(run.file(kind), rows, kind)
    info = {
        "scenario": name,
        "seed": seed,
        "promises": Promises(mode="raft", replicas=3).as_dict(),
        "versions": {"raftmq": "0.1.0", "python": "3.11.2"},
        "commit": "0795ce1",
        "capabilities": CAPABILITIES,
    }
    (folder / INFO).write_bytes(orjson.dumps(info, option=orjson.OPT_INDENT_2))
    (folder / SCHEDULE).write_bytes(b"[]")
    figures = {
        "delivery": {"semantics": "at least once", "lost": 0},
        "availability_percent": 84.1,
        "faults": [
            {"fault": 0, "silence_s": 1.12, "recovery_s": 1.1, "p99_ms": 12.5},
            {"fault": 4, "recovery_s": None},
        ],
    }
    (folder / RESULTS).write_bytes(orjson.dumps(Results(findings(verdict), figures).as_dict()))
    return folder


def _faults() -> list[tuple[str, tuple[str, str, int, int, str]]]:
    return [
        (name, (target, wanted, START + round(start * S), START + round(end * S), effect))
        for start, end, name, target, wanted, effect in FAULTS
    ]
