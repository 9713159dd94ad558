"""B5, B6, B14 as plans. What members said and their small files are judged by the twins' own functions, on the driver.

See pipeline/twin_log_promises for what each calls a violation.
"""

from collections.abc import Callable
from typing import Any, cast

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN
from pipeline.logs.rows import EntryRow
from pipeline.plain.check_log_promises import forsworn, out_of_bounds, strangers
from pipeline.spark.checker.check_log_parts import groups_as_twins, judge, part
from pipeline.spark.checker.replicas import GROUP, OWNER, GroupId, WorldReplicas
from raft.protocol.types import EntryType


def check_b5(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that applied ≤ commit ≤ last, and that no commit index went back."""
    rows = _raft(replicas).where(F.col("commit") >= F.col("index"))
    why = F.format_string("it knows %d as committed", "commit")
    told = {}
    for key, one in groups_as_twins(replicas).items():
        for log in one.group.logs:
            log.entries = []
        told[key] = out_of_bounds(one.replicas, one.group)
    return judge("B5", replicas, [part(rows, 0, "index", member="member", index="index", why=why)], told=told)


def check_b6(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that there was one vote and one leader in each term, and that no term was forgotten."""
    told = {key: forsworn(one.replicas, one.group) for key, one in groups_as_twins(replicas).items()}
    return judge("B6", replicas, [], told=told)


def check_b14(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that floors, votes, leaders and configurations are of this group and its log."""
    own, merged = _at_floors(replicas)
    told = {}
    for key, one in groups_as_twins(replicas).items():
        for log in one.group.logs:
            entry = own.get((*key, log.member))
            # Of one entry alone nothing is told about configurations: that is the plan's part.
            log.entries = [entry._replace(kind=0)] if entry is not None else []
        one.group.entries = {index: entry for (group, index), entry in merged.items() if group == key}
        one.group.committed = replicas.committed[key]
        told[key] = strangers(one.group)
    return judge("B14", replicas, [_misnamed(replicas)], told=told)


def _raft(replicas: WorldReplicas) -> DataFrame:
    return replicas.entries.where(replicas.of_groups(replicas.is_raft))


def _misnamed(replicas: WorldReplicas) -> DataFrame:
    """Return the entries that name another entry as the last configuration before them."""
    # A log's entries stand side by side in the order of their positions.
    order = Window.partitionBy(*OWNER).orderBy("position")
    own = F.col("kind") == int(EntryType.CONFIG)
    before = F.coalesce(F.lag("config").over(order), F.lit(UNKNOWN))
    rows = _raft(replicas).select(*OWNER, "position", "index", "kind", "config").withColumn("before", before)
    rows = rows.withColumn("right", F.when(own, F.col("index")).otherwise(F.col("before")))
    wrong = rows.where((F.col("config") != F.col("right")) & (own | (F.col("before") != UNKNOWN)))
    why = F.format_string("it names %d as the last configuration, not %d", "config", "right")
    return part(wrong, 0, "position", member="member", index="index", why=why)


def _at_floors(
    replicas: WorldReplicas,
) -> tuple[dict[tuple[int, str, str], EntryRow], dict[tuple[GroupId, int], EntryRow]]:
    """Return the entries of the members' floors: as each member has them, and as the merged logs have them."""
    floors = [
        (*key, log.member, log.floor.index)
        for key, group in replicas.groups.items()
        for log in group.logs
        if log.floor is not None
    ]
    if not floors:
        return {}, {}
    schema = "run int, broker string, member string, index bigint"
    table = F.broadcast(replicas.evidence.world.spark.createDataFrame(floors, schema))
    of_member = replicas.entries.join(table, [*OWNER, "index"]).orderBy(F.desc("position")).collect()
    of_group = replicas.merged_entries.join(table.drop("member").distinct(), [*GROUP, "index"]).collect()
    own = {(row.run, row.broker, row.member): _entry(row) for row in of_member}
    return own, {((row.run, row.broker), row["index"]): _entry(row) for row in of_group}


def _entry(row: Row) -> EntryRow:
    fields = row.asDict()
    return EntryRow(**{name: cast("Any", fields.get(name, True)) for name in EntryRow._fields})


PROMISES_CHECKS: tuple[Callable[[WorldReplicas], dict[int, Finding]], ...] = (check_b5, check_b6, check_b14)
