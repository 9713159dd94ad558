"""`raftmq chaos pop` without a run: what it refuses, and what it says of a folder in which nothing is proved."""

from pathlib import Path

import orjson
from typer.testing import CliRunner, Result

from chaos.pop.faults import KINDS
from chaos.pop.plan import PLAN, SLOTS, make_pop_plan, read_pop_plan
from raftmq.cli.chaos_pop import MESSAGES, RATE
from raftmq.cli.main import app


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["chaos", "pop", *map(str, arguments)])


def test_an_empty_run_is_unknown(tmp_path: Path) -> None:
    make_pop_plan(1, 1000).save(tmp_path)
    told = call("--judge-again", "--dir", tmp_path)
    assert told.exit_code == 254
    assert "UNKNOWN (seed 1)" in told.stdout
    assert "nothing was popped; " in told.stdout
    as_json = call("--judge-again", "--dir", tmp_path, "--json")
    assert as_json.exit_code == 254
    assert orjson.loads(as_json.stdout)["verdict"] == "unknown"


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    other = tmp_path / "other"
    other.mkdir()
    (other / PLAN).write_text('{"slots": []}')
    for arguments, why in (
        (("--dir", tmp_path), "is not empty"),
        (("--dir", Path(__file__)), "cannot be a run's folder"),
        (("--judge-again", "--dir", tmp_path), "holds no run"),
        (("--judge-again", "--dir", other), "holds no run"),
        (("--judge-again",), "name the run's folder"),
        (("--seed", 2**63), "is not in the range"),
        (("--messages", 0), "is not in the range 1<=x<="),
    ):
        told = call(*arguments)
        assert told.exit_code == 254
        assert why in " ".join(told.stderr.replace("│", " ").split())


def test_a_plan_comes_from_its_seed_and_holds_all_that_can_happen(tmp_path: Path) -> None:
    plan = make_pop_plan(7, MESSAGES, RATE)
    assert plan == make_pop_plan(7, MESSAGES, RATE) != make_pop_plan(8, MESSAGES, RATE)
    assert {one.fault for one in plan.apps.faults} == KINDS.keys()
    assert {one.slot for one in plan.apps.acts} == {slot.name for slot in SLOTS if slot.group}
    assert 200 < plan.apps.seconds < 300
    assert make_pop_plan(7, 8000, RATE).apps.faults[0].fault == plan.apps.faults[0].fault == "kill-leader"
    plan.save(tmp_path)
    assert read_pop_plan(tmp_path) == plan
