"""What a run leaves for people and for CI servers: report.html, junit.xml and summary.md, made from its folder."""

from collections.abc import Sequence
from pathlib import Path

from chaos.report.junit import junit
from chaos.report.page import run_page, suite_page
from chaos.report.run import NotRun, Reported, read_run
from chaos.report.text import summary

REPORT, JUNIT, SUMMARY = "report.html", "junit.xml", "summary.md"


def write_report(folder: Path) -> Reported:
    """Write the three files of a judged run into its folder, and return the run.

    Raises ReportError where results.json is missing or of a later version, HistoryError where the history is.
    """
    run = read_run(folder)
    _write(folder / REPORT, run_page(run).encode())
    _write(folder / JUNIT, junit([run]))
    _write(folder / SUMMARY, summary([run]).encode())
    return run


def write_suite(folder: Path, runs: Sequence[Reported], not_run: Sequence[NotRun] = ()) -> None:
    """Write the three files over several runs, whose own folders lie in `folder`."""
    addressed = [((run.folder.relative_to(folder) / REPORT).as_posix(), run) for run in runs]
    _write(folder / REPORT, suite_page(addressed, not_run).encode())
    _write(folder / JUNIT, junit(runs, not_run))
    _write(folder / SUMMARY, summary(runs, not_run).encode())


def _write(path: Path, data: bytes) -> None:
    # In one step, so that a CI which gathers files while a run ends finds whole ones.
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(data)
    partial.replace(path)
