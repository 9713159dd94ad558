"""B7, B11, B12 as plans. See pipeline/twin_log_derived for what each calls a violation.

A ConsumeQueue is first compared with its log by one hash over all of its entries, and only what differs one by one.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.history.catalogue import unknown
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.plain.check_log_derived import offsets_apart
from pipeline.plain.check_log_parts import NO_HISTORY
from pipeline.spark.checker.check_log_parts import judge, not_in_gap, part
from pipeline.spark.checker.plan import Witness, runs_of
from pipeline.spark.checker.replicas import GROUP, OWNER, GroupId, WorldReplicas
from pipeline.spark.checker.world import RUN
from remoting.codes import MessageSysFlag
from remoting.topics import RAFT_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.log.dispatch import SCHEDULE_TOPIC

# As store.log.dispatch.is_hidden.
HIDDEN = int(MessageSysFlag.TRANSACTION_PREPARED)
_QUEUE = (*OWNER, "topic", "queue")
_ROW = ("position", "size", "tags_code")


def check_b7(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that ConsumeQueues are what the logs make of them."""
    parts = []
    if any(replicas.is_raft.values()):
        parts.append(_controls_apart(replicas))
    early = _early(replicas)
    odd = _odd_queues(replicas, early)
    if odd is not None:
        parts += _queues_apart(replicas, odd, early)
    return judge("B7", replicas, parts, make=_lists)


def _lists(witness: Witness) -> Witness:
    """Give back the lists that a plan shows as rows."""
    for name in ("queue_has", "log_has"):
        if witness.get(name) is not None:
            witness[name] = list(witness[name].values())
    return witness


def _records(replicas: WorldReplicas) -> DataFrame:
    """Return the records that stand in queues."""
    visible = replicas.messages.where(F.col("sys_flag").bitwiseAND(HIDDEN) == 0)
    return visible.where(_not_controls())


def _not_controls() -> Column:
    return (F.col("topic") != RAFT_TOPIC) | (F.col("queue") != 0)


