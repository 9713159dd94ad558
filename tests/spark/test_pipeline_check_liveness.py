"""The plan of A26 finds what its twin finds."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_liveness import check_a26
from pipeline.spark.checker.check_liveness import LIVENESS_CHECKS
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twin(spark: SparkSession) -> None:
    hold_against_twins(spark, LIVENESS_CHECKS, (check_a26,))
