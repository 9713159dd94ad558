"""JUnit's XML as CI servers take it."""

from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

from chaos.report.junit import junit
from chaos.report.run import NotRun, read_run
from pipeline.history.results import Verdict
from tests.parts.chaos_runs import HOSTILE, write_run


def suite(folder: Path, verdict: Verdict) -> Element:
    folder.mkdir()
    root = fromstring(junit([read_run(write_run(folder, verdict))]))
    assert root.tag == "testsuites"
    return root[0]


def case(found: Element, check: str) -> Element:
    return next(one for one in found.iter("testcase") if one.get("name", "").startswith(f"{check} "))


def test_case_for_each_check(tmp_path: Path) -> None:
    found = suite(tmp_path / "run", Verdict.VALID)
    assert found.get("name") == "kill-leader"
    assert (found.get("tests"), found.get("failures"), found.get("errors"), found.get("skipped")) == (
        "41",
        "0",
        "0",
        "1",
    )
    assert len(list(found.iter("testcase"))) == 41
    properties = {one.get("name"): one.get("value") for one in found.iter("property")}
    assert properties["seed"] == "7"
    skipped = case(found, "A18").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "no transactions in this run"
    assert "12" in (case(found, "A7").findtext("system-out") or "")


def test_invalid_is_a_failure_with_its_witness_and_commands(tmp_path: Path) -> None:
    found = suite(tmp_path / "run", Verdict.INVALID)
    assert found.get("failures") == "2"
    failure = case(found, "A1").find("failure")
    assert failure is not None
    assert failure.get("message") == "A1 acknowledged, and lost: 3 (in the middle)"
    text = failure.text or ""
    assert "op 3000, topic orders, queue 1, offset 700" in text
    assert "replay: raftmq chaos run kill-leader --seed 7" in text
    assert "\\u202e\\x1b" in text


def test_unknown_is_an_error(tmp_path: Path) -> None:
    found = suite(tmp_path / "run", Verdict.UNKNOWN)
    assert found.get("errors") == "1"
    error = case(found, "V2").find("error")
    assert error is not None
    assert "nothing was held back" in (error.get("message") or "")


def test_what_did_not_run_is_counted(tmp_path: Path) -> None:
    not_run = [NotRun("clocks", HOSTILE), NotRun("broken", "no port", Verdict.UNKNOWN)]
    root = fromstring(junit([], not_run))
    assert (root.get("tests"), root.get("skipped"), root.get("errors"), root.get("failures")) == ("2", "1", "1", "0")
    skipped = root.find(".//skipped")
    assert skipped is not None
    assert "\\u202e\\x1b" in skipped.get("message", "")
