"""`raftmq bench guard` runs what it says, and `raftmq bench latency --explain` follows real sends."""

import json
from pathlib import Path

import pytest

from chaos.host.processes import ProcessError
from raftmq.bench.versions import proved
from tests.cluster.test_raftmq_cli_errors import raftmq

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(120)


def test_a_tree_beside_itself(tmp_path: Path) -> None:
    done = raftmq(
        "bench", "guard", "--base", str(ROOT), "--kind", "single-async", "-w", "64", "--rounds", "2", "--starts", "1",
        "--seconds", "0.2", "--json", "--dir", str(tmp_path),
    )  # fmt: skip
    head, row = map(json.loads, done.stdout.splitlines())
    for side in ("base", "this"):
        assert head[side]["loaded_from"] == str(ROOT / "broker" / "main.py")
        assert head[side]["version"] != "unknown"
    assert (row["what"], row["in_flight"], row["starts"], row["rounds"]) == ("single, async flush", 64, 1, 2)
    assert min(row["base_per_s"], row["this_per_s"]) > 64
    assert 0 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    # Two short rounds may say anything of a busy machine; the exit code says the same.
    assert done.returncode == int(row["slower"] is True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_servers_would_run_something_else_is_refused(tmp_path: Path) -> None:
    """What is measured must be what is said: this folder has no package, so Python would find another one."""
    with pytest.raises(ProcessError, match="lies elsewhere"):
        proved(tmp_path, f"folder {tmp_path}")


def test_where_a_sends_time_goes(tmp_path: Path) -> None:
    done = raftmq("bench", "latency", "--explain", "--seconds", "0.6", "--json", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    *rows, last = map(json.loads, done.stdout.splitlines())
    stages, (work, disk, way, whole, leader_disk) = rows[:14], rows[14:]
    assert sum(stage["share"] for stage in stages) == pytest.approx(1, abs=0.002)
    assert [one["kind"] for one in (work, disk, way)] == ["work", "disk", "way"]
    assert work["share"] + disk["share"] + way["share"] == pytest.approx(1, abs=0.001)
    assert all(0 <= stage["p50_us"] <= stage["p99_us"] for stage in rows)
    assert 0 < leader_disk["p50_us"] < whole["p99_us"]
    assert last["followed"] <= last["sends"]
    assert last["unmarked_p50_us"] > 0
    assert list(tmp_path.iterdir()) == []
