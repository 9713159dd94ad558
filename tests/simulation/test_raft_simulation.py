"""Three hundred lives of a group, each from its seed: random load and faults, every invariant after every event."""

import logging

import pytest

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


def test_a_seed_tells_the_same_story_twice() -> None:
    stories: list[list[str]] = []
    for _ in range(2):
        story: list[str] = []
        run_seed(4, trace=story.append)
        stories.append(story)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 500
