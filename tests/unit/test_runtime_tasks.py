"""runtime/tasks.py and runtime/clock.py."""

import asyncio
import logging

import pytest

from runtime.clock import ManualClock, SystemClock
from runtime.tasks import Tasks


async def test_a_periodic_job_survives_its_own_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks("test")
    calls = 0
    third = asyncio.Event()

    def job() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("first call fails")
        if calls == 3:
            third.set()

    with caplog.at_level(logging.ERROR):
        tasks.every(0.001, job, "job", first=0)
        await asyncio.wait_for(third.wait(), 10)
    await tasks.close()
    assert "job failed" in caplog.text
    assert len(tasks) == 0


async def test_a_failed_task_is_logged_and_close_cancels_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks("test")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("lost?")

    with caplog.at_level(logging.ERROR):
        failed = tasks.spawn(fail(), "failing")
        waiting = tasks.spawn(_forever(), "waiting")
        await asyncio.wait([failed])
    await tasks.close()
    assert "test:failing failed" in caplog.text
    assert waiting.cancelled()


async def _forever() -> None:
    await asyncio.Event().wait()


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(now_ms=1_000)
    before = clock.monotonic()
    clock.advance(1.5)
    assert clock.now_ms() == 2_500
    assert clock.monotonic() == before + 1.5
    clock.set_wall(10)
    assert clock.now_ms() == 10
    assert clock.monotonic() == before + 1.5
    with pytest.raises(AssertionError):
        clock.advance(-1)


def test_system_clock_agrees_with_itself() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.now_ms() > 1_600_000_000_000
