"""A4 to A9 as plans: what is read is what was sent, once, and where the acknowledgement said.

See pipeline/twin_client_copies. Each finds what is suspicious in a row for each attempt or place (standing), and looks
at single reads only there. Where a history is malformed (V7), so that an attempt was sent twice, the later one counts.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.promises import DUPLICATES_ANY, DUPLICATES_NEVER
from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.spark.checker.evidence import ATTEMPT, MESSAGE, QUEUE, Evidence
from pipeline.spark.checker.plan import CheckPlan, Witness, always, findings
from pipeline.spark.checker.standing import ATTEMPT_KEYS, PLACE_KEYS, place, varies
from pipeline.spark.checker.world import RUN, World

# So many of the operations that delivered a message are shown, and so many of the messages that stand there again.
_OPS_SHOWN, _AGAIN_SHOWN = 8, 5


def check_a4(evidence: Evidence) -> dict[int, Finding]:
    """Judge that what is read was sent, just so.

    A witness is a read, or a message of the merged log, whose attempt nobody invoked, or to another queue, or with
    another body; and a read that was answered before its send was invoked.
    """
    attempts = _suspicious_attempts(evidence)
    rows = evidence.standing.join(attempts, list(ATTEMPT_KEYS), "left_semi")
    rows = rows.join(_sent(evidence, attempts), list(ATTEMPT_KEYS), "left")
    elsewhere = (F.col("q_broker") != F.col("sent.q_broker")) | (F.col("queue") != F.col("sent.queue"))
    another_queue = (F.col("topic") != F.col("sent.topic")) | ((F.col("sent.queue") != UNKNOWN) & elsewhere)
    # The recorder writes 0 where it did not keep a digest.
    another_body = (F.col("sent.digest") != 0) & (F.col("sent.digest") != F.col("digest"))
    why = (
        F.when(F.col("sent").isNull(), "never sent")
        .when(another_queue, "sent to another queue")
        .when(another_body, "another body")
        .when(F.col("completed") < F.col("sent.invoked"), "before it was sent")
    )
    rows = rows.withColumn("why", why).where(F.col("why").isNotNull()).withColumn("in_log", _in_log())
    order = ("in_log", "op", *QUEUE, "offset", "position", *ATTEMPT)

    def witness(row: Row) -> Witness:
        return _witness(row, row["why"], [row["sent"]["op"] if row["sent"] else UNKNOWN, row["op"]])

    return findings(evidence.world, CheckPlan("A4", rows, order, witness))


def check_a5(evidence: Evidence) -> dict[int, Finding]:
    """Judge that what was refused did not happen.

    A witness is an attempt that ended FAIL and was read, or else stands in the merged log: where the first operation
    that read it did so, or at its first place in the log.
    """
    failed = evidence.sends.where(F.col("kind") == str(Kind.FAIL)).select(*ATTEMPT_KEYS, F.col("op").alias("sent_op"))
    rows = evidence.standing.join(failed, list(ATTEMPT_KEYS))
    log_broker = F.when(_in_log(), F.col("q_broker")).otherwise("")
    order = F.struct(
        _in_log().alias("in_log"), "op", log_broker.alias("log_broker"), "topic", "queue", "offset", "q_broker"
    )
    first = rows.groupBy(*ATTEMPT_KEYS, "sent_op").agg(F.min(order).alias("first"))
    first = first.select(*ATTEMPT_KEYS, "sent_op", "first.*")

    def witness(row: Row) -> Witness:
        return _witness(row, "in the log" if row["in_log"] else "read", [row["sent_op"], row["op"]])

    return findings(evidence.world, CheckPlan("A5", first, ("sent_op",), witness))


def check_a6(evidence: Evidence) -> dict[int, Finding]:
    """Judge how often a message is in the log.

    A witness is an attempt at two places (queue, offset), unless it was delayed: that may be released again. A message
    that was sent and stands at two places otherwise, by another attempt or release, is counted, and is a witness only
    where duplicates are promised never to be.
    """
    world = evidence.world
    rows = world.keep(_copies(evidence))
    order = ("is_again", *ATTEMPT)
    if world.promises.duplicates == DUPLICATES_NEVER:
        return findings(world, CheckPlan("A6", rows, order, _many))
    again = findings(world, CheckPlan("A6", rows.where("is_again"), order, _many, judged=always(False)))

    def text(run: int) -> str:
        count = again[run].count
        return f"{count:,} messages stand there again by another attempt or release" if count else ""

    judged = always(world.promises.duplicates != DUPLICATES_ANY)
    found = findings(world, CheckPlan("A6", rows.where("not is_again"), order, _many, judged=judged, text=text))
    for run, twice in found.items():
        if not twice.count and again[run].count:
            some = again[run].witnesses[:_AGAIN_SHOWN]
            found[run] = Finding("A6", twice.title, Verdict.INFO, again[run].count, text(run), some)
    return found


def check_a7(evidence: Evidence) -> dict[int, Finding]:
    """Count deliveries of a message to a consumer group beyond the first: at-least-once allows them, after failures.

    A witness is a message that was in several answers to polls of a group, or several times in one.
    """
    polls = evidence.oks(Act.POLL).where(F.col("group") != "").select(RUN, "op", "group")
    given = evidence.world.reads.select(RUN, "op", *MESSAGE).join(polls, [RUN, "op"])
    keys = [RUN, "group", *MESSAGE]
    many = given.groupBy(*keys).agg(F.count(F.lit(1)).alias("times")).where(F.col("times") > 1)
    ranked = given.join(many, keys).withColumn("rank", F.row_number().over(Window.partitionBy(*keys).orderBy("op")))
    first = ranked.where(F.col("rank") <= _OPS_SHOWN).groupBy(*keys, "times")
    rows = first.agg(F.sort_array(F.collect_list("op")).alias("ops"))

    def witness(row: Row) -> Witness:
        message = [row["writer"], row["counter"]]
        return {"ops": row["ops"], "group": row["group"], "message": message, "times": row["times"]}

    return findings(evidence.world, CheckPlan("A7", rows, ("ops", "group", *MESSAGE), witness, judged=always(False)))


def _of_stable_reads(world: World) -> Callable[[int], bool]:
    return lambda run: world.promises.stable_reads and world.is_strict(run)


def check_a8(evidence: Evidence) -> dict[int, Finding]:
    """Judge that an offset means one message.

    A witness is an offset of a queue at which two messages stand, over all acknowledgements, all that anybody read
    through whichever replica, and the merged log: the first of these in this order, and the first that differs.
    """
    told = evidence.acknowledged.withColumn("place", place())
    some = told.select(*_named_columns(F.lit(0))).unionByName(
        evidence.standing.select(*_named_columns(F.when(_in_log(), 2).otherwise(1)))
    )
    some = some.join(evidence.crowded, list(PLACE_KEYS), "left_semi")
    here = Window.partitionBy(RUN, *QUEUE, "offset")
    some = some.withColumn("first", F.min("name").over(here))
    differs = (F.col("name.writer") != F.col("first.writer")) | (F.col("name.counter") != F.col("first.counter"))
    others = some.where(differs).groupBy(RUN, *QUEUE, "offset", "first").agg(F.min("name").alias("other"))

    def witness(row: Row) -> Witness:
        both = (row["first"], row["other"])
        ops = [one["op"] for one in both if one["op"] != UNKNOWN]
        messages = [[one["writer"], one["counter"]] for one in both]
        return {"ops": ops, "queue": _queue(row), "offset": row["offset"], "messages": messages}

    plan = CheckPlan("A8", others, ("other", *QUEUE, "offset"), witness, judged=_of_stable_reads(evidence.world))
    return findings(evidence.world, plan)


def check_a9(evidence: Evidence) -> dict[int, Finding]:
    """Judge that acknowledgements told the truth.

    A witness is a send that was told (queue, offset, position, term), if another attempt is read or held at that
    offset, or this attempt only at other offsets, or there with another position or term. What was not told is not
    compared. Beside it stands the first operation that read what differs.
    """
    suspects = evidence.world.keep(_suspicious_acknowledgements(evidence))
    others = _others_there(evidence, suspects)
    own = _own(evidence, suspects)
    rows = suspects.join(others, [RUN, "op"], "left").join(own, [RUN, "op"], "left")
    another = F.col("other_op").isNotNull()
    moved = F.col("first").isNotNull() & ~F.col("is_here")
    why = F.when(another, "another attempt there").when(moved, "at another offset").otherwise(F.col("wrong.why"))
    by = F.when(another, F.col("other_op")).when(moved, F.col("first.by")).otherwise(F.col("wrong.by"))
    rows = rows.withColumn("why", why).withColumn("by", by).where(F.col("why").isNotNull())

    def witness(row: Row) -> Witness:
        return _witness(row, row["why"], [row["op"], row["by"]])

    return findings(evidence.world, CheckPlan("A9", rows, ("op",), witness, judged=_of_stable_reads(evidence.world)))


def _in_log() -> Column:
    """Whether a row is of the merged log, and nobody's answer."""
    return F.col("op") == UNKNOWN


