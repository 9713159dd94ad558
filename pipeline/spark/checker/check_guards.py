"""V1 to V7 as plans: guards against verdicts that mean little. See pipeline/guards."""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import finding, skipped
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Kind
from pipeline.spark.checker.evidence import QUEUE, Evidence
from pipeline.spark.checker.plan import CheckPlan, Witness, always, findings, runs_of
from pipeline.spark.checker.standing import ATTEMPT_KEYS
from pipeline.spark.checker.world import RUN

# Times are matched with faults by the slice of the run that they lie in.
_SLICE_NS = 10_000_000_000
_SHOWN = 8


def check_v1(evidence: Evidence) -> dict[int, Finding]:
    """Demand as many acknowledged sends as the scenario asks for."""
    world, least = evidence.world, evidence.world.promises.acknowledged_min
    ended_well = F.count(F.when(F.col("kind") == str(Kind.OK), 1)).alias("count")
    counts = {row[RUN]: row["count"] for row in evidence.sends.groupBy(RUN).agg(ended_well).collect()}
    found = {}
    for run in world.runs:
        count = counts.get(run, 0)
        short = [{"acknowledged": count, "asked": least}] if count < least else []
        text = f"{count:,} acknowledged, {least:,} asked for"
        found[run] = finding("V1", short, bad=Verdict.UNKNOWN, text=text)
    return found


def check_v2(evidence: Evidence) -> dict[int, Finding]:
    """Demand proof that every fault took effect, and as many faults as the scenario asks for.

    A witness is a fault without an effect; the last is that there were fewer others than asked for.
    """
    world, least = evidence.world, evidence.world.promises.faults_min
    silent = F.col("effect") == ""
    proved = F.count(F.when(~silent, 1)).alias("proved")
    rows = world.faults.groupBy(RUN).agg(proved, F.count(F.lit(1)).alias("all")).collect()
    counts = {row[RUN]: (row["proved"], row["all"]) for row in rows}
    found = {}
    plan = CheckPlan("V2", world.faults.where(silent), ("fault",), _fault, bad=always(Verdict.UNKNOWN))
    for run, one in findings(world, plan).items():
        here, there = counts.get(run, (0, 0))
        some = list(one.witnesses)
        count = one.count
        if here < least:
            count += 1
            some.append({"proved": here, "asked": least})
        text = f"{here} of {there} faults show an effect"
        shown = finding("V2", some, bad=Verdict.UNKNOWN, text=text)
        found[run] = replace(shown, count=count)
    return found


def check_v3(evidence: Evidence) -> dict[int, Finding]:
    """Demand a newer term for every fault that must bring another leader.

    A witness is such a fault, unless a leader's look or an answer showed a term after its begin, and until rto_bound_s
    after its end, that is greater than any that was seen before it.
    """
    world = evidence.world
    faults = world.faults.where(F.col("name").isin(list(world.promises.leader_change_on)))
    some = runs_of(faults)
    none = {run: skipped("V3", "no fault had to bring another leader") for run in world.runs if run not in some}
    terms = _terms(evidence)
    first = terms.groupBy(RUN, "term").agg(F.min("at").alias("at"))
    before = F.max(F.when(F.col("at") <= F.col("began"), F.col("term")))
    earlier = faults.join(first, RUN, "left").groupBy(RUN, "fault", "name").agg(_or_unknown(before).alias("before"))
    both = earlier.join(_later_terms(evidence, faults, terms), [RUN, "fault"], "left").fillna(UNKNOWN, ["after"])
    rows = both.where((F.col("before") == UNKNOWN) | (F.col("after") <= F.col("before")))

    def witness(row: Row) -> Witness:
        return {"fault": row["fault"], "name": row["name"], "terms": [row["before"], row["after"]]}

    return findings(world, CheckPlan("V3", rows, ("fault",), witness, bad=always(Verdict.UNKNOWN), instead=none))


