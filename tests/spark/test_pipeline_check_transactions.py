"""The plans of A18 and A21 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_transactions import check_a18, check_a21
from pipeline.spark.checker.check_transactions import TRANSACTION_CHECKS
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins

TWINS = (check_a18, check_a21)


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twins(spark: SparkSession) -> None:
    hold_against_twins(spark, TRANSACTION_CHECKS, TWINS)