def _queue(row: Row) -> list[str | int]:
    return [row[name] for name in QUEUE]


def _witness(row: Row, why: str, ops: list[int]) -> Witness:
    known = [op for op in ops if op != UNKNOWN]
    message = [row[name] for name in ATTEMPT]
    return {"ops": known, "queue": _queue(row), "offset": row["offset"], "message": message, "why": why}


def _many(row: Row) -> Witness:
    message = [row[name] for name in ATTEMPT if row[name] is not None]
    return {"ops": row["ops"], "message": message, "places": [list(where) for where in row["places"]]}


def _suspicious_attempts(evidence: Evidence) -> DataFrame:
    """Return attempts of which something stands that is perhaps not as it was sent."""
    sent = evidence.sends.select(
        *ATTEMPT_KEYS, place().alias("s_place"), F.col("queue").alias("s_queue"), F.col("digest").alias("s_digest"),
        F.col("invoked").alias("s_invoked"),
    )  # fmt: skip
    both = evidence.by_attempt.join(sent, list(ATTEMPT_KEYS), "left")
    as_sent = (
        _all_are("place", F.col("s_place"))
        & _all_are("queue", F.col("s_queue"))
        & ((F.col("s_digest") == 0) | _all_are("digest", F.col("s_digest")))
        & (F.col("completed_min").isNull() | (F.col("completed_min") >= F.col("s_invoked")))
    )
    found = both.where(~F.coalesce(as_sent, F.lit(False))).select(*ATTEMPT_KEYS).distinct()
    return evidence.world.keep(found)


