"""The plans of the guards V1 to V7 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_guards import GUARDS, check_v7
from pipeline.spark.checker.check_guards import GUARD_CHECKS
from pipeline.spark.checker.check_guards import check_v7 as plan_v7
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.world import World
from tests.spark.against import hold_against
from tests.spark.compare import assert_same
from tests.spark.histories import COUNT, PROMISED, history


@pytest.mark.long
@pytest.mark.timeout(300 + COUNT)
def test_plans_find_what_twins_find(spark: SparkSession) -> None:
    # Much is asked for; and few ends may be unknown, in two broker groups.
    counts = hold_against(spark, dict(zip(GUARD_CHECKS, GUARDS, strict=True)), which=(1, 3))
    assert all(count > COUNT // 200 for count in counts.values()), counts


@pytest.mark.long
@pytest.mark.timeout(300)
def test_numbers_and_attempts_that_are_there_twice_are_malformed(spark: SparkSession) -> None:
    histories = [history(seed, PROMISED[0], malformed=True) for seed in range(300)]
    world = World.of_histories(spark, histories)
    told = plan_v7(Evidence(world))
    assert assert_same(told, histories, check_v7) > 100
    reasons = {witness["why"] for one in told.values() for witness in one.witnesses}
    assert reasons == {
        "a number twice", "ended at no time", "ended before it began", "a process went on after an unknown end",
        "two at a time", "an attempt twice", "read by no operation",
    }  # fmt: skip
    world.close()
