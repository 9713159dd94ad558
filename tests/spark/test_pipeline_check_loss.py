"""The plans of A1, A2, A3 and A13 find what their twins find."""

import pytest
from pyspark.sql import SparkSession

from pipeline.plain.check_loss import check_a1, check_a2, check_a3, check_a13
from pipeline.spark.checker.check_loss import LOSS_CHECKS
from tests.spark.against import hold_against
from tests.spark.histories import COUNT

TWINS = (check_a1, check_a2, check_a3, check_a13)


@pytest.mark.long
@pytest.mark.timeout(300 + COUNT)
def test_plans_find_what_twins_find(spark: SparkSession) -> None:
    # All is kept; and messages are removed, power fails, and there are two broker groups.
    counts = hold_against(spark, dict(zip(LOSS_CHECKS, TWINS, strict=True)), which=(0, 3))
    assert all(count > COUNT // 100 for count in counts.values()), counts
