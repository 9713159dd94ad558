"""A1, A2, A3, A13 as plans: what was acknowledged is there, every offset is taken. See pipeline/twin_client_loss."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.results import Finding, Verdict
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.spark.checker.evidence import ATTEMPT, MESSAGE, QUEUE, READER, Evidence, joined, within
from pipeline.spark.checker.plan import CheckPlan, Witness, always, findings
from pipeline.spark.checker.standing import ATTEMPT_KEYS
from pipeline.spark.checker.world import RUN

_QUEUE_KEYS = (RUN, *QUEUE)
_SECOND_NS = 1e9
# Readers of a queue that are told apart by bits of one number; what more of them brought is looked at one by one.
_READER_BITS = 62


def check_a1(evidence: Evidence) -> dict[int, Finding]:
    """Judge that what was acknowledged is there.

    A witness is a send that ended OK, into queue k at offset o, not below the first retained one, if
    * a final scan of k went past o, and brought the message at no offset of k; `where` tells where in k that is; or
    * every final scan of k told an end at or below o, none brought the message, and a leader told so when asked after
      the acknowledgement; or
    * replicas were read to one common end, and none holds that attempt.
    Of a message whose offset nobody told, as of a delayed one: no scan of k brought it, although a leader's scan of all
    of k was asked after it was due and delay_bound_s had passed. Messages of transactions are not looked at.
    """
    rows = evidence.once("lost", _lost)

    def witness(row: Row) -> Witness:
        return {**_witness(row), "where": row["where"]}

    return findings(evidence.world, CheckPlan("A1", rows, ("op",), witness, judged=evidence.world.is_strict))


def check_a2(evidence: Evidence) -> dict[int, Finding]:
    """Judge that no poll passes a message over.

    A witness is a message that stands at offset o of k for sure (acknowledged there, or in the merged log), that no
    answer to anyone brought, although an answered poll of k went from at or below o to beyond it.
    """
    told = evidence.acknowledged.select(*_QUEUE_KEYS, "offset", *MESSAGE, "op")
    if evidence.held is not None:
        nobody = F.lit(None).cast("long").alias("op")
        told = told.unionByName(evidence.held.select(*_QUEUE_KEYS, "offset", *MESSAGE, nobody))
    unread = told.join(evidence.read_messages, [RUN, *MESSAGE], "left_anti")
    passed = within(unread, evidence.once("polled", _polled), _QUEUE_KEYS)
    rows = passed.groupBy(*_QUEUE_KEYS, "offset", *MESSAGE).agg(F.sort_array(F.collect_list("op")).alias("ops"))

    def witness(row: Row) -> Witness:
        message = [row["writer"], row["counter"]]
        return {"ops": row["ops"], "queue": _queue(row), "offset": row["offset"], "message": message}

    order = (*QUEUE, "offset", *MESSAGE)
    return findings(evidence.world, CheckPlan("A2", rows, order, witness, judged=evidence.world.is_strict))


def check_a3(evidence: Evidence) -> dict[int, Finding]:
    """Judge that everything acknowledged was accounted for.

    A witness is a send that ended OK, read by nobody, in no merged log, not proved lost (A1, A2), not below the first
    retained offset, and of no transaction whose commit was not acknowledged. Makes the run unknown, not invalid.
    """
    unseen = evidence.world.keep(_unseen(evidence))
    lost = evidence.once("lost", _lost).select(RUN, "op")
    passed = within(unseen.where(_has_offset()), evidence.once("polled", _polled), _QUEUE_KEYS).select(RUN, "op")
    rows = unseen.join(lost.unionByName(passed), [RUN, "op"], "left_anti")
    plan = CheckPlan("A3", rows, ("op",), _witness, judged=evidence.world.is_strict, bad=always(Verdict.UNKNOWN))
    return findings(evidence.world, plan)


def check_a13(evidence: Evidence) -> dict[int, Finding]:
    """Judge that queue offsets are dense: a final scan that goes past an offset of a queue brings a message for it.

    A witness is a hole: `missing` offsets in a row, the first retained one or later, for which a reader has none.
    """
    began = evidence.scans.groupBy(*READER).agg(F.min("op").alias("reader_op"))
    rows = _holes(evidence).join(began, list(READER))

    def witness(row: Row) -> Witness:
        missing = {"offset": row["offset"], "missing": row["missing"], "reader": row["address"]}
        return {"ops": [], "queue": _queue(row), **missing}

    judged = always(evidence.world.promises.dense_offsets)
    return findings(evidence.world, CheckPlan("A13", rows, (*QUEUE, "reader_op", "offset"), witness, judged=judged))


def _queue(row: Row) -> list[str | int]:
    return [row[name] for name in QUEUE]


def _witness(row: Row) -> Witness:
    message = [row[name] for name in ATTEMPT]
    return {"ops": [row["op"]], "queue": _queue(row), "offset": row["offset"], "message": message}


def _has_offset() -> Column:
    return F.col("is_plain") & (F.col("offset") != UNKNOWN)


def _lost(evidence: Evidence) -> DataFrame:
    """Return the sends that are lost, and `where`."""
    direct = (F.col("kind") == str(Kind.OK)) & (F.col("queue") != UNKNOWN) & (F.col("transaction") == "")
    names = (RUN, "op", *QUEUE, "offset", *ATTEMPT, "completed", "delay_until", "has_offset")
    some = evidence.with_lowest(evidence.sends.where(direct).withColumn("has_offset", _has_offset()))
    some = some.where(~F.col("has_offset") | (F.col("offset") >= F.col("lowest"))).select(*names)
    partly = evidence.world.keep(_not_brought_by_all(evidence, some))
    passed = _passed_by_a_reader(evidence, partly).withColumn("why", F.lit(0))
    brought = evidence.scanned.select(*_QUEUE_KEYS, *MESSAGE)
    nowhere = partly.join(brought, [*_QUEUE_KEYS, *MESSAGE], "left_anti")
    behind = _behind(evidence, nowhere).withColumn("why", F.lit(1))
    late = _overdue(evidence, nowhere).withColumn("why", F.lit(3))
    found = [passed, behind, late]
    if evidence.held is not None:
        found.append(_in_no_replica(evidence, some).withColumn("why", F.lit(2)))
    rows = found[0]
    for more in found[1:]:
        rows = rows.unionByName(more)
    first = rows.groupBy(*names).agg(F.min("why").alias("why")).join(_edges(evidence), list(_QUEUE_KEYS), "left")
    part = (
        F.when(F.col("lowest_row").isNull() | (F.col("offset") < F.col("lowest_row")), "before the first")
        .when(F.col("offset") > F.col("highest_row"), "behind the last")
        .otherwise("in the middle")
    )
    why = F.col("why")
    where = F.when(why == 0, part).when(why == 1, "behind the end").when(why == 2, "no replica").otherwise("no offset")
    return first.withColumn("where", where)


def _edges(evidence: Evidence) -> DataFrame:
    """Return each queue's lowest and highest offset that any reader brought."""
    edges = (F.min("offset").alias("lowest_row"), F.max("offset").alias("highest_row"))
    return evidence.scanned.groupBy(*_QUEUE_KEYS).agg(*edges)


