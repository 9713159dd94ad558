"""raft/core/bootstrap.py: who begins a group (R1)."""

import itertools

import pytest

from raft.core.bootstrap import Move, decide, decide_to_found, decide_to_join
from raft.protocol.hello import Hello
from tests.parts.raft_hellos import GROUP_ID, grouped, hello

FULL = {"empty": False}


def moves(*hellos: Hello | None) -> list[Move | None]:
    """What each of these members decides when all hear each other; None stands for one that is down."""
    found: list[Move | None] = []
    for own in hellos:
        others = {f"n{i}": other for i, other in enumerate(hellos) if other is not own}
        found.append(None if own is None else decide(own, others, own.self_id).kind)
    return found


def test_R1_empty_stores_begin_only_when_all_have_answered() -> None:
    assert moves(hello(0), hello(1), hello(2)) == [Move.FORM, Move.WAIT, Move.WAIT]
    assert moves(hello(0), hello(1), None) == [Move.WAIT, Move.WAIT, None]
    assert moves(hello(0), None, None) == [Move.WAIT, None, None]
    assert "nothing heard of n1, n2" in decide(hello(0), {"n1": None, "n2": None}, "n0").why


def test_R1_a_group_of_one_begins_at_once() -> None:
    assert moves(hello(0)) == [Move.FORM]
    assert moves(hello(0, **FULL)) == [Move.ALONE]


def test_R1_the_lowest_number_begins() -> None:
    assert decide(hello(2), {"n10": hello(10)}, "n2").kind is Move.FORM
    assert decide(hello(10), {"n2": hello(2)}, "n10").kind is Move.WAIT


def test_R1_a_store_with_messages_begins_alone() -> None:
    assert moves(hello(0), hello(1, **FULL), hello(2)) == [Move.WAIT, Move.ALONE, Move.WAIT]
    assert moves(None, hello(1, **FULL), hello(2)) == [None, Move.WAIT, Move.WAIT], "not before all have answered"


def test_R1_two_stores_with_messages_are_refused_by_name() -> None:
    assert moves(hello(0), hello(1, **FULL), hello(2, **FULL)) == [Move.REFUSE] * 3
    decision = decide(hello(2, **FULL), {"n0": None, "n1": hello(1, **FULL)}, "n2")
    assert decision.kind is Move.REFUSE, "a third answer cannot make it right"
    assert "the stores of n1, n2 all hold messages" in decision.why


@pytest.mark.parametrize("own", [hello(0), hello(0, **FULL)])
def test_R1_where_a_group_lives_its_leader_decides(own: Hello) -> None:
    for others in ({"n1": grouped(1), "n2": None}, {"n1": grouped(1), "n2": hello(2, **FULL)}):
        decision = decide(own, others, "n0")
        assert decision.kind is Move.WAIT
        assert "waiting for its leader" in decision.why


def test_who_is_in_a_group_decides_nothing() -> None:
    assert decide(grouped(0), {"n1": None}, "n0").kind is Move.WAIT


def test_R2_a_log_whose_group_has_ended_counts_as_messages() -> None:
    ended = {"group_id": b"", "empty": False, "has_log": True}
    assert moves(hello(0), hello(1, **ended), hello(2)) == [Move.WAIT, Move.ALONE, Move.WAIT]
    assert moves(hello(0), hello(1, **ended), hello(2, **FULL)) == [Move.REFUSE] * 3


def test_members_with_different_lists_are_refused() -> None:
    own = hello(0, peer_ids=("n0", "n1"))
    decision = decide(own, {"n1": hello(1, peer_ids=("n0", "n1", "n2"))}, "n0")
    assert decision.kind is Move.REFUSE
    assert "dLegerPeers of n1" in decision.why
    assert decide(own, {"n1": hello(1, peer_ids=("n1", "n0"))}, "n0").kind is Move.FORM


def test_R1_never_two_begin_whatever_is_heard() -> None:
    states: list[Hello | None]
    for kinds in itertools.product((None, hello, "full", grouped), repeat=3):
        states = []
        for number, kind in enumerate(kinds):
            states.append(hello(number, **FULL) if kind == "full" else kind(number) if callable(kind) else None)
        began = [move for move in moves(*states) if move in {Move.FORM, Move.ALONE}]
        assert len(began) <= 1, kinds
        if None in states or any(state is not None and state.group_id for state in states):
            assert not began, kinds


def test_hellos_must_be_of_whom_they_are_said_to_be() -> None:
    with pytest.raises(AssertionError, match="not that of n1"):
        decide(hello(0), {}, "n1")
    with pytest.raises(AssertionError, match="no other member"):
        decide(hello(0), {"n0": None}, "n0")


def test_R16_who_was_told_to_begin_begins_whatever_the_others_hold_but_not_a_second_time() -> None:
    assert decide_to_found({"n1": None, "n2": None}).kind is Move.ALONE
    assert decide_to_found({"n1": hello(1, **FULL), "n2": hello(2)}).kind is Move.ALONE
    refused = decide_to_found({"n1": hello(1, **FULL), "n2": grouped(2)})
    assert refused.kind is Move.REFUSE
    assert "one lives already, at n2" in refused.why


BASE: dict[str, int] = {"base_index": 7, "base_position": 4096, "base_digest": 99}


def test_R16_who_was_told_to_come_waits_for_that_group_and_begins_none() -> None:
    own = hello(1, **FULL, **BASE)
    for others in ({"n0": None}, {"n0": hello(0)}, {"n0": hello(0, **FULL)}, {"n0": grouped(0, group_id=b"H" * 16)}):
        decision = decide_to_join(own, others, GROUP_ID)
        assert decision.kind is Move.WAIT
        assert "nothing heard yet" in decision.why
    assert decide_to_join(own, {"n0": grouped(0, **BASE)}, GROUP_ID).kind is Move.WAIT
    assert decide_to_join(hello(1), {"n0": grouped(0, **BASE)}, GROUP_ID).kind is Move.WAIT, "an empty one is given all"


@pytest.mark.parametrize("field", list(BASE))
def test_R16_who_comes_with_other_bytes_than_the_groups_learns_from_the_start(field: str) -> None:
    own = hello(1, **FULL, **(BASE | {field: BASE[field] + 1}))
    decision = decide_to_join(own, {"n2": grouped(2, **BASE), "n0": grouped(0, **BASE)}, GROUP_ID)
    assert decision.kind is Move.COPY
    assert "put aside" in decision.why
    assert "beginning with n0" in decision.why
