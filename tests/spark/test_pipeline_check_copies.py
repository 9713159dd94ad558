"""The plans of A4 to A9 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_copies import check_a4, check_a5, check_a6, check_a7, check_a8, check_a9
from pipeline.spark.checker.check_copies import COPIES_CHECKS
from tests.spark.against import hold_against
from tests.spark.histories import COUNT

TWINS = (check_a4, check_a5, check_a6, check_a7, check_a8, check_a9)


@pytest.mark.long
@pytest.mark.timeout(300 + COUNT)
def test_plans_find_what_twins_find(spark: SparkSession) -> None:
    # Retries may be there twice; and nothing may be, in two broker groups.
    counts = hold_against(spark, dict(zip(COPIES_CHECKS, TWINS, strict=True)), which=(0, 2))
    assert all(count > COUNT // 100 for count in counts.values()), counts