def _not_brought_by_all(evidence: Evidence, sends: DataFrame) -> DataFrame:
    """Return sends that not every reader of their queue brought for sure; queues without readers are left out."""
    of_queue = Window.partitionBy(*_QUEUE_KEYS)
    number = F.row_number().over(of_queue.orderBy("address")) - 1
    readers = evidence.readers.select(*READER).withColumn("number", number)
    readers = readers.withColumn("readers", F.count(F.lit(1)).over(of_queue))
    bits = readers.where(F.col("number") < _READER_BITS).withColumn("bit", F.expr("shiftleft(1L, number)"))
    brought = evidence.scanned.select(*READER, *MESSAGE).join(F.broadcast(bits), list(READER))
    by_message = brought.groupBy(*_QUEUE_KEYS, *MESSAGE).agg(
        F.bit_or("bit").alias("bits"), F.max("readers").alias("readers")
    )
    whole = (F.col("readers") <= _READER_BITS) & (F.bit_count("bits") == F.col("readers"))
    by_all = by_message.where(whole).select(*_QUEUE_KEYS, *MESSAGE)
    read = sends.join(readers.select(*_QUEUE_KEYS).distinct(), list(_QUEUE_KEYS), "left_semi")
    return read.join(by_all, [*_QUEUE_KEYS, *MESSAGE], "left_anti")


def _passed_by_a_reader(evidence: Evidence, sends: DataFrame) -> DataFrame:
    """Return sends whose offset a reader went past without bringing the message."""
    asked = sends.where("has_offset").join(evidence.readers.select(*READER), list(_QUEUE_KEYS))
    brought = evidence.scanned.select(*READER, *MESSAGE)
    missed = asked.join(brought, [*READER, *MESSAGE], "left_anti")
    return within(missed, evidence.reader_spans, READER).select(*sends.columns)


