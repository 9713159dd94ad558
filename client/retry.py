"""Where this library decides to try something again (tenacity's one door).

The policy says whether and when; what one attempt does is its caller's. A wait never outlasts the deadline: an attempt
that could not be made in time is not made, and the last error is what the caller gets.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import tenacity

from client.errors import RouteError
from remoting.codes import ResponseCode
from remoting.errors import ConnectError, ConnectionLost, InvokeError, ResponseError

T = TypeVar("T")

# The first repetition follows at once where another broker may take it; then the pauses grow. They stay short: a Raft
# group has a new leader within a second, and the first send that it can take should not wait for its turn.
PAUSE_S_FIRST = 0.01
PAUSE_S_MAX = 0.2
# Refusals of a broker that takes nothing now: it stops, or does not lead. Nothing was stored.
_NOBODY_LEADS = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NOT_LEADER_FOR_QUEUE})
# Less than this left before the deadline is not worth an attempt: one that gets no answer in time makes an unknown
# outcome of a known one, and on a busy machine an answer takes tens of milliseconds.
ATTEMPT_S_MIN = 0.1


def retriable(error: BaseException) -> bool:
    """Tell whether another attempt at a send may succeed: RocketMQ's retryable codes, lost or missing connections."""
    return isinstance(error, RouteError | InvokeError) and error.retriable


def reached_nobody(error: BaseException | None) -> bool:
    """Tell whether the attempt found no one who takes it: a broker that restarts, a group without a leader."""
    return isinstance(error, RouteError | ConnectError) or (
        isinstance(error, ResponseError) and error.code in _NOBODY_LEADS
    )


def gone(error: BaseException | None) -> bool:
    """Tell whether the broker has nobody just now who takes messages: its process ended, or its group has no master."""
    return reached_nobody(error) or isinstance(error, ConnectionLost)


async def until_true(attempt: Callable[[], Awaitable[bool]], pauses: Sequence[float]) -> bool:
    """Wait the next of the `pauses` (s) and call `attempt`, until it returns True or no pause is left; tell which.

    What goes on in the background goes on so: heartbeats to a broker that was lost, questions for routes and masters.
    Whatever `attempt` raises ends it.
    """
    if not pauses:
        return False
    await asyncio.sleep(pauses[0])
    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(len(pauses)),
        retry=tenacity.retry_if_result(lambda done: not done),
        wait=lambda state: pauses[min(state.attempt_number, len(pauses) - 1)],
        sleep=asyncio.sleep,
        retry_error_callback=lambda _state: False,
    )
    return bool(await retrying(attempt))


def grown(first: float, most: float, failures: int) -> float:
    """Return the pause (s) after so many failures in a row: `first`, and twice as long each time, up to `most`."""
    return min(first * 2.0 ** min(failures - 1, 10), most)


async def until_done(
    attempt: Callable[[], Awaitable[T]],
    failed: Exception,
    after: Callable[[Exception, int], Awaitable[float]],
    again: Callable[[BaseException], bool] = lambda error: isinstance(error, Exception),
) -> T:
    """Go on after `failed`, what a first attempt has raised, until `attempt` succeeds; returns its result.

    What never gives up goes on so: fetching from a queue, asking for its lock. `after` is told of each error and how
    many there were in a row; it does what the error asks for and returns the pause (s). What is not worth another
    attempt (`again`) is raised.
    """
    first: Exception | None = failed
    failures, pause = 0, PAUSE_S_MAX

    async def noted() -> T:
        nonlocal first, failures, pause
        try:
            if first is not None:
                error, first = first, None
                raise error
            return await attempt()
        except Exception as error:
            failures += 1
            if again(error):
                pause = await after(error, failures)
            raise

    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_never,
        retry=tenacity.retry_if_exception(again),
        wait=lambda _state: pause,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await retrying(noted)


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    *,
    attempts: int,
    deadline: float,
    again: Callable[[BaseException], bool] = retriable,
    at_once: Callable[[], bool] = lambda: False,
) -> T:
    """Call `attempt` up to `attempts` times until `deadline` (time.monotonic); raises the last error.

    `again` says which errors are worth another attempt; `at_once` whether the next one need not pause first. Unless
    only one attempt is wanted, those that reached nobody are not counted: they go on until the deadline.
    """
    counted = 0

    def spent(state: tenacity.RetryCallState) -> bool:
        nonlocal counted
        error = state.outcome.exception() if state.outcome is not None else None
        counted += attempts == 1 or not reached_nobody(error)
        return counted >= attempts or time.monotonic() + ATTEMPT_S_MIN >= deadline

    def pause(state: tenacity.RetryCallState) -> float:
        if at_once():
            return 0.0
        left = deadline - time.monotonic() - ATTEMPT_S_MIN
        return float(max(0.0, min(grown(PAUSE_S_FIRST, PAUSE_S_MAX, state.attempt_number), left)))

    retrying = tenacity.AsyncRetrying(
        stop=spent,
        retry=tenacity.retry_if_exception(again),
        wait=pause,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await retrying(attempt)
