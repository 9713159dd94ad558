"""The pytest plugin over made-up runs: a scenario as a test, its verdict as the test's."""

from pathlib import Path

import pytest

import chaos.session
from chaos.run import Progress
from chaos.scenario import Scenario
from chaos.schedule import Schedule
from chaos.workloads.catalogue import make_workload
from pipeline.results import Results, Verdict
from tests.unit.chaos_runs import findings, write_run

pytest_plugins = ["pytester"]

TEST = """
def test_orders_survive(chaos_run):
    run = chaos_run(faults=("kill-leader",), seconds=12, promises={"acknowledged_min": 5}%s)
    assert run.acknowledged == 5_146
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> list[tuple[Scenario, int, Path]]:
    """Scenarios that were run; each is invalid if it asks for invalid in its text."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    seen: list[tuple[Scenario, int, Path]] = []

    async def run(
        scenario: Scenario, seed: int, folder: Path, schedule: Schedule | None, progress: Progress | None
    ) -> Results:
        seen.append((scenario, seed, folder))
        verdict = Verdict(scenario.text or "valid")
        write_run(folder, verdict, seed=seed, name=scenario.name)
        return Results(findings(verdict))

    monkeypatch.setattr(chaos.session, "run", run)
    monkeypatch.setattr("chaos.tiers.probe", list)
    return seen


def outcome(pytester: pytest.Pytester, changes: str = "", *options: str) -> pytest.RunResult:
    pytester.makepyfile(TEST % changes)
    return pytester.runpytest_inprocess(*options)


def test_valid_run_passes_and_is_reported(pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]]) -> None:
    outcome(pytester).assert_outcomes(passed=1)
    scenario, seed, folder = asked[0]
    assert (scenario.name, scenario.seconds, scenario.links, seed) == ("test_orders_survive", 12, True, 1)
    assert scenario.promises.acknowledged_min == 5
    assert scenario.promises.mode == "raft"
    report = (pytester.path / folder / "report.html").read_text()
    assert "::test_orders_survive&#x27; --chaos-seed 1" in report


def test_a_workload_may_be_a_class_of_ones_own(
    pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]]
) -> None:
    pytester.makepyfile(
        """
        from chaos.workload import Plain

        class Orders(Plain):
            name = "orders"

            def __init__(self):
                super().__init__({"orders": 4})

        def test_orders(chaos_run):
            chaos_run(workloads=(Orders, "send"))
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    scenario, _, _ = asked[0]
    assert scenario.workload_names == ("orders", "send")
    made = [make_workload(one) for one in scenario.workloads]
    assert [one.topics for one in made] == [{"orders": 4}, {"chaos_send": 8}]


@pytest.mark.parametrize("verdict", ["invalid", "unknown"])
def test_other_verdicts_fail_the_test_with_their_words(
    pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]], verdict: str
) -> None:
    found = outcome(pytester, f", text='{verdict}'")
    found.assert_outcomes(failed=1)
    words = "A1 acknowledged, and lost: 3" if verdict == "invalid" else "V2 faults took effect"
    found.stdout.fnmatch_lines([f"*{verdict.upper()} test_orders_survive (seed 1): {words}*", "*report: *report.html"])


def test_expected_verdict_passes(pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]]) -> None:
    outcome(pytester, ", text='invalid', expect='invalid', mode='async', nodes=2").assert_outcomes(passed=1)
    assert asked[0][0].promises.mode == "async"
    assert asked[0][0].promises.may_lose_acknowledged


def test_what_is_missing_skips_the_test(
    pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos.session, "missing", lambda _faults, _able: {"kill-leader": "signals: not allowed"})
    found = outcome(pytester, "", "-rs")
    found.assert_outcomes(skipped=1)
    found.stdout.fnmatch_lines(["*kill-leader needs signals: not allowed*"])
    assert asked == []


def test_options_and_marker(pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]]) -> None:
    outcome(pytester, "", "-m", "not chaos").assert_outcomes(deselected=1)
    assert asked == []
    outcome(pytester, "", "--chaos-seed", "9", "--chaos-dir", "elsewhere", "--strict-markers").assert_outcomes(passed=1)
    assert asked[0][1:] == (9, Path("elsewhere/test_orders_survive-9"))


def test_named_scenario_must_exist(pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]]) -> None:
    pytester.makepyfile("def test_it(chaos_run):\n    chaos_run('no-such')\n")
    found = pytester.runpytest_inprocess()
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*no scenario is called 'no-such'*"])
