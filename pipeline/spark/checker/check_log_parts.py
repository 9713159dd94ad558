"""What the plans of B1 to B14 share: witnesses of several plans and of the driver together, for each broker group."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import orjson
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.results import WITNESSES_MAX, Finding
from pipeline.history.rows import Fault, Look
from pipeline.plain.check_log_parts import NO_FOLDER
from pipeline.spark.checker.plan import CheckPlan, Witness, always, findings
from pipeline.spark.checker.replicas import OWNER, GroupId, WorldReplicas
from pipeline.spark.checker.world import RUN

# More of what members said of themselves is not looked at one by one.
LOOKS_MAX = 1_000_000
_ORDER = ("broker", "part", "member", "at")
_ALWAYS: Callable[[int], bool] = always(True)
Told = Mapping[GroupId, Iterable[Witness]]


def part(rows: DataFrame, number: int, at: str | Column, **shown: str | Column) -> DataFrame:
    """Return the witnesses of a plan: `rows` with run and broker, `at` what orders them, `shown` what they show."""
    fields = [(F.col(value) if isinstance(value, str) else value).alias(name) for name, value in shown.items()]
    member = F.col("member") if "member" in rows.columns else F.lit("")
    place = F.col(at) if isinstance(at, str) else at
    return rows.select(
        RUN,
        "broker",
        F.lit(number).alias("part"),
        member.alias("member"),
        place.cast("long").alias("at"),
        F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}).alias("shown"),
    )


def no_change(witness: Witness) -> Witness:
    """Return a witness as it is."""
    return witness


def judge(
    check: str,
    replicas: WorldReplicas,
    parts: Sequence[DataFrame],
    *,
    told: Told | None = None,
    make: Callable[[Witness], Witness] = no_change,
    judged: Callable[[int], bool] = _ALWAYS,
    whole: bool = False,
) -> dict[int, Finding]:
    """Return what the witnesses of some plans, and those `told`, amount to; of whole groups only if nobody is missing.

    `make` gives a witness its last shape.
    """
    groups: dict[int, list[GroupId]] = {run: [] for run in replicas.evidence.world.runs}
    for key in replicas.groups:
        groups[key[0]].append(key)
    found = _planned(check, replicas, parts, make, judged, groups)
    for run, keys in groups.items():
        if not keys:
            continue
        some = [_named(key, witness, keys) for key in keys for witness in (told or {}).get(key, ())]
        if some:
            both = (*found[run].witnesses, *some)[:WITNESSES_MAX]
            more = finding(check, some, judged=judged(run))
            found[run] = replace(more, count=found[run].count + len(some), witnesses=both)
        missing = [member for key in keys for member in replicas.groups[key].missing]
        if whole and judged(run) and not found[run].count and missing:
            found[run] = unknown(check, f"no store folder of {', '.join(missing)}")
    return found


def only_of(found: dict[int, Finding], replicas: WorldReplicas, runs: Collection[int], why: str) -> dict[int, Finding]:
    """Leave the findings of `runs`; in others that stores were read of, the check had nothing to compare them with."""
    read = {run for run, _ in replicas.groups}
    return {
        run: one if run in runs or run not in read else skipped(one.check, why) for run, one in sorted(found.items())
    }


def _planned(
    check: str,
    replicas: WorldReplicas,
    parts: Sequence[DataFrame],
    make: Callable[[Witness], Witness],
    judged: Callable[[int], bool],
    groups: Mapping[int, Sequence[GroupId]],
) -> dict[int, Finding]:
    found = {run: skipped(check, NO_FOLDER) for run, keys in groups.items() if not keys}
    if not parts:
        return found | {run: finding(check, (), judged=judged(run)) for run, keys in groups.items() if keys}

    def witness(row: Row) -> Witness:
        return _named((row[RUN], row.broker), make(orjson.loads(row.shown)), groups[row[RUN]])

    rows = reduce(DataFrame.unionByName, parts)
    return findings(replicas.evidence.world, CheckPlan(check, rows, _ORDER, witness, judged=judged, instead=found))


def _named(key: GroupId, witness: Witness, keys: Sequence[GroupId]) -> Witness:
    return {"broker": key[1], **witness} if len(keys) > 1 else witness


def not_in_gap(replicas: WorldReplicas, rows: DataFrame, position: str = "position") -> DataFrame:
    """Leave out rows whose position lies in a part of their member's log that cannot be read, or is no longer kept."""
    kept = rows.join(replicas.facts.select(*OWNER, F.col("begin").alias("_begin")), list(OWNER))
    kept = kept.where(F.col(position) >= F.col("_begin")).drop("_begin")
    if not replicas.gapped:
        return kept
    gaps = replicas.gaps.select(*OWNER, F.col("start").alias("_start"), F.col("end").alias("_end"))
    inside = (F.col("_start") <= F.col(position)) & (F.col(position) < F.col("_end"))
    same = reduce(Column.__and__, (kept[name] == gaps[name] for name in OWNER))
    return kept.join(gaps, same & inside, "left_anti")


def groups_as_twins(replicas: WorldReplicas) -> dict[GroupId, SimpleNamespace]:
    """Return each group with what is small of it, as the twins of the checks look at it: no entries but the last.

    Group → `group` and `replicas`, with the fields of pipeline/replicas that are not about rows.
    """
    looks = _looks(replicas)
    faults = _faults(replicas)
    found = {}
    for (run, broker), facts in replicas.groups.items():
        logs = [_log(one, gapped=(run, broker, one.member) in replicas.gapped) for one in facts.logs]
        copies: dict[int, list[SimpleNamespace]] = {}
        for one in replicas.logs.members:
            if one.run == run and one.copy >= 0:
                copies.setdefault(one.copy, []).append(_log(one, gapped=False))
        group = SimpleNamespace(
            name=broker, members=facts.members, is_raft=facts.is_raft, logs=logs, looks=looks.get((run, broker), [])
        )
        history = SimpleNamespace(faults=faults.get(run, []))
        earlier = [copies[copy] for copy in sorted(copies)]
        found[run, broker] = SimpleNamespace(group=group, replicas=SimpleNamespace(history=history, earlier=earlier))
    return found


def _log(facts: Any, *, gapped: bool) -> SimpleNamespace:
    last = [SimpleNamespace(term=facts.last_term)] if facts.entries else []
    names = ("member", "begin", "end", "last", "dispatched", "floor", "vote", "stamps", "damage", "configs")
    return SimpleNamespace(entries=last, gaps=gapped, **{name: getattr(facts, name) for name in names})


def _looks(replicas: WorldReplicas) -> dict[GroupId, list[Look]]:
    found: dict[GroupId, list[Look]] = {}
    names = Look._fields
    for row in replicas.looks.select(RUN, "broker", *names).orderBy("at").limit(LOOKS_MAX).collect():
        found.setdefault((row[RUN], row.broker), []).append(Look(*(row[name] for name in names)))
    return found


def _faults(replicas: WorldReplicas) -> dict[int, list[Fault]]:
    found: dict[int, list[Fault]] = {}
    for row in replicas.evidence.world.faults.select(RUN, *Fault._fields).collect():
        found.setdefault(row[RUN], []).append(Fault(*(row[name] for name in Fault._fields)))
    return found