def _all_are(name: str, value: Column) -> Column:
    return (F.col(f"{name}_min") == value) & (F.col(f"{name}_max") == value)


def _sent(evidence: Evidence, attempts: DataFrame) -> DataFrame:
    """Return what was `sent` by some attempts."""
    some = evidence.sends.join(attempts, list(ATTEMPT_KEYS), "left_semi")
    sent = F.struct("op", *QUEUE, "digest", "invoked", "delay_until")
    return some.groupBy(*ATTEMPT_KEYS).agg(F.max(sent).alias("sent"))


def _copies(evidence: Evidence) -> DataFrame:
    """Return attempts at two places, and messages at two by several attempts or releases (`is_again`)."""
    world, messages = evidence.world, [RUN, *MESSAGE]
    ends = [
        what(f"{name}_{end}").alias(f"{name}_{end}")
        for name in ("place", "queue", "offset")
        for end, what in (("min", F.min), ("max", F.max))
    ]
    moved = world.keep(evidence.by_attempt.groupBy(*messages).agg(*ends).where(varies("place", "queue", "offset")))
    where = F.struct(*QUEUE, "offset").alias("where")
    some = evidence.standing.join(moved, messages, "left_semi").select(*ATTEMPT_KEYS, where).distinct()
    some = world.keep(some)
    places = F.sort_array(F.collect_set("where")).alias("places")
    attempts = some.groupBy(*ATTEMPT_KEYS).agg(places).where(F.size("places") > 1)
    twice = attempts.join(_sent(evidence, attempts), list(ATTEMPT_KEYS)).where(F.col("sent.delay_until") == UNKNOWN)
    twice = world.keep(twice.drop("sent").withColumn("is_again", F.lit(False)))
    again = some.groupBy(*messages).agg(places).join(twice, messages, "left_anti")
    again = again.withColumn("attempt", F.lit(None).cast("long")).withColumn("is_again", F.lit(True))
    sends = evidence.sends.join(moved, messages, "left_semi").groupBy(*messages)
    ops = sends.agg(F.sort_array(F.collect_list("op")).alias("ops"))
    return twice.unionByName(again).join(ops, messages)


