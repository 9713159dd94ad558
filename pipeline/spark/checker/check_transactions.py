"""A18, A21 as plans: transactions, from sends and reads that carry a transaction's name.

See pipeline/twin_client_transactions. Circles need a search: Spark finds what comes directly after what, and drops all
that cannot lie in a circle; the rest goes to the twin's code.
"""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.results import Finding
from pipeline.history.rows import Act, Kind
from pipeline.plain.check_transactions import knots, shortest_circle
from pipeline.spark.checker.evidence import ATTEMPT, MESSAGE, QUEUE, Evidence, as_of, joined
from pipeline.spark.checker.plan import CheckPlan, Witness, findings, runs_of
from pipeline.spark.checker.world import RUN, World

# More edges than this, after those are dropped that go forward in the log only, do not fit beside Spark.
EDGES_MAX = 10_000_000
_OF = (RUN, "transaction")


def check_a18(evidence: Evidence) -> dict[int, Finding]:
    """Judge transactions as units.

    A witness is a transaction of which a message is read
    * by an answer that came before any commit of it was invoked, or though none was, or
    * though its rollback was acknowledged;
    one whose commit was acknowledged, and that a leader's complete scan, asked later (by delay_bound_s), does not
    bring; one of which a scan brings a part, while another of its queues was scanned in whole without bringing the
    rest; one whose commit and rollback were both acknowledged; and a question for its end that came after that had been
    acknowledged. One without an end is counted in the text.
    """
    world = evidence.world
    transactions = world.keep(_transactions(evidence))
    counts: dict[int, tuple[int, int]] = {}
    is_open = (F.col("commits") == 0) & (F.col("rollbacks") == 0)
    for row in transactions.groupBy(RUN).agg(F.count(F.lit(1)), F.count_if(is_open)).collect():
        counts[row[0]] = (row[1], row[2])
    instead = dict.fromkeys(set(world.runs) - set(counts), skipped("A18", "there were no transactions"))
    told = F.explode(F.array_compact(F.array(*_torn())))
    rows = transactions.select(*_OF, "first_op", told.alias("told")).select(*_OF, "first_op", "told.*")

    def witness(row: Row) -> Witness:
        ops = [op for op in row["ops"] if op is not None]
        return {"ops": ops, "transaction": row["transaction"], "why": row["why"]}

    def text(run: int) -> str:
        count, open_ones = counts[run]
        return f"{open_ones:,} of {count:,} have no end" if open_ones else ""

    plan = CheckPlan("A18", rows, ("first_op", "rank"), witness, judged=world.is_strict, text=text, instead=instead)
    return findings(world, plan)


def check_a21(evidence: Evidence) -> dict[int, Finding]:
    """Judge that transactions can be put in one order.

    One comes before another if it wrote the message before the other's in a queue, or wrote what the other read; of two
    that are told for one place, the one of the smaller name stands there. A circle is a violation, counted by strongly
    connected parts; the witness is a shortest circle of a part. Unknown where more edges than EDGES_MAX are left.
    """
    world = evidence.world
    places = world.keep(_places(evidence))
    edges = world.keep(_edges(evidence, places))
    some = runs_of(edges)
    found = dict.fromkeys(set(world.runs) - some, skipped("A21", "no two transactions touch the same queue"))
    rest = _in_knots(world, edges, places).limit(EDGES_MAX + 1).toArrow()
    if rest.num_rows > EDGES_MAX:
        words = f"more than {EDGES_MAX:,} edges between transactions are left when all are dropped that only go forward"
        return found | dict.fromkeys(some, unknown("A21", words))
    after: dict[int, dict[str, set[str]]] = {run: {} for run in some}
    for run, one, other in zip(*(rest.column(name).to_pylist() for name in (RUN, "one", "other")), strict=True):
        after[run].setdefault(one, set()).add(other)
        after[run].setdefault(other, set())
    judged = world.promises.isolated_transactions
    for run, following in after.items():
        parts = sorted(knots(following), key=min)
        circles = ({"ops": [], "transactions": shortest_circle(following, part)} for part in parts)
        found[run] = finding("A21", circles, judged=judged)
    return found


