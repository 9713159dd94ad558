"""runtime/busypoll.py: when a loop polls, for how long, and when it leaves the processor to others."""

import asyncio
import os
from collections.abc import Callable

import pytest

from runtime.busypoll import AWAY_SECONDS, TAKEN_SECONDS, BusyPoll, busy_poll

SECONDS = 0.00025
# A turn of a loop that has nothing to do.
TURN = 0.000002
NEAR, FAR = SECONDS / 2, SECONDS * 2


class Polled:
    """A BusyPoll whose clock, loop and processor are here: `others` is what others take of it when it is offered."""

    def __init__(self) -> None:
        self.now = 0.0
        self.others = 0.0
        self.turns = 0
        self._next: list[Callable[[], None]] = []
        self.poll = BusyPoll(self._next.append, SECONDS, lambda: self.now, self._offer)

    def _offer(self) -> None:
        self.now += self.others

    def wait(self, seconds: float) -> None:
        """Let so much time pass with turns of the loop, as long as it has any to take."""
        until = self.now + seconds
        while self._next and self.now < until:
            assert len(self._next) == 1, "it is in the loop twice"
            self.turns += 1
            self.now += TURN
            self._next.pop()()
        self.now = max(self.now, until)

    def hear(self, gap: float, times: int) -> None:
        """Read so often, `gap` seconds after one another."""
        for _ in range(times):
            self.wait(gap)
            self.poll.heard()


@pytest.fixture
def polled() -> Polled:
    return Polled()


def test_what_comes_now_and_then_is_never_polled_for(polled: Polled) -> None:
    polled.hear(FAR, 100)
    assert (polled.turns, polled.poll.polling) == (0, False)


def test_what_comes_close_together_is_polled_for_until_it_stays_away(polled: Polled) -> None:
    polled.hear(NEAR, 20)
    assert polled.poll.polling
    before, heard_at = polled.turns, polled.now
    polled.wait(10 * SECONDS)
    assert not polled.poll.polling
    assert SECONDS / TURN - 1 <= polled.turns - before <= SECONDS / TURN + 2
    assert polled.now == heard_at + 10 * SECONDS


def test_a_single_pause_ends_it_for_that_pause_alone(polled: Polled) -> None:
    polled.hear(NEAR, 20)
    polled.hear(FAR, 1)
    assert polled.poll.polling


def test_it_ends_for_good_when_most_gaps_are_longer(polled: Polled) -> None:
    polled.hear(NEAR, 20)
    polled.hear(FAR, 20)
    polled.wait(SECONDS)
    before = polled.turns
    polled.hear(FAR, 20)
    assert polled.turns == before


def test_who_asks_twice_after_each_long_wait_is_not_polled_for(polled: Polled) -> None:
    for _ in range(100):
        polled.hear(FAR, 1)
        polled.hear(NEAR, 1)
    polled.wait(SECONDS)
    assert not polled.poll.polling


def test_who_takes_the_processor_has_it_for_a_while(polled: Polled) -> None:
    polled.hear(NEAR, 20)
    polled.others = 2 * TAKEN_SECONDS
    polled.wait(NEAR)
    assert not polled.poll.polling
    before, taken_at = polled.turns, polled.now
    polled.others = 0.0
    while polled.now < taken_at + AWAY_SECONDS - NEAR:
        polled.hear(NEAR, 1)
    assert polled.turns == before
    polled.hear(NEAR, 3)
    assert polled.poll.polling


def test_a_client_that_was_given_the_processor_for_a_moment_does_not_end_it(polled: Polled) -> None:
    polled.hear(NEAR, 20)
    polled.others = TAKEN_SECONDS / 2
    polled.hear(NEAR, 20)
    assert polled.poll.polling


async def test_nobody_polls_who_was_told_not_to_or_has_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert busy_poll(0, loop) is None
    assert busy_poll(250, loop) is not None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1})
    assert busy_poll(250, loop) is None
    monkeypatch.delattr(os, "sched_getaffinity")
    assert busy_poll(250, loop) is None, "a system that does not tell"


async def test_a_loop_that_polls_does_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers, callbacks and threads go on, and it ends by itself."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    loop = asyncio.get_running_loop()
    poll = busy_poll(10_000, loop)
    assert poll is not None
    for _ in range(20):
        poll.heard()
    assert poll.polling
    assert await asyncio.to_thread(sum, range(1000)) == 499500
    await asyncio.sleep(0.001)
    async with asyncio.timeout(30):
        while poll.polling:
            await asyncio.sleep(0)
