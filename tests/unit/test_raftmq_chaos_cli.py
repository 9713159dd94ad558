"""`raftmq chaos` over made-up runs: names, budgets, what is kept, what is told, and the exit codes."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

import chaos.runs.run
import chaos.runs.session
from chaos.runs.run import Progress, RunError
from chaos.runs.scenario import Scenario
from chaos.runs.scenarios import SCENARIOS, SUITES
from chaos.runs.schedule import Schedule, draw, save
from chaos.runs.session import OVERHEAD_S, SessionError, within
from chaos.runs.tiers import Capability
from pipeline.history.results import Results, Verdict
from raftmq.cli.chaos import parse_time
from raftmq.cli.main import app
from tests.parts.chaos_runs import findings, write_run

ONE, TWO, THREE = list(SUITES["smoke"])[:3]


class Runs:
    """In place of chaos.runs.run.run: writes a run with a verdict of one's choice, and remembers what was asked."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict | Exception] = {}
        self.asked: list[tuple[Scenario, int, Path, Schedule | None]] = []

    async def __call__(
        self, scenario: Scenario, seed: int, folder: Path, schedule: Schedule | None, progress: Progress | None
    ) -> Results:
        self.asked.append((scenario, seed, folder, schedule))
        assert progress is not None
        progress("under load", 12)
        verdict = self.verdicts.get(scenario.name, Verdict.VALID)
        if isinstance(verdict, Exception):
            raise verdict
        write_run(folder, verdict, seed=seed, name=scenario.name)
        (folder / "data" / "n0").mkdir(parents=True)
        (folder / "site").mkdir()
        return Results(findings(verdict))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(chaos.runs.session, "run", made)
    able = [Capability(name, "T0", True, "") for name in ("signals", "freezer", "strace")]
    monkeypatch.setattr("raftmq.cli.chaos_session.probe", lambda: able)
    return made


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["chaos", *map(str, arguments)])


def test_valid_run_ends_0_and_leaves_reports_without_stores(runs: Runs, tmp_path: Path) -> None:
    found = call("run", ONE, "--seed", 5, "--dir", tmp_path)
    assert found.exit_code == 0, found.output
    assert f"VALID {ONE} (seed 5)" in found.stdout
    assert f"report: {tmp_path / 'report.html'}" in found.stdout
    assert f"{ONE}: under load (12 acknowledged)" in found.stderr
    folder = tmp_path / f"{ONE}-5"
    for name in ("report.html", "junit.xml", "summary.md"):
        assert (tmp_path / name).exists()
        assert (folder / name).exists()
    assert not (folder / "data").exists()
    assert not (folder / "site").exists()
    capabilities = orjson.loads((folder / "run.json").read_bytes())["capabilities"]
    assert [one["name"] for one in capabilities] == ["signals", "freezer", "strace"]


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.INVALID, 1), (Verdict.UNKNOWN, 2)])
def test_worst_verdict_is_the_exit_code_and_its_stores_are_kept(
    runs: Runs, tmp_path: Path, verdict: Verdict, code: int
) -> None:
    runs.verdicts[TWO] = verdict
    found = call("run", "--suite", "smoke", "--seed", 5, "--dir", tmp_path)
    assert found.exit_code == code, found.output
    assert [scenario.name for scenario, *_ in runs.asked] == list(SUITES["smoke"])
    assert (tmp_path / f"{TWO}-5" / "data").exists()
    assert not (tmp_path / f"{ONE}-5" / "data").exists()
    assert f"again, in {tmp_path / f'{TWO}-5'}: raftmq chaos run {TWO} --seed 5" in found.stdout


def test_keep_keeps_the_stores_of_valid_runs(runs: Runs, tmp_path: Path) -> None:
    assert call("run", ONE, "--seed", 5, "--dir", tmp_path, "--keep").exit_code == 0
    assert (tmp_path / f"{ONE}-5" / "data").exists()


def test_run_that_does_not_come_up_ends_255_and_the_others_run(runs: Runs, tmp_path: Path) -> None:
    runs.verdicts[ONE] = RunError("no port was free")
    runs.verdicts[TWO] = ZeroDivisionError("of our own")
    found = call("run", "smoke", "--seed", 5, "--dir", tmp_path)
    assert found.exit_code == 255, found.output
    assert f"UNKNOWN {ONE}: no port was free" in found.stdout
    assert "of our own" in (tmp_path / f"{TWO}-5" / "crash.txt").read_text()
    assert f"VALID {THREE}" in found.stdout


def test_what_this_machine_cannot_do_is_skipped_and_said(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos.runs.session, "missing", lambda _faults, _able: {"clock-jump": "faketime: not installed"})
    found = call("run", ONE, "--dir", tmp_path)
    assert found.exit_code == 2, "nothing ran, so nothing is known"
    assert runs.asked == []
    assert f"SKIPPED {ONE}: clock-jump needs faketime: not installed" in found.stdout
    assert 'skipped="1"' in (tmp_path / "junit.xml").read_text()


def test_json_is_all_that_stands_on_standard_output(runs: Runs, tmp_path: Path) -> None:
    found = call("run", ONE, "--seed", 5, "--dir", tmp_path, "--json")
    told = orjson.loads(found.stdout)
    assert told["verdict"] == "valid"
    assert told["runs"][0]["scenario"] == ONE
    assert told["runs"][0]["findings"][0]["check"] == "A1"


def test_schedule_is_played_again(runs: Runs, tmp_path: Path) -> None:
    schedule = draw(3, SCENARIOS[ONE])
    save(schedule, tmp_path / "schedule.json")
    found = call("run", ONE, "--dir", tmp_path / "runs", "--schedule", tmp_path / "schedule.json")
    assert found.exit_code == 0, found.output
    assert runs.asked[0][3] == schedule


