"""Tests of pipeline/twin: a run's folder is judged as a whole, with figures."""

import gc
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.history.folder import DATA, RunFolder
from pipeline.history.parquet import HistoryError, write_rows
from pipeline.history.promises import Promises
from pipeline.history.results import Results, Verdict
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Look, Op, Read
from pipeline.judge import judge_history
from pipeline.plain.checker import judge
from pipeline.plain.evidence import History
from pipeline.plain.figures import delivery, figures_of, quantiles
from pipeline.plain.replicas import Replicas
from tests.planted.plant_stores import MEMBERS, PAIR, RAFT, build

S = 1_000_000_000


def send(number: int, start_s: float, took_s: float = 0.01, **changes: Any) -> Op:
    start = int(start_s * S)
    made = Op(
        number, 1, str(Act.SEND), str(Kind.OK), start, start + int(took_s * S), topic="T", queue=0, writer=1,
        counter=number, offset=number,
    )  # fmt: skip
    return made._replace(**changes)


def figures(ops: list[Op], *faults: Fault, **evidence: Any) -> dict[str, Any]:
    return figures_of(Replicas(History(ops, (), faults=faults, **evidence), ()))


def verdicts(results: Results) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in results.findings}


def make_run(path: Path, kind: str) -> RunFolder:
    """Write the folder of a run over a built cluster: its sends, a scan of everything, looks, store folders."""
    run = RunFolder(path)
    cluster = build(path / DATA, 3, kind)
    rows, scans, number = cluster.artefacts()[0].messages, [], len(cluster.ops)
    reads = []
    for queue in (0, 1):
        found = [row for row in rows if row.queue == queue]
        end, start = len(found), 100 * S + queue
        scans.append(
            Op(
                number + queue, 50 + queue, str(Act.SCAN), str(Kind.OK), start, start + 1, topic="T", queue=queue,
                broker="g", address="n0", leader="n0", offset=0, value=end, end=end,
            )
        )  # fmt: skip
        reads += [
            Read(number + queue, "T", queue, row.offset, row.position, row.writer, row.counter, 0, row.digest)
            for row in found
        ]
    write_rows(run.file(Op), [*cluster.ops, *scans], Op)
    write_rows(run.file(Read), reads, Read)
    write_rows(run.file(Fault), [], Fault)
    write_rows(run.file(Look), cluster.looks, Look)
    mode = "raft" if kind == RAFT else "sync"
    promises = Promises(mode=mode, replicas=len(MEMBERS[kind]), group_members={"g": MEMBERS[kind]})
    (path / "run.json").write_text(json.dumps({"promises": promises.as_dict()}))
    return run


@pytest.mark.parametrize("kind", [RAFT, PAIR])
def test_a_folder_in_which_nothing_is_wrong_is_valid(tmp_path: Path, kind: str) -> None:
    results = judge(make_run(tmp_path / "run", kind))
    assert [f for f in results.findings if f.verdict in {Verdict.INVALID, Verdict.UNKNOWN}] == []
    assert results.verdict is Verdict.VALID
    found = verdicts(results)
    assert {f"A{number}" for number in range(1, 27)} | {f"B{number}" for number in range(1, 15)} <= set(found)
    assert "V1" in found
    # Nothing was refused and no copy is earlier; what members of a group said of themselves is all that B9 has.
    nothing_to_compare = {"B10"} if kind == RAFT else {"B9", "B10"}
    assert {check for check in found if found[check] is Verdict.SKIPPED and check.startswith("B")} == nothing_to_compare
    assert {found[f"B{number}"] for number in range(1, 15)} - {Verdict.SKIPPED} == {Verdict.VALID}
    assert found["V8"] is Verdict.VALID
    assert results.figures["logs"][0]["complete"]
    assert results.figures["delivery"]["lost"] == 0
    json.dumps(results.as_dict())


