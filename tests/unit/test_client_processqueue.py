import random

from hypothesis import given
from hypothesis import strategies as st

from client.consume.processqueue import ProcessQueue
from remoting.message import MessageExt


def message(offset: int, size: int = 100) -> MessageExt:
    return MessageExt(
        "T", 0, offset, offset * size, 0, 0, 0, ("127.0.0.1", 1), 0, ("127.0.0.1", 2), 0, 0, b"", 0, {}, size
    )


def test_the_lowest_unfinished_offset_is_what_may_be_stored() -> None:
    unfinished = ProcessQueue()
    first, second, third = unfinished.put([message(5), message(6), message(7)])
    assert unfinished.committable == 5
    assert unfinished.finish([second]) == 5
    assert unfinished.finish([first]) == 7
    assert unfinished.finish([third]) == 8
    assert not unfinished


def test_nothing_was_fetched_nothing_may_be_stored() -> None:
    assert ProcessQueue().committable is None


def test_gaps_left_by_the_filter_do_not_hold_the_offset_back() -> None:
    unfinished = ProcessQueue()
    first, last = unfinished.put([message(10), message(90)])
    assert unfinished.span == 80
    assert unfinished.finish([first]) == 90
    assert unfinished.finish([last]) == 91


def test_a_message_that_was_fetched_twice_counts_once() -> None:
    unfinished = ProcessQueue()
    unfinished.put([message(1), message(2)])
    assert [fresh.queue_offset for fresh in unfinished.put([message(2), message(3)])] == [3]
    assert (len(unfinished), unfinished.size_bytes) == (3, 300)


def test_finishing_twice_changes_nothing() -> None:
    unfinished = ProcessQueue()
    (only,) = unfinished.put([message(4)])
    assert unfinished.finish([only]) == 5
    assert unfinished.finish([only]) == 5
    assert unfinished.size_bytes == 0


def test_the_head_is_what_is_lowest() -> None:
    unfinished = ProcessQueue()
    taken = unfinished.put([message(offset) for offset in range(5)])
    unfinished.finish([taken[1]])
    assert [found.queue_offset for found in unfinished.head(3)] == [0, 2, 3]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_against_a_plain_set(steps: list[int], chance: random.Random) -> None:
    unfinished, twin, offset = ProcessQueue(), dict[int, MessageExt](), 0
    for step in steps:
        offset += step
        for fresh in unfinished.put([message(offset, size=step)]):
            twin[fresh.queue_offset] = fresh
        if chance.random() < 0.6 and twin:
            done = twin.pop(chance.choice(sorted(twin)))
            unfinished.finish([done])
        assert unfinished.committable == (min(twin) if twin else offset + 1)
        assert unfinished.size_bytes == sum(kept.size for kept in twin.values())
        assert unfinished.lowest == (min(twin) if twin else None)