def _behind(evidence: Evidence, sends: DataFrame) -> DataFrame:
    """Return sends at or behind the end of their queue, as a leader told it when asked after the acknowledgement."""
    ends = evidence.readers.groupBy(*_QUEUE_KEYS).agg(
        F.max("end").alias("highest_end"), F.max(F.when(F.col("is_leader"), F.col("began"))).alias("asked")
    )
    told = sends.where("has_offset").join(ends, list(_QUEUE_KEYS))
    behind = (F.col("asked") > F.col("completed")) & (F.col("highest_end") <= F.col("offset"))
    return told.where(behind).select(*sends.columns)


def _overdue(evidence: Evidence, sends: DataFrame) -> DataFrame:
    """Return sends without an offset that should have been there when a leader's scan of the whole queue was asked."""
    whole = evidence.readers.where(F.col("complete") & F.col("is_leader"))
    asked = whole.groupBy(*_QUEUE_KEYS).agg(F.max("began").alias("asked"))
    bound = int(evidence.world.promises.delay_bound_s * _SECOND_NS)
    due = F.greatest("completed", F.col("delay_until") + bound)
    return (
        sends.where("not has_offset").join(asked, list(_QUEUE_KEYS)).where(F.col("asked") > due).select(*sends.columns)
    )


def _in_no_replica(evidence: Evidence, sends: DataFrame) -> DataFrame:
    """Return sends that the merged log should hold, as it is complete, and does not."""
    whole = [run for run, complete in evidence.world.complete.items() if complete]
    held = evidence.held
    assert held is not None, "asked only beside a merged log"
    some = sends.where(F.col("has_offset") & F.col(RUN).isin(whole))
    return some.join(held.select(*ATTEMPT_KEYS), list(ATTEMPT_KEYS), "left_anti")


def _polled(evidence: Evidence) -> DataFrame:
    """Return which offsets of each queue answered polls went past."""
    return joined(evidence.spans(evidence.oks(Act.POLL)).select(*_QUEUE_KEYS, "first", "last"), _QUEUE_KEYS)


def _unseen(evidence: Evidence) -> DataFrame:
    """Return acknowledged sends of which nothing was read and nothing is held, although they are to be there."""
    some = evidence.sends.where(F.col("kind") == str(Kind.OK))
    some = some.join(evidence.read_messages, [RUN, *MESSAGE], "left_anti")
    if evidence.held is not None:
        some = some.join(evidence.held.select(*ATTEMPT_KEYS), list(ATTEMPT_KEYS), "left_anti")
    committed = evidence.oks(Act.END_COMMIT).select(RUN, "transaction").distinct().withColumn("committed", F.lit(True))
    some = some.join(committed, [RUN, "transaction"], "left")
    some = some.where((F.col("transaction") == "") | F.col("committed")).drop("committed")
    some = evidence.with_lowest(some)
    return some.where(~_has_offset() | (F.col("offset") >= F.col("lowest"))).drop("lowest")


def _holes(evidence: Evidence) -> DataFrame:
    """Return READER, offset, missing: stretches of offsets that a reader went past without a message.

    All offsets that a reader brought and the ends of its spans are put in one order. Each but the end of a span says
    what must come `next`; what lies between two spans says nothing.
    """
    spans = evidence.with_lowest(evidence.reader_spans).withColumn("at", F.greatest("first", "lowest"))
    spans = spans.where(F.col("at") < F.col("last"))
    # At one offset the end of a span comes first, then the begin of another, then what was brought.
    ends = spans.select(*READER, F.col("last").alias("at"), F.lit(0).alias("mark"))
    begins = spans.select(*READER, "at", F.lit(1).alias("mark"))
    points = evidence.scanned.select(*READER, F.col("offset").alias("at"), F.lit(2).alias("mark"))
    marks = ends.unionByName(begins).unionByName(points)
    order = Window.partitionBy(*READER).orderBy("at", "mark")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    inside = F.last(F.when(F.col("mark") != 2, F.col("mark") == 1), ignorenulls=True).over(before)
    expected = F.lag(F.when(F.col("mark") == 2, F.col("at") + 1).otherwise(F.col("at"))).over(order)
    rows = marks.withColumns({"inside": inside, "expected": expected})
    rows = rows.where((F.col("mark") != 1) & F.col("inside") & (F.col("at") > F.col("expected")))
    return rows.select(*READER, F.col("expected").alias("offset"), (F.col("at") - F.col("expected")).alias("missing"))


LOSS_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = (check_a1, check_a2, check_a3, check_a13)
