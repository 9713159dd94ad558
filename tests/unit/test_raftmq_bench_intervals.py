"""The interval of a ratio: what is so is found, what is luck is not."""

import random

import pytest

from raftmq.bench.intervals import middle_ratio, ratio_interval

# As two processes of one version differ, and as rounds of one start do.
LUCK, NOISE = 0.04, 0.1


def starts_of(truth: float, seed: int, *, starts: int = 3, rounds: int = 9) -> list[list[float]]:
    """Return made-up ratios of two versions whose true ratio is known."""
    rng = random.Random(seed)
    lucks = [rng.gauss(1, LUCK) / rng.gauss(1, LUCK) for _ in range(starts)]
    return [[truth * luck * rng.lognormvariate(0, NOISE) for _ in range(rounds)] for luck in lucks]


@pytest.mark.parametrize("truth", [0.5, 0.95, 1.0, 1.3])
def test_a_true_ratio_lies_within_most_intervals(truth: float) -> None:
    found = [ratio_interval(starts_of(truth, seed)) for seed in range(30)]
    assert sum(one.low <= truth <= one.high for one in found) >= 24
    assert all(one.low <= one.middle <= one.high for one in found)


@pytest.mark.parametrize(("truth", "slower"), [(1.0, range(1)), (0.95, range(2)), (0.75, range(22, 31))])
def test_noise_is_not_slower_and_a_quarter_less_is(truth: float, slower: range) -> None:
    assert sum(ratio_interval(starts_of(truth, seed)).high < 0.9 for seed in range(30)) in slower


def test_luck_of_starts_counts_not_only_rounds() -> None:
    """Rounds that agree among themselves prove nothing where the starts do not agree."""
    found = ratio_interval([[0.8] * 9, [0.85] * 9, [0.95] * 9])
    assert (found.middle, found.low, found.high) == (0.85, 0.8, 0.95)
    alone = ratio_interval([[0.8] * 9])
    assert tuple(alone) == (0.8, 0.8, 0.8)


def test_one_bad_round_changes_little_and_the_same_figures_tell_the_same() -> None:
    rounds = [[1.0, 1.01, 0.99, 1.02, 0.98] for _ in range(3)]
    spoiled = [[0.1, *rounds[0][1:]], *rounds[1:]]
    assert middle_ratio(spoiled) == middle_ratio(rounds) == 1.0
    assert ratio_interval(spoiled) == ratio_interval(spoiled)
    assert ratio_interval(spoiled).high > 0.95