def _torn() -> list[Column]:
    """Return what can be wrong with a transaction, in the twin's order: rank, why, operations; or null."""
    committed = F.col("committed").isNotNull()
    rolled_back = F.col("rolled_back").isNotNull()
    before = F.when(F.col("commits") > 0, "visible before its commit").otherwise("visible without a commit")
    seen_anyway = F.col("read").isNotNull() & rolled_back & (F.col("commits") > 0)
    told = (
        (F.col("too_early").isNotNull(), before, ["too_early"]),
        (seen_anyway, F.lit("visible after its rollback"), ["rolled_back", "read"]),
        (committed & rolled_back, F.lit("committed and rolled back"), ["committed", "rolled_back"]),
        (F.col("late").isNotNull(), F.lit("asked for after its end"), ["late"]),
        (F.col("missing.never"), F.lit("committed, and never visible"), ["missing.op", "committed"]),
        (~F.col("missing.never"), F.lit("visible in part"), ["missing.op", "read"]),
    )
    return [
        F.when(wrong, F.struct(F.lit(rank).alias("rank"), why.alias("why"), F.array(*ops).alias("ops")))
        for rank, (wrong, why, ops) in enumerate(told)
    ]


def _transactions(evidence: Evidence) -> DataFrame:
    """Return each transaction of which something was sent, with the operations that its witnesses name."""
    named = (F.col("transaction") != "") & (F.col("kind") != str(Kind.FAIL))
    names = [*_OF, "op", "act", "kind", "invoked", "completed", *QUEUE, *MESSAGE]
    ops = evidence.ops.where(named).select(*names)
    commit, rollback = F.col("act") == str(Act.END_COMMIT), F.col("act") == str(Act.END_ROLLBACK)
    ok = F.col("kind") == str(Kind.OK)
    units = ops.groupBy(*_OF).agg(
        F.min("op").alias("first_op"),
        F.count_if(F.col("act") == str(Act.SEND)).alias("sends"),
        F.count_if(commit).alias("commits"),
        F.count_if(rollback).alias("rollbacks"),
        F.min(F.when(commit, F.col("invoked"))).alias("begun"),
        F.min(F.when(commit & ok, F.col("op"))).alias("committed"),
        F.min(F.when(rollback & ok, F.col("op"))).alias("rolled_back"),
        F.min(F.when(commit & ok, F.col("completed"))).alias("settled"),
        F.min(F.when((commit | rollback) & ok, F.col("completed"))).alias("since"),
    )
    units = units.where(F.col("sends") > 0)
    sights = evidence.world.keep(_sights(evidence))
    early = (F.col("op_kind") == str(Kind.OK)) & (F.col("begun").isNull() | (F.col("op_completed") < F.col("begun")))
    reads = sights.join(units.select(*_OF, "begun"), list(_OF))
    reads = reads.groupBy(*_OF).agg(
        F.min("op").alias("read"),
        F.min(F.when(early, F.col("op"))).alias("too_early"),
        F.min(F.when(F.col("op_kind") == str(Kind.OK), F.col("op_completed"))).alias("visible_since"),
    )
    found = evidence.world.keep(units.join(reads, list(_OF), "left"))
    checks = ops.where(F.col("act") == str(Act.CHECK)).join(units.select(*_OF, "since"), list(_OF))
    late = checks.where(F.col("invoked") > F.col("since")).groupBy(*_OF).agg(F.min("op").alias("late"))
    found = found.join(late, list(_OF), "left")
    sends = ops.where((F.col("act") == str(Act.SEND)) & ok)
    return found.join(_missing(evidence, sends, sights, found), list(_OF), "left")


