"""The plans of B7, B11 and B12 find what their twins find."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.spark.checker.check_log_derived import DERIVED_CHECKS
from tests.spark.logcases import COUNT, assert_like_twins, assert_planted


@pytest.mark.long
@pytest.mark.timeout(600 + 10 * COUNT)
def test_damaged_clusters_have_the_findings_of_the_twins(spark: SparkSession, tmp_path: Path) -> None:
    assert_like_twins(spark, tmp_path, DERIVED_CHECKS)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_is_planted_is_found(spark: SparkSession, tmp_path: Path) -> None:
    assert_planted(spark, tmp_path, DERIVED_CHECKS)
