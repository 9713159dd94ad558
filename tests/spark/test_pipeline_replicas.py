"""Tests of pipeline/spark/replicas: the merged log of damaged clusters is the one that pipeline/replicas makes."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.planted.plant_stores import PAIR, RAFT
from tests.spark.logcases import COUNT, damaged, in_spark


@pytest.mark.long
@pytest.mark.timeout(600 + 10 * COUNT)
@pytest.mark.parametrize("kind", [RAFT, PAIR])
def test_the_merged_log_is_that_of_the_plain_reader(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    cases = damaged(tmp_path / kind, kind)
    replicas = in_spark(spark, cases)
    groups = {(run, group.name): group for run, case in enumerate(cases) for group in case.groups}
    assert replicas.ends == {key: group.end for key, group in groups.items()}
    assert replicas.complete == {key: group.complete for key, group in groups.items()}
    raft = {key for key, group in groups.items() if group.is_raft}
    assert {key: replicas.committed[key] for key in raft} == {key: groups[key].committed for key in raft}
    expected = sorted((run, *row) for run, case in enumerate(cases) for row in (case.merged or ((),))[0])
    assert sorted(tuple(row) for row in replicas.held.collect()) == expected
    assert replicas.complete_runs == {run: case.merged.complete for run, case in enumerate(cases) if case.merged}
    replicas.evidence.world.close()
