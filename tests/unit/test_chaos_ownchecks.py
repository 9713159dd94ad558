"""What a run says of itself is judged: nothing is valid that nobody looked at."""

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos.runs.self_checks import LEVEL_CHECK, SECURED_CHECK, START_CHECK, TIME_CHECK, own_findings
from pipeline.history.folder import RunFolder
from pipeline.history.parquet import write_rows
from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import Fault, Op, Read
from store.files.checkpoint import Checkpoint

GOOD = {"ended": None, "ready": True, "whole": True, "seconds": 1.0, "stopped": 0}
NOW_S = 1_800_000_000


def judged(folder: Path, check: str, *, promises: Promises | None = None, **info: Any) -> Finding:
    run = RunFolder(folder)
    for kind in (Op, Read, Fault):
        run.file(kind).parent.mkdir(exist_ok=True)
        write_rows(run.file(kind), [], kind)
    told = {"mode": "raft", "fired": [{"name": "kill-leader"}], "promises": (promises or Promises()).as_dict(), **info}
    (folder / "run.json").write_bytes(orjson.dumps(told))
    return next(found for found in own_findings(run) if found.check == check)


def starts(**wrong: Any) -> dict[str, Any]:
    return {"members": {"n0": GOOD, "n1": {**GOOD, **wrong}}, "level": True, "end": 100}


def test_that_all_members_start_is_a_fact_and_no_assumption(tmp_path: Path) -> None:
    assert judged(tmp_path, START_CHECK, starts=starts()).verdict is Verdict.VALID
    assert judged(tmp_path, START_CHECK).verdict is Verdict.UNKNOWN, "nobody tried"
    assert judged(tmp_path, START_CHECK, fired=[]).verdict is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ended": 1, "ready": False}, "n1 ended with 1 when it was started"),
        ({"ready": False}, "n1 did not serve"),
        ({"whole": False}, "n1 was not whole"),
        ({"stopped": None}, "n1 stopped with None"),
        ({"stopped": -6}, "n1 stopped with -6"),
    ],
)
def test_a_member_that_does_not_start_or_is_not_whole_makes_the_run_invalid(
    wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    found = judged(tmp_path, START_CHECK, starts=starts(**wrong))
    assert found.verdict is Verdict.INVALID
    assert words in found.text
    assert judged(tmp_path, LEVEL_CHECK, starts=starts(**wrong)).verdict in {Verdict.UNKNOWN, Verdict.SKIPPED}


def test_a_member_that_others_could_not_mend_makes_the_run_invalid(tmp_path: Path) -> None:
    found = judged(tmp_path, START_CHECK, not_whole="n1 holds again what n0 does: not within 90 s", starts=starts())
    assert found.verdict is Verdict.INVALID
    found = judged(tmp_path, START_CHECK, not_whole="n1 ended by itself with 1")
    assert found.verdict is Verdict.INVALID, "also when the run broke down over it"


def test_stores_that_were_not_kept_prove_nothing(tmp_path: Path) -> None:
    (tmp_path / "data" / "n0").mkdir(parents=True)
    assert judged(tmp_path, LEVEL_CHECK, starts=starts()).verdict is Verdict.UNKNOWN
    for name in ("n0", "n1"):
        (tmp_path / "data-after" / name / "commitlog").mkdir(parents=True)
    found = judged(tmp_path, LEVEL_CHECK, starts=starts())
    assert found.verdict is Verdict.INVALID
    assert "n0 vouches for less than all had" in found.text
    assert found.witnesses[0].items() >= {"member": "n0", "dispatched": -1, "flushed": -1, "end": 100}.items()
    assert orjson.loads(orjson.dumps(found.as_dict()))["witnesses"], "what results.json cannot hold ends the judging"
    assert judged(tmp_path, LEVEL_CHECK, starts=starts(), mode="async").verdict is Verdict.SKIPPED
    assert "did not get level" in judged(tmp_path, LEVEL_CHECK, starts={**starts(), "level": False}).text


def stored(folder: Path, *, begin: int = 0, stamp_s: float = NOW_S) -> None:
    for name in ("n0", "n1"):
        log = folder / "data" / name / "commitlog"
        log.mkdir(parents=True)
        (log / f"{begin if name == 'n1' else 0:020d}").write_bytes(b"x")
        checkpoint = folder / "data" / name / "checkpoint"
        checkpoint.write_bytes(Checkpoint(log_timestamp=int(stamp_s * 1000)).encode())
        os.utime(checkpoint, (NOW_S, NOW_S))


def test_what_expired_before_its_time_makes_the_run_invalid(tmp_path: Path) -> None:
    assert judged(tmp_path, TIME_CHECK).verdict is Verdict.SKIPPED
    stored(tmp_path, begin=4096)
    found = judged(tmp_path, TIME_CHECK)
    assert found.verdict is Verdict.INVALID
    assert found.text == "n1 has removed everything below 4096"
    assert judged(tmp_path, TIME_CHECK, promises=Promises(retention=True)).verdict is Verdict.SKIPPED


def test_store_times_of_a_clock_that_nobody_shares_make_the_run_invalid(tmp_path: Path) -> None:
    stored(tmp_path, stamp_s=NOW_S + 80 * 3600)
    found = judged(tmp_path, TIME_CHECK)
    assert found.verdict is Verdict.INVALID
    assert "n0 has stamped messages 288000 s ahead" in found.text
    single = Promises(mode="single", replicas=1)
    assert judged(tmp_path, TIME_CHECK, promises=single).verdict is Verdict.VALID, "it has nobody to ask"


def test_all_is_well_where_nothing_expired(tmp_path: Path) -> None:
    stored(tmp_path)
    assert judged(tmp_path, TIME_CHECK).verdict is Verdict.VALID


REFUSED = {"refused": ["n0 clients, unsigned: username cannot be null."] * 3, "taken": [], "unclear": []}


@pytest.mark.parametrize(
    ("end", "verdict", "words"),
    [
        (REFUSED, Verdict.VALID, "6 strangers were refused"),
        ({**REFUSED, "taken": ["n2 clients, unsigned: answered"]}, Verdict.INVALID, "in the end, n2 clients, unsigned"),
        ({**REFUSED, "unclear": ["n1 raft: timed out"]}, Verdict.UNKNOWN, "n1 raft: timed out"),
        (None, Verdict.UNKNOWN, "not tried both"),
    ],
)
def test_a_run_is_secured_when_strangers_were_refused_before_and_after(
    tmp_path: Path, end: dict[str, list[str]] | None, verdict: Verdict, words: str
) -> None:
    tried = {"at the beginning": REFUSED, **({} if end is None else {"in the end": end})}
    found = judged(tmp_path, SECURED_CHECK, secured=tried)
    assert found.verdict is verdict
    assert words in found.text


def test_of_a_plain_run_nobody_says_that_it_was_secured(tmp_path: Path) -> None:
    with pytest.raises(StopIteration):
        judged(tmp_path, SECURED_CHECK)


@pytest.mark.parametrize(("workload", "check"), [("timers", "W-timers"), ("requests", "W-replies")])
def test_a_workload_that_brought_nothing_is_not_taken_for_a_proof(tmp_path: Path, workload: str, check: str) -> None:
    assert judged(tmp_path, check, workloads=["send", workload]).verdict is Verdict.UNKNOWN
    assert judged(tmp_path, check, workloads=["send"]).verdict is Verdict.SKIPPED
