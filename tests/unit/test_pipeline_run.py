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


def found(check: str, verdict: Verdict, count: int = 0) -> Finding:
    return Finding(check, "", verdict, count)


def results_of(*findings: Finding, earlier: int = 0) -> Results:
    return Results(findings, {"logs": [{"broker": "g", "earlier": earlier}]})


WHOLE = (found("A1", Verdict.VALID), found("B4", Verdict.VALID), found("V8", Verdict.VALID))
# As written before there was a guard of stores: with no word of B4 nothing is known of any store.
OLDER, OLDER_WITHOUT_STORES = WHOLE[:2], WHOLE[:1]
LACKING_ONE = (*WHOLE[:2], found("V8", Verdict.UNKNOWN, 1))
B10 = {verdict: found("B10", verdict) for verdict in Verdict}


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (results_of(*WHOLE), results_of(*WHOLE), ""),
        (results_of(*WHOLE), results_of(*WHOLE[1:]), "the history"),
        (results_of(*WHOLE), results_of(*LACKING_ONE), "stores that were not looked at now"),
        (results_of(*LACKING_ONE), results_of(*LACKING_ONE), ""),
        (results_of(*OLDER), results_of(*WHOLE), ""),
        (results_of(*OLDER), results_of(*LACKING_ONE), "stores that were not looked at now"),
        (results_of(*OLDER_WITHOUT_STORES), results_of(*LACKING_ONE), ""),
        (results_of(WHOLE[0], found("B4", Verdict.SKIPPED)), results_of(*LACKING_ONE), ""),
        (results_of(*WHOLE, earlier=3), results_of(*WHOLE, earlier=2), "earlier copies"),
        (results_of(*WHOLE, earlier=2), results_of(*WHOLE, earlier=3), ""),
        (Results(WHOLE), results_of(*WHOLE), ""),
    ],
)
def test_a_result_is_kept_where_the_new_one_looked_at_less(
    tmp_path: Path, before: Results, now: Results, why: str
) -> None:
    assert_kept(tmp_path, before, now, why)


@pytest.mark.parametrize("was", [Verdict.VALID, Verdict.INVALID, Verdict.INFO])
@pytest.mark.parametrize("new", [Verdict.SKIPPED, Verdict.UNKNOWN])
def test_a_result_is_kept_where_a_check_of_it_cannot_be_judged_now(tmp_path: Path, was: Verdict, new: Verdict) -> None:
    assert_kept(tmp_path, results_of(*WHOLE, B10[was]), results_of(*WHOLE, B10[new]), "it judged B10, which cannot")


@pytest.mark.parametrize(
    ("before", "now"),
    [
        # What was not judged then, in either way.
        ((*WHOLE, B10[Verdict.SKIPPED]), (*WHOLE, B10[Verdict.UNKNOWN])),
        ((*WHOLE, B10[Verdict.UNKNOWN]), (*WHOLE, B10[Verdict.SKIPPED])),
        # What was looked at now, and is worse, or better.
        ((*WHOLE, B10[Verdict.VALID]), (*WHOLE, found("B10", Verdict.INVALID, 1))),
        ((*WHOLE, found("B10", Verdict.INVALID, 1)), (*WHOLE, B10[Verdict.VALID])),
        ((*WHOLE, found("V1", Verdict.VALID)), (*WHOLE, found("V1", Verdict.UNKNOWN, 1))),
        # Older than the guard, it was valid with nothing to look at; and a check that there is no more.
        ((*OLDER, B10[Verdict.VALID]), (*WHOLE, B10[Verdict.SKIPPED])),
        ((*WHOLE, found("B99", Verdict.VALID)), WHOLE),
    ],
)
def test_a_result_is_replaced_where_each_check_of_it_was_judged_again(
    tmp_path: Path, before: tuple[Finding, ...], now: tuple[Finding, ...]
) -> None:
    assert_kept(tmp_path, results_of(*before), results_of(*now), "")


def assert_kept(folder: Path, before: Results, now: Results, why: str) -> None:
    """Write one result, and another over it: with a reason the first one stays, and the reason is told."""
    assert keep_results(folder, before) == ""
    told = keep_results(folder, now)
    there = orjson.loads((folder / RESULTS).read_bytes())
    assert there == orjson.loads(orjson.dumps((before if why else now).as_dict()))
    assert (why in told) if why else told == ""


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"findings": [1]}', b'{"findings": [], "figures": null}'])
def test_a_result_that_nobody_can_read_is_replaced(tmp_path: Path, text: bytes) -> None:
    (tmp_path / RESULTS).write_bytes(text)
    assert keep_results(tmp_path, results_of(*LACKING_ONE)) == ""
    assert orjson.loads((tmp_path / RESULTS).read_bytes())["findings"]


def test_a_witness_that_json_has_no_word_for_costs_nobody_the_verdict(tmp_path: Path) -> None:
    odd = Finding("A1", "acknowledged, and lost", Verdict.INVALID, 1, "one", ({"bytes": b"\xff", "set": {1, 2}},))
    assert keep_results(tmp_path, Results((odd,))) == ""
    kept = orjson.loads((tmp_path / RESULTS).read_bytes())
    assert kept["verdict"] == "invalid"
    assert kept["findings"][0]["witnesses"] == [{"bytes": repr(b"\xff"), "set": "{1, 2}"}]
