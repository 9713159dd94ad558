"""The plan of A26 finds what its twin finds."""

import random
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from pipeline.history.promises import Promises
from pipeline.history.results import Verdict
from pipeline.history.rows import Beat
from pipeline.plain.check_liveness import check_a26
from pipeline.plain.evidence import History
from pipeline.spark.checker.check_liveness import LIVENESS_CHECKS
from pipeline.spark.checker.check_liveness import check_a26 as spark_a26
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.world import World
from tests.planted.plant_world import GROUP, PROMISES, clean
from tests.spark.compare import assert_same
from tests.spark.draft import Draft
from tests.spark.histories import COUNT
from tests.spark.mutations_client import hold_against_twins, other_lives, stuck

ORDERLY = replace(PROMISES, orderly_groups=(GROUP,), orderly_bound_s=2.0, rto_bound_s=0.01)
# Where no lock of somebody who is gone can be in the way.
CALM = replace(ORDERLY, orderly_calm_s=0.8, lock_left_s=0.3)
STUCK = 120


@pytest.mark.long
@pytest.mark.timeout(600 + COUNT)
def test_planted_and_random_histories_have_the_findings_of_the_twin(spark: SparkSession) -> None:
    hold_against_twins(spark, LIVENESS_CHECKS, (check_a26,))


def waiting(seed: int, promises: Promises) -> History:
    """Return a history in which consumers wait, now and then, for what is there."""
    rng = random.Random(seed)
    draft = Draft(clean(seed, rng.choice((16, 24))), rng)
    if rng.random() < 0.5:
        draft.faults = []
    for change in rng.choices((stuck, stuck, stuck, other_lives), k=rng.choice((1, 2, 3))):
        change(draft)
    return draft.history(promises)


@pytest.mark.timeout(300)
def test_waiting_consumers_are_judged_as_by_the_twin_whoever_leads_and_whenever_it_ends(spark: SparkSession) -> None:
    for promises in (ORDERLY, CALM, replace(ORDERLY, orderly_groups=(), rto_bound_s=0.5)):
        histories = [waiting(seed, promises) for seed in range(STUCK)]
        world = World.of_histories(spark, histories)
        assert assert_same(spark_a26(Evidence(world)), histories, check_a26) > STUCK // 10
        world.close()
        found = [check_a26(one) for one in histories]
        assert {Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID} <= {one.verdict for one in found}
        assert sum("the load was over too soon" in one.text for one in found) > 1
        # Of silences that are too long, some are not, as somebody else came to lead.
        unled = [check_a26(replace(one, looks=())) for one in histories]
        differ = sum(one.count < other.count for one, other in zip(found, unled, strict=True))
        assert differ > 1 if promises.orderly_groups else differ == 0


def slept_through(history: History, share: float) -> History:
    """Return a history whose harness had no turn in a share of its time, in the middle of it."""
    begin, end = min(op.invoked for op in history.ops), max(op.completed for op in history.ops)
    middle, half = (begin + end) // 2, int((end - begin) * share / 2)
    turns = [*range(begin, middle - half, 10**8), middle - half, *range(middle + half, end + 10**8, 10**8)]
    return replace(history, beats=[Beat(turn) for turn in turns])


@pytest.mark.timeout(300)
def test_the_times_in_which_the_harness_stood_still_count_as_in_the_twin(spark: SparkSession) -> None:
    promises = replace(ORDERLY, orderly_groups=(), rto_bound_s=0.5)
    plain = [waiting(seed, promises) for seed in range(40)]
    histories = [slept_through(one, share) for share in (0.4, 0.9) for one in plain]
    world = World.of_histories(spark, histories)
    told = spark_a26(Evidence(world))
    assert_same(told, histories, check_a26)
    world.close()
    watched = [check_a26(one) for one in plain] * 2
    seen = [told[run] for run in range(len(histories))]
    assert any(one.count < other.count for one, other in zip(seen, watched, strict=True)), "a stall is no silence"
    assert any("too little is left to judge" in one.text for one in seen)
