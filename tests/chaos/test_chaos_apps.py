"""A short run of applications under faults, from start to verdict; and one that is interrupted."""

import contextlib
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from chaos.apps.driver import torture
from chaos.apps.judge import RESULTS, judge_folder
from chaos.apps.plan import CANCELLED, CLOSED, KILLED, SLOTS, AppPlan, PlannedAct, PlannedFault
from pipeline.history.results import Verdict
from raftmq.cli.output import INTERRUPTED
from tests.chaos.verdicts import assert_valid
from tests.parts.processes_left import left_of

SECONDS = 14.0
USED = ("send", "order", "thread", "push0", "push2", "cast0", "orderly0", "lite0")
ACTS = (
    PlannedAct(3.0, "lite0", CLOSED),
    PlannedAct(3.5, "push0", KILLED),
    PlannedAct(4.0, "cast0", KILLED),
    PlannedAct(4.5, "send", CANCELLED, twice=True),
    PlannedAct(5.0, "orderly0", CLOSED),
    PlannedAct(5.5, "push2", CLOSED),
    PlannedAct(8.0, "lite0", CANCELLED),
    PlannedAct(9.0, "thread", CLOSED),
    PlannedAct(10.0, "order", KILLED),
)
FAULTS = (PlannedFault(6.0, "kill-leader", 1.5, 1), PlannedFault(9.5, "freeze-namesrv", 2.0, 3))


@pytest.mark.timeout(240)
async def test_applications_come_go_and_die_and_nothing_is_lost(tmp_path: Path) -> None:
    plan = AppPlan(5, SECONDS, tuple(slot for slot in SLOTS if slot.name in USED), ACTS, FAULTS)
    told: list[str] = []
    await torture(plan, tmp_path, lambda what, _part, _acknowledged: told.append(what))
    results = judge_folder(tmp_path)
    assert_valid(results, tmp_path)
    assert results.figures["messages"]["acked"] > 300
    assert orjson.loads((tmp_path / RESULTS).read_bytes())["verdict"] == "valid"
    assert [told[0], told[-1]] == ["starting", "closing"]
    assert left_of(processes_of, tmp_path) == []
    # The same run, had the last life of one consumer missed one message: it is found in the very files.
    path = max((tmp_path / "apps").glob("cast0-*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2]))
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    # One behind which more came of its queue: who lacks the last one of a queue has skipped nothing.
    ends = {line["queue"]: max(line["offsets"]) for line in lines if line["e"] == "got"}
    within = [line["n"] for line in lines if line["e"] == "got" and max(line["offsets"]) < ends[line["queue"]]]
    number = [line["n"] for line in lines if line["e"] == "done" and line["n"] in within][-1]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines if line.get("n") != number))
    spoilt = [one.check for one in judge_folder(tmp_path).findings if one.verdict is Verdict.INVALID]
    assert "L-skipped" in spoilt


@pytest.mark.timeout(120)
def test_a_run_that_is_terminated_leaves_no_process_behind(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "raftmq.cli.main", "chaos", "apps", "--dir", str(folder), "--seed", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as harness:
        assert harness.stderr is not None
        try:
            next(line for line in harness.stderr if "under faults" in line)
            assert len(processes_of(folder)) > 6
        finally:
            harness.terminate()
        harness.stderr.read()
        assert harness.wait(60) == INTERRUPTED
    assert left_of(processes_of, folder) == []


def processes_of(folder: Path) -> list[str]:
    """Return the command lines that name a folder, but for the harness's own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
    return [line for line in found if str(folder) in line and "chaos apps" not in line]