def _missing(evidence: Evidence, sends: DataFrame, sights: DataFrame, units: DataFrame) -> DataFrame:
    """Return of each transaction the first send that a leader's later scan should have brought and did not: `missing`.

    `never`: the commit says so; otherwise only that the rest is visible.
    """
    delay = int(evidence.world.promises.delay_bound_s * 1e9)
    whole = evidence.readers.where(F.col("complete") & F.col("is_leader"))
    scanned = whole.groupBy(RUN, *QUEUE).agg(F.max("began").alias("scanned"))
    unseen = sends.join(sights.select(*_OF, *MESSAGE), [*_OF, *MESSAGE], "left_anti")
    unseen = unseen.join(F.broadcast(scanned), [RUN, *QUEUE])
    unseen = unseen.select(*_OF, "op", "scanned").join(units.select(*_OF, "settled", "visible_since"), list(_OF))
    never, in_part = (
        F.coalesce(F.col("scanned") > F.col(since) + delay, F.lit(False)) for since in ("settled", "visible_since")
    )
    missing = F.min(F.struct("op", never.alias("never")))
    return unseen.where(never | in_part).groupBy(*_OF).agg(missing.alias("missing"))


def _attempts(evidence: Evidence) -> DataFrame:
    return evidence.sends.where(F.col("transaction") != "").select(RUN, *ATTEMPT, "transaction")


def _sights(evidence: Evidence) -> DataFrame:
    """Return who saw a transaction's messages, and where they stand."""
    names = [RUN, "op", "op_kind", "op_completed", *QUEUE, "offset", "position", *ATTEMPT]
    return evidence.sights.select(*names).join(_attempts(evidence), [RUN, *ATTEMPT])


def _places(evidence: Evidence) -> DataFrame:
    """Return where messages of transactions stand."""
    names = [*_OF, *QUEUE, "offset", "position"]
    found = _sights(evidence).select(*names)
    if evidence.held is not None:
        held = evidence.held.drop("transaction").join(_attempts(evidence), [RUN, *ATTEMPT])
        found = found.unionByName(held.select(*names))
    return found


def _edges(evidence: Evidence, places: DataFrame) -> DataFrame:
    """Return which transaction (`other`) comes directly after which (`one`)."""
    order = Window.partitionBy(RUN, *QUEUE).orderBy("offset")
    queues = places.groupBy(RUN, *QUEUE, "offset").agg(F.min("transaction").alias("other"))
    written = queues.withColumn("one", F.lag("other").over(order)).select(RUN, "one", "other")
    readers = evidence.ops.where(F.col("transaction") != "").select(RUN, "op", F.col("transaction").alias("other"))
    read = _sights(evidence).join(readers, [RUN, "op"]).select(RUN, F.col("transaction").alias("one"), "other")
    return written.unionByName(read).where(F.col("one") != F.col("other")).distinct()


def _in_knots(world: World, edges: DataFrame, places: DataFrame) -> DataFrame:
    """Return the edges that may lie in a circle.

    Every transaction has a place in the log, that of its first message; one without writes comes before none, and lies
    in no circle. A circle goes back somewhere, and all of it lies between the ends of such steps back, which overlap or
    touch: an edge whose ends lie in different stretches of them is in no circle.
    """
    first = world.keep(places.groupBy(*_OF).agg(F.min("position").alias("place")))
    ends = [
        first.select(RUN, F.col("transaction").alias(name), F.col("place").alias(f"{name}_place"))
        for name in ("one", "other")
    ]
    placed = reduce(lambda found, end: found.join(end, [RUN, end.columns[1]]), ends, edges)
    back = placed.where(F.col("one_place") >= F.col("other_place"))
    stretches = joined(
        back.select(RUN, F.col("other_place").alias("first"), (F.col("one_place") + 1).alias("last")), (RUN,)
    )
    stretches = world.keep(stretches)
    # As of what began before a place; a stretch holds its own begin. Runs without a step back drop out here.
    begun = stretches.select(RUN, (F.col("first") - 1).alias("at"), F.struct("first", "last").alias("fact"))
    steps = F.broadcast(stretches.select(RUN).distinct())
    points = first.join(steps, RUN, "left_semi").select(*_OF, F.col("place").alias("at"))
    inside = as_of(begun, points, (RUN,)).where(F.col("at") < F.col("fact.last"))
    homes = [
        inside.select(RUN, F.col("transaction").alias(name), F.col("fact.first").alias(f"{name}_home"))
        for name in ("one", "other")
    ]
    found = reduce(lambda some, home: some.join(home, [RUN, home.columns[1]]), homes, edges)
    return found.where(F.col("one_home") == F.col("other_home")).select(RUN, "one", "other")


TRANSACTION_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (check_a18, check_a21)
