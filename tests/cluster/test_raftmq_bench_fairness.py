"""`raftmq bench fairness` measures what it says: a quiet client alone, and beside so many that flood the broker."""

import json
from pathlib import Path

import pytest

from tests.cluster.test_raftmq_cli_errors import raftmq


@pytest.mark.timeout(120)
def test_the_figures_as_json(tmp_path: Path) -> None:
    done = raftmq(
        "bench", "fairness", "--mode", "single", "--floods", "2", "--seconds", "0.5", "--json", "--dir", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    alone, beside = json.loads(done.stdout)
    assert [(row["mode"], row["floods"], row["elections"]) for row in (alone, beside)] == [
        ("single", 0, 0),
        ("single", 2, 0),
    ]
    for row in (alone, beside):
        assert row["quiet_sends"] > 0
        assert 0 < row["quiet_p50_ms"] <= row["quiet_p99_ms"] <= row["quiet_max_ms"]
    assert beside["flood_per_s_alone"] > 0
    assert beside["flood_kept"] == pytest.approx(beside["flood_per_s"] / beside["flood_per_s_alone"], abs=0.01)
    # Two connections with 2,048 sends of 1 KiB in flight each keep a broker busy: somebody beside them waits.
    assert beside["quiet_max_ms"] > alone["quiet_p50_ms"]
    assert list(tmp_path.iterdir()) == []


def test_a_mode_that_is_none(tmp_path: Path) -> None:
    done = raftmq("bench", "fairness", "--mode", "pair", "--dir", str(tmp_path))
    assert (done.returncode, done.stderr.strip()) == (2, "raftmq: --mode pair: it takes single or raft")