def check_v4(evidence: Evidence) -> dict[int, Finding]:
    """Demand of every queue that was sent to a final scan from its first offset to an end beyond all acknowledged ones.

    A witness is a queue that nobody scanned so: without a gap, asked after the last acknowledgement.
    """
    sent = evidence.sends.where((F.col("queue") != UNKNOWN) & (F.col("kind") != str(Kind.FAIL)))
    answered = F.col("kind") == str(Kind.OK)
    wanted = sent.groupBy(RUN, *QUEUE).agg(
        _at_least_unknown(F.max(F.when(answered & F.col("is_plain"), F.col("offset")))).alias("acknowledged"),
        _at_least_unknown(F.max(F.when(answered, F.col("completed")))).alias("completed"),
    )
    read = wanted.join(evidence.readers, [RUN, *QUEUE], "left")
    beyond = (F.col("end") > F.col("acknowledged")) & (F.col("began") > F.col("completed"))
    rows = read.groupBy(RUN, *QUEUE, "acknowledged").agg(
        F.coalesce(F.max(F.col("complete") & beyond), F.lit(False)).alias("is_scanned"),
        _or_unknown(F.max("end")).alias("end"),
        F.count("address").alias("scans"),
    )

    def witness(row: Row) -> Witness:
        queue = [row[name] for name in QUEUE]
        return {"queue": queue, "acknowledged": row["acknowledged"], "end": row["end"], "scans": row["scans"]}

    return findings(
        evidence.world, CheckPlan("V4", rows.where("not is_scanned"), QUEUE, witness, bad=always(Verdict.UNKNOWN))
    )


def check_v5(evidence: Evidence) -> dict[int, Finding]:
    """Demand that most sends have a known end.

    At most info_share_max may be of unknown end, those not counted of which the merged log of all replicas tells
    whether they happened: all where it is complete, those that it holds otherwise.
    """
    world, most = evidence.world, evidence.world.promises.info_share_max
    counts = _counts(evidence.sends)
    unsure = evidence.sends.where(F.col("kind") == str(Kind.INFO))
    if evidence.held is not None:
        unsure = unsure.join(evidence.held.select(*ATTEMPT_KEYS), list(ATTEMPT_KEYS), "left_anti")
    unsure_counts = _counts(unsure)
    found = {}
    for run in world.runs:
        count, left = counts.get(run, 0), 0 if world.complete.get(run) else unsure_counts.get(run, 0)
        share = left / count if count else 0.0
        some = [{"open": left, "sends": count, "share": round(share, 4)}] if share > most else []
        text = f"{share:.2%} of {count:,} sends have no known end"
        found[run] = finding("V5", some, bad=Verdict.UNKNOWN, text=text)
    return found


def check_v6(evidence: Evidence) -> dict[int, Finding]:
    """Demand that every fault was ended: what was broken to the end proves nothing about what comes after."""
    rows = evidence.world.faults.where(F.col("ended") == UNKNOWN)

    def witness(row: Row) -> Witness:
        return {"fault": row["fault"], "name": row["name"]}

    return findings(evidence.world, CheckPlan("V6", rows, ("fault",), witness, bad=always(Verdict.UNKNOWN)))


def check_v7(evidence: Evidence) -> dict[int, Finding]:
    """Demand a history that can be judged by its own rules.

    Witnesses are, in this order: operations, by time, whose number another has, that ended at no time or before they
    began, or that their process asked before an answer or after an unknown end; attempts that were sent twice; and, all
    in one, operations that read something and are not there.
    """
    rows = _malformed_ops(evidence).unionByName(_attempts_twice(evidence)).unionByName(_strange_reads(evidence))

    def witness(row: Row) -> Witness:
        return {"ops": row["ops"], "why": row["why"]}

    order = ("part", "invoked", "op", "rank")
    return findings(evidence.world, CheckPlan("V7", rows, order, witness, bad=always(Verdict.UNKNOWN)))


def _counts(frame: DataFrame) -> dict[int, int]:
    return {row[RUN]: row["count"] for row in frame.groupBy(RUN).count().collect()}


def _fault(row: Row) -> Witness:
    return {"fault": row["fault"], "name": row["name"], "target": row["target"]}


def _or_unknown(value: Column) -> Column:
    return F.coalesce(value, F.lit(UNKNOWN).cast("long"))


def _at_least_unknown(value: Column) -> Column:
    return F.greatest(value, F.lit(UNKNOWN).cast("long"))


def _terms(evidence: Evidence) -> DataFrame:
    """Return (run, at, term) of everything that tells who leads."""
    looks = evidence.world.looks.where((F.col("role") == "leader") & (F.col("term") != UNKNOWN)).select(
        RUN, "at", "term"
    )
    told = (F.col("kind") == str(Kind.OK)) & (F.col("term") != UNKNOWN) & (F.col("completed") != UNKNOWN)
    answers = evidence.world.ops.where(told).select(RUN, F.col("completed").alias("at"), "term")
    return looks.unionByName(answers)


