"""A10, A11, A12, A14, A15, A22, A23 as plans: order, recency and leadership. See pipeline/twin_client_order."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import skipped, unknown
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.plain.evidence import NEVER
from pipeline.spark.checker.evidence import ATTEMPT, QUEUE, Evidence, as_of, is_plain, of_leader
from pipeline.spark.checker.plan import CheckPlan, Witness, always, findings, runs_of
from pipeline.spark.checker.world import RUN, World

_BEGINS_ANEW = [str(act) for act in (Act.QUERY, Act.LOCK, Act.UNLOCK, Act.RESET, Act.MIN, Act.MAX)]
_TOLD_BY_LEADERS = (Act.SEND, Act.COMMIT, Act.RESET, Act.CREATE_TOPIC, Act.CREATE_GROUP)
# A queue or a log is looked through in ranges of so many offsets or bytes (powers of two): what one task sorts.
_OFFSETS_BITS, _BYTES_BITS = 16, 24
_SHOWN = 8


def check_a10(evidence: Evidence) -> dict[int, Finding]:
    """Judge that a sender's messages keep its order.

    A witness is an acknowledged send whose offset is not greater than that of the acknowledged send before it, of the
    same process to the same queue.
    """
    order = Window.partitionBy(RUN, "process", *QUEUE).orderBy("invoked", "op")
    before = F.lag(F.struct("op", "offset")).over(order)
    rows = evidence.acknowledged.select(RUN, "process", *QUEUE, "invoked", "op", "offset").withColumn("before", before)
    rows = rows.where(F.col("offset") <= F.col("before.offset"))

    def witness(row: Row) -> Witness:
        offsets = [row["before"]["offset"], row["offset"]]
        return {"ops": [row["before"]["op"], row["op"]], "queue": _queue(row), "offsets": offsets}

    plan = CheckPlan("A10", rows, ("process", "invoked", "op"), witness, judged=_in_real_time(evidence.world))
    return findings(evidence.world, plan)


def check_a11(evidence: Evidence) -> dict[int, Finding]:
    """Judge that what was sent after an acknowledgement stands behind it.

    A witness is a send for which one at a greater offset of its queue had ended before it was invoked: of those, the
    one that ended first. The same over the positions of a broker group's log, for pairs that no queue showed. A send
    of unknown end that was read or is held counts as ended when it was first read, if at all.
    """
    located = evidence.world.keep(_located(evidence))
    of_queue = located.where(F.col("offset") != UNKNOWN).withColumn("place", F.col("offset"))
    queues = evidence.world.keep(_inverted(of_queue, QUEUE, _OFFSETS_BITS).withColumn("part", F.lit(0)))
    of_log = located.where(F.col("position") != UNKNOWN).withColumn("place", F.col("position"))
    logs = _inverted(of_log, ("q_broker",), _BYTES_BITS).withColumn("part", F.lit(1))
    told = queues.select(RUN, "op", "soonest.op").toDF(RUN, "op", "_told")
    logs = logs.withColumn("_told", F.col("soonest.op")).join(told, [RUN, "op", "_told"], "left_anti").drop("_told")
    logs = logs.withColumn("topic", F.lit("")).withColumn("queue", F.lit(UNKNOWN).cast("long"))
    rows = queues.unionByName(logs.select(*queues.columns)).withColumn("down", -F.col("place"))

    def witness(row: Row) -> Witness:
        places = [row["soonest"]["place"], row["place"]]
        ops = [row["soonest"]["op"], row["op"]]
        if row["part"] == 1:
            return {"ops": ops, "broker": row["q_broker"], "positions": places}
        return {"ops": ops, "queue": _queue(row), "offsets": places}

    plan = CheckPlan("A11", rows, ("part", *QUEUE, "down", "op"), witness, judged=_in_real_time(evidence.world))
    return findings(evidence.world, plan)


def check_a12(evidence: Evidence) -> dict[int, Finding]:
    """Judge that an answer to a poll is a stretch of its queue.

    A witness is an answer in which two neighbours do not follow one another, that begins before the offset asked for or
    (dense offsets, nothing removed) behind it, or that goes on from elsewhere than behind its last message; where
    sessions are judged, also a poll that asks for another offset than the answer before it, of the same process and
    group on the queue, told, unless the process began anew between. Those are counted in any case.
    """
    world = evidence.world
    between = world.keep(_jumps_between(evidence))
    counts = {row[RUN]: row["n"] for row in between.groupBy(RUN).agg(F.count(F.lit(1)).alias("n")).collect()}
    inside = _jumps_inside(evidence)
    rows = inside.unionByName(between, allowMissingColumns=True) if world.promises.sessions_judged else inside

    def witness(row: Row) -> Witness:
        if row["why"] is not None:
            return {"ops": [row["op"]], "queue": _queue(row), "offsets": row["offsets"], "why": row["why"]}
        before = row["before"]
        offsets = [before["value"], row["offset"]]
        return {"ops": [before["op"], row["op"]], "queue": _queue(row), "offsets": offsets}

    def text(run: int) -> str:
        return f"{counts[run]:,} polls began elsewhere than the one before told" if run in counts else ""

    order = ("part", "process", "invoked", "op")
    return findings(world, CheckPlan("A12", rows, order, witness, judged=world.is_strict, text=text))


def check_a14(evidence: Evidence) -> dict[int, Finding]:
    """Judge that a leader's answer holds all that was acknowledged before it was asked.

    A witness is a poll or question for the end, answered by the leader itself, that told an end not greater than the
    greatest offset that had been acknowledged in that queue before it was invoked. Followers may lag.
    """
    world = evidence.world
    asked = world.keep(_ends(evidence, Act.MAX, Act.POLL))
    told = asked.where("of_leader")
    instead: dict[int, Finding] = {}
    if world.promises.linearizable_reads:
        missing = unknown("A14", "no answer says that a leader gave it")
        instead = dict.fromkeys(set(world.runs) - runs_of(told), missing)
    nothing = set(world.runs) - runs_of(asked)
    instead.update(dict.fromkeys(nothing, skipped("A14", "nobody asked for the end of a queue")))
    acks = evidence.acknowledged.select(
        RUN, *QUEUE, F.col("completed").alias("at"), F.col("offset").alias("told"), "op"
    )
    rows = _before(acks, told).where(F.col("best.told") >= F.col("end"))

    def witness(row: Row) -> Witness:
        best = row["best"]
        return {"ops": [-best["_op"], row["op"]], "queue": _queue(row), "offset": best["told"], "end": row["end"]}

    return findings(world, CheckPlan("A14", rows, ("op",), witness, judged=_of_reads(world), instead=instead))


def check_a15(evidence: Evidence) -> dict[int, Finding]:
    """Judge that a queue's end never goes back.

    A witness is an end that a leader told (asked for it, polled or scanned) and that is smaller than the greatest one
    that leaders had told of the queue before it was asked for.
    """
    world = evidence.world
    told = world.keep(_ends(evidence, Act.MAX, Act.POLL, Act.SCAN).where("of_leader"))
    nothing = set(world.runs) - runs_of(told)
    instead = dict.fromkeys(nothing, skipped("A15", "no answer says that a leader gave it"))
    ends = told.select(RUN, *QUEUE, F.col("completed").alias("at"), F.col("end").alias("told"), "op")
    rows = _before(ends, told).where(F.col("best.told") > F.col("end"))

    def witness(row: Row) -> Witness:
        best = row["best"]
        return {"ops": [-best["_op"], row["op"]], "queue": _queue(row), "ends": [best["told"], row["end"]]}

    return findings(world, CheckPlan("A15", rows, ("op",), witness, judged=_of_reads(world), instead=instead))


def check_a22(evidence: Evidence) -> dict[int, Finding]:
    """Judge that old leaders are fenced.

    A witness is an acknowledgement (of a send, an offset, a topic or a group) in a term older than the newest one of
    its broker group in which something had been acknowledged before it was asked for. A send that was told no term has
    that of the entry which holds it in the merged log; one that went straight into its queue.
    """
    world = evidence.world
    acks = world.keep(_acks(evidence, resolved=True))
    instead = dict.fromkeys(set(world.runs) - runs_of(acks), skipped("A22", "no acknowledgement tells its term"))
    # Terms are few: what each acknowledgement is held against is one small table.
    first = acks.groupBy(RUN, "q_broker", "term").agg(F.min(F.struct("completed", "op")).alias("first"))
    terms = first.groupBy(RUN, "q_broker").agg(
        F.collect_list(F.struct("term", F.col("first.completed").alias("at"), F.col("first.op").alias("op"))).alias(
            "all"
        )
    )
    joined = acks.join(F.broadcast(terms), [RUN, "q_broker"])
    newer = F.filter("all", lambda one: (one["term"] > F.col("term")) & (one["at"] < F.col("invoked")))
    rows = joined.withColumn("newest", F.array_max(newer)).where(F.col("newest").isNotNull()).drop("all")

    def witness(row: Row) -> Witness:
        newest = row["newest"]
        terms = [newest["term"], row["term"]]
        return {"ops": [newest["op"], row["op"]], "broker": row["q_broker"], "terms": terms}

    plan = CheckPlan("A22", rows, ("q_broker", "op"), witness, judged=always(world.promises.fencing), instead=instead)
    return findings(world, plan)


def check_a23(evidence: Evidence) -> dict[int, Finding]:
    """Judge that a term has one leader.

    A witness is a broker group and term in which acknowledgements name two leaders, or else in which two members each
    said of themselves to lead: the first leader that was named, and the first other one.
    """
    world = evidence.world
    acks = _acks(evidence)
    looks = world.looks.where(F.col("role") == "leader")
    nothing = set(world.runs) - runs_of(acks) - runs_of(looks)
    instead = dict.fromkeys(nothing, skipped("A23", "nothing names a leader and its term"))
    places = [RUN, "q_broker", "term"]
    named = acks.where(F.col("leader") != "").groupBy(*places, "leader").agg(F.min("op").alias("key"))
    told = _firsts(named).withColumn("part", F.lit(0)).withColumn("first_by", F.col("q_broker"))
    seen = _members(looks.where(F.col("term") != UNKNOWN), world)
    seen = seen.groupBy(*places, F.col("member").alias("leader")).agg(F.min("at").alias("key"))
    others = _firsts(seen).join(told, places, "left_anti")
    others = others.withColumn("part", F.lit(1)).withColumn("first_by", F.lit(""))

    def witness(row: Row) -> Witness:
        one, other = row["firsts"]
        found = {"broker": row["q_broker"], "term": row["term"], "leaders": [one["leader"], other["leader"]]}
        if row["part"] == 1:
            return {"ops": [], **found, "at": other["key"]}
        return {"ops": [one["key"], other["key"]], **found}

    order = ("part", "first_by", "firsts", "q_broker", "term")
    return findings(world, CheckPlan("A23", told.unionByName(others), order, witness, instead=instead))


def _located(evidence: Evidence) -> DataFrame:
    """Return sends whose place is known: `offset` and `position` (or UNKNOWN), `invoked`, and when each `ended`."""
    names = [RUN, "q_broker", "topic", "queue", "op", "invoked"]
    nowhere = F.lit(UNKNOWN).cast("long")
    offset = F.when(is_plain(), F.col("offset")).otherwise(nowhere).alias("offset")
    sends = evidence.sends
    known = sends.where(F.col("kind") == str(Kind.OK)).select(*names, offset, "position", F.col("over").alias("ended"))
    open_ones = sends.where((F.col("kind") == str(Kind.INFO)) & F.col("is_plain")).select(*names, *ATTEMPT)
    ended = F.col("op_completed")
    never = F.lit(NEVER).cast("long")
    over = F.when((F.col("op_kind") == str(Kind.OK)) & (ended != UNKNOWN), ended).otherwise(never)
    first = F.min(F.struct(over.alias("ended"), "op", "topic", "queue", "offset", "position"))
    keys = [RUN, *ATTEMPT]
    wanted = open_ones.select(*keys)
    seen = evidence.sights.join(wanted, keys, "left_semi").groupBy(*keys).agg(first.alias("seen"))
    found = open_ones.join(seen, keys, "left")
    places = [
        F.when(
            F.col("seen.topic").eqNullSafe(F.col("topic")) & (F.col("seen.queue") == F.col("queue")),
            F.struct("seen.offset", "seen.position"),
        )
    ]
    if evidence.held is not None:
        copy = F.min(F.struct(F.col("q_broker").alias("by"), "position", "topic", "queue", "offset"))
        held = evidence.held.join(wanted, keys, "left_semi").groupBy(*keys).agg(copy.alias("held"))
        found = found.join(held, keys, "left")
        same = [
            F.col(f"held.{theirs}") == F.col(ours)
            for theirs, ours in (("by", "q_broker"), ("topic", "topic"), ("queue", "queue"))
        ]
        places.insert(0, F.when(reduce(lambda one, other: one & other, same), F.struct("held.offset", "held.position")))
    placed = found.withColumn("at", F.coalesce(*places)).where(F.col("at").isNotNull())
    ends = F.coalesce("seen.ended", never).alias("ended")
    return known.unionByName(placed.select(*names, "at.offset", "at.position", ends))


def _inverted(placed: DataFrame, keys: tuple[str, ...], bits: int) -> DataFrame:
    """Return rows with the `soonest` to end of all at greater places, where it had ended before the row was invoked.

    Two passes, so that no task sorts all of a queue or log: the soonest of each range of places, then, inside of a
    range, the soonest of what lies behind in it and of all ranges behind.
    """
    ranged = placed.withColumn("range", F.shiftright("place", bits))
    soonest = F.min(F.struct("ended", "place", "op"))
    of_range = ranged.groupBy(RUN, *keys, "range").agg(soonest.alias("mine"))
    behind = Window.partitionBy(RUN, *keys).orderBy(F.desc("range")).rowsBetween(Window.unboundedPreceding, -1)
    later = of_range.withColumn("beyond", F.min("mine").over(behind)).drop("mine")
    inside = (
        Window.partitionBy(RUN, *keys, "range").orderBy(F.desc("place")).rangeBetween(Window.unboundedPreceding, -1)
    )
    found = ranged.withColumn("within", soonest.over(inside)).join(F.broadcast(later), [RUN, *keys, "range"])
    found = found.withColumn("soonest", F.least("within", "beyond")).where(F.col("soonest.ended") < F.col("invoked"))
    return found.select(RUN, *QUEUE, "place", "op", "soonest")


def _jumps_inside(evidence: Evidence) -> DataFrame:
    """Return answers to polls that are no stretch of their queue: `why`, and the first `offsets`."""
    promises = evidence.world.promises
    dense = F.lit(promises.dense_offsets)
    polls = evidence.oks(Act.POLL).select(
        RUN, "op", *QUEUE, F.col("offset").alias("asked"), F.col("value").alias("go_on")
    )
    reads = evidence.world.reads.withColumn("_row", F.monotonically_increasing_id())
    mine = reads.join(polls.select(RUN, "op", "topic", "queue"), [RUN, "op", "topic", "queue"])
    rows = F.sort_array(F.collect_list(F.struct("_row", "offset")))
    answers = mine.groupBy(RUN, "op").agg(rows.alias("rows"))
    found = polls.join(answers, [RUN, "op"], "left")
    found = found.withColumn("all", F.transform("rows", lambda row: row["offset"])).drop("rows")
    pairs = F.arrays_zip(
        F.slice("all", 1, F.size("all") - 1).alias("one"), F.slice("all", 2, F.size("all")).alias("other")
    )
    # The arrays' last element has nothing behind it.
    jumps = F.filter(pairs, lambda pair: (pair["other"] <= pair["one"]) | (dense & (pair["other"] != pair["one"] + 1)))
    jump = F.get(jumps, F.lit(0))
    start, end = F.get("all", F.lit(0)), F.element_at("all", -1) + 1
    asked, go_on = F.col("asked"), F.col("go_on")
    firm = dense & F.lit(not promises.retention)
    neighbours = F.when(jump.isNotNull(), F.format_string("%d after %d", jump["other"], jump["one"]))
    skips = F.format_string("nothing, but go on from %d", go_on)
    nothing = F.when(F.col("all").isNull() & (asked != UNKNOWN) & firm & (go_on > asked), skips)
    elsewhere = (asked != UNKNOWN) & ((start < asked) | (firm & (start > asked)))
    begins = F.when(elsewhere, F.format_string("begins at %d, asked for %d", start, asked))
    wrong_end = (asked != UNKNOWN) & (go_on != UNKNOWN) & ((go_on < end) | (dense & (go_on > end)))
    ends = F.when(wrong_end, F.format_string("go on from %d, not from %d", go_on, end))
    judged = found.withColumn("why", F.coalesce(neighbours, nothing, begins, ends)).where(F.col("why").isNotNull())
    shown = F.slice("all", 1, _SHOWN)
    offsets = F.coalesce(shown, F.array().cast("array<bigint>")).alias("offsets")
    zero = F.lit(0).cast("long")
    return judged.select(
        RUN, "op", *QUEUE, "why", offsets, F.lit(0).alias("part"), zero.alias("process"), zero.alias("invoked")
    )


def _jumps_between(evidence: Evidence) -> DataFrame:
    """Return polls that asked for another offset than the one before told, with that as `before`."""
    is_poll = F.col("act") == str(Act.POLL)
    matters = F.col("act").isin(_BEGINS_ANEW) | (is_poll & (F.col("kind") == str(Kind.OK)))
    names = [RUN, "op", *QUEUE, "process", "invoked", "offset", "act", "value"]
    order = Window.partitionBy(RUN, "process", "group", *QUEUE).orderBy("invoked", "op")
    found = evidence.ops.where(matters).select(*names, "group")
    found = found.withColumn("before", F.lag(F.struct("op", "act", "value")).over(order))
    told = F.col("before.value")
    jumps = is_poll & (F.col("before.act") == str(Act.POLL)) & (told != UNKNOWN) & (told != F.col("offset"))
    return found.where(jumps).select(*names, "before", F.lit(1).alias("part")).drop("act", "value")


def _ends(evidence: Evidence, *acts: Act) -> DataFrame:
    """Return all ends of queues that were told: `op`, `end`, `at` (when it was asked for), `completed`, `of_leader`."""
    is_max = F.col("act") == str(Act.MAX)
    end = F.when(is_max, F.col("value")).otherwise(F.col("end"))
    told = evidence.oks(*acts).withColumn("end", end).where(F.col("end") != UNKNOWN)
    at = F.col("invoked").alias("at")
    return told.select(RUN, *QUEUE, "op", "end", at, "completed", of_leader(evidence.world.promises).alias("of_leader"))


def _before(facts: DataFrame, questions: DataFrame) -> DataFrame:
    """Add `best`: of all facts of the queue that were there before a question, the greatest; of equals the first."""
    best = F.struct("told", (-F.col("at")).alias("_at"), (-F.col("op")).alias("_op"))
    some = facts.select(RUN, *QUEUE, "at", best.alias("fact"))
    return as_of(some, questions, (RUN, *QUEUE)).withColumnRenamed("fact", "best")


def _acks(evidence: Evidence, *, resolved: bool = False) -> DataFrame:
    """Return the acknowledgements with a term; `resolved`: also those whose term only the merged log tells."""
    acks = evidence.oks(*_TOLD_BY_LEADERS)
    held = evidence.held
    if resolved and held is not None:
        places = held.groupBy(RUN, *ATTEMPT).agg(F.min_by("term", "position").alias("_term"))
        silent = (F.col("act") == str(Act.SEND)) & (F.col("term") == UNKNOWN) & is_plain()
        known = F.when(silent, F.coalesce("_term", "term")).otherwise(F.col("term"))
        acks = acks.join(places, [RUN, *ATTEMPT], "left").withColumn("term", known)
    told = acks.where(F.col("term") != UNKNOWN)
    return told.select(RUN, "q_broker", "op", "term", "leader", "invoked", "completed")


def _firsts(named: DataFrame) -> DataFrame:
    """Return places that have two leaders: `firsts`, an array with the first and the first other one."""
    of_term = F.sort_array(F.collect_list(F.struct("key", "leader")))
    found = named.groupBy(RUN, "q_broker", "term").agg(F.slice(of_term, 1, 2).alias("firsts"))
    return found.where(F.size("firsts") == 2)


def _members(looks: DataFrame, world: World) -> DataFrame:
    """Add to looks the broker group of their member; where groups are named, leave out who is in none."""
    groups = {member: group for group, members in world.promises.group_members.items() for member in members}
    if not groups:
        return looks.withColumn("q_broker", F.lit(""))
    pairs = [F.lit(text) for pair in groups.items() for text in pair]
    return looks.withColumn("q_broker", F.create_map(*pairs)[F.col("member")]).where(F.col("q_broker").isNotNull())


def _queue(row: Row) -> list[str | int]:
    return [row["q_broker"], row["topic"], row["queue"]]


def _in_real_time(world: World) -> Callable[[int], bool]:
    return lambda run: world.promises.real_time_order and world.is_strict(run)


def _of_reads(world: World) -> Callable[[int], bool]:
    return lambda run: world.promises.linearizable_reads and world.is_strict(run)


ORDER_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (
    check_a10,
    check_a11,
    check_a12,
    check_a14,
    check_a15,
    check_a22,
    check_a23,
)
