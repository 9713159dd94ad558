"""A real run, from start to verdict: the leader dies under load. And one that is ended before."""

import contextlib
import os
import select
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

import orjson
import pytest

from chaos.runs.run import recheck, run
from chaos.runs.scenario import Scenario, promised
from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import Planned, Schedule
from chaos.runs.session import may_run
from pipeline.history.bank import BANK_CHECK
from pipeline.history.folder import RESULTS, SCHEDULE, RunFolder
from pipeline.history.parquet import write_rows
from pipeline.history.results import Verdict
from pipeline.history.rows import Act, Kind, Op
from pipeline.plain.check_service import STALL_S
from raftmq.cli.chaos import CRASH
from raftmq.cli.output import INTERRUPTED
from tests.chaos.possible import capabilities
from tests.chaos.verdicts import assert_valid
from tests.parts.processes_left import left_of

SECONDS = 8.0
RAFTMQ = [sys.executable, "-m", "raftmq.cli.main"]
KILL = Planned(number=0, name="kill-leader", after=800, idle_ms=4000, lasts_ms=1000, seed=7)


def scenario(**changes: object) -> Scenario:
    promises = promised("raft", 3, faults_min=1, leader_change_on=("kill-leader",))
    fields = {"workloads": ("send", "bank"), "faults": ("kill-leader",), "rate": 400.0, "seconds": SECONDS, **changes}
    return Scenario("kill", promises, acknowledged_min=500, **fields)  # type: ignore[arg-type] # as the caller gives them


@pytest.mark.timeout(180)
async def test_a_leader_that_dies_under_load_loses_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    results = await run(scenario(), 3, tmp_path, Schedule("kill", 3, (KILL,)), lambda what, _count: told.append(what))
    judged = {finding.check: finding for finding in results.findings}
    assert_valid(results, tmp_path)
    assert judged[BANK_CHECK].verdict is Verdict.VALID
    assert judged["V-run"].verdict is Verdict.VALID
    found = RunFolder(tmp_path)
    (fault,) = found.faults()
    assert "ended with -9" in fault.effect
    assert found.info()["fired"][0]["acknowledged"] >= KILL.after
    acknowledged = [op for op in found.ops() if op.act == Act.SEND and op.kind == Kind.OK]
    assert len(acknowledged) > 500
    assert any(op.invoked > fault.ended for op in acknowledged)
    assert_watched(found, min(op.invoked for op in acknowledged), max(op.completed for op in acknowledged))
    assert {look.member for look in found.looks()} == {"n0", "n1", "n2"}
    assert [path.name for path in found.members()] == ["n0", "n1", "n2"]
    assert [told[0], told[-1]] == ["starting", "judging"]
    assert orjson.loads((tmp_path / RESULTS).read_bytes())["verdict"] == "valid"
    assert (tmp_path / SCHEDULE).exists()
    # The same run, had one more send been acknowledged.
    sent = acknowledged[0]._replace(op=len(found.ops()), process=10**6, counter=10**6)
    write_rows(found.file(Op), [*found.ops(), sent], Op)
    assert recheck(tmp_path).verdict is Verdict.INVALID


def assert_watched(found: RunFolder, began: int, ended: int) -> None:
    """Assert that all the while the harness wrote how it had its turns, far more often than what counts as a stall."""
    moments = [one.at for one in found.beats()]
    assert moments, "nobody watched the harness"
    gaps = [after - before for before, after in pairwise(moments)]
    assert median(gaps) < STALL_S / 2 * 1e9
    assert moments[0] < began
    assert moments[-1] > ended


@pytest.mark.timeout(120)
def test_a_run_that_is_terminated_leaves_no_process_behind(tmp_path: Path) -> None:
    """SIGTERM is how CI ends a job that takes too long; in the background of a shell, which has it ignore Ctrl-C."""
    background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*background, *RAFTMQ, "chaos", "run", "kill", "--dir", str(tmp_path), "--seed", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as harness:
        assert harness.stderr is not None
        next(line for line in harness.stderr if "under load" in line)
        assert len(processes_of(tmp_path)) > 3
        harness.terminate()
        harness.stderr.read()
        assert harness.wait(60) == INTERRUPTED
    assert left_of(processes_of, tmp_path) == []


def begun(folder: Path, scenario: str) -> "subprocess.Popen[str]":
    """A run of a scenario in a folder, with seed 4, that is under load."""
    command = [*RAFTMQ, "chaos", "run", scenario, "--dir", str(folder), "--seed", "4"]
    harness = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert harness.stderr is not None
    said = next((line for line in harness.stderr if "under load" in line), "")
    assert said, harness.communicate()
    return harness


@pytest.mark.timeout(200)
@pytest.mark.parametrize("scenario", ["kill", "network", "device"])
def test_a_run_that_is_killed_leaves_nothing_that_blocks_the_next(tmp_path: Path, scenario: str) -> None:
    lacking = may_run(SCENARIOS[scenario], capabilities())
    if lacking is not None:
        pytest.skip(lacking.why)
    with begun(tmp_path, scenario) as harness:
        assert len(processes_of(tmp_path)) > 3
        harness.kill()
        harness.communicate()
    # The same again at once, in the same folder; and a third one beside it, which is told so.
    with begun(tmp_path, scenario) as again:
        beside = subprocess.run(again.args, capture_output=True, text=True, timeout=60, check=False)
        assert beside.returncode == CRASH
        assert f"is used by another `raftmq chaos run`, process {again.pid}: wait until it is done" in beside.stdout
        assert "Traceback" not in beside.stdout + beside.stderr
        assert len(processes_of(tmp_path)) > 3
        again.terminate()
        again.communicate(timeout=100)
        assert again.returncode == INTERRUPTED
    assert left_of(processes_of, tmp_path) == []
    mounts = Path("/proc/self/mounts").read_text()
    assert str(tmp_path) not in mounts
    # The kernel lets go of a loop device a moment after whoever had it open last.
    assert left_of(backed_by, tmp_path) == []


def backed_by(folder: Path) -> list[str]:
    """The loop devices whose file is in a folder."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it goes while it is looked at
            if str(folder) in path.read_text():
                found.append(str(path))
    return found


@pytest.mark.timeout(150)
def test_a_demo_that_is_killed_leaves_nothing_that_blocks_the_next(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*RAFTMQ, "demo"], env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        next(line for line in demo.stdout if "killed the leader" in line)
        held = [os.pidfd_open(pid) for pid in pids_of(tmp_path)]
        assert len(held) >= 3
        demo.kill()
    try:
        # A pidfd can be read from when its process has ended.
        assert all(select.select([one], [], [], 20)[0] for one in held)
    finally:
        for one in held:
            os.close(one)
    done = subprocess.run([*RAFTMQ, "demo", "--messages", "300"], env=environment, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr


def processes_of(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    return list(_named(folder).values())


def pids_of(folder: Path) -> list[int]:
    """Return the processes whose command lines name a folder."""
    return list(_named(folder))


def _named(folder: Path) -> dict[int, str]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = path.read_bytes().replace(b"\0", b" ").decode()
    return {pid: line for pid, line in found.items() if str(folder) in line}
