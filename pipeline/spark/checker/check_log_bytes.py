"""B1, B3, B4, B13 as plans. See pipeline/twin_log_bytes for what each calls a violation.

Members agree as a rule: what may differ is found by grouping, and only that is set side by side.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.results import WITNESSES_MAX, Finding
from pipeline.logs.member_files import CHUNK_BYTES
from pipeline.plain.check_log_bytes import first_difference
from pipeline.spark.checker.check_log_parts import judge, part
from pipeline.spark.checker.logs import MemberFacts
from pipeline.spark.checker.plan import Witness
from pipeline.spark.checker.replicas import GROUP, OWNER, GroupFacts, GroupId, WorldReplicas, slot, varies

_SAID = ("size", "topic", "queue", "offset", "digest")


def check_b1(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that no two members disagree about an entry."""
    parts = []
    if any(replicas.is_raft.values()):
        parts.append(_entries_apart(replicas))
    if not all(replicas.is_raft.values()) and replicas.uneven is not None:
        parts.append(_records_apart(replicas, replicas.uneven))
    return judge("B1", replicas, parts, make=_sides, whole=True)


def _entries_apart(replicas: WorldReplicas) -> DataFrame:
    known = replicas.known.withColumnRenamed("known", "committed")
    entries = replicas.entries.where(replicas.of_groups(replicas.is_raft)).join(
        F.broadcast(replicas.facts), list(OWNER)
    )
    fields = ("term", "crc", "size", "position", "chain")
    entries = entries.select(*OWNER, "log", "index", *fields)
    odd = reduce(Column.__or__, map(varies, fields))
    indexes = entries.groupBy(*GROUP, "index").agg(odd.alias("odd")).where("odd").select(*GROUP, "index")
    rows = entries.join(indexes, [*GROUP, "index"], "left_semi").join(F.broadcast(known), list(OWNER))
    row = F.struct("log", "member", "committed", *fields)
    left = rows.select(*GROUP, "index", row.alias("one"))
    right = rows.groupBy(*GROUP, "index", "member").agg(F.max_by(row, "position").alias("other")).drop("member")
    pairs = left.join(right, [*GROUP, "index"]).where(F.col("one.log") < F.col("other.log"))
    committed = F.least("one.committed", "other.committed")
    apart = reduce(Column.__or__, (F.col(f"one.{name}") != F.col(f"other.{name}") for name in fields[:4]))
    chains = (F.col("one.term") == F.col("other.term")) & (F.col("one.chain") != F.col("other.chain"))
    wrong = pairs.where((apart & (F.col("index") <= committed)) | chains)
    sides = _both(lambda side: F.struct(f"{side}.term", f"{side}.crc", f"{side}.position"))
    return part(wrong, 0, "index", index="index", committed=committed, sides=sides)


def _records_apart(replicas: WorldReplicas, uneven: DataFrame) -> DataFrame:
    pairs = replicas.messages.where(~replicas.of_groups(replicas.is_raft)).withColumn("slot", slot())
    rows = pairs.join(uneven, [*GROUP, "slot"], "left_semi")
    rank = F.col("rank")
    ranks = [(*key, log.member, at) for key, group in replicas.groups.items() for at, log in enumerate(group.logs)]
    table = replicas.evidence.world.spark.createDataFrame(ranks, "run int, broker string, member string, rank int")
    rows = rows.join(F.broadcast(table), list(OWNER))
    row = F.struct(rank, "member", *_SAID)
    one, other = (rows.select(*GROUP, "position", row.alias(name)) for name in ("one", "other"))
    apart = reduce(Column.__or__, (F.col(f"one.{name}") != F.col(f"other.{name}") for name in _SAID))
    wrong = one.join(other, [*GROUP, "position"]).where((F.col("one.rank") < F.col("other.rank")) & apart)
    sides = _both(lambda side: F.struct(*(f"{side}.{name}" for name in _SAID)))
    return part(wrong, 1, "position", position="position", sides=sides, listed=F.lit(True))


def _both(said: Callable[[str], Column]) -> Column:
    return F.create_map(F.col("one.member"), said("one"), F.col("other.member"), said("other"))


def _sides(witness: Witness) -> Witness:
    sides, listed = witness.pop("sides"), witness.pop("listed", False)
    return witness | {member: list(said.values()) if listed else said for member, said in sides.items()}


