"""Where messages stand, by what was read and by the merged log, cut down to a row for each attempt and each place.

A check finds what is suspicious in these, and looks at single reads only there. Aggregates are of numbers alone, which
Spark keeps in one hash table: texts stand as their hashes of 64 bits (`place`: broker group and topic).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.history.rows import UNKNOWN, Kind
from pipeline.spark.checker.world import RUN

ATTEMPT_KEYS = (RUN, "writer", "counter", "attempt")
PLACE_KEYS = (RUN, "place", "queue", "offset")
_SPANNED = ("place", "queue", "offset", "digest", "position", "term")


def place() -> Column:
    """Return the hash of a row's broker group and topic."""
    return F.xxhash64("q_broker", "topic")


def known(name: str) -> Column:
    """Return a number of a row, null where it is not known."""
    return F.when(F.col(name) != UNKNOWN, F.col(name))


def standing(sights: DataFrame, held: DataFrame | None) -> DataFrame:
    """Return all that was read, and the merged log: their queue, place, offset, attempt, digest, position, term, `op`.

    Of what stands in the log `op` is UNKNOWN; what was read has a `completed` if its answer came for sure.
    """
    names = (RUN, "q_broker", "topic", "queue", "offset", "writer", "counter", "attempt", "digest", "position")
    answered = F.when(F.col("op_kind") == str(Kind.OK), F.col("op_completed"))
    unknown = F.lit(UNKNOWN).cast("long")
    rows = sights.select(*names, unknown.alias("term"), "op", answered.alias("completed"))
    if held is not None:
        nothing = F.lit(None).cast("long").alias("completed")
        rows = rows.unionByName(held.select(*names, "term", unknown.alias("op"), nothing))
    return rows.withColumn("place", place())


def by_attempt(rows: DataFrame) -> DataFrame:
    """Return a row for each attempt that stands anywhere: how often it was `read`, the least and most of each number.

    `NAME_min` and `NAME_max` are of place, queue, offset, digest, and of known positions and terms; `completed_min` is
    when it was first read.
    """
    read = F.sum(F.when(F.col("op") != UNKNOWN, 1).otherwise(0)).alias("read")
    return rows.groupBy(*ATTEMPT_KEYS).agg(read, *_spans(), F.min("completed").alias("completed_min"))


def _spans() -> list[Column]:
    values = {name: known(name) if name in {"position", "term"} else F.col(name) for name in _SPANNED}
    return [
        what(value).alias(f"{name}_{end}")
        for name, value in values.items()
        for end, what in (("min", F.min), ("max", F.max))
    ]


def varies(*names: str) -> Column:
    """Whether a row's NAME_min and NAME_max differ for one of some names."""
    found = F.lit(False)
    for name in names:
        found = found | (F.col(f"{name}_min") != F.col(f"{name}_max"))
    return found


def crowded(rows: DataFrame, acknowledged: DataFrame) -> DataFrame:
    """Return the PLACE_KEYS of offsets that stand for several attempts, acknowledgements counted in."""
    names = ("writer", "counter", "attempt")
    told = acknowledged.withColumn("place", place()).select(*PLACE_KEYS, *names)
    both = rows.select(*PLACE_KEYS, *names).unionByName(told)
    ends = [what(name).alias(f"{name}_{end}") for name in names for end, what in (("min", F.min), ("max", F.max))]
    return both.groupBy(*PLACE_KEYS).agg(*ends).where(varies(*names)).select(*PLACE_KEYS)
