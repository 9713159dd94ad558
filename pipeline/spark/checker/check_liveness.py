"""A26 as a plan: whether consumer groups move on. See pipeline/plain/check_liveness.

Silences longer than their bound are few, and so are the lives of consumers: Spark finds them, the twin's code judges
them.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import skipped, unknown
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind
from pipeline.plain.check_liveness import (
    ASKS,
    SLACK_NS,
    GroupTopic,
    GroupWatch,
    QueueWatch,
    Silence,
    judge_moving,
    under_load,
    without_slack,
)
from pipeline.plain.evidence import NEVER
from pipeline.plain.finalscan import Span
from pipeline.plain.finalscan import joined as joined_spans
from pipeline.spark.checker.check_service import stalls_by_run
from pipeline.spark.checker.evidence import MESSAGE, QUEUE, Evidence, joined
from pipeline.spark.checker.plan import runs_of
from pipeline.spark.checker.world import RUN

# More silences than this, over all groups and runs, are not looked at one by one.
SILENCES_MAX = 1_000_000
_GROUP_QUEUE = (RUN, "group", *QUEUE)
_GROUP_TOPIC = (RUN, "group", "topic")


def check_a26(evidence: Evidence) -> dict[int, Finding]:
    """Judge that consumer groups move on.

    Something is due to a group in a queue from the acknowledgement of its send until a poll of the group has
    brought it, from wherever; not what lies before a reset, nor what may have been removed. A silence is a longest
    time in which something is due in one queue, and nothing comes of that queue that the group has not had. A
    witness is one of which more than the group's bound in one piece lie where a consumer of the group lived, and
    where A25 excuses no outage. Unknown of a group that nothing was looked at. Times in which the harness's own
    loop stood still are cut out, and it is unknown if that leaves too little to judge; groups that lock have their time
    anew with each new leader, and orderly_calm_s when no lock of somebody who is gone can be left.
    """
    world = evidence.world
    if not world.promises.consumer_groups:
        return dict.fromkeys(world.runs, skipped("A26", "no consumer group is promised to consume everything"))
    sent = runs_of(evidence.topics)
    faults: dict[int, list[Fault]] = {run: [] for run in world.runs}
    for row in world.faults.collect():
        faults[row[RUN]].append(Fault(*row[1:]))
    lives = _lives(evidence)
    came = world.keep(_first_deliveries(evidence))
    due = world.keep(_due(evidence, came))
    watched = _watched(evidence, lives, due)
    rows = _silences(due, came.select(*_GROUP_QUEUE, "at"))
    some = rows.where(F.col("ended") - F.col("began") > _bound(evidence)).limit(SILENCES_MAX + 1).collect()
    if len(some) > SILENCES_MAX:
        return dict.fromkeys(world.runs, unknown("A26", f"more than {SILENCES_MAX:,} silences"))
    silences: dict[int, list[Silence]] = {}
    for row in some:
        queue = (row["q_broker"], row["topic"], row["queue"])
        silences.setdefault(row[RUN], []).append(Silence(row["group"], queue, row["began"], row["ended"]))
    stood_still, terms = stalls_by_run(evidence), _terms(evidence)
    return {
        run: judge_moving(
            silences.get(run, ()),
            watched.get(run, {}),
            faults[run],
            world.promises,
            stood_still.get(run, ()),
            terms.get(run, ()),
            judged=world.is_strict(run),
        )
        if run in sent
        else skipped("A26", "nothing was sent")
        for run in world.runs
    }


def _promised(evidence: Evidence) -> Column:
    return F.col("group").isin(list(evidence.world.promises.consumer_groups))


def _bound(evidence: Evidence) -> Column:
    promises = evidence.world.promises
    orderly = F.col("group").isin(list(promises.orderly_groups))
    least = min(promises.orderly_bound_s, promises.orderly_calm_s)
    return F.when(orderly, int(least * 1e9)).otherwise(int(promises.group_bound_s * 1e9))


def _last_sign() -> Column:
    return F.greatest("completed", "invoked")


def _lives(evidence: Evidence) -> dict[int, dict[GroupTopic, list[Span]]]:
    """Return of each run when each promised group had a consumer of each topic that something was sent to."""
    is_life = F.col("act") == str(Act.CONSUME)
    asks = F.col("act").isin([str(act) for act in ASKS])
    some = evidence.ops.where((is_life | asks) & _promised(evidence)).join(evidence.topics, [RUN, "topic"], "left_semi")
    last = F.when(is_life, _last_sign()).otherwise(_last_sign() + SLACK_NS)
    spans = some.select(*_GROUP_TOPIC, is_life.alias("noted"), F.col("invoked").alias("first"), last.alias("last"))
    noted = F.max("noted").over(Window.partitionBy(*_GROUP_TOPIC))
    spans = spans.withColumn("any", noted).where(F.col("noted") == F.col("any"))
    # Of lives whose end nobody noted nothing is left here; that there were some must be known.
    rows = evidence.world.keep(joined(spans.drop("any"), (*_GROUP_TOPIC, "noted"))).collect()
    scans = evidence.ops.where(F.col("act") == str(Act.SCAN)).groupBy(RUN).agg(F.min("invoked").alias("at"))
    ends = {row[RUN]: row["at"] for row in scans.collect()}
    found: dict[int, dict[GroupTopic, list[Span]]] = {}
    by_noted: dict[tuple[int, bool, GroupTopic], list[Span]] = {}
    for row in rows:
        whose = (row[RUN], row["noted"], (row["group"], row["topic"]))
        by_noted.setdefault(whose, []).append((row["first"], row["last"]))
    for (run, was_noted, key), some_spans in by_noted.items():
        lives = joined_spans(some_spans) if was_noted else without_slack(some_spans)
        found.setdefault(run, {})[key] = under_load(lives, ends.get(run, NEVER))
    return found


def _first_deliveries(evidence: Evidence) -> DataFrame:
    """Return when and of which queue each message came to each promised group first: _GROUP_QUEUE, MESSAGE, `at`."""
    polls = evidence.ops.where((F.col("act") == str(Act.POLL)) & (F.col("kind") != str(Kind.FAIL)))
    polls = polls.where(_promised(evidence)).select(*_GROUP_QUEUE, "op", _last_sign().alias("at"))
    reads = evidence.world.reads.select(RUN, "op", *MESSAGE).join(polls, [RUN, "op"])
    came = reads.groupBy(RUN, "group", *MESSAGE).agg(F.min(F.struct("at", *QUEUE)).alias("came"))
    return came.select(RUN, "group", *MESSAGE, "came.*")


def _due(evidence: Evidence, came: DataFrame) -> DataFrame:
    """Return what was due to each promised group, in every queue: _GROUP_QUEUE, `first` and `last`."""
    groups = list(dict.fromkeys(evidence.world.promises.consumer_groups))
    resets = evidence.ops.where((F.col("act") == str(Act.RESET)) & (F.col("kind") != str(Kind.FAIL)))
    resets = resets.groupBy(*_GROUP_QUEUE).agg(F.max("value").alias("reset"))
    sent = evidence.acknowledged.select(RUN, *QUEUE, *MESSAGE, "offset", F.col("completed").alias("first"))
    sent = evidence.with_lowest(sent).withColumn("group", F.explode(F.array([F.lit(group) for group in groups])))
    sent = sent.join(F.broadcast(resets), list(_GROUP_QUEUE), "left")
    sent = sent.where(F.col("offset") >= F.greatest("lowest", F.coalesce("reset", F.lit(0))))
    last = came.select(RUN, "group", *MESSAGE, F.col("at").alias("last"))
    some = sent.join(last, [RUN, "group", *MESSAGE], "left")
    return some.select(*_GROUP_QUEUE, "first", F.coalesce("last", F.lit(NEVER)).alias("last"))


def _watched(
    evidence: Evidence, lives: dict[int, dict[GroupTopic, list[Span]]], due: DataFrame
) -> dict[int, dict[GroupTopic, GroupWatch]]:
    """Return of each run what there was to look at."""
    found = {run: {key: GroupWatch(spans) for key, spans in some.items()} for run, some in lives.items()}
    ends = [(run, *key, spans[-1][1]) for run, some in lives.items() for key, spans in some.items() if spans]
    if not ends:
        return found
    frame = evidence.world.spark.createDataFrame(ends, f"{RUN} int, group string, topic string, end long")
    before = due.join(F.broadcast(frame), list(_GROUP_TOPIC)).where(F.col("first") < F.col("end"))
    rows = before.groupBy(*_GROUP_QUEUE).agg(
        F.max(F.col("last") > F.col("first")).alias("waited"),
        F.max(F.when(F.col("last") <= F.col("end"), F.col("last"))).alias("moved"),
        F.max(F.when(F.col("first") < F.col("end") - SLACK_NS, F.col("last"))).alias("latest"),
        F.coalesce(F.min(F.when(F.col("last") > F.col("end"), F.col("first"))), F.lit(NEVER)).alias("left"),
    )
    for row in rows.collect():
        moved, latest = (UNKNOWN if row[name] is None else row[name] for name in ("moved", "latest"))
        key, queue = (row["group"], row["topic"]), (row["q_broker"], row["topic"], row["queue"])
        watch = found[row[RUN]][key]
        progress = QueueWatch(row["waited"], moved, latest, row["left"])
        found[row[RUN]][key] = watch._replace(queues={**watch.queues, queue: progress})
    return found


def _terms(evidence: Evidence) -> dict[int, list[int]]:
    """Return of each run when somebody was first seen to lead, in order."""
    looks = evidence.world.looks.where(F.col("role") == "leader")
    led = looks.groupBy(RUN, "member", "term").agg(F.min("at").alias("at"))
    found: dict[int, list[int]] = {}
    for row in sorted(led.select(RUN, "at").collect()):
        found.setdefault(row[RUN], []).append(row["at"])
    return found


def _silences(due: DataFrame, moves: DataFrame) -> DataFrame:
    """Return the times between two moves of a queue while something is due: _GROUP_QUEUE, `began`, `ended`."""
    spans = joined(due.where(F.col("first") < F.col("last")), _GROUP_QUEUE)
    begins = spans.select(*_GROUP_QUEUE, F.col("first").alias("at"), F.lit(0).alias("rank"))
    divides = moves.distinct().withColumn("rank", F.lit(1))
    ends = spans.select(*_GROUP_QUEUE, F.col("last").alias("at"), F.lit(2).alias("rank"))
    order = Window.partitionBy(*_GROUP_QUEUE).orderBy("at", "rank")
    edge = F.when(F.col("rank") != 1, F.col("rank"))
    marks = begins.unionByName(divides).unionByName(ends)
    before = F.last(edge, ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, -1))
    marks = marks.withColumns({"edge": before, "began": F.lag("at").over(order)})
    return marks.where((F.col("edge") == 0) & (F.col("rank") != 0)).withColumnRenamed("at", "ended")


LIVENESS_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (check_a26,)
