"""Runs all checks over what a run left, in Spark: the same findings as pipeline/twin's, for runs of any size."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.history.catalogue import TITLES
from pipeline.history.folder import RunFolder, logged_bytes
from pipeline.history.parquet import count_rows
from pipeline.history.promises import Promises
from pipeline.history.results import Finding, Results
from pipeline.history.rows import Op, Read
from pipeline.plain.evidence import History
from pipeline.plain.guard_stores import check_v8, no_stores_asked
from pipeline.spark.checker.check_copies import COPIES_CHECKS
from pipeline.spark.checker.check_groups import GROUP_CHECKS
from pipeline.spark.checker.check_guards import GUARD_CHECKS
from pipeline.spark.checker.check_liveness import LIVENESS_CHECKS
from pipeline.spark.checker.check_log_acks import ACKS_CHECKS
from pipeline.spark.checker.check_log_bytes import BYTES_CHECKS
from pipeline.spark.checker.check_log_derived import DERIVED_CHECKS
from pipeline.spark.checker.check_log_promises import PROMISES_CHECKS
from pipeline.spark.checker.check_loss import LOSS_CHECKS
from pipeline.spark.checker.check_order import ORDER_CHECKS
from pipeline.spark.checker.check_service import SERVICE_CHECKS
from pipeline.spark.checker.check_transactions import TRANSACTION_CHECKS
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.figures import figures_of
from pipeline.spark.checker.logfolders import logs_of_folders
from pipeline.spark.checker.logs import END, MemberFacts
from pipeline.spark.checker.replicas import WorldReplicas
from pipeline.spark.checker.world import World
from pipeline.spark.session import spark_session

Progress = Callable[[str], None]
# By the size of its Parquet files Spark takes a table for small that is not: a column of one value takes no room there,
# and in a hash table eight bytes a row and more. So of larger runs nothing is sent to all tasks for that; what an
# exchange has measured still is. A small one is judged a tenth sooner with it.
_BY_FILES = "spark.sql.autoBroadcastJoinThreshold"
SMALL_ROWS = 1_000_000
SMALL_LOG_BYTES = 256 * 1024 * 1024


def _in_order(checks: Sequence[Callable[..., Any]]) -> tuple[Callable[..., Any], ...]:
    """Put checks into the order of their numbers: each is called check_ and its number."""
    return tuple(sorted(checks, key=lambda check: int(check.__name__.removeprefix("check_")[1:])))


CLIENT_CHECKS: tuple[Callable[[Evidence], dict[int, Finding]], ...] = _in_order(
    (
        *LOSS_CHECKS,
        *COPIES_CHECKS,
        *ORDER_CHECKS,
        *GROUP_CHECKS,
        *TRANSACTION_CHECKS,
        *SERVICE_CHECKS,
        *LIVENESS_CHECKS,
    )
)
LOG_CHECKS: tuple[Callable[[WorldReplicas], dict[int, Finding]], ...] = _in_order(
    (*BYTES_CHECKS, *ACKS_CHECKS, *DERIVED_CHECKS, *PROMISES_CHECKS)
)


def check_run(
    run: RunFolder, promises: Promises | None = None, *, progress: Progress | None = None, stores: bool = True
) -> Results:
    """Judge a run by what it promised, or by `promises`; without `stores` by what its clients saw alone.

    Findings and figures are those of pipeline/twin.judge. Raises HistoryError, OSError for a run that cannot be read.
    """
    folders, earlier = (run.members(), run.earlier()) if stores else ([], [])
    every = [*folders, *(path for some in earlier for path in some)]
    rows = sum(count_rows(run.file(kind), kind) for kind in (Op, Read))
    world = World.of_folder(spark_session(), run, promises)
    small = rows <= SMALL_ROWS and logged_bytes(every) <= SMALL_LOG_BYTES
    with _judging(world, progress, small=small, stores=stores) as judging:
        return judging.everything(folders, earlier)


def check_stores(folders: Sequence[Path], promises: Promises, *, progress: Progress | None = None) -> Results:
    """Judge the store folders of members, of which nothing else is known, by the checks of logs alone."""
    world = World.of_histories(spark_session(), [History((), (), promises=promises)])
    with _judging(world, progress, small=logged_bytes(folders) <= SMALL_LOG_BYTES) as judging:
        return judging.logs(folders)


@dataclass(frozen=True)
class _Judging:
    """One run being judged."""

    world: World
    progress: Progress
    stores: bool
    """Whether store folders are to be looked at."""

    def everything(self, folders: Sequence[Path], earlier: Sequence[Sequence[Path]]) -> Results:
        """Run all checks, in the twin's order."""
        replicas = self._replicas(folders, earlier)
        world = self.world
        if replicas.groups:
            self.progress("merging the logs")
            world = replace(world, held=replicas.held, complete=replicas.complete_runs)
        evidence = Evidence(world)
        found = [self._one(check, evidence) for check in CLIENT_CHECKS]
        found += [self._one(check, replicas) for check in LOG_CHECKS]
        found += [self._one(check, evidence) for check in GUARD_CHECKS]
        found.append(self._guard_stores(replicas) if self.stores else no_stores_asked())
        self.progress("figures")
        return Results(tuple(found), figures_of(evidence, log_figures(replicas)))

    def logs(self, folders: Sequence[Path]) -> Results:
        """Run the checks of logs."""
        replicas = self._replicas(folders, ())
        found = [self._one(check, replicas) for check in LOG_CHECKS]
        return Results((*found, self._guard_stores(replicas)))

    def _replicas(self, folders: Sequence[Path], earlier: Sequence[Sequence[Path]]) -> WorldReplicas:
        self.progress("reading the logs")
        logs = logs_of_folders(self.world.spark, folders, self.world.promises, self.world.folder, earlier)
        return WorldReplicas(Evidence(self.world), logs)

    def _guard_stores(self, replicas: WorldReplicas) -> Finding:
        self.progress(f"V8 {TITLES['V8']}")
        return check_v8(self.world.promises, stores_read(replicas))

    def _one(self, check: Callable[[Any], dict[int, Finding]], evidence: Evidence | WorldReplicas) -> Finding:
        name = check.__name__.removeprefix("check_").upper()
        self.progress(f"{name} {TITLES[name]}")
        (run,) = self.world.runs
        return check(evidence)[run]


