"""`raftmq bench backlog` stores and consumes what it says, in both forms, and leaves nothing when it is interrupted."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raftmq.bench.backlog import BacklogLoad, run_backlog
from tests.cluster.test_raftmq_cli_errors import RAFTMQ, raftmq
from tests.parts.processes_left import left_of

pytestmark = pytest.mark.timeout(180)

MESSAGES = 20_000


def run_by(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and "bench backlog" not in line:
            found.append(line)
    return found


def test_the_figures_as_json(tmp_path: Path) -> None:
    done = raftmq("bench", "backlog", "-m", str(MESSAGES), "--tail", "3000", "--json", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["messages"], told["tail"], told["body_bytes"], told["queues"]) == (MESSAGES, 3000, 100, 8)
    assert [(part["what"], part["messages"]) for part in told["parts"]] == [
        ("fill", MESSAGES),
        ("tail", 3000),
        ("backlog", MESSAGES),
    ]
    for part in told["parts"]:
        assert (part["repeated"], part["lost"]) == (0, 0)
        assert part["per_s"] > 100
        for memory in (part["broker_resident"], part["broker_anonymous"], part["client_anonymous"]):
            assert memory["highest"] >= max(memory["begin"], memory["end"]) > 10
        assert part["broker_resident"]["end"] > part["broker_anonymous"]["end"]
    # The kernel counts in hundredths of a second, and a part may take less.
    assert sum(part["broker_cpu_us"] for part in told["parts"]) > 0
    _fill, tail, backlog = told["parts"]
    assert told["ratio"] == pytest.approx(tail["per_s"] / backlog["per_s"], abs=0.01)
    assert told["met"] == (told["ratio"] <= 2)
    assert list(tmp_path.iterdir()) == []


def test_the_figures_as_a_table(tmp_path: Path) -> None:
    done = raftmq("bench", "backlog", "-m", str(MESSAGES), "--tail", "2000", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    columns, *rows = done.stdout.splitlines()
    assert columns.split()[:2] == ["what", "messages"]
    assert [row.split()[:2] for row in rows[:3]] == [["fill", "20,000"], ["tail", "2,000"], ["backlog", "20,000"]]
    assert rows[4].startswith("The tail is ")
    assert list(tmp_path.iterdir()) == []


async def test_the_options_are_what_is_stored_and_how_it_is_read(tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    logged = 0

    def progress(what: str, done: int, total: int) -> None:
        nonlocal logged
        (config,) = tmp_path.glob("*/broker/broker.conf")
        seen[what] = config.read_text()
        logged = max(logged, *(path.stat().st_size for path in tmp_path.glob("*/broker/**/consumequeue/*/*/*")), 0)
        assert 0 <= done <= total

    load = BacklogLoad(messages=3000, tail=600, body_bytes=1000, queues=3, batch=500)
    figures = await run_backlog(load, progress, tmp_path)
    assert list(seen) == ["fill", "tail", "backlog"]
    assert "maxTransferCountOnMessageInMemory=500" in seen["backlog"]
    assert "maxTransferCountOnMessageInDisk=500" in seen["backlog"]
    assert logged, "the files are where they were asked for"
    assert [part.messages for part in figures.parts] == [3000, 600, 3000]
    assert not any(part.repeated or part.lost for part in figures.parts)


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*RAFTMQ, "bench", "backlog", "-m", "5000000", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        _until(lambda: any(tmp_path.glob("*/broker/**/consumequeue/bench_backlog/*/*")))
        assert run_by(tmp_path)
        # As Ctrl-C does, which a shell's background has ignored.
        process.terminate()
        _out, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"Traceback" not in errors
        assert list(tmp_path.iterdir()) == []
        assert left_of(run_by, tmp_path) == []
    finally:
        process.kill()
        process.communicate()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_too_much_for_the_disk_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = raftmq("bench", "backlog", "-m", "1000000000", "--size", "65536", "--dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("raftmq: 1,000,000,000 messages of 65536 B need about 65758.1 GB, and the disk of ")
    assert line.endswith("name another folder (--dir) or fewer messages (--messages)")
    assert list(tmp_path.iterdir()) == []


def test_a_tail_that_leaves_queues_empty_is_a_wrong_command_line() -> None:
    done = raftmq("bench", "backlog", "-m", "20000", "--tail", "10", "--queues", "64")
    assert done.returncode == 2
    assert done.stderr == "raftmq: --tail 10: it takes at least one message for each of the 64 queues\n"
