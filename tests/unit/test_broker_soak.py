"""What `make soak-delay` counts of timers and transactions by the million, and when a run proves nothing."""

from collections.abc import Callable

import pytest

from remoting.message import MessageExt
from tests.soak.delay import COMMIT, LEAVE, ROLL_BACK, Seen, meant

HOST = ("127.0.0.1", 1)
DUE_MS = 1_700_000_000_000


def message(body: bytes, position: int, store_ms: int = DUE_MS) -> MessageExt:
    return MessageExt("T", 0, 0, position, 0, 0, 0, HOST, store_ms, HOST, 0, 0, body, 0)


def timer(seen: Seen, number: int, late_ms: int = 0, position: int = -1) -> None:
    at = number * 100 if position < 0 else position
    seen.timer(message(b"%d %d" % (number, DUE_MS), at, DUE_MS + late_ms))


def order(seen: Seen, number: int, position: int = -1) -> None:
    seen.order(message(b"%d" % number, 10_000 + number * 100 if position < 0 else position))


def complete() -> Seen:
    """A run of which all was acknowledged, and came as it was meant."""
    seen = Seen(20, 20, kills=1, killed=1)
    for number in range(20):
        seen.due_ms[number] = DUE_MS
        timer(seen, number, late_ms=number)
        seen.told[number] = meant(number)
        if meant(number) != ROLL_BACK:
            order(seen, number)
    return seen


def test_a_run_in_which_all_came_once_is_well() -> None:
    assert {meant(number) for number in range(20)} == {COMMIT, ROLL_BACK, LEAVE}
    seen = complete()
    assert seen.missing == (0, 0)
    text, well = seen.table()
    assert well
    assert "timers: 20 of 20 acknowledged, lost 0, early 0; late p50 10 ms, p99 19 ms, longest 19 ms" in text
    # A consumer may be given one again: that is one record.
    timer(seen, 3)
    order(seen, 3)
    assert seen.table()[1]


def lost_timer(seen: Seen) -> None:
    seen.came[3] = 0


def lost_order(seen: Seen) -> None:
    seen.ordered[2] = 0


def lost_order_that_was_left(seen: Seen) -> None:
    seen.ordered[15] = 0


def early(seen: Seen) -> None:
    seen.came[3] = 0
    timer(seen, 3, late_ms=-1)


def twice(seen: Seen) -> None:
    timer(seen, 3, position=99_999)


def order_twice(seen: Seen) -> None:
    order(seen, 3, position=99_999)


def rolled_back_and_delivered(seen: Seen) -> None:
    order(seen, 1)


def rolled_back_by_a_check_and_delivered(seen: Seen) -> None:
    """Its send was not acknowledged, and its check said that it is to be rolled back."""
    seen.told = bytearray(b"".join([b"\0" if number == 1 else bytes([told]) for number, told in enumerate(seen.told)]))
    order(seen, 1)


def no_timer_was_taken(seen: Seen) -> None:
    for number in range(20):
        seen.due_ms[number] = seen.came[number] = 0


def no_transaction_was_taken(seen: Seen) -> None:
    seen.told = bytearray(20)


def a_leader_was_not_killed(seen: Seen) -> None:
    seen.killed = 0


@pytest.mark.parametrize(
    "harm",
    [
        lost_timer, lost_order, lost_order_that_was_left, early, twice, order_twice, rolled_back_and_delivered,
        rolled_back_by_a_check_and_delivered, no_timer_was_taken, no_transaction_was_taken, a_leader_was_not_killed,
    ],
)  # fmt: skip
def test_a_run_is_not_well_when(harm: Callable[[Seen], None]) -> None:
    seen = complete()
    harm(seen)
    text, well = seen.table()
    assert not well, text


def test_one_send_of_a_hundred_may_fail_and_two_may_not() -> None:
    for failed, well in ((1, True), (2, False)):
        seen = Seen(100, 0)
        for number in range(100 - failed):
            seen.due_ms[number] = DUE_MS
            timer(seen, number)
        assert seen.table()[1] is well