def check_b3(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that what stands in a log follows what stands before it."""
    gaps = replicas.gaps.join(replicas.facts, list(OWNER)).where("empty and start < log_end")
    holes = part(gaps, 0, "start", member="member", position="start", why="reason")
    rows = _pieces(replicas).join(replicas.facts.select(*OWNER, "begin", "file_bytes"), list(OWNER))
    rows = rows.withColumn("before_end", F.coalesce("before.stop", "begin")).withColumn("why", _why_not())
    wrong = rows.where(F.col("why") != "")
    if replicas.gapped:
        since = F.when(F.col("last").isNull(), F.col("before_end")).otherwise(
            F.least("before_end", F.col("last.position") + F.col("last.size"))
        )
        starts = replicas.gaps.select(*(F.col(name).alias(f"gap_{name}") for name in (*OWNER, "start")))
        same = reduce(Column.__and__, (F.col(name) == F.col(f"gap_{name}") for name in OWNER))
        within = (since <= F.col("gap_start")) & (F.col("gap_start") <= F.col("start"))
        wrong = wrong.join(starts, same & within, "left_anti")
    index = F.coalesce("entry.index", F.lit(-1))
    breaks = part(wrong, 1, "start", member="member", position="start", index=index, why="why")
    return judge("B3", replicas, [holes, breaks], whole=True)


def _pieces(replicas: WorldReplicas) -> DataFrame:
    """Entries and records outside of any: OWNER, start, stop, `entry`; `before`: the piece before, `last`: entry.

    Each part of a log is put in order by itself; the last of it is handed to the part behind.
    """
    stop = (F.col("position") + F.col("size")).alias("stop")
    entry = F.struct("index", "term", "position", "size", "previous_term", "classic", "follows")
    entries = replicas.entries.select(*OWNER, F.col("position").alias("start"), stop, entry.alias("entry"))
    loose = replicas.messages.where("index < 0").select(*OWNER, F.col("position").alias("start"), stop)
    rows = entries.unionByName(loose, allowMissingColumns=True).withColumn("slot", slot("start"))
    piece = F.struct("start", "stop", "entry")
    ends = rows.groupBy(*OWNER, "slot").agg(
        F.max_by(piece, "start").alias("before_slot"),
        F.max_by("entry", F.when(F.col("entry").isNotNull(), F.col("start"))).alias("entry_slot"),
    )
    slots = Window.partitionBy(*OWNER).orderBy("slot")
    earlier = slots.rowsBetween(Window.unboundedPreceding, -1)
    ends = ends.select(
        *OWNER,
        "slot",
        F.lag("before_slot").over(slots).alias("before_slot"),
        F.last("entry_slot", ignorenulls=True).over(earlier).alias("last_slot"),
    )
    order = Window.partitionBy(*OWNER, "slot").orderBy("start")
    rows = rows.withColumn("before_here", F.lag(piece).over(order))
    last = F.last("entry", ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = rows.withColumn("last_here", last).join(F.broadcast(ends), [*OWNER, "slot"])
    return rows.select(
        *OWNER,
        "start",
        "stop",
        "entry",
        F.coalesce("before_here", "before_slot").alias("before"),
        F.coalesce("last_here", "last_slot").alias("last"),
    )


def _why_not() -> Column:
    """Why a piece cannot follow the one before it; "" if it can. As the twin's."""
    rest = F.when(F.col("file_bytes") > 0, F.col("before_end") % F.col("file_bytes")).otherwise(F.lit(0))
    following = F.when(rest == 0, F.col("before_end")).otherwise(F.col("before_end") - rest + F.col("file_bytes"))
    astray = (F.col("start") != F.col("before_end")) & (F.col("start") != following)
    single = F.col("last").isNull() | F.coalesce("last.classic", F.lit(False))
    return (
        F.when(astray, F.format_string("it stands at %d, the one before ends at %d", "start", "before_end"))
        .when(F.col("entry").isNull(), F.when(single, "").otherwise("no entry covers it"))
        .when(single, "")
        .when(
            F.col("entry.index") != F.col("last.index") + 1,
            F.format_string("it follows index %d", F.col("last.index")),
        )
        .when(
            F.col("entry.term") < F.col("last.term"),
            F.format_string("its term is %d, that of the one before %d", F.col("entry.term"), F.col("last.term")),
        )
        .when(
            F.col("entry.previous_term") != F.col("last.term"),
            F.format_string(
                "it follows term %d, that of the one before is %d", F.col("entry.previous_term"), F.col("last.term")
            ),
        )
        .when(~F.col("entry.follows"), "its chain does not continue that of the one before")
        .otherwise("")
    )


def check_b4(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that no bytes fail their checksum where the member vouched for its log."""
    gaps = replicas.gaps.join(replicas.facts, list(OWNER))
    hole = F.col("empty") & (F.col("start") < F.col("log_end"))
    wrong = gaps.where((F.col("start") < F.greatest("vouched", "log_end")) & ~hole)
    told = {
        key: [
            {"member": log.member, "file": name, "why": why}
            for log in group.logs
            for name, why in log.damage.items()
            if name.endswith("floor")
        ]
        for key, group in replicas.groups.items()
    }
    parts = [part(wrong, 0, "start", member="member", position="start", end="end", why="reason")]
    return judge("B4", replicas, parts, told=told, whole=True)


def check_b13(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that what all agree on is equal byte for byte; pieces that differ are looked into on the driver."""
    chunks = _equal_chunks(replicas)
    pairs = [pair for key, group in replicas.groups.items() for pair in _pairs(replicas, chunks, key, group)]
    _cover(replicas, pairs)
    told: dict[GroupId, list[Witness]] = {key: [] for key in replicas.groups}
    for pair in pairs:
        some = told[pair.key]
        for number, (first, last) in enumerate(pair.pieces):
            if number < _LOOKED_INTO and len(some) < WITNESSES_MAX:
                some += first_difference(cast("Any", pair.one), cast("Any", pair.other), first, last)
            else:
                # More than are shown: counted without being looked into.
                some.append({"position": first})
    return judge("B13", replicas, [], told=told, whole=True)


def _equal_chunks(replicas: WorldReplicas) -> dict[tuple[int, str, str], frozenset[int]]:
    """OWNER → where the pieces of its log begin that are those of its group's longest log, by their hashes."""
    if replicas.logs.chunks is None:
        return {}
    longest = [max(group.logs, key=lambda log: log.end) for group in replicas.groups.values()]
    keys = [(log.run, log.broker, log.member) for log in longest]
    table = replicas.evidence.world.spark.createDataFrame(keys, "run int, broker string, member string")
    chunks = replicas.logs.at_end(replicas.logs.chunks).withColumn("piece", F.floor(F.col("start") / CHUNK_BYTES))
    first = chunks.join(F.broadcast(table), list(OWNER)).select(
        *GROUP, "start", "end", "digest", F.lit(1).alias("same")
    )
    both = chunks.join(first, [*GROUP, "start", "end", "digest"], "left")
    pieces = both.groupBy(*OWNER, "piece").agg(
        F.count(F.lit(1)).alias("all"),
        F.count("same").alias("same"),
        F.sum(F.col("end") - F.col("start")).alias("bytes"),
    )
    whole = pieces.where((F.col("all") == F.col("same")) & (F.col("bytes") == CHUNK_BYTES))
    listed = whole.groupBy(*OWNER).agg(F.collect_list(F.col("piece") * CHUNK_BYTES).alias("starts")).collect()
    return {(row.run, row.broker, row.member): frozenset(row.starts) for row in listed}


def _pairs(
    replicas: WorldReplicas, chunks: Mapping[tuple[int, str, str], frozenset[int]], key: GroupId, group: GroupFacts
) -> Iterator[SimpleNamespace]:
    """Yield the logs that are compared, with the `pieces` in which they differ."""
    reference = max(group.logs, key=lambda log: log.end)
    for other in group.logs:
        if other is reference:
            continue
        one, two = _log(replicas, reference), _log(replicas, other)
        begin, end = max(reference.begin, other.begin), min(replicas.ends[key], reference.end, other.end)
        pieces = []
        equal = chunks.get((*key, other.member), frozenset())
        for start in range(begin - begin % CHUNK_BYTES, end, CHUNK_BYTES):
            first, last = max(begin, start), min(start + CHUNK_BYTES, end)
            if start not in equal and one.log.digest(first, last) != two.log.digest(first, last):
                pieces.append((first, last))
        if pieces:
            yield SimpleNamespace(key=key, one=one, other=two, pieces=pieces)


def _log(replicas: WorldReplicas, facts: MemberFacts) -> SimpleNamespace:
    return SimpleNamespace(
        run=facts.run, broker=facts.broker, member=facts.member, log=replicas.logs.bytes[facts.run, facts.member],
        entries=[], messages=[], gaps=[],
    )  # fmt: skip


def _cover(replicas: WorldReplicas, pairs: list[SimpleNamespace]) -> None:
    """Give the logs what stands in the first of their pieces: as many as may be looked into."""
    rows = set()
    logs: dict[tuple[int, str, str], list[SimpleNamespace]] = {}
    for pair in pairs:
        for log in (pair.one, pair.other):
            owner = (log.run, log.broker, log.member)
            logs.setdefault(owner, []).append(log)
            rows |= {(*owner, first, last) for first, last in pair.pieces[:_LOOKED_INTO]}
    if not rows:
        return
    schema = "run int, broker string, member string, first bigint, last bigint"
    table = F.broadcast(replicas.evidence.world.spark.createDataFrame(sorted(rows), schema))
    stop = (F.col("position") + F.col("size")).alias("stop")
    for kind, name, frame in (
        ("entries", "position", replicas.entries.select(*OWNER, "position", stop)),
        ("messages", "position", replicas.messages.where("index < 0").select(*OWNER, "position", stop)),
        ("gaps", "start", replicas.gaps.select(*OWNER, F.col("start").alias("position"), F.col("end").alias("stop"))),
    ):
        inside = (F.col("position") < F.col("last")) & (F.col("stop") > F.col("first"))
        found = frame.join(table, list(OWNER)).where(inside).select(*OWNER, "position", "stop").distinct()
        for row in found.collect():
            for log in logs[row.run, row.broker, row.member]:
                getattr(log, kind).append(_piece(row, name))


def _piece(row: Row, name: str) -> SimpleNamespace:
    return SimpleNamespace(**{name: row.position, "end": row.stop, "index": -1})


# Pieces of two logs of which it is known what stands there.
_LOOKED_INTO = 256

BYTES_CHECKS: tuple[Callable[[WorldReplicas], dict[int, Finding]], ...] = (check_b1, check_b3, check_b4, check_b13)
