"""A24, A25 as plans: whether what was recorded as done is certain, and whether the service was there.

See pipeline/twin_client_service. Outages longer than a hiccup are few: Spark finds them, the twin's code judges them.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import skipped, unknown
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Fault, Kind
from pipeline.plain.check_service import IMPATIENCE_S, STALL_S, UNCERTAIN, After, Outage, judge_service
from pipeline.plain.finalscan import Span
from pipeline.spark.checker.evidence import Evidence, joined
from pipeline.spark.checker.plan import CheckPlan, Witness, always, findings
from pipeline.spark.checker.world import RUN

# More outages than this, over all groups and runs, are not looked at one by one.
OUTAGES_MAX = 1_000_000
_GROUP = (RUN, "q_broker")
# Less than the time for which a send counts as tried (ns): sends that begin in one such stretch are tried together.
_STRETCH = 10**9


def check_a24(evidence: Evidence) -> dict[int, Finding]:
    """Judge the recorder: a witness is a send recorded as done with a status that leaves its fate open.

    The harness errs there, not a broker: the run becomes unknown.
    """
    told = F.upper("error")
    uncertain = F.lit(False)
    for status in UNCERTAIN:
        uncertain = uncertain | told.contains(status)
    rows = evidence.sends.where((F.col("kind") == str(Kind.OK)) & uncertain).select(RUN, "op", "error")

    def witness(row: Row) -> Witness:
        return {"ops": [row["op"]], "error": row["error"]}

    return findings(evidence.world, CheckPlan("A24", rows, ("op",), witness, bad=always(Verdict.UNKNOWN)))


def check_a25(evidence: Evidence) -> dict[int, Finding]:
    """Judge that the service comes back.

    An outage is a longest time, of more than hiccup_bound_s, in which a broker group acknowledged no send although
    some were tried. A witness is
    * one that has as much outside of any fault's reach;
    * one that lasts more than rto_bound_s after the end of the last fault it met, or after the begin of one that the
      service is promised to survive;
    * the time after the last fault's end, if sends were tried and none was acknowledged within progress_bound_s.
    Unknown if after the last fault's end nobody tried for long enough to tell. Times in which the harness's own loop
    stood still are cut out; unknown if that leaves too little to judge.
    """
    world = evidence.world
    faults: dict[int, list[Fault]] = {run: [] for run in world.runs}
    for row in world.faults.collect():
        faults[row[RUN]].append(Fault(*row[1:]))
    after, spans = _tried(evidence)
    stood_still = stalls_by_run(evidence)
    rows = _outages(evidence).where(F.col("length") > int(world.promises.hiccup_bound_s * 1e9))
    long_ones = rows.select(*_GROUP, "began", "ended").limit(OUTAGES_MAX + 1).collect()
    if len(long_ones) > OUTAGES_MAX:
        return dict.fromkeys(world.runs, unknown("A25", f"more than {OUTAGES_MAX:,} outages"))
    outages: dict[int, dict[str, list[Outage]]] = {
        run: {group: [] for group in after.get(run, ())} for run in world.runs
    }
    for row in sorted(long_ones):
        outages[row[RUN]][row["q_broker"]].append(Outage(*row[1:]))
    return {
        run: judge_service(outages[run], after[run], spans[run], faults[run], world.promises, stood_still.get(run, ()))
        if run in after
        else skipped("A25", "nothing was sent")
        for run in world.runs
    }


def stalls_by_run(evidence: Evidence) -> dict[int, list[Span]]:
    """Return of each run the times in which the harness's loop stood still, in order."""
    if evidence.world.beats is None:
        return {}
    before = F.lag("at").over(Window.partitionBy(RUN).orderBy("at"))
    gaps = evidence.world.beats.withColumn("before", before).where(F.col("at") - F.col("before") > int(STALL_S * 1e9))
    found: dict[int, list[Span]] = {}
    for row in sorted(gaps.select(RUN, "before", "at").collect()):
        found.setdefault(row[RUN], []).append((row["before"], row["at"]))
    return found


