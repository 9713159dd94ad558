"""The plans of A24 and A25 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_service import check_a24, check_a25
from pipeline.spark.checker.check_service import SERVICE_CHECKS
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins

TWINS = (check_a24, check_a25)


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twins(spark: SparkSession) -> None:
    hold_against_twins(spark, SERVICE_CHECKS, TWINS)
