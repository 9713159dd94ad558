"""Every check in Spark finds what was planted for it, and all that its twin finds, over few histories: what CI runs.

The long tests of test_pipeline_check_*.py do the same over hundreds.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_guards import GUARDS
from pipeline.plain.client_checks import CLIENT_CHECKS as CLIENT_TWINS
from pipeline.spark.checker.check_guards import GUARD_CHECKS
from pipeline.spark.checker.checker import CLIENT_CHECKS, LOG_CHECKS
from tests.planted.plant import PLANTS
from tests.planted.plant_log import PLANTS as LOG_PLANTS
from tests.spark.against import hold_against
from tests.spark.logcases import assert_planted

HISTORIES = 8
# Among them are some with what each of the guards finds.
GUARDED = 48


@pytest.mark.timeout(600)
def test_each_check_of_clients_finds_what_was_planted_for_it(spark: SparkSession) -> None:
    assert [check.__name__ for check in CLIENT_CHECKS] == [twin.__name__ for twin in CLIENT_TWINS]
    assert {check.__name__.removeprefix("check_").upper() for check in CLIENT_CHECKS} == set(PLANTS)
    pairs = dict(zip(CLIENT_CHECKS, CLIENT_TWINS, strict=True))
    counts = hold_against(spark, pairs, which=(0,), count=HISTORIES, plants=1)
    assert all(counts.values()), counts


@pytest.mark.timeout(300)
def test_each_guard_finds_something(spark: SparkSession) -> None:
    counts = hold_against(spark, dict(zip(GUARD_CHECKS, GUARDS, strict=True)), which=(1,), count=GUARDED)
    assert all(counts.values()), counts


@pytest.mark.timeout(600)
def test_each_check_of_logs_finds_what_was_planted_for_it(spark: SparkSession, tmp_path: Path) -> None:
    names = {check.__name__.removeprefix("check_").upper() for check in LOG_CHECKS}
    assert names == {name for plants in LOG_PLANTS.values() for name in plants}
    assert_planted(spark, tmp_path, LOG_CHECKS)
