"""What members left behind as DataFrames: entries and records of their logs, queues, gaps; what is small, as values.

Every frame has `run`, `copy` (END: the end of the run; 0 and up: copies of earlier moments), `broker` (its group)
and `member` beside the fields of artefact_rows. Config files, votes and floors are small, and stay on the driver.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.history.promises import Promises
from pipeline.logs.member_files import Artefact, MemberLogBytes, Vote
from pipeline.logs.rows import Config, EntryRow, MessageRow
from raft.protocol.types import Mark

END = -1
OWNER = ("run", "copy", "broker", "member")
_ROWS = pa.list_(pa.int64())
ENTRY_FIELDS: Mapping[str, pa.DataType] = {
    name: pa.bool_() if name in {"classic", "follows"} else pa.int64() for name in EntryRow._fields
}
MESSAGE_FIELDS: Mapping[str, pa.DataType] = {
    name: {"topic": pa.string(), "transaction": pa.string(), "refers": _ROWS}.get(name, pa.int64())
    for name in MessageRow._fields
}
GAP_FIELDS: Mapping[str, pa.DataType] = {
    "start": pa.int64(), "end": pa.int64(), "reason": pa.string(), "empty": pa.bool_(),
}  # fmt: skip
QUEUE_FIELDS: Mapping[str, pa.DataType] = {
    "topic": pa.string(), "queue": pa.int64(), "offset": pa.int64(), "position": pa.int64(), "size": pa.int64(),
    "tags_code": pa.int64(),
}  # fmt: skip
KEY_FIELDS: Mapping[str, pa.DataType] = {"position": pa.int64(), "key": pa.string()}


@dataclass(frozen=True)
class MemberFacts:
    """What is known of one member's folder beside its rows; fields as those of Artefact."""

    run: int
    copy: int
    broker: str
    member: str
    begin: int
    end: int
    last: int
    """Index of the last entry, 0 when there is none."""
    last_term: int
    entries: int
    """How many entries its log holds."""
    is_raft: bool
    file_bytes: int
    dispatched: int
    flushed: int
    floor: Mark | None = None
    vote: Vote | None = None
    stamps: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    offsets_before: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    damage: Mapping[str, str] = field(default_factory=dict)
    configs: Sequence[Config] = ()

    @property
    def vouched(self) -> int:
        """The position up to which the member knew its log as on disk when it was ended."""
        return max(self.floor.end if self.floor is not None else 0, self.flushed, self.dispatched, 0)


class Case(NamedTuple):
    """The artefacts of one run."""

    run: int
    artefacts: Sequence[Artefact]
    earlier: Sequence[Sequence[Artefact]] = ()


@dataclass(frozen=True)
class Logs:
    """All members' logs. `unindexed` and `misindexed` are as those of Artefact."""

    members: Sequence[MemberFacts]
    entries: DataFrame
    messages: DataFrame
    gaps: DataFrame
    queues: DataFrame
    unindexed: DataFrame
    misindexed: DataFrame
    bytes: Mapping[tuple[int, str], MemberLogBytes]
    """(run, member) → the bytes of its log at the end."""
    chunks: DataFrame | None = None
    """The hashes of pieces of the logs; without them they are computed as they are asked for."""

    @classmethod
    def of_artefacts(cls, spark: SparkSession, cases: Sequence[Case], promises: Promises) -> "Logs":
        """Return those of artefacts that were read already: small ones, of many runs."""
        owned = list(_owned(cases, promises))
        return cls(
            [_facts(owner, log) for owner, log in owned],
            _frame(spark, ENTRY_FIELDS, ((owner, log.entries) for owner, log in owned)),
            _frame(spark, MESSAGE_FIELDS, ((owner, log.messages) for owner, log in owned)),
            _frame(spark, GAP_FIELDS, ((owner, log.gaps) for owner, log in owned)),
            _frame(spark, QUEUE_FIELDS, ((owner, _queue_rows(log)) for owner, log in owned)),
            _frame(spark, KEY_FIELDS, ((owner, log.unindexed) for owner, log in owned)),
            _frame(
                spark, {"position": pa.int64()}, ((owner, [(at,) for at in log.misindexed]) for owner, log in owned)
            ),
            {(owner[0], owner[3]): log.log for owner, log in owned if owner[1] == END},
        )

    def at_end(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a frame that are of the end of the run."""
        return frame.where(F.col("copy") == END).drop("copy")


def empty_frame(spark: SparkSession, fields: Mapping[str, pa.DataType]) -> DataFrame:
    """Return a frame with OWNER and some fields, and no rows."""
    return _frame(spark, fields, ())


Owner = tuple[int, int, str, str]


def groups_of(promises: Promises, members: Iterable[str]) -> dict[str, str]:
    """Return member → its broker group; without a list of members all are one group, "". As Replicas.grouped."""
    listed = promises.group_members
    if not listed:
        return dict.fromkeys(members, "")
    return {member: name for name, some in listed.items() for member in some}


def _owned(cases: Sequence[Case], promises: Promises) -> Iterator[tuple[Owner, Artefact]]:
    for case in cases:
        for copy, artefacts in [(END, case.artefacts), *enumerate(case.earlier)]:
            broker = groups_of(promises, (log.member for log in artefacts))
            for log in artefacts:
                if log.member in broker:
                    yield (case.run, copy, broker[log.member], log.member), log


def _facts(owner: Owner, log: Artefact) -> MemberFacts:
    return MemberFacts(
        *owner, begin=log.begin, end=log.end, last=log.last, last_term=log.entries[-1].term if log.entries else 0,
        entries=len(log.entries), is_raft=log.is_raft, file_bytes=log.log.file_bytes, dispatched=log.dispatched,
        flushed=log.flushed, floor=log.floor, vote=log.vote, stamps=log.stamps, offsets=log.offsets,
        offsets_before=log.offsets_before, damage=log.damage, configs=log.configs,
    )  # fmt: skip


def _queue_rows(log: Artefact) -> Iterator[tuple[Any, ...]]:
    for (topic, queue), rows in log.queues.items():
        for row in rows:
            yield (topic, queue, *row)


def _frame(
    spark: SparkSession, fields: Mapping[str, pa.DataType], parts: Iterable[tuple[Owner, Iterable[tuple[Any, ...]]]]
) -> DataFrame:
    schema = pa.schema(
        [("run", pa.int32()), ("copy", pa.int32()), ("broker", pa.string()), ("member", pa.string()), *fields.items()]
    )
    rows = [(*owner, *row) for owner, some in parts for row in some]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
