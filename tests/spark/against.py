"""Holds the plans of a module against their twins, over random histories and over planted anomalies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from pipeline.history.results import Finding
from pipeline.plain.evidence import History
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.world import World
from tests.planted.plant import PLANTS, found, plant
from tests.spark.compare import assert_same
from tests.spark.histories import COUNT, worlds

Plan = Callable[[Evidence], dict[int, Finding]]
Twin = Callable[[History], Finding]
_PLANTED = 8


def hold_against(
    spark: SparkSession,
    pairs: Mapping[Plan, Twin],
    which: Sequence[int],
    *,
    count: int = COUNT,
    plants: int = _PLANTED,
) -> dict[str, int]:
    """Assert that plans find what their twins do, for `which` of PROMISED; return how often each had witnesses.

    There are `count` histories; among those of the first world are `plants` with what each check looks for, and it must
    be found.
    """
    names = {plan: twin.__name__.removeprefix("check_").upper() for plan, twin in pairs.items()}
    with_witnesses = dict.fromkeys(names.values(), 0)
    planted = [plant(seed, name) for name in names.values() if name in PLANTS for seed in range(plants)]
    for histories in worlds(count, which):
        first = len(histories)
        histories += [replace(one.history, promises=histories[0].promises) for one in planted]
        world = World.of_histories(spark, histories)
        evidence = Evidence(world)
        for plan, twin in pairs.items():
            told = plan(evidence)
            with_witnesses[names[plan]] += assert_same(told, histories, twin)
            for run, one in enumerate(planted, first):
                assert one.check != names[plan] or found(told[run].witnesses, one.witness), (one, told[run])
        world.close()
        planted = []
    return with_witnesses
