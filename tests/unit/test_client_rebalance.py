import heapq
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.consume import rebalance
from client.consume.rebalance import (
    STRATEGIES,
    Strategy,
    allocate,
    average,
    average_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
    sticky,
    strategy_of,
)
from client.errors import ConsumeError
from remoting.bodies.registry import MessageQueue


def queues(count: int, broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


def ids(found: Sequence[MessageQueue] | None) -> list[int]:
    assert found is not None
    return [queue.queueId for queue in found]


# Worked out by hand: neighbours, the remainder to the first (the rule of AVG).
@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, 4, [[0], [1], [2], [3]]),
        (2, 3, [[0], [1], []]),
        (0, 2, [[], []]),
    ],
)
def test_average_gives_neighbours_and_the_first_the_remainder(
    count: int, members: int, expected: list[list[int]]
) -> None:
    names = [f"c{number}" for number in range(members)]
    assert [ids(average(name, queues(count), names)) for name in names] == expected


def test_by_circle_deals_like_cards() -> None:
    names = ["c0", "c1", "c2"]
    assert [ids(average_by_circle(name, queues(8), names)) for name in names] == [[0, 3, 6], [1, 4, 7], [2, 5]]


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.integers(0, 40),
    st.lists(st.text("abcdef0123456789@.#", min_size=1), min_size=1, max_size=9, unique=True),
)
def test_every_queue_has_exactly_one_owner(name: str, count: int, members: list[str]) -> None:
    shares = [allocate(STRATEGIES[name], member, queues(count), members) for member in members]
    owned = [queue for share in shares for queue in share or []]
    assert sorted(owned) == queues(count)


@given(st.permutations(queues(6)), st.permutations(["c", "a", "b"]))
def test_the_order_in_which_brokers_tell_makes_no_difference(shuffled: list[MessageQueue], members: list[str]) -> None:
    assert allocate(average, "b", shuffled, members) == queues(6)[2:4]


def test_who_is_no_member_decides_nothing() -> None:
    assert allocate(average, "me", queues(4), ["other"]) is None


def test_consistent_hash_moves_few_queues_when_a_member_goes() -> None:
    members = [f"10.0.0.{number}@1" for number in range(5)]
    strategy = consistent_hash()
    before = {q: m for m in members for q in strategy(m, queues(100), members)}
    after = {q: m for m in members[:-1] for q in strategy(m, queues(100), members[:-1])}
    assert all(after[queue] == owner for queue, owner in before.items() if owner != members[-1])


def test_consistent_hash_places_are_those_of_the_official_clients() -> None:
    # The first four bytes of MD5("x"), big-endian.
    from client.consume.rebalance import _ring_place

    assert _ring_place("x") == 0x9DD4E461


def test_by_config_takes_only_what_exists() -> None:
    strategy = by_config([*queues(2), MessageQueue("T", "gone", 0)])
    assert strategy("me", queues(4), ["me", "other"]) == queues(2)


def test_machine_room_shares_only_the_rooms_named() -> None:
    strategy = by_machine_room(["r1"])
    everything = [*queues(5, "r1@a"), *queues(3, "r2@b"), *queues(2, "plain")]
    shares = [strategy(member, everything, ["m0", "m1"]) for member in ("m0", "m1")]
    assert [ids(share) for share in shares] == [[0, 1, 4], [2, 3]]
    assert {queue.brokerName for share in shares for queue in share} == {"r1@a"}


def room_of(name: str) -> str:
    return name.partition("-")[0]


@pytest.mark.parametrize("inner", [average, average_by_circle])
def test_nearby_keeps_queues_in_their_room_and_shares_deserted_rooms(inner: Strategy) -> None:
    strategy = machine_room_nearby(inner, room_of, room_of)
    everything = sorted([*queues(4, "r1-a"), *queues(4, "r2-b"), *queues(4, "r3-c")])
    members = ["r1-x", "r1-y", "r2-z"]
    shares = {member: strategy(member, everything, members) for member in members}
    assert sorted(queue for share in shares.values() for queue in share) == everything
    assert {room_of(queue.brokerName) for queue in shares["r1-x"]} == {"r1", "r3"}
    assert {room_of(queue.brokerName) for queue in shares["r2-z"]} == {"r2", "r3"}


NAMES = st.lists(st.text("abcdef0123456789@.#", min_size=1), min_size=1, max_size=9, unique=True)


def owners(strategy: Strategy, count: int, members: Sequence[str]) -> dict[MessageQueue, str]:
    names = sorted(members)
    return {queue: member for member in names for queue in strategy(member, queues(count), names)}


@given(st.integers(0, 40), NAMES)
def test_sticky_shares_evenly(count: int, members: list[str]) -> None:
    sizes = [len(allocate(sticky, member, queues(count), members) or []) for member in members]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == count


@given(st.integers(1, 40), NAMES)
def test_sticky_gives_a_member_back_what_it_had_before_it_left(count: int, members: list[str]) -> None:
    before = owners(sticky, count, members)
    owners(sticky, count, [*members, "new"])
    assert owners(sticky, count, list(reversed(members))) == before


@pytest.mark.parametrize(("count", "size"), [(16, 4), (64, 8), (100, 10)])
def test_sticky_moves_few_queues_and_average_many(count: int, size: int) -> None:
    moved = {"sticky": 0, "average": 0}
    must = 0
    for number in range(12):
        members = [f"10.0.{number}.{each}@{each * 7919}" for each in range(size)]
        for changed in (members[1:], [*members, "10.9.9.9@1"]):
            for name, strategy in (("sticky", sticky), ("average", average)):
                before, after = owners(strategy, count, members), owners(strategy, count, changed)
                moved[name] += sum(after[queue] != owner for queue, owner in before.items())
        # What the one that goes had at least, and what the one that comes must have at least.
        must += count // size + count // (size + 1)
    assert must <= moved["sticky"] < 1.7 * must
    assert moved["average"] > 1.2 * moved["sticky"]


@pytest.mark.parametrize(("count", "size"), [(1000, 1000), (1500, 1000), (8000, 100), (10, 1000)])
def test_sticky_looks_at_few_pairs_of_many(monkeypatch: pytest.MonkeyPatch, count: int, size: int) -> None:
    looks = 0

    def counted(heap: list[Any], item: Any) -> Any:
        nonlocal looks
        looks += 1
        return heapq.heapreplace(heap, item)

    monkeypatch.setattr(rebalance, "heapreplace", counted)
    members = sorted(f"10.0.0.{each}@{each * 7919}" for each in range(size))
    mine = sticky(members[0], queues(count), members)
    assert count // size <= len(mine) <= count // size + 1
    assert looks < 8 * (count + size), "a look at each pair would be thousands of times as many"


def test_strategies_have_names() -> None:
    assert strategy_of("STICKY") is sticky
    assert strategy_of(average) is average
    with pytest.raises(ConsumeError, match="AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, STICKY"):
        strategy_of("FAIR")
