"""`raftmq bench readers` measures what it says, in both forms, and leaves nothing when it is interrupted."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.test_raftmq_cli_errors import RAFTMQ, raftmq
from tests.parts.processes_left import left_of

pytestmark = pytest.mark.timeout(180)
# A log of 80 MiB is written before, and thousands of messages: on a machine with other things to do it takes a while.
PATIENCE_S = 170

ROWS = ["nobody", "a reader of cold log", "nobody again", "one that never reads", "nobody at last"]
# The broker's bound of one connection's unsent answers (64 MiB), and what one turn may add before it looks.
UNREAD_GROWTH_MB = 160


def run_by(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder; the bench itself is none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and "bench readers" not in line:
            found.append(line)
    return found


def test_the_figures_as_json(tmp_path: Path) -> None:
    done = raftmq("bench", "readers", "-m", "200", "--mib", "96", "--json", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["beside"], row["messages"]) for row in rows] == [(beside, 200) for beside in ROWS]
    for row in rows:
        assert 0 < row["ack_p50_ms"] <= row["ack_p99_ms"] <= row["ack_max_ms"]
        # No message arrives before it was sent: each row has a topic of its own.
        assert 0 < row["arrival_p50_ms"] <= row["arrival_p99_ms"] <= row["arrival_max_ms"]
    alone, cold, _again, unread, _last = rows
    assert cold["read_mib_per_s"] > 1
    assert alone["read_mib_per_s"] == unread["read_mib_per_s"] == 0
    assert unread["broker_own_mb"] - alone["broker_own_mb"] < UNREAD_GROWTH_MB
    assert list(tmp_path.iterdir()) == []


def test_the_figures_as_a_table(tmp_path: Path) -> None:
    done = raftmq("bench", "readers", "-m", "50", "--mib", "80", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    columns, *rows, note = done.stdout.splitlines()
    assert columns.split()[:2] == ["beside", "messages"]
    assert [row[:20].strip() for row in rows] == ROWS
    assert note.startswith("The broker's own memory ")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_beside_its_reader_it_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*RAFTMQ, "bench", "readers", "-m", "4000", "--mib", "80", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not any("coldreader" in line for line in run_by(tmp_path)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        _out, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"Traceback" not in errors
        assert list(tmp_path.iterdir()) == []
        assert left_of(run_by, tmp_path) == []
    finally:
        process.kill()
        process.communicate()


def test_too_much_for_the_disk_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = raftmq("bench", "readers", "--mib", "1000000", "--dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("raftmq: a log of 1,000,000 MiB needs about 1050.7 GB, and the disk of ")
    assert line.endswith("name another folder (--dir) or less of it (--mib)")
    assert list(tmp_path.iterdir()) == []
