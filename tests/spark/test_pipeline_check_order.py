"""The plans of A10, A11, A12, A14, A15, A22 and A23 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_order import check_a10, check_a11, check_a12, check_a14, check_a15, check_a22, check_a23
from pipeline.spark.checker.check_order import ORDER_CHECKS
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins

TWINS = (check_a10, check_a11, check_a12, check_a14, check_a15, check_a22, check_a23)


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twins(spark: SparkSession) -> None:
    hold_against_twins(spark, ORDER_CHECKS, TWINS)
