"""`raftmq pipeline`: exit codes of commands whose 1 is an answer."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException
from typer.testing import CliRunner

from pipeline.spark.jobs.reconcile import BadLedger
from pipeline.spark.topic.options import OptionError
from raftmq.cli.main import app

SPARK_PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


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


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs get no session of Spark's, and fail; returns what was done with what stands in its place."""
    done: list[str] = []
    tracker = SimpleNamespace(getActiveStageIds=list)
    session = SimpleNamespace(
        sparkContext=SimpleNamespace(statusTracker=lambda: tracker), stop=lambda: done.append("stopped")
    )
    monkeypatch.setattr("pipeline.judge.why_no_spark", lambda: "")
    monkeypatch.setattr("pipeline.spark.session.spark_session", lambda _name, **_settings: session)
    return done


@pytest.mark.parametrize(
    ("command", "error", "code"),
    [
        ("reconcile", BadLedger("the ledger is no ledger"), 254),
        ("reconcile", AnalysisException("the ledger is no ledger"), 254),
        ("reconcile", OptionError("the ledger is no ledger"), 254),
        ("compare", AnalysisException("the ledger is no ledger"), 254),
        ("audit", AnalysisException("the ledger is no ledger"), 1),
    ],
)
def test_where_1_is_an_answer_a_job_that_fails_ends_254(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_session: list[str], command: str, error: Exception, code: int
) -> None:
    def job(*_arguments: object) -> None:
        raise error

    (tmp_path / "commitlog").mkdir()
    monkeypatch.setattr(f"pipeline.spark.jobs.{command}.{command}", job)
    result = CliRunner().invoke(app, ["pipeline", command, str(tmp_path)])
    assert (result.exit_code, result.stderr) == (code, "raftmq: the ledger is no ledger\n"), result.output
    assert no_session == ["stopped"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reconcile", "orders", "--by", "tag"), "it is keys or msgId"),
        (("reconcile", "orders", "--from", "soon"), "is no time"),
        (("reconcile", "orders", "--to", "soon"), "is no time"),
        (("reconcile",), "Missing argument"),
        (("compare", "a", "b", "--names", "one"), "a name for each folder"),
        (("compare", "a", "b", "--names", "one,one"), "all different"),
        (("compare", "a", "--frobnicate"), "frobnicate"),
    ],
)
def test_a_wrong_command_line_ends_2_as_elsewhere(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    # Whoever got as far as Spark ends otherwise.
    monkeypatch.setattr("pipeline.judge.why_no_spark", lambda: "there is no Java")
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", ["reconcile", "compare"])
def test_help_and_docs_name_each_exit_code(command: str) -> None:
    told = " ".join(CliRunner().invoke(app, ["pipeline", command, "-h"]).output.split())
    (by_help,) = re.findall(r"Exit codes: (.*?)\.", told)
    (by_docs,) = re.findall(rf"`raftmq pipeline {command} .*exit code (.*) \|", SPARK_PAGE.read_text())
    assert re.findall(r"\d+", by_help) == re.findall(r"\d+", by_docs) == ["0", "1", "2", "254"]
