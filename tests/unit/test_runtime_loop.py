"""What is to end does so: SIGTERM cancels, and a cancellation that somebody kept to himself is found."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from runtime.loop import run_until_told, still_wanted


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["before a shell", "in its background"])
def ctrl_c(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a shell makes of Ctrl-C for what it starts."""
    before = signal.signal(signal.SIGINT, cast(Callable[..., None], request.param))
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_sigterm_cancels_also_what_is_in_a_callback_of_the_loop() -> None:
    cleaned = []
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_until_told(work())
    assert cleaned
    now = signal.signal(signal.SIGTERM, before)
    assert now not in {signal.SIG_DFL, before}  # what was in force before the loop is again


@pytest.mark.usefixtures("ctrl_c")
def test_without_a_signal_it_runs_to_its_end() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        still_wanted()
        return 7

    assert run_until_told(work()) == 7


def test_a_cancellation_that_was_kept_is_found() -> None:
    reached = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            reached.append("cleaned up")
        still_wanted()
        reached.append("went on")

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert reached == ["cleaned up"]
