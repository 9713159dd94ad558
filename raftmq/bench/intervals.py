"""How sure a ratio of two versions is, from pairs of measurements: a bootstrap over starts, and over rounds within."""

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

# Resamplings: the ends of the interval then differ by less than what a table shows.
SAMPLES = 1000
# The middle part of them that the interval covers.
COVERED = 0.95
# The same figures give the same interval.
SEED = 20


class RatioInterval(NamedTuple):
    """A ratio, and where it may lie."""

    middle: float
    low: float
    high: float


def middle_ratio(starts: Sequence[Sequence[float]]) -> float:
    """Return the median over the starts of the median of each start's ratios."""
    return statistics.median([statistics.median(rounds) for rounds in starts])


def ratio_interval(starts: Sequence[Sequence[float]]) -> RatioInterval:
    """Return the median ratio with its interval; `starts` has the ratios of one start's rounds each.

    Rounds of one start share the luck of its two processes, so they alone say little: starts are drawn with repetition,
    and then rounds of each. Of three starts the interval is about from the lowest to the highest. Of one start it knows
    nothing of that luck.
    """
    assert starts, "there is no interval without a start"
    assert all(starts), "a start without rounds has no median"
    # Not for secrets: the same numbers each time.
    rng = random.Random(SEED)
    found = sorted(
        middle_ratio([rng.choices(rounds, k=len(rounds)) for rounds in rng.choices(starts, k=len(starts))])
        for _ in range(SAMPLES)
    )
    middle, cut = middle_ratio(starts), round(SAMPLES * (1 - COVERED) / 2)
    # Few ratios may have no resampling beyond their own median.
    return RatioInterval(middle, min(middle, found[cut]), max(middle, found[-1 - cut]))
