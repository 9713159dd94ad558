"""The Spark checker finds in a run's folder what the plain one finds."""

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipeline.history.folder import DATA, EARLIER, INFO, RESULTS, RunFolder
from pipeline.history.parquet import write_rows
from pipeline.history.results import Results, Verdict
from pipeline.history.rows import Beat, Fault, Kind, Look, Op, Read
from pipeline.judge import judge_stores
from pipeline.logs.member_files import read_artefact
from pipeline.plain import checker as twin
from pipeline.plain.checker import judge
from pipeline.plain.guard_stores import EMPTY, NOT_READ
from pipeline.spark.checker import checker
from pipeline.spark.checker.checker import check_run, check_stores
from raftmq.cli.main import app
from store.files.lockfile import ABORT_NAME
from tests.planted.plant_log import plant
from tests.planted.plant_stores import ENTRIES, LOG_FILE_BYTES, MEMBERS, RAFT, Cluster, build, kill_before_sync
from tests.spark.compare import plain


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an anomaly of each kind: a queue's entry is wrong on n1, and a refused send is in the log."""
    root = tmp_path_factory.mktemp("run")
    planted = plant(root / "built", 3, "B7", RAFT)
    cluster = planted.cluster
    op = cluster.ops[5]
    cluster.change(cluster.unanswered(op), kind=str(Kind.FAIL), error="NOT_LEADER")
    return make_folder(root / "run", cluster)


def make_folder(root: Path, cluster: Cluster) -> Path:
    """Make a run's folder of a cluster; what was built is there as an earlier moment as well."""
    replicas = cluster.replicas()
    for name in replicas.groups[0].members:
        shutil.copytree(cluster.folder(name), root / DATA / name)
        shutil.copytree(cluster.folder(name), root / EARLIER / "0" / name)
    run = RunFolder(root)
    reads = [
        Read(0, op.topic, op.queue, op.offset, op.position, op.writer, op.counter, op.attempt, op.digest)
        for op in cluster.ops[:1]
    ]
    begin = min(op.invoked for op in cluster.ops)
    beats = [Beat(begin - 5 * 10**9), Beat(begin - 2 * 10**9)]
    for kind, rows in ((Op, cluster.ops), (Read, reads), (Fault, []), (Look, cluster.looks), (Beat, beats)):
        write_rows(run.file(kind), rows, kind)
    promises = replicas.history.promises
    info: dict[str, Any] = {"scenario": "planted", "seed": 3, "mode": "raft", "promises": promises.as_dict()}
    (root / INFO).write_bytes(orjson.dumps(info))
    return root


def described(results: Results) -> list[tuple[Any, ...]]:
    return [
        (one.check, one.verdict, one.count, one.text, sorted(map(plain, one.witnesses))) for one in results.findings
    ]


# Files go the whole way; of the checks, which test_pipeline_parity.py holds one by one, only some: one of each kind,
# and those that find something here.
SOME = {
    "CLIENT_CHECKS": {"a1", "a5", "a20", "a25"},
    "LOG_CHECKS": {"b1", "b3", "b7", "b10"},
    "GUARD_CHECKS": {"v1", "v2"},
}


