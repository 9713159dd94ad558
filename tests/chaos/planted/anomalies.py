"""Forges every anomaly of the catalogue, and tells whether the checks find it by its witness, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipeline.history.catalogue import TITLES
from pipeline.history.results import Finding, Verdict
from pipeline.plain.check_guards import GUARDS
from pipeline.plain.client_checks import CLIENT_CHECKS
from pipeline.plain.log_checks import LOG_CHECKS
from tests.planted import plant, plant_log

SEEDS = range(3)
BAD = {Verdict.INVALID, Verdict.UNKNOWN}
# What a check says of its own anomaly, where that is not "invalid": it counts, or leaves open.
SAYS = {"A7": Verdict.INFO, "A3": Verdict.UNKNOWN, "A24": Verdict.UNKNOWN}
HISTORY = "a history"


class Forged(NamedTuple):
    """One anomaly, forged with some seeds."""

    check: str
    title: str
    kind: str
    """What it was forged into: a history, or the store folders of a kind of cluster."""
    planter: str
    found: bool
    why: str
    """What was wrong, "" if nothing was."""


def forged(folder: Path) -> Iterator[Forged]:
    """Forge all of them, one after the other; store folders are written below `folder`."""
    for check in plant.PLANTS:
        wrong = [why for seed in SEEDS if (why := _in_history(check, seed))]
        yield Forged(check, TITLES[check], HISTORY, "tests/planted/plant.py", not wrong, "; ".join(wrong))
    for kind, plants in plant_log.PLANTS.items():
        for check in plants:
            wrong = [why for seed in SEEDS if (why := _in_stores(folder / f"{kind}-{check}-{seed}", check, kind, seed))]
            stores = f"store folders ({kind})"
            yield Forged(check, TITLES[check], stores, "tests/planted/plant_log.py", not wrong, "; ".join(wrong))


def _in_history(check: str, seed: int) -> str:
    made = plant.plant(seed, check)
    told = {one.check: one for one in (look(made.history) for look in (*CLIENT_CHECKS, *GUARDS))}
    found = plant.found(told[check].witnesses, made.witness)
    return _wrong(check, told, plant.IMPLIED.get(check, frozenset()), found=found)


def _in_stores(folder: Path, check: str, kind: str, seed: int) -> str:
    made = plant_log.plant(folder, seed, check, kind)
    replicas = made.cluster.replicas()
    told = {one.check: one for one in (look(replicas) for look in LOG_CHECKS)}
    found = any(made.witness.items() <= witness.items() for witness in told[check].witnesses)
    return _wrong(check, told, plant_log.IMPLIED.get(check, frozenset()), found=found)


def _wrong(check: str, told: dict[str, Finding], implied: frozenset[str], *, found: bool) -> str:
    """Return what is wrong with what the checks said, "" if nothing is."""
    verdict = told[check].verdict
    if verdict is not SAYS.get(check, Verdict.INVALID):
        return f"{check} is {verdict}"
    if not found:
        return f"no witness of {check} says what was forged"
    others = {name for name, one in told.items() if one.verdict in BAD} - {check} - implied
    return f"{', '.join(sorted(others))} found something, too" if others else ""