def test_load_lasts_as_long_as_is_asked_for(runs: Runs, tmp_path: Path) -> None:
    own = SCENARIOS[ONE]
    assert call("run", ONE, "--dir", tmp_path, "--seconds", own.seconds / 3).exit_code == 0
    asked = runs.asked[0][0]
    assert asked.seconds == pytest.approx(own.seconds / 3, abs=0.1)
    assert asked.acknowledged_min == pytest.approx(own.acknowledged_min / 3, rel=0.01)


def test_all_chosen_scenarios_are_secured_by_one_switch(runs: Runs, tmp_path: Path) -> None:
    assert call("run", "smoke", "--dir", tmp_path, "--secure", "--seconds", 20).exit_code == 0
    assert call("run", ONE, "--dir", tmp_path).exit_code == 0
    assert [scenario.secure for scenario, *_ in runs.asked] == [True] * len(SUITES["smoke"]) + [False]


def test_what_is_run_promises_what_its_scenario_does(runs: Runs, tmp_path: Path) -> None:
    assert call("run", "smoke", "--dir", tmp_path, "--secure", "--seconds", 20).exit_code == 0
    for scenario, *_ in runs.asked:
        own = SCENARIOS[scenario.name].promises
        least = scenario.promises.acknowledged_min
        assert scenario.promises == replace(own, acknowledged_min=least), "a shorter load asks for fewer sends alone"
        assert scenario.promises.leader_change_on
        assert scenario.promises.faults_min == 1


def test_folder_of_something_else_is_left_alone(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / f"{ONE}-5").mkdir()
    (tmp_path / f"{ONE}-5" / "thesis.txt").write_text("years of work")
    found = call("run", ONE, "--seed", 5, "--dir", tmp_path)
    assert found.exit_code == 255
    assert "holds something else than a run" in found.stdout
    assert (tmp_path / f"{ONE}-5" / "thesis.txt").read_text() == "years of work"


def usage_errors(tmp_path: Path) -> list[tuple[tuple[object, ...], str]]:
    return [
        (("run",), "chaos list"),
        (("run", "no-such"), "no-such"),
        (("run", ONE, "--budget", "soon"), "no time"),
        (("run", ONE, "--budget", "5s"), "at least"),
        (("run", ONE, "--budget", "5m", "--seconds", "9"), "leave one of the two out"),
        (("run", ONE, "--frobnicate"), "frobnicate"),
        (("run", "smoke", "--schedule", __file__), "name that one"),
        (("frobnicate",), "frobnicate"),
        (("--frobnicate",), "frobnicate"),
        (("recheck", tmp_path / "none"), "does not exist"),
        (("recheck", tmp_path), "holds no run"),
        (("report", tmp_path), "holds no run"),
    ]


@pytest.mark.parametrize("number", range(12))
def test_wrong_command_line_ends_254_and_says_what_is_wrong(runs: Runs, tmp_path: Path, number: int) -> None:
    arguments, words = usage_errors(tmp_path)[number]
    found = call(*arguments)
    assert found.exit_code == 254, found.output
    assert words in " ".join(found.stderr.replace("│", " ").split())
    assert runs.asked == []


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (ZeroDivisionError("ours"), 255)])
def test_breaking_down_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setattr("chaos.runs.tiers.probe", broken)
    found = call("probe")
    assert found.exit_code == code
    assert ("no verdict" in found.stderr) == (code == 255)


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.VALID, 0), (Verdict.INVALID, 1), (Verdict.UNKNOWN, 2)])
def test_report_writes_the_files_again(tmp_path: Path, verdict: Verdict, code: int) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name, verdict, name=name)
    found = call("report", tmp_path)
    assert found.exit_code == code
    assert (tmp_path / "a" / "report.html").exists()
    assert (tmp_path / "report.html").exists()
    assert call("report", tmp_path / "a").exit_code == code


def test_recheck_judges_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, Verdict.VALID)
    (tmp_path / "data" / "n0").mkdir(parents=True)

    def judge(folder: Path) -> Results:
        found = Results(findings(Verdict.INVALID))
        (folder / "results.json").write_bytes(orjson.dumps(found.as_dict()))
        return found

    monkeypatch.setattr(chaos.runs.run, "recheck", judge)
    found = call("recheck", tmp_path)
    assert found.exit_code == 1, found.output
    assert "INVALID kill-leader (seed 7): A1 acknowledged, and lost" in found.stdout


def test_recheck_without_stores_says_how_to_have_them(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = call("recheck", tmp_path)
    assert found.exit_code == 254
    assert "--keep" in found.stderr


def test_list_names_scenarios_and_suites() -> None:
    told = orjson.loads(call("list", "--json").stdout)
    assert {one["scenario"] for one in told["scenarios"]} == set(SCENARIOS)
    assert set(told["suites"]) == set(SUITES)
    assert ONE in call("list").stdout


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1m1.5s", 61.5)])
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "m5", "-3s", "5 weeks"])
def test_no_times(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_time(text)


def test_budget_is_shared_in_proportion_and_minimum_shrinks() -> None:
    chosen = [SCENARIOS[name] for name in (ONE, TWO)]
    own = sum(scenario.seconds for scenario in chosen)
    halved = within(chosen, 2 * OVERHEAD_S + own / 2)
    assert [one.seconds for one in halved] == pytest.approx([one.seconds / 2 for one in chosen], abs=0.1)
    least = chosen[0].promises.acknowledged_min
    assert halved[0].promises.acknowledged_min == pytest.approx(least / 2, abs=1)
    longer = within(chosen, 2 * OVERHEAD_S + own * 10)
    assert longer[0].promises.acknowledged_min == least
    with pytest.raises(SessionError, match="2 scenarios need at least"):
        within(chosen, 30)
