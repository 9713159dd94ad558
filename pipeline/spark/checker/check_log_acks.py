"""B2, B8, B9, B10 as plans. See pipeline/twin_log_acks for what each calls a violation.

Nearly all acknowledgements stand where they said on all members; only the others are sought one by one.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Kind
from pipeline.plain.check_log_parts import NOTHING_EARLIER, NOTHING_REFUSED, NOTHING_TOLD
from pipeline.spark.checker.check_log_parts import Told, judge, only_of, part
from pipeline.spark.checker.evidence import ATTEMPT
from pipeline.spark.checker.plan import Witness, runs_of
from pipeline.spark.checker.replicas import GROUP, OWNER, TOLD, GroupId, WorldReplicas
from pipeline.spark.checker.world import RUN


def check_b2(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that what was acknowledged is on enough disks."""
    found = judge("B2", replicas, _too_few(replicas), judged=replicas.evidence.world.is_strict, whole=True)
    return only_of(found, replicas, replicas.told_runs, NOTHING_TOLD)


def _too_few(replicas: WorldReplicas) -> list[DataFrame]:
    asked = replicas.unsure
    if asked is None:
        return []
    placed = _placed(replicas, asked).groupBy(*GROUP, *ATTEMPT).agg(F.collect_set("member").alias("placed"))
    rows = asked.join(placed, [*GROUP, *ATTEMPT], "left")
    logs, needed, missing = {}, {}, {}
    for key, group in replicas.groups.items():
        logs[key] = [(log.member, log.begin) for log in group.logs]
        needed[key] = group.majority if group.is_raft else 1
        if replicas.evidence.world.promises.mode == "sync":
            needed[key] = min(2, len(group.logs))
        missing[key] = len(group.missing)
    table = replicas.evidence.world.spark.createDataFrame(
        [(*key, logs[key], needed[key], needed[key] - missing[key]) for key in replicas.groups],
        "run int, broker string, logs array<struct<member: string, begin: bigint>>, needed bigint, least bigint",
    )
    rows = rows.join(F.broadcast(table), list(GROUP))

    def holds(log: Column) -> Column:
        behind = (F.col("position") > UNKNOWN) & (F.col("position") < log.begin)
        return F.coalesce(F.array_contains("placed", log.member), F.lit(False)) | behind

    rows = rows.withColumn("held_by", F.transform(F.filter("logs", holds), lambda log: log.member))
    wrong = rows.where(F.size("held_by") < F.col("least"))
    return [part(wrong, 0, "op", **_told(), held_by="held_by", needed="needed")]


def _told() -> dict[str, str | Column]:
    return {name: name for name in TOLD}


def _placed(replicas: WorldReplicas, asked: DataFrame) -> DataFrame:
    """Return the records of what was asked for: OWNER, fields of MessageRow."""
    return replicas.messages.join(asked.select(*GROUP, *ATTEMPT).distinct(), [*GROUP, *ATTEMPT], "left_semi")


