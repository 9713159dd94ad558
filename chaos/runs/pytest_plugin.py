"""A pytest plugin: a scenario as a test.

    def test_orders_survive_a_dying_leader(chaos_run):
        run = chaos_run(faults=("kill-leader", "power-all"), workloads=("send",), seconds=30)
        assert run.facts.silence_s < 5

`chaos_run` fails the test unless the run is valid, and skips it where this machine lacks what the faults need. Every
test that uses it carries the marker `chaos`, so that `-m "not chaos"` leaves them out. Reports go to --chaos-dir.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chaos.report.run import Reported
    from chaos.runs.scenario import Scenario

FIXTURE = "chaos_run"
MARKER = "chaos: breaks a local cluster under load; takes a minute or so"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("chaos", "fault scenarios of RaftMQ")
    group.addoption("--chaos-dir", default="chaos-runs", help="where runs and their reports go (default: chaos-runs)")
    group.addoption("--chaos-seed", type=int, default=1, help="the seed that all faults come from (default: 1)")
    group.addoption("--chaos-keep", action="store_true", help="keep the stores of valid runs too")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses the fixture."""
    for item in items:
        if FIXTURE in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.chaos)


@pytest.fixture(name=FIXTURE)
def chaos_run_fixture(request: pytest.FixtureRequest) -> "ChaosRun":
    """Run a scenario: see ChaosRun."""
    config = request.config
    folder = Path(config.getoption("--chaos-dir"))
    name = re.sub(r"[^\w.-]+", "-", request.node.name)
    return ChaosRun(
        name, request.node.nodeid, folder, config.getoption("--chaos-seed"), keep=config.getoption("--chaos-keep")
    )


class ChaosRun:
    """Runs scenarios for one test, each in a folder named after the test, the scenario and the seed."""

    def __init__(self, test: str, address: str, folder: Path, seed: int, *, keep: bool) -> None:
        self._test = test
        self._address = address
        self._folder = folder
        self._seed = seed
        self._keep = keep

    def __call__(
        self,
        scenario: "Scenario | str | None" = None,
        *,
        expect: str = "valid",
        seed: int | None = None,
        promises: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> "Reported":
        """Run a scenario, one of `raftmq chaos list` by name, or a new one, with fields of Scenario changed.

        `promises` changes fields of Promises. Fails the test when the verdict is another than `expect`, skips it when
        this machine cannot do what the scenario needs. Not for async tests: the run has an event loop of its own.
        """
        from chaos.runs.session import may_run, report_of
        from chaos.runs.tiers import probe
        from runtime.loop import run as run_loop

        if _in_a_loop():
            pytest.fail(f"{FIXTURE} has an event loop of its own: call it from a test that is not async", pytrace=False)
        chosen = self._scenario(scenario, dict(promises or {}), changes)
        capabilities = probe()
        skipped = may_run(chosen, capabilities)
        if skipped is not None:
            pytest.skip(f"{chosen.name}: {skipped.why}")
        drawn = self._seed if seed is None else seed
        names = dict.fromkeys((self._test, chosen.name))
        folder = self._folder / f"{'-'.join(names)}-{drawn}"
        replay = f"pytest '{self._address}' --chaos-seed {drawn}  # where the tests are"
        run = run_loop(report_of(chosen, drawn, folder, capabilities, keep=self._keep, replay=replay))
        self._judge(run, expect)
        return run

    def _scenario(
        self, scenario: "Scenario | str | None", promises: dict[str, Any], changes: dict[str, Any]
    ) -> "Scenario":
        from chaos.runs.pledges import changed, composed
        from chaos.runs.scenarios import SCENARIOS, misnamed

        if isinstance(scenario, str) and scenario not in SCENARIOS:
            pytest.fail(f"no scenario is called {scenario!r}; `raftmq chaos list` shows them", pytrace=False)
        base = SCENARIOS[scenario] if isinstance(scenario, str) else scenario
        wrong = misnamed(changes.get("mode", "raft"), changes.get("faults", ()), changes.get("workloads", ()))
        if wrong:
            pytest.fail(wrong, pytrace=False)
        return composed(self._test, promises, changes) if base is None else changed(base, promises, changes)

    def _judge(self, run: "Reported", expect: str) -> None:
        from chaos.report.report import REPORT
        from chaos.report.text import headline, sentence, witness_words
        from pipeline.history.results import Verdict

        if run.results.verdict == expect:
            return
        lines = [sentence(run)]
        for finding in run.found(Verdict.INVALID, Verdict.UNKNOWN):
            lines.append(f"{finding.verdict}: {headline(finding)}")
            lines += [f"  {witness_words(witness)}" for witness in finding.witnesses[:1]]
        pytest.fail("\n".join([*lines, f"report: {run.folder / REPORT}"]), pytrace=False)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