def _tried(evidence: Evidence) -> tuple[dict[int, dict[str, After | None]], dict[int, dict[str, Span]]]:
    """Return of each run's broker groups what was tried after the last fault's end, and from when to when in all.

    None where there was no fault's end.
    """
    ends = evidence.world.faults.where(F.col("ended") != UNKNOWN).groupBy(RUN).agg(F.max("ended").alias("healed"))
    later = F.col("completed") > F.col("healed")
    done = later & (F.col("kind") == str(Kind.OK))
    sends = evidence.sends.select(*_GROUP, "kind", "invoked", "completed").join(F.broadcast(ends), RUN, "left")
    rows = sends.groupBy(*_GROUP).agg(
        F.max("healed").alias("healed"),
        F.min(F.when(later, F.col("invoked"))).alias("tried"),
        F.min(F.when(done, F.col("completed"))).alias("first"),
        F.max(F.when(later, F.col("completed"))).alias("last"),
        F.min("invoked").alias("begin"),
        F.max(F.greatest("completed", "invoked")).alias("end"),
    )
    found: dict[int, dict[str, After | None]] = {}
    spans: dict[int, dict[str, Span]] = {}
    for row in rows.collect():
        after = None if row["healed"] is None else After(row["healed"], row["tried"], row["first"], row["last"])
        found.setdefault(row[RUN], {})[row["q_broker"]] = after
        spans.setdefault(row[RUN], {})[row["q_broker"]] = row["begin"], row["end"]
    return found, spans


def _outages(evidence: Evidence) -> DataFrame:
    """Return the times between acknowledgements while sends were tried: `began`, `ended`, `length`; all long ones.

    Two passes, so that no task sorts all sends of a broker group: sends that begin in one stretch of time are one span,
    as they overlap; of the acknowledgements in a stretch, no longer than a hiccup, only the first and last matter.
    """
    slack = int(IMPATIENCE_S * 1e9)
    stretch = max(1, min(_STRETCH, int(evidence.world.promises.hiccup_bound_s * 1e9)))
    sends = evidence.sends.select(*_GROUP, "kind", "invoked", "completed")
    tried = sends.withColumn("last", F.greatest("completed", "invoked") + slack)
    spans = tried.groupBy(*_GROUP, _stretch("invoked", _STRETCH)).agg(
        F.min("invoked").alias("first"), F.max("last").alias("last")
    )
    spans = joined(spans.drop("stretch"), _GROUP)
    oks = sends.where(F.col("kind") == str(Kind.OK))
    first_and_last = F.array_distinct(F.array(F.min("completed"), F.max("completed")))
    oks = oks.groupBy(*_GROUP, _stretch("completed", stretch)).agg(first_and_last.alias("at"))
    # Each span of tries opens, is divided by acknowledgements, and ends with its last try.
    end = F.greatest(F.col("first"), F.col("last") - slack)
    begins = spans.select(*_GROUP, F.col("first").alias("at"), F.lit(0).alias("rank"))
    divides = oks.select(*_GROUP, F.explode("at").alias("at"), F.lit(1).alias("rank"))
    ends = spans.select(*_GROUP, end.alias("at"), F.lit(2).alias("rank"))
    order = Window.partitionBy(*_GROUP).orderBy("at", "rank")
    edge = F.when(F.col("rank") != 1, F.col("rank"))
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    marks = begins.unionByName(divides).unionByName(ends)
    marks = marks.withColumns({"edge": F.last(edge, ignorenulls=True).over(before), "began": F.lag("at").over(order)})
    inside = marks.where((F.col("edge") == 0) & (F.col("rank") != 0))
    return inside.select(*_GROUP, "began", F.col("at").alias("ended"), (F.col("at") - F.col("began")).alias("length"))


def _stretch(time: str, length: int) -> Column:
    return (F.col(time) - F.pmod(F.col(time), F.lit(length))).alias("stretch")


SERVICE_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (check_a24, check_a25)
