"""The figures of a run are the same, whoever counts them."""

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.history.rows import UNKNOWN, Fault
from pipeline.plain.evidence import History
from pipeline.plain.figures import figures_of as plain_figures
from pipeline.plain.replicas import Replicas
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.figures import figures_of
from pipeline.spark.checker.world import World
from tests.planted.plant_world import clean

pytestmark = pytest.mark.timeout(180)
# Latency quantiles are approximate in Spark, by so little.
TOLERANCE = 1e-3


def with_faults(seed: int, most: int = 6) -> History:
    history, dice = clean(seed), random.Random(seed)
    times = [op.invoked for op in history.sends]
    begin, end = min(times), max(op.completed for op in history.sends)
    faults = []
    for number in range(dice.randrange(6) if most == 6 else most):
        began = dice.randrange(begin - 1000, end + 1000)
        ended = dice.choice([UNKNOWN, began + dice.randrange(1, end - begin)])
        faults.append(Fault(number, "kill-leader", "n0", "leader", began, ended, "pid 7 ended"))
    return History(history.ops, history.reads, faults, history.looks, history.promises, history.merged)


def almost(value: Any) -> Any:
    """Floats within the tolerance, all else as it is."""
    if isinstance(value, dict):
        return {key: almost(one) for key, one in value.items()}
    if isinstance(value, list):
        return [almost(one) for one in value]
    return pytest.approx(value, rel=TOLERANCE, abs=2e-3) if isinstance(value, float) else value


def test_a_run_of_hundreds_of_faults_is_counted(spark: SparkSession) -> None:
    """An expression that grows with the faults overflows Spark's stack: half an hour of torture has 240."""
    history = with_faults(3, most=400)
    world = World.of_histories(spark, [history])
    expected = plain_figures(Replicas(history, ()))
    found = figures_of(Evidence(world), [])
    world.close()
    assert found == almost(expected)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_spark_counts_the_twins_figures(spark: SparkSession, seed: int) -> None:
    history = with_faults(seed)
    world = World.of_histories(spark, [history])
    expected = plain_figures(Replicas(history, ()))
    found = figures_of(Evidence(world), [])
    world.close()
    assert found == almost(expected)
