"""Lives of a group, each from its seed: random load and faults, every invariant after every event."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import planted
from tests.simulation.run import run_seed
from tests.simulation.world import Failure

SEEDS = 300
CHUNK = 10


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_invariants_hold(first: int) -> None:
    failures = []
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(first, first + CHUNK):
            try:
                run_seed(seed)
            except Failure as failure:
                failures.append(str(failure))
    finally:
        logging.disable(logging.NOTSET)
    assert not failures, "\n".join(failures)


def test_a_seed_tells_the_same_story_everywhere() -> None:
    """Also where strings hash to other numbers: the order of a set must never matter."""
    stories = []
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tests.simulation.run", "4"],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        # What happens at one moment to several members may be told in any order.
        stories.append(sorted(told.stdout.splitlines()))
    assert stories[0] == stories[1]
    assert len(stories[0]) > 500


def test_a_failure_names_the_command_that_shows_it_again() -> None:
    with pytest.raises(Failure, match=r"python -m tests\.simulation\.run 2$"):
        run_seed(2, parts=planted.ack_before_quorum())
