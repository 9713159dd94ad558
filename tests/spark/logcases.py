"""Holds the plans of B1 to B14 against their twins, over many small clusters at once."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from pipeline.history.promises import promises_of
from pipeline.history.results import Finding
from pipeline.plain.log_checks import LOG_CHECKS
from pipeline.plain.replicas import Replicas as PlainReplicas
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.logs import Case, Logs
from pipeline.spark.checker.replicas import WorldReplicas
from pipeline.spark.checker.world import World
from tests.planted.plant_log import PLANTS, plant
from tests.planted.plant_stores import MEMBERS, PAIR, RAFT
from tests.spark.compare import assert_same, plain
from tests.spark.damages import Clusters, replicas_of

COUNT = int(os.environ.get("RAFTMQ_CLUSTERS", "128"))
"""How many damaged clusters of each kind each check is held against its twin over: with fewer some never show."""
Check = Callable[[WorldReplicas], dict[int, Finding]]
TWINS = {twin.__name__: twin for twin in LOG_CHECKS}


def in_spark(spark: SparkSession, cases: Sequence[PlainReplicas]) -> WorldReplicas:
    """Return the same evidence as frames."""
    world = World.of_histories(spark, [case.history for case in cases])
    rows = [Case(run, case.artefacts, case.earlier) for run, case in enumerate(cases)]
    return WorldReplicas(Evidence(world), Logs.of_artefacts(spark, rows, world.promises))


def damaged(root: Path, kind: str, count: int = COUNT) -> list[PlainReplicas]:
    """Return clusters with random damage, all of one kind and of one promise."""
    root.mkdir()
    clusters = Clusters(root)
    promises = promises_of("raft" if kind == RAFT else "sync", {"g": MEMBERS[kind]})
    return [replicas_of(clusters.make(kind, seed), seed, promises) for seed in range(count)]


def assert_like_twins(spark: SparkSession, tmp_path: Path, checks: Sequence[Check]) -> None:
    """Assert that checks find in damaged clusters of both kinds what their twins find, and that there is something."""
    some = dict.fromkeys((check.__name__ for check in checks), 0)
    for kind in (RAFT, PAIR):
        cases = damaged(tmp_path / kind, kind)
        replicas = in_spark(spark, cases)
        for check in checks:
            some[check.__name__] += assert_same(check(replicas), cast("Any", cases), cast("Any", TWINS[check.__name__]))
        replicas.evidence.world.close()
    assert all(some.values()), some


def assert_planted(spark: SparkSession, tmp_path: Path, checks: Sequence[Check]) -> None:
    """Assert that checks find what is planted for them, as their twins do."""
    for kind, plants in PLANTS.items():
        here = [check for check in checks if check.__name__.removeprefix("check_").upper() in plants]
        names = [check.__name__.removeprefix("check_").upper() for check in here]
        planted = [plant(tmp_path / f"{kind}-{name}", seed, name, kind) for seed, name in enumerate(names)]
        if not planted:
            continue
        cases = [one.cluster.replicas() for one in planted]
        replicas = in_spark(spark, cases)
        for run, check in enumerate(here):
            found = check(replicas)
            assert_same(found, cast("Any", cases), cast("Any", TWINS[check.__name__]))
            wanted = planted[run].witness
            assert any(wanted.items() <= witness.items() for witness in found[run].witnesses), plain(wanted)
        replicas.evidence.world.close()