def check_b8(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that no member holds something else where an acknowledgement said that the message is."""
    found = judge("B8", replicas, _elsewhere(replicas), make=_found, judged=replicas.evidence.world.is_strict)
    return only_of(found, replicas, replicas.told_runs, NOTHING_TOLD)


def _elsewhere(replicas: WorldReplicas) -> list[DataFrame]:
    asked = replicas.unsure
    if asked is None:
        return []
    fields = (*ATTEMPT, "topic", "queue", "offset", "term", "position")
    row = F.struct(*fields)
    last = _placed(replicas, asked).groupBy(*OWNER, *ATTEMPT).agg(F.max_by(row, "position").alias("placed"))
    here = replicas.messages.select(*OWNER, "position", row.alias("there"))
    here = here.join(asked.select(*GROUP, "position").distinct(), [*GROUP, "position"], "left_semi")
    members = replicas.facts.select(*OWNER, "begin")
    rows = asked.join(members, list(GROUP)).join(last, [*OWNER, *ATTEMPT], "left")
    rows = rows.join(here, [*OWNER, "position"], "left")
    rows = replicas.with_values(rows, group_end=replicas.ends)
    rows = rows.withColumn("row", F.when(F.col("position") != UNKNOWN, F.col("there")).otherwise(F.col("placed")))
    lacking = F.col("row").isNull() & F.col("placed").isNotNull() & (F.col("position") >= F.col("begin"))
    says = F.col("row.position") < F.col("group_end")
    other = F.lit(False)
    for name in (*ATTEMPT, "topic", "queue", "offset"):
        other = other | (F.col(f"row.{name}") != F.col(name))
    terms = (F.col("term") != UNKNOWN) & (F.col("row.term") != UNKNOWN) & (F.col("term") != F.col("row.term"))
    there = F.struct(*(f"row.{name}" for name in fields[:-1]))
    return [
        part(rows.where(lacking), 0, "op", **_told(), member="member", found=F.col("placed.position")),
        part(rows.where(says & (other | terms)), 1, "op", **_told(), member="member", says=there),
    ]


def _found(witness: Witness) -> Witness:
    says = witness.pop("says", None)
    return witness if says is None else witness | {"found": list(says.values())}


def check_b9(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that what was committed at one time is there later."""
    parts = []
    if any(facts.copy >= 0 for facts in replicas.logs.members):
        parts = [_entries_gone(replicas), _records_gone(replicas)]
    looked = runs_of(replicas.looks.where(replicas.of_groups(replicas.is_raft)))
    found = judge(
        "B9", replicas, parts, told=_ended_short(replicas), judged=replicas.evidence.world.is_strict, whole=True
    )
    return only_of(found, replicas, looked | _copied(replicas), NOTHING_EARLIER)


def _copied(replicas: WorldReplicas) -> set[int]:
    """Return the runs that there are earlier copies of stores of."""
    return {facts.run for facts in replicas.logs.members if facts.copy >= 0}


def _begins(replicas: WorldReplicas) -> dict[GroupId, int]:
    return {key: min(log.begin for log in group.logs) for key, group in replicas.groups.items()}


def _ended_short(replicas: WorldReplicas) -> Told:
    """Tell of each group who said that more is committed than the logs have."""
    raft = replicas.of_groups(replicas.is_raft)
    lasts = replicas.merged_entries.groupBy(*GROUP).agg(F.max("index").alias("last")).collect()
    last = {(row.run, row.broker): row["last"] for row in lasts}
    said = replicas.looks.where(raft).groupBy(*OWNER).agg(F.max("commit").alias("commit"))
    told: dict[GroupId, list[Witness]] = {}
    for row in said.orderBy(*OWNER).collect():
        end = last.get((row.run, row.broker), 0)
        if row.commit > end:
            why = f"it was told as committed, the log ends at {end}"
            witness = {"member": row.member, "index": row.commit, "why": why}
            told.setdefault((row.run, row.broker), []).append(witness)
    return told


def _entries_gone(replicas: WorldReplicas) -> DataFrame:
    before = replicas.logs.entries.where("copy >= 0").where(replicas.of_groups(replicas.is_raft))
    # Not what a member said, which may have been later: what its own log knew.
    known = before.groupBy("copy", *OWNER).agg(F.max("commit").alias("known"))
    rows = before.join(known, ["copy", *OWNER]).where(F.col("index") <= F.col("known"))
    rows = replicas.with_values(rows, begin=_begins(replicas)).where(F.col("position") >= F.col("begin"))
    now = replicas.merged_entries.select(*GROUP, "index", F.col("term").alias("now"), F.col("crc").alias("now_crc"))
    both = rows.join(now, [*GROUP, "index"], "left")
    there = (F.col("now") == F.col("term")) & (F.col("now_crc") == F.col("crc"))
    gone = both.where(~F.coalesce(there, F.lit(False)))
    return part(gone, 0, "index", copy="copy", member="member", index="index", term="term", now="now")


def _records_gone(replicas: WorldReplicas) -> DataFrame:
    logs: dict[tuple[int, str, int], int] = {}
    for facts in replicas.logs.members:
        if facts.copy >= 0:
            logs[facts.run, facts.broker, facts.copy] = logs.get((facts.run, facts.broker, facts.copy), 0) + 1
    table = replicas.evidence.world.spark.createDataFrame(
        [(*key, count) for key, count in logs.items()], "run int, broker string, copy int, logs bigint"
    )
    pairs = ~replicas.of_groups(replicas.is_raft)
    places = (*GROUP, "position", "crc")
    before = replicas.logs.messages.where("copy >= 0").where(pairs).groupBy("copy", *places)
    held = before.agg(F.count_distinct("member").alias("holders"))
    everywhere = held.join(F.broadcast(table), [*GROUP, "copy"]).where(F.col("holders") == F.col("logs"))
    now = replicas.messages.where(pairs).select(*places).distinct()
    gone = everywhere.join(now, list(places), "left_anti")
    gone = replicas.with_values(gone, begin=_begins(replicas)).where(F.col("position") >= F.col("begin"))
    return part(gone, 1, "position", copy="copy", position="position", crc="crc")


def check_b10(replicas: WorldReplicas) -> dict[int, Finding]:
    """Judge that what certainly did not happen is not committed."""
    merged = replicas.merged.select(*GROUP, *ATTEMPT, F.col("position").alias("found"), "index", "term", "topic")
    refused = replicas.evidence.sends.where(F.col("kind") == str(Kind.FAIL))
    failed = replicas.few(replicas.of_group(refused).select(*GROUP, *TOLD, "error"))
    parts = []
    if failed is not None:
        risen = failed.join(merged.drop("topic", "term"), [*GROUP, *ATTEMPT])
        parts.append(part(risen, 0, "op", **_told(), error="error", found="found", index="index"))
    if any(facts.copy >= 0 for facts in replicas.logs.members):
        passed_on = replicas.of_groups(replicas.is_raft) & (F.col("term") > F.col("cut_term"))
        rows = _cut(replicas).join(merged, [*GROUP, *ATTEMPT])
        rows = rows.where((F.col("found") != F.col("cut_at")) & ~passed_on)
        rows = rows.join(replicas.evidence.topics, [RUN, "topic"], "left_semi")
        shown = {name: name for name in (*ATTEMPT, "cut_at", "found", "index")}
        parts.append(part(rows, 1, "cut_at", **shown))
    known = _copied(replicas) | (runs_of(failed) if failed is not None else set())
    return only_of(judge("B10", replicas, parts), replicas, known, NOTHING_REFUSED)


def _cut(replicas: WorldReplicas) -> DataFrame:
    """Where attempts stood in earlier copies, `cut_at` and `cut_term`: those whose record no member holds any more."""
    ranks = []
    seen: dict[tuple[int, int, str], int] = {}
    for facts in replicas.logs.members:
        if facts.copy >= 0:
            key = (facts.run, facts.copy, facts.broker)
            seen[key] = seen.get(key, -1) + 1
            ranks.append((facts.run, facts.copy, facts.broker, facts.member, seen[key]))
    schema = "run int, copy int, broker string, member string, rank int"
    table = F.broadcast(replicas.evidence.world.spark.createDataFrame(ranks, schema))
    before = replicas.logs.messages.where((F.col("copy") >= 0) & (F.col("writer") != UNKNOWN))
    before = before.join(F.broadcast(replicas.evidence.topics), [RUN, "topic"], "left_semi")
    kept = replicas.messages.select(*GROUP, "position", "crc").distinct()
    lost = before.join(kept, [*GROUP, "position", "crc"], "left_anti").join(table, [*GROUP, "copy", "member"])
    last = F.max_by(F.struct("position", "term"), F.struct("copy", "rank", "position")).alias("cut")
    found = lost.groupBy(*GROUP, *ATTEMPT).agg(last)
    return found.select(*GROUP, *ATTEMPT, F.col("cut.position").alias("cut_at"), F.col("cut.term").alias("cut_term"))


ACKS_CHECKS: tuple[Callable[[WorldReplicas], dict[int, Finding]], ...] = (check_b2, check_b8, check_b9, check_b10)