def test_a_broken_member_makes_the_run_invalid(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", RAFT)
    path = min((tmp_path / "run" / DATA / "n1" / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(120)
        file.write(b"\xff\xff")
    results = judge(run)
    assert results.exit_code == 1
    assert verdicts(results)["B4"] is Verdict.INVALID


def test_a_member_without_a_log_leaves_unknown_what_needs_all(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", RAFT)
    (tmp_path / "run" / DATA / "n2" / "commitlog").rename(tmp_path / "elsewhere")
    found = verdicts(judge(run))
    assert {check for check, verdict in found.items() if verdict is Verdict.UNKNOWN} >= {"B1", "B2", "B13"}
    assert Verdict.INVALID not in found.values()


@pytest.mark.parametrize("kind", [RAFT, PAIR])
def test_a_run_whose_stores_are_all_gone_is_unknown(tmp_path: Path, kind: str) -> None:
    run = make_run(tmp_path / "run", kind)
    shutil.rmtree(tmp_path / "run" / DATA)
    results = judge(run)
    assert results.verdict is Verdict.UNKNOWN
    guard = next(one for one in results.findings if one.check == "V8")
    assert [witness["member"] for witness in guard.witnesses] == list(MEMBERS[kind])
    assert {witness["why"] for witness in guard.witnesses} == {"its store folder was not read"}


def test_a_history_that_is_judged_by_itself_needs_no_stores(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", RAFT)
    shutil.rmtree(tmp_path / "run" / DATA)
    results = judge_history(run, engine="plain")
    assert verdicts(results)["V8"] is Verdict.SKIPPED
    assert results.verdict is Verdict.VALID


@pytest.mark.parametrize("judged_by", [judge, partial(judge_history, engine="plain")])
def test_the_turns_of_the_harness_that_a_folder_holds_count(
    tmp_path: Path, judged_by: Callable[[RunFolder], Results]
) -> None:
    run = make_run(tmp_path / "run", RAFT)
    begin = min(op.invoked for op in run.ops())
    write_rows(run.file(Beat), [Beat(begin - 5 * 10**9), Beat(begin - 2 * 10**9)], Beat)
    (service,) = [one for one in judged_by(run).findings if one.check == "A25"]
    assert (service.verdict, service.text) == (Verdict.VALID, "the harness stood still for 3.0 s in all: cut out")


def test_promises_that_are_given_count_instead_of_the_folder_s(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", RAFT)
    results = judge(run, Promises(group_members={"g": ("n0", "n1", "n2")}, acknowledged_min=10**6))
    assert results.verdict is Verdict.UNKNOWN


def test_a_send_without_an_answer_that_is_in_the_log_happened(tmp_path: Path) -> None:
    cluster = build(tmp_path / "c", 5, RAFT)
    op = cluster.unanswered(cluster.ops[7])
    replicas = cluster.replicas()
    results = judge(replicas.history, artefacts=replicas.artefacts)
    assert results.figures["operations"]["send"] == {"info": 1, "ok": len(cluster.ops) - 1}
    assert replicas.merged is not None
    assert (op.writer, op.counter) in {(row.writer, row.counter) for row in replicas.merged.messages}


def test_quantiles_are_those_of_the_rank() -> None:
    ops = [send(number, number, took_s=(number + 1) / 1000) for number in range(1000)]
    assert quantiles(ops) == {"p50_ms": 500.0, "p99_ms": 990.0, "p99.9_ms": 999.0}
    assert quantiles(ops[:1]) == {"p50_ms": 1.0, "p99_ms": 1.0, "p99.9_ms": 1.0}
    assert quantiles([]) == {"p50_ms": None, "p99_ms": None, "p99.9_ms": None}


def test_recovery_is_told_from_the_fault_to_the_end_of_the_silence() -> None:
    ops = [send(number, number / 10) for number in range(50)] + [send(50 + n, 9 + n / 10) for n in range(11)]
    kill = Fault(1, "kill-leader", "n0", "leader", int(4.5 * S), 8 * S, "another pid")
    found = figures(ops, kill)
    (fault,) = found["faults"]
    assert fault["silence_s"] == pytest.approx(4.1)
    assert fault["recovery_s"] == pytest.approx(9.01 - 4.5)
    assert fault["acknowledged"] == 5
    assert found["longest_silence_s"] == pytest.approx(4.1)
    # Ten seconds and a bit, of which those from 5 to 9 saw no acknowledgement.
    assert found["availability_percent"] == pytest.approx(100 * 7 / 11, abs=0.01)
    assert found["sends"]["all"]["acknowledged"] == 61
    assert found["sends"]["without_faults"]["acknowledged"] == 56


def test_a_fault_that_nobody_recovered_from_has_no_recovery() -> None:
    ops = [send(0, 0), send(1, 1), send(2, 9, kind=str(Kind.INFO), completed=UNKNOWN, offset=UNKNOWN)]
    (fault,) = figures(ops, Fault(1, "isolate-leader", "n0", "leader", 2 * S))["faults"]
    assert fault["recovery_s"] is None
    assert fault["silence_s"] == pytest.approx(7.99)


def test_a_run_of_nothing_has_figures_too() -> None:
    found = figures([])
    assert found["availability_percent"] is None
    assert found["delivery"]["semantics"] == "nothing was acknowledged"
    assert found["sends"]["all"]["per_second"] is None


def test_leader_changes_are_counted_by_term() -> None:
    looks = [
        Look(at, member, "leader", term, member, 1, 1, 1, 1)
        for at, (member, term) in enumerate([("n0", 1), ("n1", 2), ("n0", 1), ("n1", 2), ("n1", 4), ("n2", 5)])
    ]
    assert figures([], looks=looks)["leader_changes"] == 2


@pytest.mark.parametrize(
    ("seen", "twice", "semantics"),
    [
        (True, False, "exactly once"),
        (True, True, "at least once"),
        (False, False, "at most once"),
    ],
)
def test_delivery_semantics(seen: bool, twice: bool, semantics: str) -> None:
    polls = [Op(10 + n, 2, str(Act.POLL), str(Kind.OK), 5, 6, topic="T", queue=0, group="G") for n in range(2)]
    polls.append(Op(12, 2, str(Act.COMMIT), str(Kind.OK), 7, 8, topic="T", queue=0, group="G", value=1))
    # Somebody looks around in the name of a group that commits nothing.
    polls.append(polls[0]._replace(op=13, group="looking"))
    read = Read(10, "T", 0, 1, 1, 1, 1, 0, 0)
    reads = ([read, read._replace(op=13)] if seen else []) + ([read._replace(op=11)] if twice else [])
    found = delivery(History([send(1, 0), *polls], reads))
    assert (found["semantics"], found["lost"], found["redelivered"]) == (semantics, int(not seen), int(twice))


def test_without_a_consuming_group_only_loss_is_told() -> None:
    assert delivery(History([send(1, 0)], [Read(9, "T", 0, 1, 1, 1, 1, 0, 0)]))["semantics"] == (
        "nothing was lost; no group consumed"
    )
    assert delivery(History([send(1, 0)], []))["semantics"] == "at most once"


def test_the_collector_of_circles_works_again_afterwards() -> None:
    judge(History([send(0, 0.0)], ()))
    assert gc.isenabled()
    with pytest.raises(HistoryError):
        judge(RunFolder(Path("nowhere")))
    assert gc.isenabled()
