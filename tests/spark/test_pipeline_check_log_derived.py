"""The plans of B7, B11 and B12 find what their twins find."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pipeline.history.results import Verdict
from pipeline.history.rows import Act, Kind, Op
from pipeline.plain.check_log_derived import check_b12 as plain_b12
from pipeline.plain.check_log_parts import NO_HISTORY
from pipeline.plain.replicas import Replicas
from pipeline.spark.checker.check_log_derived import DERIVED_CHECKS, check_b12
from tests.planted.plant_stores import GROUP, RAFT, TOPIC, build, write_offsets
from tests.spark.compare import assert_same
from tests.spark.logcases import COUNT, assert_like_twins, assert_planted, in_spark


@pytest.mark.long
@pytest.mark.timeout(600 + 10 * COUNT)
def test_damaged_clusters_have_the_findings_of_the_twins(spark: SparkSession, tmp_path: Path) -> None:
    assert_like_twins(spark, tmp_path, DERIVED_CHECKS)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_is_planted_is_found(spark: SparkSession, tmp_path: Path) -> None:
    assert_planted(spark, tmp_path, DERIVED_CHECKS)


@pytest.mark.timeout(300)
def test_an_offset_that_went_back_is_wrong_only_where_it_is_known_that_nobody_set_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    cluster = build(tmp_path, 7, RAFT)
    for name, offset in (("consumerOffset.json.bak", 2), ("consumerOffset.json", 1)):
        write_offsets(cluster.folder("n0"), {0: offset, 1: 2}, 0, name=name)
    whole = cluster.replicas()
    place: dict[str, Any] = {"group": GROUP, "topic": TOPIC, "queue": 0}
    reset = Op(len(cluster.ops), 1, str(Act.RESET), str(Kind.OK), 1, **place, value=1)
    # A history that does not hold a reset; one that does; one with a reset to elsewhere; and stores alone.
    histories = [cluster.ops, [*cluster.ops, reset], [*cluster.ops, reset._replace(value=0)], []]
    cases = [Replicas(replace(whole.history, ops=ops, looks=()), whole.artefacts, ()) for ops in histories]
    replicas = in_spark(spark, cases)
    found = check_b12(replicas)
    replicas.evidence.world.close()
    verdicts = [found[run].verdict for run in range(len(cases))]
    assert verdicts == [Verdict.INVALID, Verdict.VALID, Verdict.INVALID, Verdict.VALID]
    assert [found[run].text for run in range(len(cases))] == ["", "", "", NO_HISTORY]
    assert_same(found, cast("Any", cases), cast("Any", plain_b12))
