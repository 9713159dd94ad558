"""Offsets by time: the first message at or after it, or the last one at or before it."""

from hypothesis import given
from hypothesis import strategies as st

from store.reads.timesearch import offset_by_time

TIMES = [10, 20, 20, 20, 30]


def search(timestamp: int, *, upper: bool = False, low: int = 0, times: list[int] = TIMES) -> int:
    return offset_by_time(low, low + len(times), timestamp, lambda offset: times[offset - low], upper=upper)


def test_lower_gives_the_first_message_at_or_after_the_time() -> None:
    assert [search(t) for t in (5, 10, 11, 20, 21, 30, 31)] == [0, 0, 1, 1, 4, 4, 5]


def test_upper_gives_the_last_message_at_or_before_the_time() -> None:
    assert [search(t, upper=True) for t in (10, 11, 20, 21, 30, 31)] == [0, 0, 3, 3, 4, 4]


def test_upper_with_only_newer_messages_gives_the_lowest_offset() -> None:
    assert search(5, upper=True, low=7) == 7


def test_an_empty_queue_gives_its_lowest_offset() -> None:
    assert offset_by_time(4, 4, 10, lambda _: 0) == 4
    assert offset_by_time(4, 4, 10, lambda _: 0, upper=True) == 4


def test_records_that_are_gone_count_as_older() -> None:
    times = [-1, -1, 20, 30]
    assert search(0, times=times) == 2
    assert search(25, times=times, upper=True) == 2


@given(st.lists(st.integers(0, 50), min_size=1).map(sorted), st.integers(-1, 51), st.integers(0, 5))
def test_both_agree_with_looking_at_every_message(times: list[int], timestamp: int, low: int) -> None:
    after = [n for n, time in enumerate(times) if time >= timestamp]
    before = [n for n, time in enumerate(times) if time <= timestamp]
    assert search(timestamp, times=times, low=low) == low + (after[0] if after else len(times))
    assert search(timestamp, times=times, low=low, upper=True) == low + (before[-1] if before else 0)
