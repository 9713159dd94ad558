"""A beat that comes late tells how long the loop was held up."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from runtime.clock import ManualClock
from runtime.gaps import BEAT_SECONDS, REST_SECONDS, TOLD_MAX, WINDOW_SECONDS, LoopGaps


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def gaps(clock: ManualClock) -> AsyncIterator[LoopGaps]:
    # At work all the time.
    made = LoopGaps(clock, clock.monotonic)
    # What is still made in the same turn is none.
    clock.advance(5.0)
    await asyncio.sleep(0)
    yield made
    made.close()


def late(gaps: LoopGaps, clock: ManualClock, seconds: float) -> None:
    gaps.close()
    clock.advance(BEAT_SECONDS + seconds)
    gaps._beat()


async def test_a_beat_in_time_is_no_gap(gaps: LoopGaps, clock: ManualClock) -> None:
    for seconds in (0.0, 0.002, BEAT_SECONDS):
        late(gaps, clock, seconds)
    assert gaps.status() == {"longestMs": 0, "longestLatelyMs": 0, "over50Ms": 0, "last": []}


async def test_gaps_are_told_with_when_they_ended(gaps: LoopGaps, clock: ManualClock) -> None:
    late(gaps, clock, 0.02)
    late(gaps, clock, 0.03)
    at = clock.now_ms()
    late(gaps, clock, 0.06)
    assert gaps.times.counts[:4] == [1, 1, 1, 0]
    assert gaps.times.seconds == pytest.approx(0.02 + 0.03 + 0.06)
    assert gaps.status() == {
        "longestMs": 60,
        "longestLatelyMs": 60,
        "over50Ms": 1,
        "last": [{"at": at, "ms": 30}, {"at": clock.now_ms(), "ms": 60}],
    }


async def test_what_is_remembered_is_bounded(gaps: LoopGaps, clock: ManualClock) -> None:
    for _ in range(TOLD_MAX + 5):
        late(gaps, clock, 1.0)
    assert len(gaps.status()["last"]) == TOLD_MAX
    assert gaps.status()["over50Ms"] == TOLD_MAX + 5


async def test_the_longest_of_late_passes(gaps: LoopGaps, clock: ManualClock) -> None:
    late(gaps, clock, 0.2)
    clock.advance(WINDOW_SECONDS)
    gaps._due = clock.monotonic() + BEAT_SECONDS
    late(gaps, clock, 0.1)
    assert gaps.longest_lately() == pytest.approx(0.2)
    clock.advance(WINDOW_SECONDS)
    assert gaps.longest_lately() == pytest.approx(0.1)
    clock.advance(3 * WINDOW_SECONDS)
    assert gaps.longest_lately() == 0
    assert gaps.status()["longestMs"] == 200


async def test_at_rest_it_beats_less_often_and_at_work_at_once_again(clock: ManualClock) -> None:
    used = 7.0
    gaps = LoopGaps(clock, lambda: used)
    pauses = []
    for share in (0.05, 0.5, 0.5, 0.0):
        clock.advance(0.02)
        used += share * 0.02
        gaps.close()
        gaps._beat()
        pauses.append(round(gaps._due - clock.monotonic(), 9))
    gaps.close()
    assert pauses == [REST_SECONDS, BEAT_SECONDS, BEAT_SECONDS, REST_SECONDS]
