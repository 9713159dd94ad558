import time

import pytest

from client import retry
from client.errors import MessageRefused, RouteError, may_be_stored
from client.retry import grown, retriable, until_done, until_true, with_retries
from remoting.errors import ConnectError, ConnectionLost, InvokeTimeout, ResponseError


class Attempts:
    """Fails with the given errors one after the other, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "sent"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE_S_FIRST", 0.001)


def soon() -> float:
    return time.monotonic() + 5


async def test_it_goes_on_after_what_may_pass() -> None:
    attempts = Attempts(ConnectionLost("x"), ResponseError(2, "busy"))
    assert await with_retries(attempts, attempts=3, deadline=soon()) == "sent"
    assert attempts.made == 3


async def test_the_last_error_is_the_callers() -> None:
    attempts = Attempts(InvokeTimeout("first"), ResponseError(1, "second"), ConnectionLost("third"))
    with pytest.raises(ConnectionLost, match="third"):
        await with_retries(attempts, attempts=3, deadline=soon())
    assert attempts.made == 3


@pytest.mark.parametrize(
    "error",
    [ResponseError(13, "illegal"), MessageRefused("no"), RouteError("unknown", retriable=False), ValueError("x")],
)
async def test_what_cannot_get_better_is_not_tried_again(error: Exception) -> None:
    attempts = Attempts(error)
    with pytest.raises(type(error)):
        await with_retries(attempts, attempts=3, deadline=soon())
    assert attempts.made == 1


async def test_attempts_that_reached_nobody_do_not_count() -> None:
    attempts = Attempts(*[ConnectError("down")] * 5, RouteError("no master", retriable=True))
    assert await with_retries(attempts, attempts=2, deadline=soon()) == "sent"
    assert attempts.made == 7


async def test_without_retries_there_is_one_attempt_whatever_it_met() -> None:
    attempts = Attempts(ConnectError("down"))
    with pytest.raises(ConnectError):
        await with_retries(attempts, attempts=1, deadline=soon())


async def test_the_deadline_ends_it() -> None:
    attempts = Attempts(*[ConnectError("down")] * 100_000)
    began = time.monotonic()
    with pytest.raises(ConnectError):
        await with_retries(attempts, attempts=3, deadline=began + 0.2)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectError("x"), False),
        (ConnectionLost("x"), True),
        (InvokeTimeout("x"), True),
        (ResponseError(2, "busy"), False),
        (ResponseError(14, "disk full"), False),
        (ResponseError(1, "whatever"), True),
        (ResponseError(9999, "whatever"), True),
        (MessageRefused("x"), False),
    ],
)
def test_what_a_failure_says_about_the_message(error: Exception, expected: bool) -> None:
    assert may_be_stored(error) is expected


# RocketMQ's retryable codes.
@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
def test_codes_after_which_another_broker_is_asked(code: int) -> None:
    assert retriable(ResponseError(code, None))


async def test_background_work_is_tried_after_each_pause_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(retry.asyncio, "sleep", sleep)  # type: ignore[attr-defined] # what it imports is meant
    outcomes = [False, True]

    async def attempt() -> bool:
        return outcomes.pop(0)

    assert await until_true(attempt, (0.0, 1.0, 2.0))
    assert slept == [0.0, 1.0]
    slept.clear()
    outcomes = [False] * 9
    assert not await until_true(attempt, (0.1, 1.0, 2.0))
    assert (slept, len(outcomes)) == ([0.1, 1.0, 2.0], 6)
    assert not await until_true(attempt, ())

    async def breaks() -> bool:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await until_true(breaks, (0.1, 1.0))


async def test_what_never_gives_up_pauses_as_it_is_told_and_ends_with_the_first_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    told: list[tuple[str, int]] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def after(error: Exception, failures: int) -> float:
        told.append((str(error), failures))
        return failures / 10

    monkeypatch.setattr(retry.asyncio, "sleep", sleep)  # type: ignore[attr-defined] # what it imports is meant
    attempts = Attempts(*[ConnectError(f"x{number}") for number in range(2, 40)])
    assert await until_done(attempts, ConnectError("x1"), after) == "sent"
    assert told == [(f"x{number}", number) for number in range(1, 40)]
    assert slept == [number / 10 for number in range(1, 40)]
    # What is not worth it ends it, and nobody is asked for a pause.
    told.clear()
    with pytest.raises(ValueError, match="mine"):
        await until_done(Attempts(ValueError("mine")), ConnectError("x1"), after, again=retriable)
    assert told == [("x1", 1)]
    # An error while it makes ready for the next attempt is one more error.
    broken = iter([KeyError("y"), None])

    async def breaks(_error: Exception, _failures: int) -> float:
        if (error := next(broken)) is not None:
            raise error
        return 0.0

    assert await until_done(Attempts(ConnectError("x2")), ConnectError("x1"), breaks) == "sent"


@pytest.mark.parametrize(("failures", "pause"), [(1, 0.05), (2, 0.1), (5, 0.8), (6, 1.0), (5000, 1.0)])
def test_pauses_grow_up_to_a_bound(failures: int, pause: float) -> None:
    assert grown(0.05, 1.0, failures) == pause
