"""What several checks of a history share, as plans; each is computed once. See pipeline/evidence and finalscan.

Columns that stand for a queue are `q_broker` (the broker group, "" if there is one only), `topic`, `queue`: QUEUE.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.plain.evidence import NEVER
from pipeline.spark.checker import standing
from pipeline.spark.checker.world import RUN, World

QUEUE = ("q_broker", "topic", "queue")
MESSAGE = ("writer", "counter")
ATTEMPT = ("writer", "counter", "attempt")
READER = (RUN, *QUEUE, "address")


@dataclass(frozen=True)
class Evidence:
    """Derived frames of a world."""

    world: World
    _made: dict[str, DataFrame] = field(default_factory=dict)

    def once(self, name: str, make: "Callable[[Evidence], DataFrame]") -> DataFrame:
        """Return a frame that some checks share under a name; it is made, and kept, when first asked for."""
        if name not in self._made:
            self._made[name] = self.world.keep(make(self))
        return self._made[name]

    @cached_property
    def ops(self) -> DataFrame:
        """All operations, with their queue."""
        broker = F.col("broker") if self.world.several_groups else F.lit("")
        return self.world.ops.withColumn("q_broker", broker)

    def oks(self, *acts: Act) -> DataFrame:
        """Return what was answered of some acts."""
        return self.ops.where((F.col("kind") == str(Kind.OK)) & F.col("act").isin([str(act) for act in acts]))

    @cached_property
    def sends(self) -> DataFrame:
        """All attempts to send, with `is_plain` (as evidence.is_plain) and `over` (as evidence.ended)."""
        found = self.ops.where((F.col("act") == str(Act.SEND)) & (F.col("writer") != UNKNOWN))
        return self.world.keep(found.withColumn("is_plain", is_plain()).withColumn("over", ended()))

    @cached_property
    def acknowledged(self) -> DataFrame:
        """Sends that were told which offset of their queue they have."""
        return self.sends.where((F.col("kind") == str(Kind.OK)) & (F.col("offset") != UNKNOWN) & F.col("is_plain"))

    @cached_property
    def topics(self) -> DataFrame:
        """(run, topic) of what was sent to."""
        return self.world.keep(self.sends.select(RUN, "topic").distinct())

    @cached_property
    def reads(self) -> DataFrame:
        """All that was read, whatever its answer: fields of Read, and of the answer `q_broker` and those with `op_`."""
        asked = self.ops.where(F.col("act").isin(str(Act.POLL), str(Act.SCAN))).select(
            RUN,
            "op",
            "q_broker",
            *(F.col(name).alias(f"op_{name}") for name in ("act", "kind", "invoked", "completed", "address", "group")),
        )
        return self.world.reads.join(asked, [RUN, "op"])

    @cached_property
    def sights(self) -> DataFrame:
        """Every message that a poll or scan returned from a topic that something was sent to, as `reads`."""
        found = self.reads.where(F.col("op_kind") != str(Kind.FAIL)).join(self.topics, [RUN, "topic"], "left_semi")
        return self.world.keep(found)

    @cached_property
    def standing(self) -> DataFrame:
        """All that was sighted, and the merged log, as standing.standing."""
        return standing.standing(self.sights, self.held)

    @cached_property
    def by_attempt(self) -> DataFrame:
        """A row for each attempt that stands anywhere, as standing.by_attempt."""
        return self.world.keep(standing.by_attempt(self.standing))

    @cached_property
    def crowded(self) -> DataFrame:
        """The places of several attempts, as standing.crowded."""
        return self.world.keep(standing.crowded(self.standing, self.acknowledged))

    @cached_property
    def read_messages(self) -> DataFrame:
        """(run, writer, counter) of every message that was sighted."""
        return self.world.keep(self.by_attempt.where(F.col("read") > 0).select(RUN, *MESSAGE).distinct())

    @cached_property
    def held(self) -> DataFrame | None:
        """The merged log's messages in topics that something was sent to, with their queue."""
        held = self.world.held
        if held is None:
            return None
        broker = F.col("broker") if self.world.several_groups else F.lit("")
        return self.world.keep(held.join(self.topics, [RUN, "topic"], "left_semi").withColumn("q_broker", broker))

    @cached_property
    def lowest(self) -> DataFrame | None:
        """Each queue's first retained offset, `lowest`; None where nothing is removed and all queues begin at 0."""
        if not self.world.promises.retention:
            return None
        scanned = self.sights.where(F.col("op_act") == str(Act.SCAN)).groupBy(RUN, *QUEUE)
        told = self.oks(Act.MIN).groupBy(RUN, *QUEUE).agg(F.max(F.greatest("value", F.lit(0))).alias("told"))
        both = scanned.agg(F.min("offset").alias("seen")).join(told, [RUN, *QUEUE], "full")
        return self.world.keep(both.select(RUN, *QUEUE, F.greatest("seen", "told").alias("lowest")))

    def with_lowest(self, frame: DataFrame) -> DataFrame:
        """Add `lowest` to rows that have a queue."""
        if self.lowest is None:
            return frame.withColumn("lowest", F.lit(0).cast("long"))
        return frame.join(self.lowest, [RUN, *QUEUE], "left").fillna(0, ["lowest"])

    def spans(self, ops: DataFrame) -> DataFrame:
        """Return the offsets that answers went past, [first, last), as finalscan.span_of; `ops` are polls or scans."""
        # Rows count where answers may begin late, or do not tell where they end.
        matters = ops if self.world.promises.retention else ops.where(F.col("value") == UNKNOWN)
        rows = self.world.reads.select(RUN, "op", "offset").join(matters.select(RUN, "op"), [RUN, "op"], "left_semi")
        edges = rows.groupBy(RUN, "op").agg(F.min("offset").alias("row_first"), F.max("offset").alias("row_last"))
        found = ops.join(edges, [RUN, "op"], "left")
        last = F.when(F.col("value") != UNKNOWN, F.col("value")).otherwise(
            F.coalesce(F.col("row_last") + 1, F.lit(UNKNOWN))
        )
        first = F.col("offset")
        if self.world.promises.retention:
            # Without a row, nothing is proved; `greatest` would pass over the null.
            first = F.when(F.col("row_first").isNotNull(), F.greatest("offset", "row_first")).otherwise(last)
        spans = found.withColumn("last", last.cast("long")).withColumn("first", first.cast("long"))
        return spans.where((F.col("first") >= 0) & (F.col("first") < F.col("last")))

    @cached_property
    def scans(self) -> DataFrame:
        """Answered scans of the final state, with `of_leader` (as History.of_leader)."""
        return self.world.keep(self.oks(Act.SCAN).withColumn("of_leader", of_leader(self.world.promises)))

    @cached_property
    def reader_spans(self) -> DataFrame:
        """The joined spans of each reader: READER, first, last."""
        return self.world.keep(joined(self.spans(self.scans), READER))

    @cached_property
    def readers(self) -> DataFrame:
        """Who scanned the final state of each queue: READER, `began`, `end`, `is_leader`, `complete`, `lowest`."""
        told = F.when(F.col("end") != UNKNOWN, F.struct("invoked", "op", "end", "of_leader"))
        last = self.scans.groupBy(*READER).agg(F.max(told).alias("told"))
        rows = self.with_lowest(
            last.select(
                *READER,
                F.coalesce("told.invoked", F.lit(0)).cast("long").alias("began"),
                F.coalesce("told.end", F.lit(UNKNOWN)).cast("long").alias("end"),
                F.coalesce("told.of_leader", F.lit(False)).alias("is_leader"),
            )
        )
        spans = rows.join(self.reader_spans, list(READER), "left")
        covers = (F.col("first") <= F.col("lowest")) & (F.col("end") <= F.col("last"))
        whole = F.coalesce(F.max(covers), F.lit(False))
        known = (F.col("end") != UNKNOWN) & ((F.col("end") <= F.col("lowest")) | F.col("whole"))
        names = [*READER, "began", "end", "is_leader", "lowest"]
        return self.world.keep(
            spans.groupBy(*names).agg(whole.alias("whole")).withColumn("complete", known).drop("whole")
        )

    @cached_property
    def scanned(self) -> DataFrame:
        """What each reader brought: the rows of answered scans, with READER."""
        asked = self.scans.select(
            RUN, "op", "q_broker", "address", F.col("topic").alias("op_topic"), F.col("queue").alias("op_queue")
        )
        found = self.world.reads.join(asked, [RUN, "op"]).withColumnsRenamed(
            {"topic": "row_topic", "queue": "row_queue"}
        )
        return self.world.keep(found.withColumnsRenamed({"op_topic": "topic", "op_queue": "queue"}))


