"""What the members of each broker group left behind, and the log that they agree on; as pipeline/replicas.

What is one value for each group (is it Raft's, up to where is it committed) is counted in Spark and kept on the driver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.history.rows import UNKNOWN
from pipeline.logs.rows import EntryRow, MessageRow
from pipeline.plain.evidence import HeldMessage
from pipeline.spark.checker.evidence import ATTEMPT, Evidence
from pipeline.spark.checker.logs import END, Logs, MemberFacts
from pipeline.spark.checker.plan import runs_of
from pipeline.spark.checker.world import RUN

GROUP = (RUN, "broker")
OWNER = (RUN, "broker", "member")
GroupId = tuple[int, str]
"""Run, name of the broker group."""
# So many rows are sent to each task rather than sorted.
FEW = 100_000
TOLD = ("op", *ATTEMPT, "topic", "queue", "offset", "position", "term")
# Acknowledgements of one writer are compared so many at a time, and logs in parts of this length.
SLOT_MESSAGES = 4096
SLOT_BYTES = 16 * 1024 * 1024
_EVERY = 2**62
_FIELDS = tuple(name for name in EntryRow._fields if name != "follows")


class GroupFacts(NamedTuple):
    """What is known of one broker group of one run."""

    run: int
    broker: str
    members: tuple[str, ...]
    logs: tuple[MemberFacts, ...]
    is_raft: bool

    @property
    def missing(self) -> list[str]:
        """Members whose store folder was not read."""
        there = {log.member for log in self.logs}
        return [member for member in self.members if member not in there]

    @property
    def majority(self) -> int:
        """How many members are a majority."""
        return max(len(self.members), len(self.logs)) // 2 + 1


@dataclass(frozen=True)
class WorldReplicas:
    """The logs of a world's runs beside its history."""

    evidence: Evidence
    logs: Logs

    @cached_property
    def groups(self) -> dict[GroupId, GroupFacts]:
        """All groups that something was read of, in the order in which they are listed."""
        found: dict[GroupId, GroupFacts] = {}
        listed = self.evidence.world.promises.group_members
        for run in self.evidence.world.runs:
            ends = [facts for facts in self.logs.members if facts.run == run and facts.copy == END]
            names = listed or {"": tuple(facts.member for facts in ends)}
            for broker, members in names.items():
                logs = tuple(facts for facts in ends if facts.broker == broker)
                if logs:
                    is_raft = any(facts.is_raft for facts in logs)
                    found[run, broker] = GroupFacts(run, broker, tuple(members), logs, is_raft)
        return found

    def of_groups(self, wanted: Mapping[GroupId, bool]) -> Column:
        """Return whether a row's group is one of those that are `wanted`; few are, or all."""
        if all(wanted.values()):
            return F.lit(True)
        some = [F.struct(F.lit(run), F.lit(broker)) for (run, broker), yes in wanted.items() if yes]
        return F.struct(F.col(RUN), F.col("broker")).isin(some) if some else F.lit(False)

    def with_values(self, frame: DataFrame, **values: Mapping[GroupId, int | bool]) -> DataFrame:
        """Add columns that hold one value for each group; what is missing in a mapping is null."""
        rows = [(run, broker, *(value.get((run, broker)) for value in values.values())) for run, broker in self.groups]
        kinds = ", ".join(
            f"{name} {'boolean' if {*map(type, value.values())} == {bool} else 'bigint'}"
            for name, value in values.items()
        )
        table = self.evidence.world.spark.createDataFrame(rows, f"run int, broker string, {kinds}")
        return frame.join(F.broadcast(table), list(GROUP))

    @cached_property
    def is_raft(self) -> dict[GroupId, bool]:
        """Group → whether its logs are those of a Raft group."""
        return {key: group.is_raft for key, group in self.groups.items()}

    @cached_property
    def entries(self) -> DataFrame:
        """All entries at the end."""
        return self.logs.at_end(self.logs.entries)

    @cached_property
    def messages(self) -> DataFrame:
        """All records at the end, with `end` and the rank of their log among its group's (`log`)."""
        rows = self.logs.at_end(self.logs.messages).join(F.broadcast(self._ranks()), list(OWNER))
        return rows.withColumn("end", F.col("position") + F.col("size"))

    @cached_property
    def queues(self) -> DataFrame:
        """The entries of all ConsumeQueues at the end."""
        return self.logs.at_end(self.logs.queues)

    @cached_property
    def gaps(self) -> DataFrame:
        """The parts of logs at the end that hold no intact records."""
        return self.evidence.world.keep(self.logs.at_end(self.logs.gaps))

    @cached_property
    def gapped(self) -> frozenset[tuple[int, str, str]]:
        """The members (OWNER) whose log has a gap."""
        return frozenset((row.run, row.broker, row.member) for row in self.gaps.select(*OWNER).distinct().collect())

    @cached_property
    def facts(self) -> DataFrame:
        """What is known of each member at the end: OWNER, `log` (its rank), and fields of MemberFacts."""
        rows = []
        for (run, broker), group in self.groups.items():
            rows += [
                (run, broker, log.member, log.begin, log.end, log.last, log.dispatched, log.vouched, log.file_bytes,
                 (run, broker, log.member) in self.gapped, rank)
                for rank, log in enumerate(group.logs)
            ]  # fmt: skip
        longs = ", ".join(
            f"{name} bigint" for name in ("begin", "log_end", "last", "dispatched", "vouched", "file_bytes")
        )
        schema = f"run int, broker string, member string, {longs}, gapped boolean, log int"
        return F.broadcast(self.evidence.world.spark.createDataFrame(rows, schema))

    def few(self, frame: DataFrame) -> DataFrame | None:
        """Compute rows of which there are few as a rule, or none: then None is returned. One job."""
        kept, count = self.evidence.world.keep_counted(frame)
        if not count:
            return None
        return F.broadcast(kept) if count <= FEW else kept

    def _ranks(self) -> DataFrame:
        """Return each member's place among the logs: where two hold a record, the later one's is taken."""
        rows = []
        for (run, broker), group in self.groups.items():
            order: Sequence[MemberFacts] = group.logs
            if not group.is_raft:
                # The longest log is the master's: nobody else appends.
                order = sorted(group.logs, key=lambda facts: facts.end)
            rows += [(run, broker, facts.member, place) for place, facts in enumerate(order)]
        return self.evidence.world.spark.createDataFrame(rows, "run int, broker string, member string, log int")

    @cached_property
    def acknowledged(self) -> DataFrame:
        """Sends that were told where they stand, with the group (`broker`) whose logs must hold them."""
        return self.of_group(self.evidence.acknowledged)

    @cached_property
    def told_runs(self) -> frozenset[int]:
        """The runs in which a send was told where it stands."""
        return frozenset(runs_of(self.acknowledged))

    @cached_property
    def unsure(self) -> DataFrame | None:
        """The acknowledged sends, GROUP and TOLD, that do not certainly stand on all members just as told.

        SLOT messages of one writer are compared at a time, by a hash over all of them.
        """
        part = F.floor(F.col("counter") / SLOT_MESSAGES)
        keys = (*GROUP, "writer", "slot")
        some = F.when(F.col("term") != UNKNOWN, F.col("term"))
        hashed = (
            F.count(F.lit(1)).alias("rows"),
            F.bit_xor(F.xxhash64(*ATTEMPT, "position", "topic", "queue", "offset")).alias("hash"),
            F.min(some).alias("least"),
            F.max(some).alias("most"),
        )
        told = self.acknowledged.withColumn("slot", part).groupBy(*keys).agg(*hashed).alias("told")
        records = self.messages.where(F.col("writer") != UNKNOWN).withColumn("slot", part)
        held = records.groupBy(*OWNER, "writer", "slot").agg(*hashed).alias("held")
        terms = F.least("told.least", "held.least") == F.greatest("told.most", "held.most")
        unknown = F.col("told.least").isNull() | F.col("held.least").isNull()
        same = (F.col("told.rows") == F.col("held.rows")) & (F.col("told.hash") == F.col("held.hash"))
        sure = told.join(held, list(keys)).where(same & (unknown | terms))
        counted = told.select(*keys).join(
            sure.groupBy(*keys).agg(F.count(F.lit(1)).alias("holders")), list(keys), "left"
        )
        logs = {key: len(group.logs) for key, group in self.groups.items()}
        slots = self.few(self.with_values(counted, logs=logs).where("holders is null or holders < logs").select(*keys))
        if slots is None:
            return None
        asked = self.acknowledged.withColumn("slot", part).join(slots, list(keys), "left_semi")
        return self.few(asked.select(*GROUP, *TOLD))

    def of_group(self, ops: DataFrame) -> DataFrame:
        """Name in `broker` the group that operations are about; one that names none is about each group of its run."""
        names = {broker for _, broker in self.groups}
        if not self.evidence.world.several_groups:
            return ops.withColumn("broker", F.lit(next(iter(names), "")))
        table = self.evidence.world.spark.createDataFrame(list(self.groups), "run int, of_group string")
        named = F.col("broker").isin("", F.col("of_group"))
        found = ops.join(F.broadcast(table), RUN).where(named)
        return found.withColumn("broker", F.col("of_group")).drop("of_group")

    @cached_property
    def merged_entries(self) -> DataFrame:
        """For each index the entry that most members hold (of as many, that of the highest term), with its holders.

        Fields of EntryRow but `follows`; `holders`: how many members hold it with that term and CRC; `differs`: whether
        members hold entries of other terms, places or sizes there.
        """
        votes = self.entries.groupBy(*GROUP, *_FIELDS).agg(F.count(F.lit(1)).alias("votes"))
        entry = F.struct(*_FIELDS)
        differs = F.lit(False)
        for name in ("term", "position", "size"):
            differs = differs | (F.min(name) != F.max(name))
        best = votes.groupBy(*GROUP, "index").agg(
            F.max(F.struct("votes", "term", entry.alias("entry"))).alias("best"), differs.alias("differs")
        )
        chosen = best.select(*GROUP, "best.entry.*", "differs")
        copies = self.entries.groupBy(*GROUP, "index", "term", "crc").agg(F.count(F.lit(1)).alias("holders"))
        return self.evidence.world.keep(chosen.join(copies, [*GROUP, "index", "term", "crc"]))

    @cached_property
    def known(self) -> DataFrame:
        """OWNER → `known`: the highest index that a member knew as committed, by its log or by what it said."""
        world = self.evidence.world
        said = self.entries.groupBy(*OWNER).agg(F.max("commit").alias("known"))
        none = world.spark.createDataFrame(
            [(run, broker, facts.member, 0) for (run, broker), group in self.groups.items() for facts in group.logs],
            "run int, broker string, member string, known bigint",
        )
        looks = self.looks.where(self.of_groups(self.is_raft)).select(*OWNER, F.col("commit").alias("known"))
        every = said.unionByName(none).unionByName(looks)
        return world.keep(every.groupBy(*OWNER).agg(F.max("known").alias("known")))

    @cached_property
    def looks(self) -> DataFrame:
        """What members said of themselves, with their group."""
        world = self.evidence.world
        rows = []
        for (run, broker), group in self.groups.items():
            rows += [(run, member, broker) for member in group.members]
        owners = world.spark.createDataFrame(rows, "run int, member string, broker string")
        return world.looks.join(F.broadcast(owners), [RUN, "member"])

    @cached_property
    def committed(self) -> dict[GroupId, int]:
        """Group → the highest index known as committed: a member says so, a client was told so, or all hold it."""
        whole = {key: len(group.logs) for key, group in self.groups.items() if not group.missing}
        counted = self.with_values(self.merged_entries, all=whole)
        everywhere = counted.where(F.col("holders") == F.col("all")).select(*GROUP, "index")
        said = self.known.select(*GROUP, F.col("known").alias("index"))
        found = dict.fromkeys(self.groups, 0)
        found.update(_highest(everywhere.union(said)))
        later = self.few(self.with_values(self.messages, sure=found).where(F.col("index") > F.col("sure")))
        if later is not None:
            told = self.acknowledged.select(*GROUP, "position", *ATTEMPT)
            found.update(_highest(self.agreeing(later).join(told, [*GROUP, "position", *ATTEMPT], "left_semi")))
        return found

    @cached_property
    def _divided(self) -> DataFrame | None:
        """(GROUP, index) of which members hold different entries."""
        return self.few(self.merged_entries.where("differs").select(*GROUP, "index"))

    def agreeing(self, rows: DataFrame) -> DataFrame:
        """Return those records that are of the merged log: their entry is, or they stand before the first."""
        if self._divided is None:
            return rows
        sure = rows.join(self._divided, [*GROUP, "index"], "left_anti")
        unsure = rows.join(self._divided, [*GROUP, "index"], "left_semi")
        entries = self.merged_entries.where("differs").select(
            *GROUP,
            F.col("index"),
            F.col("term").alias("entry_term"),
            F.col("position").alias("entry_position"),
            (F.col("position") + F.col("size")).alias("entry_end"),
        )
        inside = (F.col("entry_position") <= F.col("position")) & (F.col("position") < F.col("entry_end"))
        found = unsure.join(entries, [*GROUP, "index"]).where(inside & (F.col("entry_term") == F.col("term")))
        return sure.unionByName(found.drop("entry_term", "entry_position", "entry_end"))

    @cached_property
    def uneven(self) -> DataFrame | None:
        """(GROUP, slot) of the parts of logs, SLOT_BYTES each, in which members do not hold the same records."""
        slots = self.messages.groupBy(*GROUP, "log", slot().alias("slot")).agg(
            F.count(F.lit(1)).alias("rows"), F.bit_xor(F.xxhash64(*MessageRow._fields)).alias("hash")
        )
        logs = {key: len(group.logs) for key, group in self.groups.items()}
        found = slots.groupBy(*GROUP, "slot").agg(
            F.count(F.lit(1)).alias("holders"), varies("rows").alias("by_rows"), varies("hash").alias("by_hash")
        )
        odd = self.with_values(found, logs=logs).where("holders != logs or by_rows or by_hash")
        return self.few(odd.select(*GROUP, "slot"))

    @cached_property
    def merged(self) -> DataFrame:
        """The records of the merged log, fields of MessageRow: of a Raft group the committed ones."""
        # Of a pair everything counts.
        most = {key: self.committed[key] if group.is_raft else _EVERY for key, group in self.groups.items()}
        last = {key: len(group.logs) - 1 for key, group in self.groups.items()}
        rows = self.with_values(self.messages, most=most, last=last).where(F.col("index") <= F.col("most"))
        rows = rows.withColumn("slot", slot())
        even = rows.where(F.col("log") == F.col("last"))
        if self.uneven is None:
            return self.evidence.world.keep(self.agreeing(even).select(*GROUP, *MessageRow._fields))
        even = even.join(self.uneven, [*GROUP, "slot"], "left_anti")
        odd = self.agreeing(rows.join(self.uneven, [*GROUP, "slot"], "left_semi"))
        best = odd.groupBy(*GROUP, "position").agg(F.max_by(F.struct(*MessageRow._fields), "log").alias("row"))
        chosen = best.select(*GROUP, "row.*")
        agreed = self.agreeing(even).select(*GROUP, *MessageRow._fields)
        return self.evidence.world.keep(agreed.unionByName(chosen))

    @cached_property
    def merged_rows(self) -> dict[GroupId, int]:
        """Group → how many records its merged log holds."""
        return {(row.run, row.broker): row["count"] for row in self.merged.groupBy(*GROUP).count().collect()}

    @cached_property
    def held(self) -> DataFrame:
        """The merged log as rows of HeldMessage, for the checks of the history."""
        return self.merged.withColumnRenamed("index", "entry").select(RUN, *HeldMessage._fields)

    @cached_property
    def ends(self) -> dict[GroupId, int]:
        """Group → the position behind what is committed; of a pair, up to where all members have the log."""
        found = {key: 0 if group.is_raft else min(log.end for log in group.logs) for key, group in self.groups.items()}
        counted = self.with_values(self.merged_entries.where(self.of_groups(self.is_raft)), committed=self.committed)
        below = counted.where(F.col("index") <= F.col("committed"))
        for row in below.groupBy(*GROUP).agg(F.max(F.col("position") + F.col("size")).alias("end")).collect():
            found[row.run, row.broker] = row.end
        return found

    @cached_property
    def complete(self) -> dict[GroupId, bool]:
        """Group → whether all members were read from the first byte to one common end."""
        first = self.logs.at_end(self.logs.gaps).groupBy(*OWNER).agg(F.min("start").alias("start")).collect()
        gaps = {(row.run, row.broker, row.member): row.start for row in first}
        found = {}
        for key, group in self.groups.items():
            whole = all(log.begin == 0 and gaps.get((*key, log.member), log.end) >= log.end for log in group.logs)
            decided = not group.is_raft or all(log.last <= self.committed[key] for log in group.logs)
            ends = {(log.last, log.end) for log in group.logs}
            found[key] = not group.missing and len(ends) == 1 and whole and decided
        return found

    @cached_property
    def complete_runs(self) -> dict[int, bool]:
        """Run → whether its merged log holds all that can be, as MergedLog.complete; not of runs without any group."""
        names = self.evidence.world.promises.group_members
        found: dict[int, bool] = {}
        for run in self.evidence.world.runs:
            groups = [key for key in self.groups if key[0] == run]
            if groups:
                found[run] = all(self.complete[key] for key in groups) and len(groups) >= len(names)
        return found


def slot(position: str = "position") -> Column:
    """Return the number of the part of the log that a row's position lies in."""
    return F.floor(F.col(position) / SLOT_BYTES)


def varies(name: str) -> Column:
    """Whether rows of a group differ in a column."""
    return F.min(name) != F.max(name)


def _highest(rows: DataFrame) -> dict[GroupId, int]:
    found = rows.groupBy(*GROUP).agg(F.max("index").alias("index")).collect()
    return {(row.run, row.broker): row["index"] for row in found}
