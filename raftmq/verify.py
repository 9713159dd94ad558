"""Judges what a run, or the members of a broker group, left behind: what `raftmq verify` does, for programs.

    results = judge_stores([Path("n0/store"), Path("n1/store"), Path("n2/store")], "raft")
    assert results.verdict is Verdict.VALID

These are the public names; `pip install 'raftmq[verify]'`.
"""

from pipeline.history.folder import RunFolder
from pipeline.history.parquet import HistoryError
from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Results, Verdict
from pipeline.judge import EngineMissing, judge_history, judge_run, judge_stores

__all__ = [
    "EngineMissing",
    "Finding",
    "HistoryError",
    "Promises",
    "Results",
    "RunFolder",
    "Verdict",
    "judge_history",
    "judge_run",
    "judge_stores",
]
