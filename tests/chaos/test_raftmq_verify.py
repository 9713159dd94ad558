"""`raftmq verify`: a run with a dying leader and a power cut is valid, and no forgery of it is."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos.runs.run import Run
from chaos.runs.scenario import Scenario, promised
from chaos.runs.schedule import Planned, Schedule
from chaos.workloads.groups import GROUP
from pipeline.history.folder import DATA, RunFolder
from pipeline.history.parquet import write_rows
from pipeline.history.rows import Act, Kind, Op, Read
from pipeline.logs.member_files import read_artefact

SEED = 5
FAULTS = (
    Planned(number=0, name="kill-leader", after=700, idle_ms=4000, lasts_ms=1500, seed=7),
    Planned(number=1, name="power-all", after=1800, idle_ms=4000, lasts_ms=500, seed=8),
)
VERIFY_S = 400
by_both = pytest.mark.parametrize("engine", ["plain", pytest.param("spark", marks=pytest.mark.long)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a Raft group, not judged yet."""
    import asyncio

    folder = tmp_path_factory.mktemp("run")
    promises = promised("raft", 3, faults_min=2, leader_change_on=("kill-leader",), consumer_groups=(GROUP,))
    scenario = Scenario(
        "verify", promises, workloads=("send", "groups"), faults=("kill-leader", "power-all"), rate=400.0, pace=400.0,
        seconds=10.0, acknowledged_min=1000,
    )  # fmt: skip
    asyncio.run(Run(scenario, SEED, folder, Schedule("verify", SEED, FAULTS)).run())
    return folder


def verify(folder: Path, engine: str) -> tuple[int, dict[str, Any]]:
    """Run the command; returns its exit code and its findings by check."""
    command = [sys.executable, "-m", "raftmq.cli.main", "verify", str(folder), "--engine", engine, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=VERIFY_S)
    assert done.returncode in {0, 1}, done.stderr
    results = json.loads(done.stdout)
    assert results["figures"]["engine"] == engine
    return done.returncode, {one["check"]: one for one in results["findings"]}


def some_send(run: RunFolder) -> Op:
    """An acknowledged send long before the end of the log, in an entry with few others.

    What damages it damages those too, and a check names only so many witnesses; a busy machine's entries are long.
    """
    sends = [op for op in run.ops() if op.act == Act.SEND and op.kind == Kind.OK and op.topic == "chaos_send"]
    messages = read_artefact(run.members()[0]).messages
    entries = {(row.writer, row.counter, row.attempt): row.index for row in messages}
    covered = Counter(entries.values())
    middle = sends[len(sends) // 4 : len(sends) // 2]
    return min(middle, key=lambda op: covered[entries[op.writer, op.counter, op.attempt]])


def one_removed(folder: Path) -> dict[str, Any]:
    """No member holds an acknowledged message any more, and no scan brought it."""
    run = RunFolder(folder)
    op = some_send(run)
    attempt = (op.writer, op.counter, op.attempt)
    write_rows(run.file(Read), [row for row in run.reads() if (row.writer, row.counter, row.attempt) != attempt], Read)
    for member in run.members():
        log = read_artefact(member)
        row = next(row for row in log.messages if (row.writer, row.counter, row.attempt) == attempt)
        write_at(member, row.position, bytes(row.size))
    return {"A1": {"ops": [op.op], "message": list(attempt)}, "B2": {"op": op.op, "held_by": []}}


def one_duplicated(folder: Path) -> dict[str, Any]:
    """A scan brought one attempt at a second offset."""
    run = RunFolder(folder)
    op = some_send(run)
    reads = run.reads()
    scans = {one.op for one in run.ops() if one.act == Act.SCAN and one.queue == op.queue and one.topic == op.topic}
    last = max((row for row in reads if row.op in scans), key=lambda row: row.offset)
    copy = last._replace(
        offset=last.offset + 1, writer=op.writer, counter=op.counter, attempt=op.attempt, digest=op.digest
    )
    write_rows(run.file(Read), [*reads, copy], Read)
    return {"A6": {"message": [op.writer, op.counter, op.attempt]}}


def one_bit_flipped(folder: Path) -> dict[str, Any]:
    """One member's disk rotted in the body of an acknowledged message."""
    run = RunFolder(folder)
    op = some_send(run)
    member = run.members()[1]
    log = read_artefact(member)
    row = next(
        row for row in log.messages if (row.writer, row.counter, row.attempt) == (op.writer, op.counter, op.attempt)
    )
    at = row.position + row.size // 2
    write_at(member, at, bytes([log.log.read(at, at + 1)[0] ^ 4]))
    return {"B4": {"member": member.name}, "B13": {"position": at}}


def one_offset_moved_back(folder: Path) -> dict[str, Any]:
    """One member's stored offset of a consumer group is less than it was, and nobody asked for that."""
    run = RunFolder(folder)
    member = run.members()[2]
    commits = [op for op in run.ops() if op.act == Act.COMMIT and op.kind == Kind.OK and op.group == GROUP]
    newest = max(commits, key=lambda op: op.value)
    asked = {op.value for op in commits if (op.topic, op.queue) == (newest.topic, newest.queue)}
    back = next(value for value in range(newest.value) if value not in asked)
    path = member / "config" / "consumerOffset.json"
    content = orjson.loads(path.read_bytes())
    queues = content["offsetTable"].setdefault(f"{newest.topic}@{GROUP}", {})
    for name, value in ((f"{path.name}.bak", newest.value), (path.name, back)):
        queues[str(newest.queue)] = value
        path.with_name(name).write_bytes(orjson.dumps(content))
    place = {"member": member.name, "group": GROUP, "topic": newest.topic, "queue": newest.queue}
    return {"B12": {**place, "offset": back, "before": newest.value}}


def write_at(member: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of a member's CommitLog."""
    files = sorted((member / "commitlog").iterdir())
    path = max(file for file in files if file.name.isdecimal() and int(file.name) <= position)
    with path.open("r+b") as file:
        file.seek(position - int(path.name))
        file.write(data)


FORGERIES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "one acknowledged record removed": one_removed,
    "one duplicated": one_duplicated,
    "one bit flipped": one_bit_flipped,
    "one offset moved back": one_offset_moved_back,
}


@pytest.mark.timeout(500)
@by_both
def test_a_run_with_a_leader_kill_and_a_power_loss_is_valid(made: Path, engine: str) -> None:
    code, found = verify(made, engine)
    wrong = [json.dumps(one) for one in found.values() if one["verdict"] in {"invalid", "unknown"}]
    assert code == 0, "\n".join(wrong)


@pytest.mark.timeout(500)
@by_both
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_invalid_with_the_right_witness(made: Path, tmp_path: Path, name: str, engine: str) -> None:
    folder = tmp_path / "forged"
    # The run's own files are links to the members': a forgery writes into copies.
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns("site"))
    wanted = FORGERIES[name](folder)
    code, found = verify(folder, engine)
    assert code == 1
    for check, fields in wanted.items():
        assert found[check]["verdict"] == "invalid", (check, found[check])
        assert any(fields.items() <= witness.items() for witness in found[check]["witnesses"]), found[check]
    assert {path.name for path in (folder / DATA).iterdir()} == {"n0", "n1", "n2"}
