"""The checks of artefacts are proved: every anomaly that is planted is found, by its witness, and nothing else is."""

from pathlib import Path

import pytest

from pipeline.history.results import Verdict
from pipeline.plain.log_checks import LOG_CHECKS
from tests.planted.plant_log import IMPLIED, PLANTS, clean, plant

SEEDS = range(4)
CLEAN_SEEDS = range(25)
CASES = [(kind, check) for kind, plants in PLANTS.items() for check in plants]

# Without a history some checks have nothing to compare with, and say so.
FINE = {Verdict.VALID, Verdict.SKIPPED}


@pytest.mark.parametrize(("kind", "check"), CASES)
def test_a_planted_anomaly_is_found_and_nothing_else(tmp_path: Path, kind: str, check: str) -> None:
    for seed in SEEDS:
        planted = plant(tmp_path / str(seed), seed, check, kind)
        replicas = planted.cluster.replicas()
        found = {finding.check: finding for finding in (look(replicas) for look in LOG_CHECKS)}
        bad = {name for name, finding in found.items() if finding.verdict not in FINE}
        assert check in bad <= {check} | IMPLIED.get(check, frozenset()), f"seed {seed}"
        assert found[check].verdict is Verdict.INVALID
        assert any(planted.witness.items() <= witness.items() for witness in found[check].witnesses), (
            f"seed {seed}: {planted.witness} is not among {found[check].witnesses}"
        )


@pytest.mark.parametrize("kind", PLANTS)
def test_a_clean_cluster_is_valid(tmp_path: Path, kind: str) -> None:
    for seed in CLEAN_SEEDS:
        replicas = clean(tmp_path / str(seed), seed, kind).replicas()
        bad = [finding for finding in (look(replicas) for look in LOG_CHECKS) if finding.verdict not in FINE]
        assert not bad, f"seed {seed}"
        assert replicas.groups[0].complete


def test_every_check_can_be_planted() -> None:
    planted = {check for plants in PLANTS.values() for check in plants}
    assert planted == {f"B{number}" for number in range(1, len(LOG_CHECKS) + 1)}
