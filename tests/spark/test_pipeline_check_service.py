"""The plans of A24 and A25 find what their twins find."""

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from pipeline.history.results import Verdict
from pipeline.history.rows import Beat, Fault, Kind
from pipeline.plain.check_service import check_a24, check_a25
from pipeline.plain.evidence import History
from pipeline.spark.checker.check_service import SERVICE_CHECKS
from pipeline.spark.checker.check_service import check_a25 as spark_a25
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.world import World
from tests.parts.little_history import Little, S
from tests.spark.compare import assert_same
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins

TWINS = (check_a24, check_a25)


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twins(spark: SparkSession) -> None:
    hold_against_twins(spark, SERVICE_CHECKS, TWINS)


def pulsed(quiet: Sequence[int], beats: Sequence[int], last: int = 20, fault: tuple[int, int] | None = None) -> History:
    """Return sends of two broker groups, a second apart until `last`: those of `quiet` are refused by the first one."""
    little = Little(group_members={"g": ("n0",), "h": ("m0",)})
    for second in range(last + 1):
        kind = Kind.FAIL if second in quiet else Kind.OK
        little.send(second, second * S, second * S + 1, second, kind, broker="g")
    for second in (9, 13, last) if fault else (9, 13):
        little.send(100 + second, second * S, second * S + 1, second, broker="h")
    little.beats = [Beat(tenth * S // 10) for tenth in beats]
    little.faults = [Fault(0, "kill", "n0", "", fault[0] * S, fault[1] * S)] if fault else []
    return little.history()


@pytest.mark.timeout(300)
def test_the_times_in_which_the_harness_stood_still_count_as_in_the_twin(spark: SparkSession) -> None:
    slept = [*range(25), *range(85, 220)]
    stories = [
        (pulsed((3, 4, 5), ()), Verdict.INVALID),
        (pulsed((3, 4, 5), range(220)), Verdict.INVALID),
        (pulsed((3, 4, 5), slept), Verdict.VALID),
        (pulsed((3, 4, 5), slept, last=14), Verdict.VALID),
        (pulsed((3, 4, 5), slept, last=11), Verdict.UNKNOWN),
        (pulsed((), range(0, 1000, 50)), Verdict.UNKNOWN),
        # Of what the second group was sent nothing is left.
        (pulsed((), [*range(91), *range(129, 220)]), Verdict.UNKNOWN),
        # A fault behind a stall excuses what it excuses by the clock, and no more.
        (pulsed((16, 17), slept, fault=(15, 18)), Verdict.VALID),
        (pulsed((15, 16, 17), slept, fault=(9, 12)), Verdict.INVALID),
    ]
    histories = [history for history, _ in stories]
    world = World.of_histories(spark, histories)
    told = spark_a25(Evidence(world))
    assert [told[run].verdict for run in range(len(stories))] == [wanted for _, wanted in stories]
    assert_same(told, histories, check_a25)
    world.close()