def log_figures(replicas: WorldReplicas) -> list[dict[str, Any]]:
    """Return the figures of each group's log, as those of pipeline/figures."""
    return [
        {
            "broker": group.broker,
            "members": [log.member for log in group.logs],
            "earlier": sum(1 for log in replicas.logs.members if _is_earlier(log) and (log.run, log.broker) == key),
            "raft": group.is_raft,
            "committed": replicas.committed[key] if group.is_raft else None,
            "end": replicas.ends[key],
            "messages": replicas.merged_rows.get(key, 0),
            "complete": replicas.complete[key],
        }
        for key, group in replicas.groups.items()
    ]


def _is_earlier(log: MemberFacts) -> bool:
    return log.copy != END


def stores_read(replicas: WorldReplicas) -> dict[str, bool]:
    """Return member → whether its log holds anything, of the store folders that were read."""
    return {facts.member: facts.end > facts.begin for facts in replicas.logs.members if facts.copy == END}


def _tell_nobody(_what: str) -> None:
    return


@contextmanager
def _judging(world: World, progress: Progress | None, *, small: bool, stores: bool = True) -> Iterator[_Judging]:
    conf = world.spark.conf
    before = str(conf.get(_BY_FILES))
    try:
        if not small:
            conf.set(_BY_FILES, -1)
        yield _Judging(world, progress or _tell_nobody, stores)
    finally:
        conf.set(_BY_FILES, before)
        world.close()
