"""Every anomaly that is planted is found, with its witness, and nothing is found where nothing was planted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.history.results import Finding, Verdict
from pipeline.plain.check_guards import GUARDS
from pipeline.plain.client_checks import CLIENT_CHECKS
from pipeline.plain.evidence import History
from tests.planted.plant import IMPLIED, PLANTS, found, plant
from tests.planted.plant_world import clean

BAD = {Verdict.INVALID, Verdict.UNKNOWN}
COUNTED = {"A7"}
LEFT_OPEN = {"A3", "A24"}


def findings(history: History) -> dict[str, Finding]:
    return {one.check: one for one in (check(history) for check in (*CLIENT_CHECKS, *GUARDS))}


@given(seed=st.integers(0, 2**32))
def test_nothing_is_found_in_a_clean_history(seed: int) -> None:
    told = findings(clean(seed))
    assert {check: one for check, one in told.items() if one.verdict in BAD} == {}
    assert {check for check, one in told.items() if one.verdict is Verdict.SKIPPED} <= {"A19"}


@pytest.mark.parametrize("check", [f"A{number}" for number in range(1, 27)])
def test_what_is_planted_is_found_and_nothing_else(check: str) -> None:
    for seed in range(12):
        planted = plant(seed, check)
        told = findings(planted.history)
        wanted = Verdict.INFO if check in COUNTED else Verdict.UNKNOWN if check in LEFT_OPEN else Verdict.INVALID
        assert told[check].verdict is wanted, (seed, told[check])
        assert found(told[check].witnesses, planted.witness), (seed, planted.witness, told[check])
        others = {name for name, one in told.items() if one.verdict in BAD} - {check}
        assert others <= IMPLIED.get(check, frozenset()), (seed, [told[name] for name in others])


def test_there_is_a_plant_for_every_check() -> None:
    assert set(PLANTS) == {check.__name__.removeprefix("check_").upper() for check in CLIENT_CHECKS}