def _later_terms(evidence: Evidence, faults: DataFrame, terms: DataFrame) -> DataFrame:
    """Return the greatest term that was seen `after` each fault, in time."""
    patience = int(evidence.world.promises.rto_bound_s * 1e9)
    last = terms.groupBy(RUN).agg(F.max("at").alias("last"))
    until = F.least(F.greatest("began", "ended") + patience, "last")
    windows = faults.join(last, RUN).withColumn("until", until).where(F.col("began") < F.col("until"))
    slices = F.sequence((F.col("began") / _SLICE_NS).cast("long"), (F.col("until") / _SLICE_NS).cast("long"))
    windows = windows.select(RUN, "fault", "began", "until", F.explode(slices).alias("slice"))
    seen = terms.withColumn("slice", (F.col("at") / _SLICE_NS).cast("long")).join(windows, [RUN, "slice"])
    inside = seen.where((F.col("began") < F.col("at")) & (F.col("at") <= F.col("until")))
    return inside.groupBy(RUN, "fault").agg(F.max("term").alias("after"))


def _rows(frame: DataFrame, part: int, rank: int, why: str, ops: Column) -> DataFrame:
    """Return witnesses: `ops` are the numbers of their operations."""
    return frame.select(
        RUN,
        F.lit(part).alias("part"),
        "invoked",
        "op",
        F.lit(rank).alias("rank"),
        ops.alias("ops"),
        F.lit(why).alias("why"),
    )


def _malformed_ops(evidence: Evidence) -> DataFrame:
    ops = evidence.world.ops.select(RUN, "op", "process", "kind", "invoked", "completed")
    many = ops.groupBy(RUN, "op").count().where(F.col("count") > 1).select(RUN, "op")
    same = Window.partitionBy(RUN, "op").orderBy("invoked")
    twice = ops.join(many, [RUN, "op"], "left_semi").withColumn("nth", F.row_number().over(same)).where("nth > 1")
    found = _rows(twice, 0, 0, "a number twice", F.array("op"))
    no_end = ops.where((F.col("completed") == UNKNOWN) & (F.col("kind") != str(Kind.INFO)))
    found = found.unionByName(_rows(no_end, 0, 1, "ended at no time", F.array("op")))
    backwards = ops.where((F.col("completed") != UNKNOWN) & (F.col("completed") < F.col("invoked")))
    found = found.unionByName(_rows(backwards, 0, 1, "ended before it began", F.array("op")))
    of_process = Window.partitionBy(RUN, "process").orderBy("invoked", "op")
    before = F.lag(F.struct("op", "kind", "completed")).over(of_process)
    going_on = ops.withColumn("before", before).where(F.col("before").isNotNull())
    going_on = going_on.withColumn("before_op", F.col("before.op"))
    unknown = F.col("before.kind") == str(Kind.INFO)
    after = going_on.where(unknown)
    found = found.unionByName(_rows(after, 0, 2, "a process went on after an unknown end", F.array("before_op", "op")))
    at_once = going_on.where(~unknown & (F.col("before.completed") > F.col("invoked")))
    return found.unionByName(_rows(at_once, 0, 2, "two at a time", F.array("before_op", "op")))


def _attempts_twice(evidence: Evidence) -> DataFrame:
    sends = evidence.sends.select(*ATTEMPT_KEYS, "op")
    many = sends.groupBy(*ATTEMPT_KEYS).agg(F.min("op").alias("first"), F.max("op").alias("last"))
    many = many.where(F.col("first") != F.col("last"))
    again = sends.join(many, list(ATTEMPT_KEYS)).where(F.col("op") != F.col("first"))
    return _rows(again.withColumn("invoked", F.lit(0).cast("long")), 1, 0, "an attempt twice", F.array("first", "op"))


def _strange_reads(evidence: Evidence) -> DataFrame:
    read = evidence.world.reads.select(RUN, "op").distinct()
    strange = read.join(evidence.world.ops.select(RUN, "op"), [RUN, "op"], "left_anti")
    shown = strange.withColumn("nth", F.row_number().over(Window.partitionBy(RUN).orderBy("op"))).where(
        F.col("nth") <= _SHOWN
    )
    zero = F.lit(0).cast("long")
    found = shown.groupBy(RUN).agg(F.sort_array(F.collect_list("op")).alias("ops"))
    return _rows(found.withColumn("invoked", zero).withColumn("op", zero), 2, 0, "read by no operation", F.col("ops"))


GUARD_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (
    check_v1,
    check_v2,
    check_v3,
    check_v4,
    check_v5,
    check_v6,
    check_v7,
)
