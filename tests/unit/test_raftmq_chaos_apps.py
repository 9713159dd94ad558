"""`raftmq chaos apps` without a run: what it refuses, and what it says of a folder in which nothing is proved."""

from pathlib import Path

import orjson
from typer.testing import CliRunner, Result

from chaos.apps.driver import PLAN
from chaos.apps.plan import make_plan
from raftmq.cli.main import app


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["chaos", "apps", *map(str, arguments)])


def test_an_empty_run_is_unknown(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_bytes(orjson.dumps(make_plan(1, 30.0).as_dict()))
    (tmp_path / "apps").mkdir()
    told = call("--judge-again", "--dir", tmp_path)
    assert told.exit_code == 254
    assert "UNKNOWN (seed 1, 30 s)" in told.stdout
    assert "the run was ended before its plan was over" in told.stdout
    as_json = call("--judge-again", "--dir", tmp_path, "--json")
    assert as_json.exit_code == 254
    assert orjson.loads(as_json.stdout)["verdict"] == "unknown"


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    for arguments, why in (
        (("--dir", tmp_path), "is not empty"),
        (("--dir", tmp_path / "something"), "cannot be a run's folder"),
        (("--dir", tmp_path / "something" / "below"), "cannot be a run's folder"),
        (("--dir", tmp_path / ("x" * 300)), "cannot be a run's folder"),
        (("--judge-again", "--dir", tmp_path / "something"), "is no folder"),
        (("--judge-again", "--dir", tmp_path / ("x" * 300)), "cannot be a run's folder"),
        (("--judge-again", "--dir", tmp_path), "holds no run"),
        (("--judge-again",), "name the run's folder"),
        (("--seed", 2**63), "is not in the range"),
    ):
        told = call(*arguments)
        assert told.exit_code == 254
        assert why in " ".join(told.stderr.replace("│", " ").split())
