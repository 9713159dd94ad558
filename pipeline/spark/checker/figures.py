"""The figures of pipeline/figures from a world of any size: the same fields, counted in Spark.

Nothing that grows with the run comes to the driver: sends are gathered in stretches of STRETCH_S, cut where a fault
begins or ends, and of each only its edges and its longest silence are brought. Latency quantiles are within 0.01 %.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.plain.figures import AVAILABILITY_WINDOW_S, LEADING, NS, QUANTILES, semantics_of
from pipeline.spark.checker.evidence import MESSAGE, Evidence

STRETCH_S = 0.1
ACCURACY = 10_000

Figures = dict[str, Any]


class _Stretch(NamedTuple):
    """Acknowledgements within a short time: the first, the last, and the longest silence between two of them."""

    first: int
    last: int
    before: int
    after: int


def figures_of(evidence: Evidence, logs: Sequence[Figures]) -> Figures:
    """Return all figures of a world of one run; `logs` are those of its broker groups."""
    timeline = _Timeline(evidence)
    return {
        "operations": _operations(evidence),
        "delivery": _delivery(evidence),
        "seconds": round(timeline.seconds, 3),
        "availability_percent": timeline.availability_percent(),
        "longest_silence_s": timeline.longest_silence_s(),
        "sends": {"all": timeline.all_sends(), "without_faults": timeline.quiet_sends()},
        "faults": timeline.of_faults(),
        "leader_changes": _leader_changes(evidence),
        "logs": list(logs),
    }


def _operations(evidence: Evidence) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    rows = evidence.ops.groupBy("act", "kind").agg(F.count(F.lit(1)).alias("times"), F.min("op").alias("op")).collect()
    for row in sorted(rows, key=lambda row: int(row.op)):
        counts.setdefault(row.act, {})[row.kind] = row.times
    return {act: dict(sorted(kinds.items())) for act, kinds in counts.items()}


def _delivery(evidence: Evidence) -> Figures:
    """As figures.delivery."""
    sent = evidence.sends.where(F.col("kind") == str(Kind.OK)).select(*MESSAGE).distinct()
    found = evidence.world.reads.select(*MESSAGE)
    if evidence.world.held is not None:
        found = found.union(evidence.world.held.select(*MESSAGE))
    acknowledged, lost = sent.count(), sent.join(found.distinct(), list(MESSAGE), "left_anti").count()
    groups = set(evidence.world.promises.consumer_groups)
    if not groups:
        commits = evidence.ops.where(F.col("act") == str(Act.COMMIT))
        groups = {row.group for row in commits.select("group").distinct().collect()}
    polled = evidence.reads.where(
        (F.col("op_act") == str(Act.POLL)) & (F.col("op_kind") == str(Kind.OK)) & F.col("op_group").isin(list(groups))
    )
    given = polled.groupBy("op_group", *MESSAGE).count()
    times = given.agg(F.count(F.lit(1)).alias("all"), F.count_if(F.col("count") > 1).alias("again")).collect()[0]
    return {
        "semantics": semantics_of(acknowledged, lost, times.again, consumed=bool(groups)),
        "acknowledged": acknowledged,
        "lost": lost,
        "delivered": times.all,
        "redelivered": times.again,
    }


def _leader_changes(evidence: Evidence) -> int:
    looks = evidence.world.looks.where(F.col("role").isin(list(LEADING)))
    led = looks.groupBy("term").agg(F.max_by("member", "at").alias("member")).orderBy("term").collect()
    return sum(1 for before, after in pairwise(led) if before.member != after.member)


def _touches(window: Column) -> Column:
    return (window.start <= F.col("completed")) & (F.col("invoked") <= window.end)


class _Timeline:
    """As figures._Timeline."""

    def __init__(self, evidence: Evidence) -> None:
        self._sends = evidence.sends
        ok = (F.col("kind") == str(Kind.OK)) & (F.col("completed") != UNKNOWN)
        self._acknowledged = self._sends.where(ok)
        self._faults = sorted(evidence.world.faults.collect(), key=lambda fault: int(fault.began))
        edges = self._sends.agg(
            F.coalesce(F.min("invoked"), F.lit(0)).alias("start"),
            F.coalesce(F.max(F.greatest("invoked", "completed")), F.lit(0)).alias("end"),
        ).collect()[0]
        self._start, self._end = int(edges.start), int(edges.end)
        self._windows = [(int(fault.began), self._ended(fault)) for fault in self._faults]
        self._stretches = self._gather()

    @property
    def seconds(self) -> float:
        return (self._end - self._start) / NS

    def _ended(self, fault: Row) -> int:
        return int(fault.ended) if fault.ended != UNKNOWN else max(self._end, int(fault.began))

    def _gather(self) -> list[_Stretch]:
        """Return the stretches in order. None reaches over the begin or the end of a fault."""
        spark = self._acknowledged.sparkSession
        slot = F.floor((F.col("completed") - self._start) / (STRETCH_S * NS))
        edges = sorted({edge for window in self._windows for edge in (window[0], window[1] + 1)})
        # Joined by slot, each of which has few: an expression over all edges of a long run is too deep for Spark.
        cuts = spark.createDataFrame([(edge,) for edge in edges], "completed long").withColumn("slot", slot)
        of_slot = F.broadcast(cuts.groupBy("slot").agg(F.collect_list("completed").alias("cuts")))
        times = self._acknowledged.select("completed", slot.alias("slot")).join(of_slot, "slot", "left")
        passed = F.size(F.filter("cuts", lambda cut: cut <= F.col("completed")))
        times = times.select("completed", "slot", F.coalesce(passed, F.lit(0)).alias("passed"))
        before = F.lag("completed").over(Window.partitionBy("slot", "passed").orderBy("completed"))
        gaps = times.withColumn("before", F.coalesce(before, F.col("completed")))
        longest = F.max(F.struct((F.col("completed") - F.col("before")).alias("gap"), "before", "completed"))
        rows = gaps.groupBy("slot", "passed").agg(
            F.min("completed").alias("first"), F.max("completed").alias("last"), longest.alias("longest")
        )
        found = [_Stretch(row.first, row.last, row.longest.before, row.longest.completed) for row in rows.collect()]
        return sorted(found)

    def availability_percent(self) -> float | None:
        window = int(AVAILABILITY_WINDOW_S * NS)
        count = -(-(self._end - self._start) // window)
        at = F.least(F.floor((F.col("completed") - self._start) / window), F.lit(count - 1))
        served = self._acknowledged.select(at.alias("window")).distinct().count()
        return round(100 * served / count, 2) if count else None

    def longest_silence_s(self) -> float | None:
        if not self._end:
            return None
        return round(max(later - earlier for earlier, later in self._gaps()) / NS, 3)

    def _gaps(self) -> list[tuple[int, int]]:
        """Return the silences that may be the longest of any stretch of time, ends of the run included, in order."""
        gaps, at = [], self._start
        for stretch in self._stretches:
            gaps += [(at, stretch.first), (stretch.before, stretch.after)]
            at = stretch.last
        return [*gaps, (at, self._end)]

    def all_sends(self) -> Figures:
        return self._described(self._acknowledged, self.seconds)

    def quiet_sends(self) -> Figures:
        quiet = self._acknowledged
        if self._windows:
            quiet = quiet.where(~F.exists(self._frames(), _touches))
        faulty, at = 0, self._start
        for start, end in sorted(self._windows):
            faulty += max(0, min(end, self._end) - max(start, at))
            at = max(at, end)
        return self._described(quiet, self.seconds - faulty / NS)

    def _described(self, sends: DataFrame, seconds: float) -> Figures:
        row = sends.agg(F.count(F.lit(1)).alias("n"), *_quantiles()).collect()[0]
        return _sends(row, seconds)

    def of_faults(self) -> list[Figures]:
        """Describe what each fault did to the sends; one job for all of them."""
        if not self._faults:
            return []
        window = F.explode(F.filter(self._frames(), _touches)).alias("window")
        touched = self._acknowledged.select("invoked", "completed", window)
        rows = touched.groupBy("window.number").agg(F.count(F.lit(1)).alias("n"), *_quantiles()).collect()
        counted = {row.number: row for row in rows}
        return [self._fault(number, counted.get(number)) for number in range(len(self._faults))]

    def _frames(self) -> Column:
        """Return the windows as one array, which is flat however many there are."""
        return F.array(
            *(
                F.struct(F.lit(number).alias("number"), F.lit(start).alias("start"), F.lit(end).alias("end"))
                for number, (start, end) in enumerate(self._windows)
            )
        )

    def _fault(self, number: int, counted: Row | None) -> Figures:
        fault, (began, ended) = self._faults[number], self._windows[number]
        silence, until = 0, began
        for earlier, later in self._gaps():
            over = later == self._end and (not self._stretches or earlier == self._stretches[-1].last)
            if earlier <= ended and later >= began and later - earlier > silence:
                silence, until = later - earlier, UNKNOWN if over else later
        return {
            "fault": fault.fault,
            "name": fault.name,
            "target": fault.target,
            "effect": fault.effect,
            "began_s": round((began - self._start) / NS, 3),
            "lasted_s": round((ended - began) / NS, 3),
            "silence_s": round(silence / NS, 3),
            "recovery_s": None if until == UNKNOWN else round(max(0, until - began) / NS, 3),
            **_sends(counted, (ended - began) / NS),
        }


def _quantiles() -> list[Any]:
    latency = F.col("completed") - F.col("invoked")
    return [F.percentile_approx(latency, share, ACCURACY).alias(name) for name, share in QUANTILES.items()]


def _sends(row: Row | None, seconds: float) -> Figures:
    count = int(row.n) if row is not None else 0
    latencies = {
        name: round(row[name] / 1e6, 3) if row is not None and row[name] is not None else None for name in QUANTILES
    }
    return {"acknowledged": count, "per_second": round(count / seconds, 1) if seconds > 0 else None, **latencies}