def _hashed() -> list[Column]:
    # Of a delayed message the code is a time that depends on the broker's delay levels.
    code = F.when(F.col("topic") != SCHEDULE_TOPIC, F.col("tags_code")).otherwise(F.lit(0))
    return [
        F.count(F.lit(1)).alias("rows"),
        F.bit_xor(F.xxhash64("offset", "position", "size", code)).alias("hash"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count_if(F.col("offset") == 0).alias("begins"),
    ]


def _odd_queues(replicas: WorldReplicas, early: DataFrame | None) -> DataFrame | None:
    """Return the queues (OWNER, topic, queue) that are not certainly what their log makes of them."""
    records = _records(replicas)
    of_log = records.groupBy(*_QUEUE).agg(*_hashed()).alias("log")
    of_queue = replicas.queues.where(_not_controls()).groupBy(*_QUEUE).agg(*_hashed()).alias("queue")
    same = F.col("log.begins") <= 1
    for name in ("rows", "hash", "first", "last"):
        same = same & (F.col(f"log.{name}") == F.col(f"queue.{name}"))
    dense = F.col("log.last") - F.col("log.first") + 1 == F.col("log.rows")
    both = of_log.join(of_queue, list(_QUEUE), "full")
    shown = [F.col(f"log.{name}") for name in ("rows", "hash", "first", "last")]
    judged = replicas.evidence.world.keep(
        both.select(*_QUEUE, F.coalesce(same & dense, F.lit(False)).alias("equal"), *shown)
    )
    odd = judged.where("not equal").select(*_QUEUE)
    odd = odd.unionByName(_unsorted(records, judged.where("equal")))
    if early is not None:
        odd = odd.unionByName(records.join(early, [*GROUP, "index", "term"], "left_semi").select(*_QUEUE))
    return replicas.few(odd.distinct())


def _unsorted(records: DataFrame, queues: DataFrame) -> DataFrame:
    """Return the queues whose records' offsets do not count up; of members with the same records one is looked at."""
    alike = (*GROUP, "topic", "queue", "rows", "hash", "first", "last")
    chosen = queues.groupBy(*alike).agg(F.min("member").alias("member"))
    rows = records.join(F.broadcast(chosen), list(_QUEUE), "left_semi")
    order = Window.partitionBy(*_QUEUE).orderBy("position")
    rows = rows.select(*_QUEUE, "position", "offset").withColumn("before", F.lag("offset").over(order))
    wrong = rows.where(F.col("offset") != F.col("before") + 1).select(*_QUEUE).distinct()
    seen = chosen.join(wrong, list(_QUEUE), "left_semi").drop("member")
    return queues.join(F.broadcast(seen), list(alike), "left_semi").select(*_QUEUE)


def _early(replicas: WorldReplicas) -> DataFrame | None:
    """(GROUP, index, term) of entries that fewer than a majority hold; only of Raft groups that were read in full."""
    majority = {key: group.majority for key, group in replicas.groups.items() if group.is_raft and not group.missing}
    merged = replicas.with_values(replicas.merged_entries, majority=majority)
    settled = merged.where(F.col("holders") >= F.col("majority")).select(*GROUP, "index", "term")
    every = replicas.with_values(replicas.entries, majority=majority).where(F.col("majority").isNotNull())
    some = every.select(*GROUP, "index", "term").distinct()
    return replicas.few(some.join(settled, [*GROUP, "index", "term"], "left_anti"))


def _queues_apart(replicas: WorldReplicas, odd: DataFrame, early: DataFrame | None) -> list[DataFrame]:
    """Return the witnesses in the queues `odd`, entry by entry."""
    facts = replicas.facts.select(*OWNER, "gapped", "dispatched")
    made = _by_offset(replicas, odd)
    records = replicas.evidence.world.keep(made)
    rows = replicas.queues.where(_not_controls()).join(odd, list(_QUEUE), "left_semi")
    row = F.struct(*_ROW)
    rows = rows.select(*_QUEUE, "offset", row.alias("has"), F.lit(True).alias("written"))
    both = rows.join(records, [*_QUEUE, "offset"], "left").join(facts, list(OWNER))
    zeros = (F.col("has.position") == 0) & (F.col("has.size") == 0) & (F.col("has.tags_code") == 0)
    lacking = F.col("row").isNull()
    codes = (F.col("has.tags_code") == F.col("row.tags_code")) | (F.col("topic") == SCHEDULE_TOPIC)
    same = (F.col("has.position") == F.col("row.position")) & (F.col("has.size") == F.col("row.size")) & codes
    unlike = lacking | ~same
    where: dict[str, str | Column] = {"member": "member", "topic": "topic", "queue": "queue", "offset": "offset"}
    empty = both.where(zeros & (lacking | ~F.col("gapped")))
    apart = not_in_gap(replicas, both.where(~zeros & unlike).withColumn("position", F.col("has.position")))
    of_log = F.when(F.col("row").isNotNull(), F.struct(*(f"row.{name}" for name in _ROW)))
    parts = [
        part(empty, 0, "offset", **where, why=F.lit("zeros between entries")),
        part(apart, 1, "offset", **where, queue_has="has", log_has=of_log),
    ]
    if early is not None:
        held = both.where(~zeros & ~unlike).withColumns({"index": F.col("row.index"), "term": F.col("row.term")})
        held = held.join(early, [*GROUP, "index", "term"], "left_semi")
        why = F.format_string("entry %d is on no majority", "index")
        parts.append(part(held, 2, "offset", **where, position=F.col("row.position"), why=why))
    ends = rows.groupBy(*_QUEUE).agg((F.max("offset") + 1).alias("end"))
    firsts = records.groupBy(*_QUEUE).agg(F.min("offset").alias("first"))
    ends = firsts.join(ends, list(_QUEUE), "left").select(*_QUEUE, F.coalesce("end", "first").alias("end"))
    order = Window.partitionBy(*_QUEUE).orderBy("place")
    rest = records.join(ends, list(_QUEUE)).join(facts, list(OWNER))
    rest = rest.withColumn("before", F.lag("offset").over(order))
    behind = F.col("row.position") + F.col("row.size") <= F.col("dispatched")
    left_out = rest.where((F.col("offset") >= F.col("end")) & behind)
    jumps = rest.where((F.col("before") != UNKNOWN) & (F.col("offset") != F.col("before") + 1) & ~F.col("gapped"))
    at = F.col("row.position")
    why = F.format_string("it follows offset %d", "before")
    parts.append(part(left_out, 3, "offset", **where, position=at, why=F.lit("dispatched, and in no queue")))
    parts.append(part(jumps, 4, "offset", **where, position=at, why=why))
    return parts


def _by_offset(replicas: WorldReplicas, odd: DataFrame) -> DataFrame:
    """Return the last record of each offset in the queues `odd`, `row`, and where the offset was first seen, `place`.

    A queue that begins anew at 0 is of a topic that was made anew: what stood before it does not count.
    """
    records = _records(replicas).join(odd, list(_QUEUE), "left_semi")
    begins = records.where("offset = 0").groupBy(*_QUEUE).agg(F.max("position").alias("begin"))
    records = records.join(begins, list(_QUEUE), "left").where("begin is null or position >= begin")
    row = F.struct(*_ROW, "index", "term")
    return records.groupBy(*_QUEUE, "offset").agg(
        F.max_by(row, "position").alias("row"), F.min("position").alias("place")
    )


def _controls_apart(replicas: WorldReplicas) -> DataFrame:
    """Return the entries of the control records' queue that disagree with an entry known as committed."""
    expected = F.struct("position", "head", "term")
    last = replicas.entries.groupBy(*OWNER, "index").agg(F.max_by(expected, "position").alias("entry"))
    rows = replicas.queues.where(~_not_controls()).withColumnRenamed("offset", "index")
    both = rows.join(last, [*OWNER, "index"]).join(F.broadcast(replicas.known), list(OWNER))
    differs = (
        (F.col("position") != F.col("entry.position"))
        | (F.col("size") != F.col("entry.head"))
        | (F.col("tags_code") != F.col("entry.term"))
    )
    wrong = both.where((F.col("index") <= F.col("known")) & differs)
    shown = {"topic": F.lit(RAFT_TOPIC), "offset": "index", "queue_has": F.struct(*_ROW), "log_has": "entry"}
    return part(wrong, 5, "index", member="member", **cast("Any", shown))


def check_b11(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that key index and transactions agree with the log."""
    lacking = replicas.logs.at_end(replicas.logs.unindexed)
    wrong = not_in_gap(replicas, replicas.logs.at_end(replicas.logs.misindexed))
    absent, strange = F.lit("not in the index"), F.lit("in the index, and no message")
    parts = [
        part(lacking, 0, "position", member="member", position="position", key="key", why=absent),
        part(wrong, 1, "position", member="member", position="position", why=strange),
    ]
    found = judge("B11", replicas, [*parts, *_halves(replicas)])
    for run, finding in found.items():
        facts = [one for one in replicas.logs.members if one.run == run and one.copy < 0]
        closed = [f"{one.member}: {name}" for one in facts for name in one.damage if name.startswith("index/")]
        if closed and not finding.count:
            found[run] = unknown("B11", f"entries cannot be found in {', '.join(closed)}")
    return found


def _halves(replicas: WorldReplicas) -> list[DataFrame]:
    """Return the halves that were settled twice, or have several real messages."""
    merged = replicas.merged
    halves = replicas.few(
        merged.where(F.col("topic") == TRANS_HALF_TOPIC).select(
            *GROUP, F.col("position").alias("prepared"), F.col("offset").alias("half")
        )
    )
    ops = merged.where(F.col("topic") == TRANS_OP_HALF_TOPIC).select(*GROUP, "queue", F.explode("refers").alias("half"))
    times = F.format_string("settled %d times", "times")
    settled = ops.groupBy(*GROUP, "queue", "half").agg(F.count(F.lit(1)).alias("times")).where("times > 1")
    parts = [part(settled, 2, "half", half="half", queue="queue", why=times)]
    if halves is not None:
        rest = merged.where(F.col("topic") != TRANS_HALF_TOPIC).select(*GROUP, "prepared")
        real = rest.join(halves, [*GROUP, "prepared"]).groupBy(*GROUP, "prepared", "half")
        several = real.agg(F.count(F.lit(1)).alias("times")).where("times > 1")
        why = F.format_string("%d real messages", "times")
        parts.append(part(several, 3, "half", half="half", position="prepared", why=why))
    return parts


def check_b12(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that stored offsets are not beyond their queues' ends, and did not go back."""
    ends = _ends(replicas)
    asked = _asked(replicas)
    told_of = runs_of(replicas.evidence.ops)
    promised = replicas.evidence.world.promises.offsets_kept
    told: dict[GroupId, list[Witness]] = {}
    for key, group in replicas.groups.items():
        copies = [one for one in replicas.logs.members if (one.run, one.broker) == key and one.copy >= 0]
        copies.sort(key=lambda one: one.copy)
        for log in group.logs:
            before = [log.offsets_before, *(one.offsets for one in copies if one.member == log.member)]
            kept = promised and key[0] in told_of
            seen = SimpleNamespace(member=log.member, begin=log.begin, offsets=log.offsets)
            of_log = ends.get((*key, log.member), {})
            some = offsets_apart(cast("Any", seen), of_log, before, asked.get(key[0], frozenset()), kept=kept)
            told.setdefault(key, []).extend(some)
    read = {run for run, _ in replicas.groups}
    return {
        run: one if run in told_of or run not in read else replace(one, text=NO_HISTORY)
        for run, one in judge("B12", replicas, [], told=told).items()
    }


def _ends(replicas: WorldReplicas) -> dict[tuple[int, str, str], dict[tuple[str, int], int]]:
    """Return each member's ends of queues, as log and ConsumeQueue tell them."""
    visible = replicas.messages.where(F.col("sys_flag").bitwiseAND(HIDDEN) == 0)
    every = [rows.groupBy(*_QUEUE).agg(F.max("offset").alias("last")) for rows in (visible, replicas.queues)]
    found: dict[tuple[int, str, str], dict[tuple[str, int], int]] = {}
    for row in every[0].unionByName(every[1]).groupBy(*_QUEUE).agg(F.max("last").alias("last")).collect():
        found.setdefault((row.run, row.broker, row.member), {})[row.topic, row.queue] = row["last"] + 1
    return found


def _asked(replicas: WorldReplicas) -> dict[int, frozenset[tuple[str, str, int, int]]]:
    """Return of each run which of the offsets that are stored somewhere a commit or a reset asked for."""
    stored = {
        (log.run, *place, offset)
        for group in replicas.groups.values()
        for log in group.logs
        for place, offset in log.offsets.items()
    }
    if not stored:
        return {}
    schema = "run int, group string, topic string, queue bigint, value bigint"
    table = replicas.evidence.world.spark.createDataFrame(sorted(stored), schema)
    commits = replicas.evidence.ops.where(
        F.col("act").isin(str(Act.COMMIT), str(Act.RESET)) & (F.col("kind") != str(Kind.FAIL))
    )
    names = (RUN, "group", "topic", "queue", "value")
    found: dict[int, set[tuple[str, str, int, int]]] = {}
    for row in commits.join(F.broadcast(table), list(names), "left_semi").select(*names).distinct().collect():
        found.setdefault(row[RUN], set()).add((row.group, row.topic, row.queue, row.value))
    return {run: frozenset(some) for run, some in found.items()}


DERIVED_CHECKS: tuple[Callable[[WorldReplicas], dict[int, Finding]], ...] = (check_b7, check_b11, check_b12)
