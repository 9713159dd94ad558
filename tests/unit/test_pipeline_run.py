"""A run's folder."""

from pathlib import Path

import orjson
import pytest

from pipeline.history.folder import DATA, INFO, RESULTS, RunFolder
from pipeline.history.parquet import HistoryError, write_rows
from pipeline.history.promises import promises_of
from pipeline.history.results import Finding, Results, Verdict
from pipeline.history.resultsfile import keep_results
from pipeline.history.rows import Act, Fault, Kind, Look, Op, Read


def test_it_gives_what_stands_in_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    ops = [Op(0, 0, Act.SEND, Kind.OK, 1, 2)]
    reads = [Read(0, "t", 0, 0, 0, 1, 1, 0, 5)]
    faults = [Fault(0, "kill-leader", "n0", "leader", 3, 4, "pid 5 is gone")]
    looks = [Look(9, "n0", "leader", 1, "n0", 4, 4, 4, 400)]
    write_rows(run.file(Op), ops, Op)
    write_rows(run.file(Read), reads, Read)
    write_rows(run.file(Fault), faults, Fault)
    write_rows(run.file(Look), looks, Look)
    assert (run.ops(), run.reads(), run.faults(), run.looks()) == (ops, reads, faults, looks)


def test_promises_come_back_from_run_json(tmp_path: Path) -> None:
    promises = promises_of("raft", {"broker-a": ("n0", "n1", "n2")}, rto_bound_s=7.5, consumer_groups=("workers",))
    (tmp_path / INFO).write_bytes(orjson.dumps({"promises": promises.as_dict()}))
    assert RunFolder(tmp_path).promises() == promises


@pytest.mark.parametrize("text", [b"{}", b'{"promises": {"mode": "quorum"}}', b'{"promises": {"unheard_of": 1}}'])
def test_promises_that_mean_nothing_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / INFO).write_bytes(text)
    with pytest.raises(HistoryError, match="promises"):
        RunFolder(tmp_path).promises()


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="the folder of a run"):
        RunFolder(tmp_path).info()
    with pytest.raises(HistoryError, match="cannot be read"):
        RunFolder(tmp_path).ops()


def test_members_are_the_folders_of_data(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).members() == []
    for name in ("n1", "n0"):
        (tmp_path / DATA / name).mkdir(parents=True)
    (tmp_path / DATA / "notes.txt").touch()
    assert [path.name for path in RunFolder(tmp_path).members()] == ["n0", "n1"]


def test_a_witness_that_json_has_no_word_for_costs_nobody_the_verdict(tmp_path: Path) -> None:
    odd = Finding("A1", "acknowledged, and lost", Verdict.INVALID, 1, "one", ({"bytes": b"\xff", "set": {1, 2}},))
    assert keep_results(tmp_path, Results((odd,))) == ""
    kept = orjson.loads((tmp_path / RESULTS).read_bytes())
    assert kept["verdict"] == "invalid"
    assert kept["findings"][0]["witnesses"] == [{"bytes": repr(b"\xff"), "set": "{1, 2}"}]
