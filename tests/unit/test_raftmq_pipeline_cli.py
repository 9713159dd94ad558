"""`raftmq pipeline`: exit codes of commands whose 1 is an answer."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raftmq.cli.main import app


def test_compare_of_what_is_no_store_ends_as_not_done(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["pipeline", "compare", str(tmp_path)])
    assert (result.exit_code, "no store folder" in result.stderr) == (254, True)


@pytest.mark.parametrize(
    ("command", "code"), [(("reconcile", "orders"), 254), (("compare",), 254), (("audit", "orders"), 1)]
)
def test_where_spark_cannot_run_nothing_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], code: int
) -> None:
    (tmp_path / "commitlog").mkdir()
    monkeypatch.setattr("pipeline.judge.why_no_spark", lambda: "there is no Java")
    folders = [str(tmp_path)] if command == ("compare",) else []
    result = CliRunner().invoke(app, ["pipeline", *command, *folders])
    assert (result.exit_code, "there is no Java" in result.stderr) == (code, True)
