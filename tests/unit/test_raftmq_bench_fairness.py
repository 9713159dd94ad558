"""`raftmq bench fairness` says of each row which of its aims it misses."""

from dataclasses import replace
from typing import Any

import pytest

from raftmq.bench.fairness import AIM_KEPT, AIM_P99_MS, Fairness
from raftmq.cli.bench_fairness import COLUMNS, _cells

GOOD = Fairness("raft", 10, 400, 100.0, 240.0, 260.0, 40_000, 36_000, 0.9)


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"quiet_p99_ms": AIM_P99_MS["raft"] + 1}, ["p99 over 250 ms"]),
        ({"mode": "single"}, ["p99 over 50 ms"]),
        ({"flood_kept": AIM_KEPT - 0.01, "elections": 1}, ["kept under 0.8", "an election"]),
        ({"floods": 0, "quiet_p99_ms": 9999.0}, []),
    ],
)
def test_a_row_says_what_it_misses(changed: dict[str, Any], missed: list[str]) -> None:
    row = replace(GOOD, **changed)
    assert row.missed == row.as_dict()["missed"] == missed
    cells = _cells(row)
    assert len(cells) == len(COLUMNS)
    assert cells[-1] == (", ".join(missed) or "met" if row.floods else None)
