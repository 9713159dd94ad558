"""Planted bugs have something to be planted into, and some are caught here; `make chaos-self` hunts them all."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from chaos.runs.run import RunError, run
from chaos.runs.scenario import Scenario
from pipeline.history.results import Finding, Results, Verdict
from tests.chaos import selftest
from tests.chaos.planted.bugs import BUGS, PlantedBug
from tests.chaos.planted.grafts import NothingToPlantInto, graft, once_in
from tests.chaos.planted.trials import TRIALS, Trial
from tests.chaos.selftest import CONTROL, Outcome, Session, markdown, summary

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
# In a process of its own: what is planted stays planted.
PLANT_ALL = (
    "from chaos.site.member import plant; import sys; [plant(one) for one in sys.argv[1:]]; print(len(sys.argv) - 1)"
)


def test_every_bug_can_be_planted_into_the_product_as_it_is() -> None:
    plants = [bug.plant for bug in BUGS.values()]
    done = subprocess.run([sys.executable, "-c", PLANT_ALL, *plants], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(len(BUGS)), "")


def test_every_bug_is_one_function_and_has_a_trial() -> None:
    assert len({bug.place for bug in BUGS.values()}) == len(BUGS) >= 16
    assert {bug.trial for bug in BUGS.values()} == set(TRIALS)
    assert all(bug.checks for bug in BUGS.values())


def test_the_document_names_every_bug_and_trial() -> None:
    text = (ROOT / "docs" / "mutation.md").read_text(encoding="utf-8")
    rows = [f"| `{bug.name}` | {bug.text} | {bug.trial} |" for bug in BUGS.values()]
    rows += [f"| {name} | {trial.text} |" for name, trial in TRIALS.items()]
    assert [row for row in rows if row not in text] == []


def test_a_bug_without_a_place_is_an_error() -> None:
    class Store:
        def write(self) -> str:
            return "honest"

    class Later(Store):
        pass

    graft(Store, "write", lambda honest: lambda self: f"not {honest(self)}")
    assert Store().write() == "not honest"
    for owner, name in ((Store, "append"), (Later, "write")):
        with pytest.raises(NothingToPlantInto, match=f"{owner.__name__} defines no {name}"):
            graft(owner, name, lambda honest: honest)


@pytest.mark.parametrize(
    "made",
    [
        lambda _self: None,
        lambda _self, _one, _two, *, kept: kept,
        lambda _self, _one, _two="": None,
        lambda _self, _one, *, kept: kept,
    ],
    ids=["fewer", "a default that is gone", "a keyword that is missing", "an optional one that is missing"],
)
def test_a_bug_that_is_called_otherwise_now_is_an_error(made: Callable[..., object]) -> None:
    class Store:
        def write(self, one: str, two: str = "", *, kept: bool) -> str:
            return one + two + str(kept)

    graft(Store, "write", lambda honest: lambda self, one, two="", *, kept: honest(self, one, two, kept=kept) + "!")
    assert Store().write("a", kept=True) == "aTrue!"
    with pytest.raises(NothingToPlantInto, match=r"Store\.write takes other arguments than the planted bug: "):
        graft(Store, "write", lambda _honest: made)


def test_now_and_then_is_every_so_many_times() -> None:
    now = once_in(3)
    assert [now() for _ in range(7)] == [False, False, True, False, False, True, False]


def test_the_score_counts_what_got_away() -> None:
    bug = Outcome("no-lease", "stale-leader", 1, "valid", (), (), good=False, seconds=9.6, why="wanted: A14")
    facts = {
        "seed": 1, "seconds": 10, "score": 50.0, "holds": False,
        "bugs": {"planted": 1, "caught": 0}, "anomalies": {"forged": 1, "found": 1},
        "controls": [bug._replace(name=CONTROL, good=True, why="")._asdict()],
        "runs": [bug._asdict()],
        "forged": [{"check": "A1", "title": "lost", "kind": "a | b", "planter": "p", "found": True, "why": ""}],
    }  # fmt: skip
    assert summary(facts).startswith("mutation score 50 %: 0 of 1 planted bugs caught, 1 of 1 forged anomalies found")
    text = markdown(facts)
    assert "| no-lease | a leader answers for the newest state without a lease | stale-leader | valid |" in text
    assert "| nothing | 10 | NO: wanted: A14 |" in text
    assert "a / b" in text


def finding(check: str, verdict: Verdict) -> Finding:
    return Finding(check, "title", verdict, 1, "text")


CAUGHT = finding("A14", Verdict.INVALID)
OTHER = finding("B7", Verdict.INVALID)
OPEN = finding("V-run", Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("told", "code", "runs"),
    [
        ([[CAUGHT, OPEN]], 0, 1),
        ([[], [OTHER, CAUGHT]], 0, 2),
        ([[OTHER], [OPEN]], 1, 2),
        ([RunError("a member ended"), RunError("a member ended")], 1, 2),
    ],
    ids=["caught", "caught by the next seed", "not by a check that is named for it", "a crash catches nothing"],
)
def test_a_bug_is_caught_by_what_is_named_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: list[list[Finding] | RunError], code: int, runs: int
) -> None:
    answers = iter(told)
    seeds = []

    async def run_nothing(scenario: Scenario, seed: int, *_more: object) -> Results:
        assert scenario.planted == BUGS["no-lease"].plant
        seeds.append(seed)
        answer = next(answers)
        if isinstance(answer, RunError):
            raise answer
        return Results((finding("A1", Verdict.VALID), *answer))

    monkeypatch.setattr(selftest, "run", run_nothing)
    session = Session(7, tmp_path / "runs", print)
    assert session.run(["no-lease"], tmp_path / "out", controls=False, as_json=True) == code
    assert seeds == [7, 8][:runs]
    facts = orjson.loads((tmp_path / "out" / "mutation.json").read_bytes())
    assert facts["score"] == (100.0 if code == 0 else 0.0)
    assert "no-lease" in (tmp_path / "out" / "mutation.md").read_text(encoding="utf-8")


def test_a_control_that_is_not_valid_breaks_the_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def run_nothing(scenario: Scenario, *_more: object) -> Results:
        return Results((CAUGHT if scenario.planted else OPEN,))

    monkeypatch.setattr(selftest, "run", run_nothing)
    session = Session(1, tmp_path / "runs", print)
    assert session.run(["no-lease"], None, controls=True, as_json=True) == 1
    assert [one.good for one in session.caught] == [True]
    assert session.controls[0].why == "V-run unknown: text"


@pytest.mark.timeout(170)
@pytest.mark.parametrize("name", ["ack-before-quorum"])
async def test_a_planted_bug_is_caught(name: str, tmp_path: Path) -> None:
    bug: PlantedBug = BUGS[name]
    trial = TRIALS[bug.trial]
    assert isinstance(trial, Trial)
    results = await run(trial.planted(bug.plant), SEED, tmp_path, trial.schedule(SEED))
    assert results.verdict is Verdict.INVALID
    invalid: dict[str, Finding] = {one.check: one for one in results.findings if one.verdict is Verdict.INVALID}
    assert bug.checks & invalid.keys(), invalid
