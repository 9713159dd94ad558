"""A check as a plan: which rows are witnesses. Turned into findings that equal the twin's, witness by witness."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import TITLES
from pipeline.history.results import WITNESSES_MAX, Finding, Verdict
from pipeline.spark.checker.world import RUN, World

Witness = dict[str, Any]


@dataclass(frozen=True)
class CheckPlan:
    """One check over all runs of a world."""

    check: str
    rows: DataFrame
    """A row for each witness: `run`, and what `order` and `witness` look at."""
    order: tuple[str, ...]
    """Columns that bring the witnesses into the twin's order: which of too many are shown does not hang on luck."""
    witness: Callable[[Row], Witness]
    """Makes the twin's witness of a row; called on the driver, for those that are shown."""
    judged: Callable[[int], bool] = lambda _run: True
    """Run → whether a witness makes it worse; otherwise they are counted."""
    bad: Callable[[int], Verdict] = lambda _run: Verdict.INVALID
    text: Callable[[int], str] = lambda _run: ""
    instead: Mapping[int, Finding] = field(default_factory=dict)
    """Run → its finding where there is nothing to look at."""


def always(value: Any) -> Callable[[int], Any]:
    """Return a function of runs that gives every run the same."""
    return lambda _run: value


def findings(world: World, plan: CheckPlan) -> dict[int, Finding]:
    """Carry a plan out; returns the finding of each run. One job."""
    found = dict(plan.instead)
    rest = [run for run in world.runs if run not in found]
    counts: dict[int, int] = {}
    shown: dict[int, list[Witness]] = {}
    for row in _smallest(plan) if rest else ():
        counts[row[RUN]] = row["_count"]
        shown.setdefault(row[RUN], []).append(plan.witness(row))
    for run in rest:
        count = counts.get(run, 0)
        verdict = Verdict.INFO
        if plan.judged(run):
            verdict = plan.bad(run) if count else Verdict.VALID
        witnesses = tuple(shown.get(run, ()))
        found[run] = Finding(plan.check, TITLES[plan.check], verdict, count, plan.text(run), witnesses)
    return found


def runs_of(frame: DataFrame) -> set[int]:
    """Return the runs that have a row. One job."""
    return {row[RUN] for row in frame.select(RUN).distinct().collect()}


def _smallest(plan: CheckPlan) -> list[Row]:
    """Return the first witnesses of each run, in order; how many there are stands in `_count`."""
    of_run = Window.partitionBy(RUN)
    ranked = plan.rows.withColumn("_rank", F.row_number().over(of_run.orderBy(*plan.order)))
    counted = ranked.withColumn("_count", F.count(F.lit(1)).over(of_run))
    return counted.where(F.col("_rank") <= WITNESSES_MAX).orderBy(RUN, "_rank").collect()
