"""The plans of A16, A17, A19 and A20 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_groups import check_a16, check_a17, check_a19, check_a20
from pipeline.spark.checker.check_groups import GROUP_CHECKS
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins

TWINS = (check_a16, check_a17, check_a19, check_a20)


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twins(spark: SparkSession) -> None:
    hold_against_twins(spark, GROUP_CHECKS, TWINS)
