"""The pytest plugin over made-up runs: a scenario as a test, its verdict as the test's."""

import re
from pathlib import Path

import pytest

import chaos.runs.session
from chaos.runs.run import Progress
from chaos.runs.scenario import Scenario
from chaos.runs.scenarios import SCENARIOS
from chaos.runs.schedule import Schedule
from chaos.workloads.catalogue import make_workload
from chaos.workloads.groups import GROUP as WORKERS
from chaos.workloads.orderly import GROUP as ORDERLY
from pipeline.history.results import Results, Verdict
from tests.parts.chaos_runs import findings, write_run

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

    monkeypatch.setattr(chaos.runs.session, "run", run)
    monkeypatch.setattr("chaos.runs.tiers.probe", list)
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
        from chaos.load.workload import Plain

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
    monkeypatch.setattr(chaos.runs.session, "missing", lambda _faults, _able: {"kill-leader": "signals: not allowed"})
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


@pytest.mark.parametrize(
    ("asked_for", "what", "known"),
    [
        ("faults=('power-loss-all',)", "no fault is called 'power-loss-all'", "power-all"),
        ("workloads=('sends', 'groups')", "no workload is called 'sends'", "send, once, groups"),
        ("mode='raftt'", "no mode is called 'raftt'", "raft, raft-async"),
        ("'kill', faults=('kil',)", "no fault is called 'kil'", "power-all"),
    ],
)
def test_a_wrong_name_is_a_sentence_with_the_list(
    pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]], asked_for: str, what: str, known: str
) -> None:
    pytester.makepyfile(f"def test_it(chaos_run):\n    chaos_run({asked_for})\n")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    told = "\n".join(result.outlines)
    assert what in told
    assert known in told
    assert "Traceback" not in told
    assert "KeyError" not in told
    assert asked == []


EXAMPLES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "chaos.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_documented_examples_promise_what_their_parts_imply(
    pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]], example: str
) -> None:
    pytester.makepyfile(example)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    promises = asked[0][0].promises
    assert promises.consumer_groups == (WORKERS,)  # A17
    assert promises.leader_change_on == ("kill-leader",)  # V3
    assert promises.survives == ("kill-leader",)  # A25
    assert promises.faults_min == 1  # V2


def test_a_scenario_with_other_parts_promises_what_these_imply(
    pytester: pytest.Pytester, asked: list[tuple[Scenario, int, Path]]
) -> None:
    pytester.makepyfile(
        """
        def test_it(chaos_run):
            chaos_run("kill", text="valid", workloads=("groups", "orderly"), faults=("pause-leader",), seconds=9)
            chaos_run("single", text="valid", faults=("kill-leader",))
            chaos_run("kill", text="valid", mode="sync", nodes=2)
            chaos_run("kill", text="valid", seconds=9, promises={"acknowledged_min": 7})
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    changed, single, sync, short = (scenario for scenario, _, _ in asked)
    assert changed.promises.consumer_groups == (WORKERS, ORDERLY)
    assert changed.promises.orderly_groups == (ORDERLY,)
    assert changed.promises.leader_change_on == changed.promises.survives == ("pause-leader",)
    assert changed.acknowledged_min == SCENARIOS["kill"].acknowledged_min // 5
    # What the scenario says beyond its parts stays: a single broker that syncs may lose nothing.
    assert not single.promises.may_lose_acknowledged
    assert single.promises.leader_change_on == ()
    assert (sync.promises.mode, sync.promises.replicas, sync.promises.fencing) == ("sync", 2, False)
    assert (short.seconds, short.promises.acknowledged_min) == (9, 7)