def _named_columns(source: Column) -> list[Column]:
    name = F.struct(source.alias("source"), "op", "position", *MESSAGE).alias("name")
    return [*(F.col(key) for key in (*PLACE_KEYS, "q_broker", "topic")), name]


def _suspicious_acknowledgements(evidence: Evidence) -> DataFrame:
    """Return sends whose acknowledgement perhaps differs from what is found."""
    names = [RUN, "op", *QUEUE, "place", "offset", *ATTEMPT, "position", "term"]
    told = evidence.acknowledged.withColumn("place", place()).select(*names)
    found = evidence.by_attempt.drop("queue", "offset")
    as_told = F.lit(True)
    for name in ("place", "queue", "offset"):
        as_told = as_told & _all_are(name, F.col(name))
    for name in ("position", "term"):
        untold = (F.col(name) == UNKNOWN) | F.col(f"{name}_min").isNull()
        as_told = as_told & (untold | _all_are(name, F.col(name)))
    differing = told.join(found, list(ATTEMPT_KEYS)).where(~as_told).select(*names)
    crowded = told.join(evidence.crowded, list(PLACE_KEYS), "left_semi")
    return differing.unionByName(crowded).dropDuplicates([RUN, "op"])


def _others_there(evidence: Evidence, suspects: DataFrame) -> DataFrame:
    """Return (run, op) of sends at whose place another attempt stands: `other_op` read it first, or UNKNOWN."""
    asked = suspects.select(*PLACE_KEYS, F.col("op").alias("told"), F.struct(*ATTEMPT).alias("own"))
    there = evidence.standing.join(asked, list(PLACE_KEYS)).where(F.struct(*ATTEMPT) != F.col("own"))
    first = F.coalesce(F.min(F.when(~_in_log(), F.col("op"))), F.lit(UNKNOWN)).cast("long")
    return there.groupBy(RUN, F.col("told").alias("op")).agg(first.alias("other_op"))


def _own(evidence: Evidence, suspects: DataFrame) -> DataFrame:
    """Return by (run, op) what is found of sends: the `first`, whether any `is_here`, the first that is `wrong`."""
    told = F.struct("place", "queue", "offset", "position", "term").alias("told")
    asked = suspects.select(*ATTEMPT_KEYS, F.col("op").alias("told_op"), told)
    some = evidence.standing.join(asked, list(ATTEMPT_KEYS))
    here = F.lit(True)
    for name in ("place", "queue", "offset"):
        here = here & (F.col(name) == F.col(f"told.{name}"))
    why = F.when(_differs("position"), "at another position").when(_differs("term"), "of another term")
    some = some.withColumn("here", here).withColumn("why", why)
    first = F.struct(_in_log().alias("in_log"), F.col("op").alias("by"))
    wrong = F.struct(_in_log().alias("in_log"), F.col("op").alias("by"), "position", "digest", "term", "why")
    return some.groupBy(RUN, F.col("told_op").alias("op")).agg(
        F.min(first).alias("first"),
        F.max("here").alias("is_here"),
        F.min(F.when(F.col("here") & F.col("why").isNotNull(), wrong)).alias("wrong"),
    )


def _differs(name: str) -> Column:
    told, found = F.col(f"told.{name}"), F.col(name)
    return (told != UNKNOWN) & (found != UNKNOWN) & (told != found)


COPIES_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (
    check_a4,
    check_a5,
    check_a6,
    check_a7,
    check_a8,
    check_a9,
)