@pytest.mark.timeout(600)
def test_a_run_has_the_findings_and_figures_of_the_plain_checker(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tuples, some in SOME.items():
        for module, name in ((checker, tuples), (twin, tuples.replace("GUARD_CHECKS", "GUARDS"))):
            checks = [check for check in vars(module)[name] if check.__name__.removeprefix("check_") in some]
            assert len(checks) == len(some)
            monkeypatch.setattr(module, name, checks)
    _assert_like_plain(folder)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("small", [True, False])
def test_a_run_has_all_findings_of_the_plain_checker(
    spark: SparkSession, folder: Path, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr("pipeline.spark.checker.checker.SMALL_ROWS", 0)
    _assert_like_plain(folder)


def _assert_like_plain(folder: Path) -> None:
    told: list[str] = []
    found, expected = check_run(RunFolder(folder), progress=told.append), judge(RunFolder(folder))
    assert described(found) == described(expected)
    bad = {one.check for one in found.findings if one.verdict == Verdict.INVALID}
    assert {"A5", "B7", "B10"} <= bad
    (service,) = [one for one in found.findings if one.check == "A25"]
    assert service.text == "the harness stood still for 3.0 s in all: cut out"
    assert found.figures["logs"] == expected.figures["logs"]
    assert [what.split()[0] for what in told if what[0] in "ABV"] == [one.check for one in found.findings]


@pytest.mark.timeout(300)
def test_a_store_that_is_empty_and_one_that_is_gone_count_as_not_judged(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(shutil.copytree(folder, tmp_path / "run"))
    shutil.rmtree(run.path / DATA / "n1")
    (run.path / DATA / "n1" / "commitlog").mkdir(parents=True)
    # Their earlier copies are there and hold something.
    shutil.rmtree(run.path / DATA / "n2")
    for module, names in ((checker, SOME), (twin, ("CLIENT_CHECKS", "LOG_CHECKS", "GUARDS"))):
        for name in names:
            monkeypatch.setattr(module, name, ())
    found, expected = check_run(run), judge(run)
    assert described(found) == described(expected)
    (guard,) = found.findings
    assert (guard.check, guard.verdict, guard.text) == ("V8", Verdict.UNKNOWN, "1 of 3 stores were judged")
    assert {(one["member"], one["why"]) for one in guard.witnesses} == {("n1", EMPTY), ("n2", NOT_READ)}
    assert (found.figures["logs"], found.figures["logs"][0]["earlier"]) == (
        expected.figures["logs"],
        len(MEMBERS[RAFT]),
    )


class Stopped(Exception):
    """Ends a judging at its first step."""


@pytest.mark.parametrize("large", [[], ["SMALL_ROWS"], ["SMALL_LOG_BYTES"]])
def test_of_a_large_run_the_size_of_files_has_nothing_sent_to_all_tasks(
    spark: SparkSession, folder: Path, large: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(setting)
    seen: list[str | None] = []

    def stop(_what: str) -> None:
        seen.append(spark.conf.get(setting))
        raise Stopped

    for name in large:
        monkeypatch.setattr(f"pipeline.spark.checker.checker.{name}", 0)
    with pytest.raises(Stopped):
        check_run(RunFolder(folder), progress=stop)
    assert seen == ["-1" if large else before]
    assert spark.conf.get(setting) == before


@pytest.mark.long
@pytest.mark.timeout(600)
def test_stores_alone_and_one_that_is_none(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    run = RunFolder(folder)
    promises = run.promises()
    broken = shutil.copytree(folder / DATA / "n2", tmp_path / "n2")
    shutil.rmtree(broken / "commitlog")
    found = check_stores([*run.members()[:2], broken], promises)
    by_name = {one.check: one for one in found.findings}
    assert by_name["B7"].verdict == Verdict.INVALID
    assert (by_name["B1"].verdict, by_name["B1"].text) == (Verdict.UNKNOWN, "no store folder of n2")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", [True, False])
def test_what_a_killed_member_never_synced_ends_its_log_by_both_engines(
    spark: SparkSession, tmp_path: Path, killed: bool
) -> None:
    cluster = build(tmp_path / "built", 7, RAFT)
    folders = [cluster.folder(name) for name in MEMBERS[RAFT]]
    lost = read_artefact(folders[0]).entries[ENTRIES - 2]
    path = folders[0] / "commitlog" / f"{lost.position - lost.position % LOG_FILE_BYTES:020d}"
    kill_before_sync(folders[0], ENTRIES - 2)
    if not killed:
        (folders[0] / ABORT_NAME).unlink()
    with path.open("r+b") as file:
        file.seek(lost.position % LOG_FILE_BYTES)
        file.write(bytes(lost.size))
    by_both = [
        {one.check: (one.verdict, one.count) for one in judge_stores(folders, "raft", engine).findings}
        for engine in ("plain", "spark")
    ]
    assert by_both[0] == by_both[1]
    assert (by_both[0]["B3"][0], by_both[0]["B13"][0]) == ((Verdict.VALID if killed else Verdict.INVALID),) * 2


@pytest.mark.long
@pytest.mark.timeout(900)
def test_verify_ends_alike_by_both_engines(spark: SparkSession, folder: Path) -> None:
    for engine in ("plain", "spark", "plain"):
        result = CliRunner().invoke(app, ["verify", str(folder), "--engine", engine])
        # Neither takes the other's result for one that rests on more.
        assert (result.exit_code, result.stderr) == (1, ""), result.output
        assert orjson.loads((folder / RESULTS).read_bytes())["figures"]["engine"] == engine