def of_leader(promises: Promises) -> Column:
    """Whether an answer was given as the leader's (as History.of_leader)."""
    return F.lit(promises.replicas == 1) | ((F.col("leader") != "") & (F.col("leader") == F.col("address")))


def is_plain() -> Column:
    """Whether a send went straight into its queue."""
    return (F.col("delay_until") == UNKNOWN) & (F.col("transaction") == "")


def ended() -> Column:
    """When an operation was over, NEVER if nobody knows."""
    known = (F.col("kind") == str(Kind.OK)) & (F.col("completed") != UNKNOWN)
    return F.when(known, F.col("completed")).otherwise(F.lit(NEVER).cast("long"))


def joined(spans: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Return spans [first, last) of each key without overlaps; those that touch become one. As finalscan.joined."""
    order = Window.partitionBy(*keys).orderBy("first", "last")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max("last").over(before)
    opens = F.when(reached.isNull() | (F.col("first") > reached), 1).otherwise(0)
    numbered = spans.withColumn("_opens", opens).withColumn("_island", F.sum("_opens").over(order))
    islands = numbered.groupBy(*keys, "_island").agg(F.min("first").alias("first"), F.max("last").alias("last"))
    return islands.drop("_island")


def within(points: DataFrame, spans: DataFrame, keys: tuple[str, ...], offset: str = "offset") -> DataFrame:
    """Return those `points` whose offset one of the joined spans of their key holds. Linear: no join by range.

    Both are put in one order; the last span that begins at or before a point holds it, or none does.
    """
    names = points.columns
    marks = spans.select(*keys, F.col("first").alias("_at"), F.col("last").alias("_last"), F.lit(0).alias("_point"))
    some = points.withColumn("_at", F.col(offset)).withColumn("_last", F.lit(None).cast("long"))
    both = some.withColumn("_point", F.lit(1)).unionByName(marks, allowMissingColumns=True)
    order = Window.partitionBy(*keys).orderBy("_at", "_point").rowsBetween(Window.unboundedPreceding, 0)
    reached = F.last("_last", ignorenulls=True).over(order)
    return (
        both.withColumn("_reached", reached)
        .where((F.col("_point") == 1) & (F.col("_at") < F.col("_reached")))
        .select(*names)
    )


def as_of(facts: DataFrame, questions: DataFrame, keys: tuple[str, ...], *names: str) -> DataFrame:
    """Add to questions the greatest of each column `names` of the facts of their key that were there before them.

    Both have `keys` and `at`, facts also `fact` unless other names are given; a fact of the same time does not count.
    Null where there is none. Both are put in one order, so nothing is compared by range.
    """
    names = names or ("fact",)
    kept = questions.columns
    both = facts.select(*keys, "at", *names).withColumn("_fact", F.lit(1))
    both = both.unionByName(questions.withColumn("_fact", F.lit(0)), allowMissingColumns=True)
    # Of the same time the questions come first.
    order = Window.partitionBy(*keys).orderBy("at", "_fact").rowsBetween(Window.unboundedPreceding, 0)
    best = {name: F.max(name).over(order) for name in names}
    return both.withColumns(best).where(F.col("_fact") == 0).select(*kept, *names)
