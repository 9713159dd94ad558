"""A real run, from start to verdict: the leader dies under load. And one that is ended before."""

import contextlib
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from chaos.run import recheck, run
from chaos.scenario import Scenario, promised
from chaos.schedule import Planned, Schedule
from pipeline.bank import BANK_CHECK
from pipeline.history import Act, Kind, Op
from pipeline.parquet import write_rows
from pipeline.results import Verdict
from pipeline.run import RESULTS, SCHEDULE, RunFolder
from raftmq.cli.output import INTERRUPTED

SECONDS = 8.0
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
    assert results.verdict is Verdict.VALID, [
        (one.check, one.text, one.witnesses[:2]) for one in results.findings if one.verdict in {"invalid", "unknown"}
    ]
    assert judged[BANK_CHECK].verdict is Verdict.VALID
    assert judged["V-run"].verdict is Verdict.VALID
    found = RunFolder(tmp_path)
    (fault,) = found.faults()
    assert "ended with -9" in fault.effect
    assert found.info()["fired"][0]["acknowledged"] >= KILL.after
    acknowledged = [op for op in found.ops() if op.act == Act.SEND and op.kind == Kind.OK]
    assert len(acknowledged) > 500
    assert any(op.invoked > fault.ended for op in acknowledged)
    assert {look.member for look in found.looks()} == {"n0", "n1", "n2"}
    assert [path.name for path in found.members()] == ["n0", "n1", "n2"]
    assert [told[0], told[-1]] == ["starting", "judging"]
    assert orjson.loads((tmp_path / RESULTS).read_bytes())["verdict"] == "valid"
    assert (tmp_path / SCHEDULE).exists()
    # The same run, had one more send been acknowledged.
    sent = acknowledged[0]._replace(op=len(found.ops()), process=10**6, counter=10**6)
    write_rows(found.file(Op), [*found.ops(), sent], Op)
    assert recheck(tmp_path).verdict is Verdict.INVALID


@pytest.mark.timeout(120)
def test_a_run_that_is_terminated_leaves_no_process_behind(tmp_path: Path) -> None:
    """SIGTERM is how CI ends a job that takes too long."""
    command = [sys.executable, "-m", "raftmq.cli.main", "chaos", "run", "kill", "--dir", str(tmp_path), "--seed", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as harness:
        assert harness.stderr is not None
        next(line for line in harness.stderr if "under load" in line)
        assert len(processes_of(tmp_path)) > 3
        harness.terminate()
        harness.stderr.read()
        assert harness.wait(60) == INTERRUPTED
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[str]:
    """Return the command lines that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
    return [line for line in found if str(folder) in line]
