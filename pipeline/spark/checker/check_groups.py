"""A16, A17, A19, A20 as plans: what consumer groups rely on. See pipeline/twin_client_groups."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import skipped, unknown
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.plain.evidence import NEVER
from pipeline.spark.checker.evidence import ATTEMPT, MESSAGE, QUEUE, Evidence, as_of, ended, of_leader
from pipeline.spark.checker.plan import CheckPlan, Witness, findings, runs_of
from pipeline.spark.checker.world import RUN

GROUP_QUEUE = (RUN, "group", *QUEUE)


def check_a16(evidence: Evidence) -> dict[int, Finding]:
    """Judge that acknowledged metadata stays.

    A witness is an answer to the question for a consumer group's offset that is smaller than the greatest one whose
    commit (or reset) had been acknowledged before the question was invoked, and that nothing explains: no commit of
    that value, invoked before the answer came, had still not ended when the last of those was invoked. Commits of
    unknown end explain for ever. And an answer that a topic or group is not there, asked for after its creation had
    been acknowledged. Followers may lag.
    """
    world = evidence.world
    names = [RUN, "part", "op", "whose", "group", "topic", "q_broker", "queue", "greatest", "value"]
    offsets = _offsets_lost(evidence).withColumn("part", F.lit(0))
    creations = _creations_lost(evidence).withColumn("part", F.lit(1))
    rows = offsets.unionByName(creations, allowMissingColumns=True).select(*names)

    def witness(row: Row) -> Witness:
        ops = [row["whose"], row["op"]]
        if row["part"] == 1:
            return {"ops": ops, "topic": row["topic"], "group": row["group"]}
        offsets = [row["greatest"], row["value"]]
        return {"ops": ops, "group": row["group"], "queue": _queue(row), "offsets": offsets}

    def judged(run: int) -> bool:
        return world.promises.offsets_kept and world.is_strict(run)

    return findings(world, CheckPlan("A16", rows, ("part", "op"), witness, judged=judged))


def check_a17(evidence: Evidence) -> dict[int, Finding]:
    """Judge that nothing lies undelivered behind a committed offset.

    For the groups that promise to begin at the first offset and to commit only what they were given: a witness is a
    message that stands in a queue, by the final scan or the merged log, below the group's stored offset, not below its
    first retained one nor below a reset, and that no poll of the group brought, from wherever. If every one may have
    come by an answer that went unrecorded, the run is unknown: they lie at or behind where a poll asked that never
    ended and tells no error.
    """
    world = evidence.world
    groups = world.promises.consumer_groups
    if not groups:
        return dict.fromkeys(world.runs, skipped("A17", "no consumer group is promised to consume everything"))
    known = F.col("group").isin(list(groups))
    told = evidence.oks(Act.COMMIT, Act.QUERY).where(known)
    stored = world.keep(told.groupBy(*GROUP_QUEUE).agg(F.max(F.struct("value", "op")).alias("stored")))
    polled = evidence.ops.where((F.col("act") == str(Act.POLL)) & known).select(RUN, "group").distinct()
    silent: dict[int, list[str]] = {}
    for row in stored.select(RUN, "group").distinct().join(polled, [RUN, "group"], "left_anti").collect():
        silent.setdefault(row[RUN], []).append(row["group"])
    instead = {
        run: unknown("A17", f"no poll of {', '.join(sorted(names))} was recorded, but commits were")
        for run, names in silent.items()
    }
    skips = world.keep(_skipped_over(evidence, stored))
    sure = runs_of(skips.where(~F.col("unrecorded")))
    rows = skips.where(~F.col("unrecorded") | ~F.col(RUN).isin(sorted(sure)))

    def witness(row: Row) -> Witness:
        place = {"group": row["group"], "queue": _queue(row), "offset": row["offset"]}
        message = [row["writer"], row["counter"]]
        return {"ops": [row["stored"]["op"]], **place, "message": message, "stored": row["stored"]["value"]}

    def bad(run: int) -> Verdict:
        return Verdict.INVALID if run in sure else Verdict.UNKNOWN

    order = ("group", *QUEUE, "offset", *MESSAGE)
    return findings(world, CheckPlan("A17", rows, order, witness, judged=world.is_strict, bad=bad, instead=instead))


def check_a19(evidence: Evidence) -> dict[int, Finding]:
    """Judge that one consumer at a time holds a queue, in orderly groups.

    A hold begins when a lock is answered, and lasts to the invocation of the last poll, commit or renewed lock of the
    process on the queue before it unlocks, is refused a lock or the lock's life is over. A witness is a hold that
    begins before the end of the longest one that began before it, of another process, in the same group and queue.
    """
    world = evidence.world
    locks = evidence.ops.where(F.col("act") == str(Act.LOCK))
    nothing = set(world.runs) - runs_of(locks)
    instead = dict.fromkeys(nothing, skipped("A19", "no queue was locked"))
    holds = world.keep(_holds(evidence, locks))
    orderly = F.col("group").isin(list(world.promises.orderly_groups))
    judged = runs_of(holds.where(orderly))
    some = holds.where(orderly | ~F.col(RUN).isin(sorted(judged)))
    order = Window.partitionBy(*GROUP_QUEUE).orderBy("began", "ended", "process", "op")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    # Of holds that last equally long, the first.
    first = [(-F.col(name)).alias(name) for name in ("began", "process", "op")]
    rows = some.withColumn("longest", F.max(F.struct("ended", *first)).over(before))
    other = -F.col("longest.process") != F.col("process")
    rows = rows.where((F.col("began") < F.col("longest.ended")) & other)

    def witness(row: Row) -> Witness:
        return {"ops": [-row["longest"]["op"], row["op"]], "group": row["group"], "queue": _queue(row)}

    ranks = ("group", *QUEUE, "began", "ended", "process", "op")
    return findings(world, CheckPlan("A19", rows, ranks, witness, judged=lambda run: run in judged, instead=instead))


def check_a20(evidence: Evidence) -> dict[int, Finding]:
    """Judge that delayed messages wait: a witness is one read by an answer that came before its time, less a bound."""
    world = evidence.world
    delayed = evidence.sends.where(F.col("delay_until") != UNKNOWN)
    delayed = delayed.select(RUN, *ATTEMPT, F.col("op").alias("sent"), "delay_until")
    instead = dict.fromkeys(set(world.runs) - runs_of(delayed), skipped("A20", "nothing was delayed"))
    bound = int(world.promises.clock_bound_s * 1e9)
    answered = evidence.sights.where(F.col("op_kind") == str(Kind.OK))
    rows = answered.join(delayed, [RUN, *ATTEMPT]).where(F.col("op_completed") < F.col("delay_until") - bound)
    rows = rows.select(RUN, "op", "offset", *ATTEMPT, "sent", "delay_until", "op_completed")

    def witness(row: Row) -> Witness:
        early = {"early_ms": (row["delay_until"] - row["op_completed"]) // 1_000_000}
        return {"ops": [row["sent"], row["op"]], "message": [row[name] for name in ATTEMPT], **early}

    return findings(world, CheckPlan("A20", rows, ("op", "offset", *ATTEMPT), witness, instead=instead))


def _offsets_lost(evidence: Evidence) -> DataFrame:
    """Return answers that show a commit to be lost: the `greatest` value and `whose` it was."""
    commit = F.col("act").isin(str(Act.COMMIT), str(Act.RESET)) & (F.col("kind") != str(Kind.FAIL))
    names = [*GROUP_QUEUE, "op", "value", "invoked", "completed"]
    commits = evidence.ops.where(commit).select(*names, "kind", ended().alias("over"))
    # Of equal values, the one that was there first.
    best = F.struct("value", *((-F.col(name)).alias(name) for name in ("completed", "invoked", "op")))
    done = commits.where(F.col("kind") == str(Kind.OK)).withColumn("best", best).withColumn("latest", F.col("invoked"))
    done = done.select(*GROUP_QUEUE, F.col("completed").alias("at"), "best", "latest")
    of_leaders = (F.col("leader") == "") | of_leader(evidence.world.promises)
    asked = evidence.oks(Act.QUERY).where(of_leaders).select(*names).withColumn("at", F.col("invoked"))
    lower = as_of(done, asked, GROUP_QUEUE, "best", "latest").where(F.col("best.value") > F.col("value"))
    # The commits that may explain it: of its value, invoked before it was answered.
    reasons = commits.select(*GROUP_QUEUE, "value", F.col("invoked").alias("at"), "over")
    judged = as_of(reasons, lower.withColumn("at", F.col("completed")), (*GROUP_QUEUE, "value"), "over")
    lost = judged.where(F.col("over").isNull() | (F.col("over") < F.col("latest")))
    return lost.withColumn("greatest", F.col("best.value")).withColumn("whose", -F.col("best.op"))


def _creations_lost(evidence: Evidence) -> DataFrame:
    key = [RUN, "q_broker", "topic", "group"]
    made = evidence.oks(Act.CREATE_TOPIC, Act.CREATE_GROUP)
    made = made.groupBy(*key).agg(F.min(F.struct("completed", "op")).alias("made"))
    of_leaders = (F.col("leader") == "") | of_leader(evidence.world.promises)
    gone = evidence.oks(Act.SEEN_TOPIC).where((F.col("value") == 0) & of_leaders)
    lost = gone.select(*key, "op", "invoked").join(made, key).where(F.col("made.completed") < F.col("invoked"))
    return lost.withColumn("whose", F.col("made.op"))


def _standing(evidence: Evidence) -> DataFrame:
    """Return what stands in queues, by scans and by the merged log: each message once for each place."""
    names = [RUN, *QUEUE, "offset", *MESSAGE]
    found = evidence.scanned.select(*names)
    if evidence.held is not None:
        found = found.unionByName(evidence.held.select(*names))
    return found.distinct()


def _skipped_over(evidence: Evidence, stored: DataFrame) -> DataFrame:
    """Return what lies undelivered below `stored`; `unrecorded`: the answer that brought it may be missing."""
    groups = list(evidence.world.promises.consumer_groups)
    polls = evidence.ops.where((F.col("act") == str(Act.POLL)) & F.col("group").isin(groups))
    polls = polls.where(F.col("kind") != str(Kind.FAIL)).select(RUN, "op", "group")
    delivered = evidence.world.reads.select(RUN, "op", *MESSAGE).join(polls, [RUN, "op"])
    is_reset = (F.col("act") == str(Act.RESET)) & (F.col("kind") != str(Kind.FAIL))
    is_cut = (F.col("act") == str(Act.POLL)) & (F.col("kind") == str(Kind.INFO))
    is_cut = is_cut & (F.col("completed") == UNKNOWN) & (F.col("error") == "")
    edges = evidence.ops.where(is_reset | is_cut)
    edges = edges.groupBy(*GROUP_QUEUE).agg(
        F.max(F.when(is_reset, F.col("value"))).alias("reset"), F.min(F.when(is_cut, F.col("offset"))).alias("cut_off")
    )
    bounds = evidence.with_lowest(stored.join(edges, list(GROUP_QUEUE), "left"))
    below = _standing(evidence).join(F.broadcast(bounds), [RUN, *QUEUE])
    start = F.greatest("lowest", F.coalesce("reset", F.lit(0)))
    below = below.where((F.col("offset") >= start) & (F.col("offset") < F.col("stored.value")))
    missing = below.join(delivered, [RUN, "group", *MESSAGE], "left_anti")
    unrecorded = F.col("offset") >= F.coalesce("cut_off", F.lit(NEVER))
    names = [RUN, "group", *QUEUE, "offset", *MESSAGE, "stored"]
    return missing.select(*names, unrecorded.alias("unrecorded"))


def _holds(evidence: Evidence, locks: DataFrame) -> DataFrame:
    """Return all holds: GROUP_QUEUE, `process`, `op` of the lock, `began`, `ended`.

    Whether a process holds a queue at an operation follows from the last lock that it was granted before: nothing has
    closed it since, and its life is not over.
    """
    life = int(evidence.world.promises.lock_ttl_s * 1e9)
    acts = [str(act) for act in (Act.LOCK, Act.UNLOCK, Act.POLL, Act.COMMIT)]
    names = [*GROUP_QUEUE, "process", "op", "act", "kind", "invoked", "completed"]
    locked = locks.select(*GROUP_QUEUE).distinct()
    some = evidence.ops.where(F.col("act").isin(acts)).select(*names).join(locked, list(GROUP_QUEUE), "left_semi")
    order = Window.partitionBy(*GROUP_QUEUE, "process").orderBy("invoked", "op")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    is_lock = F.col("act") == str(Act.LOCK)
    granted = is_lock & (F.col("kind") == str(Kind.OK))
    refused = is_lock & (F.col("kind") == str(Kind.FAIL))
    closes = refused | (F.col("act") == str(Act.UNLOCK))
    placed = some.withColumn("at", F.row_number().over(order))
    lock = F.struct("at", "completed")
    placed = placed.withColumns(
        {"lock": F.max(_only(granted, lock)).over(before), "closed": F.max(_only(closes, F.col("at"))).over(before)}
    )
    open_since = F.col("closed").isNull() | (F.col("closed") < F.col("lock.at"))
    held = F.coalesce(open_since & (F.col("invoked") <= F.col("lock.completed") + life), F.lit(False))
    placed = placed.withColumn("held", held).withColumn("opens", granted & ~held)
    placed = placed.withColumn("goes_on", F.col("held") & ~closes)
    numbered = placed.withColumn("hold", F.sum(F.col("opens").cast("int")).over(order))
    holds = (
        numbered.where(F.col("opens") | F.col("goes_on"))
        .groupBy(*GROUP_QUEUE, "process", "hold")
        .agg(
            F.max(_only(F.col("opens"), F.col("op"))).alias("op"),
            F.max(_only(F.col("opens"), F.col("completed"))).alias("began"),
            F.max(_only(F.col("goes_on"), F.col("invoked"))).alias("last"),
        )
    )
    return holds.withColumn("ended", F.coalesce("last", "began")).drop("last", "hold")


def _only(condition: Column, value: Column) -> Column:
    return F.when(condition, value)


def _queue(row: Row) -> list[str | int]:
    return [row["q_broker"], row["topic"], row["queue"]]


GROUP_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (check_a16, check_a17, check_a19, check_a20)
