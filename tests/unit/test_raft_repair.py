"""Repair among members: who is asked, what becomes of garbage and silence, and that nobody waits for it (R4)."""

import pytest

from raft.core.repair import QUESTIONS_MAX
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import EntryRefused
from tests.parts.raft_memory_log import Group


def hurt_group(first: int = 1, last: int = 2) -> Group:
    group = Group()
    group.elect("n0")
    group.propose("n0")
    group.run(0.5)
    log = group["n2"].log
    log.whole, log.damaged = False, (first, last)
    group.seen.clear()
    return group


def asked(group: Group) -> list[str]:
    return [
        target for source, target, message in group.seen if source == "n2" and message.kind is MessageKind.REPAIR_READ
    ]


def whole(group: Group, seconds: float = 10) -> bool:
    group.run(seconds, lambda: group["n2"].log.whole)
    return group["n2"].log.whole


def test_R4_the_leader_is_asked_last() -> None:
    group = hurt_group()
    assert whole(group)
    assert set(asked(group)) == {"n1"}
    assert group["n2"].log.mending.own == 1


def test_R4_a_peer_that_says_nothing_is_left_for_the_next() -> None:
    group = hurt_group()
    group.cut_links |= {("n1", "n2")}
    assert whole(group)
    assert asked(group)[0] == "n1"
    assert asked(group)[-1] == "n0"


def test_R4_a_peer_that_sends_garbage_is_left_for_the_next() -> None:
    group = hurt_group()

    def spoil(source: str, target: str, message: RaftMessage) -> bool:
        if source == "n1" and message.kind is MessageKind.REPAIR_BYTES and message.payload:
            wrong = bytes(byte ^ 0xFF for byte in bytes(message.payload[0]))
            group.inbox.append((source, target, message._replace(payload=(wrong,))))
            return True
        return False

    def once(source: str, target: str, message: RaftMessage) -> bool:
        group.drop = lambda *_: False
        dropped = spoil(source, target, message)
        group.drop = once
        return dropped

    group.drop = once
    assert whole(group)
    assert asked(group)[0] == "n1"
    assert asked(group)[-1] == "n0"
    assert group.logs_equal()


def test_R4_a_peer_that_has_nothing_is_left_for_the_next() -> None:
    group = hurt_group()
    group["n1"].log.whole, group["n1"].log.damaged = False, (1, 3)
    assert whole(group)
    assert "n0" in asked(group)


def test_R4_two_members_with_different_holes_fill_each_others() -> None:
    group = hurt_group(2, 2)
    group["n1"].log.whole, group["n1"].log.damaged = False, (1, 1)
    group.cut("n0")
    for _ in range(20):
        group.run(1.0)
        if group["n1"].log.whole and group["n2"].log.whole:
            break
    assert [group[name].log.whole for name in ("n1", "n2")] == [True, True]


@pytest.mark.parametrize("elected", ["before it is asked", "after"])
def test_R4_only_who_was_asked_as_the_leader_can_contradict(monkeypatch: pytest.MonkeyPatch, elected: str) -> None:
    """What a follower sent may be what it cuts before it is elected."""
    group = hurt_group()
    core, repair = group["n2"].node._core, group["n2"].node._repair
    mending = group["n2"].log.mending
    group.cut_links |= {("n1", "n2"), ("n0", "n2")}
    if elected == "after":
        group.run(2, lambda: repair._source == "n1")
    core.election.follow(core.election.term + 1, "n1")
    if elected != "after":
        group.run(2, lambda: repair._source == "n1")
    assert repair._source == "n1"

    def contradicted() -> bool:
        mending.contradicted = True
        raise EntryRefused("another term stands there")

    monkeypatch.setattr(mending, "step", contradicted)
    assert repair._mend()
    assert repair._conflict == (elected != "after")


def test_R4_questions_in_flight_are_bounded() -> None:
    group = hurt_group()
    group.cut_links |= {("n1", "n2"), ("n0", "n2")}
    group["n2"].log.mending.wanted = lambda: (0, 1 << 30)  # type: ignore[method-assign]  # a gibibyte
    group.run(0.5)
    assert 0 < len(asked(group)) <= QUESTIONS_MAX


def test_R4_the_status_tells_how_far_a_repair_is() -> None:
    group = hurt_group()
    status = group["n2"].node.status
    group.cut_links |= {("n1", "n2"), ("n0", "n2")}
    group.run(0.2)
    state = status()["repair"]
    assert (state["bytes_done"], state["from"]) == (0, "n1")
    assert state["bytes_total"] > 0
    assert state["since_ms"] > 0
    group.heal()
    assert whole(group)
    assert (status()["repair"], status()["last_repair"]["bytes"]) == (None, state["bytes_total"])


def test_R13_a_hole_that_the_leader_no_longer_keeps_asks_for_a_copy() -> None:
    group = hurt_group()
    for name in ("n0", "n1"):
        group[name].log.forget(2)
    group.run(3, lambda: bool(group["n2"].resets))
    assert group["n2"].resets == ["n0"]


def test_R4_peers_of_an_older_program_are_answered_by_entries() -> None:
    group = hurt_group()
    group["n1"].log.whole, group["n1"].log.damaged = True, None
    group["n0"].node.receive("n1", RaftMessage(MessageKind.REPAIR, {"first": 1, "last": 2}))
    (reply,) = [
        message for _, target, message in group.seen if message.kind is MessageKind.REPAIR_REPLY and target == "n1"
    ]
    assert [row[0] for row in reply.fields["entries"]] == [1, 2]


def test_R13_who_lost_the_list_of_members_too_learns_who_leads_and_asks_for_a_copy() -> None:
    group = hurt_group()
    hurt = group["n2"]
    hurt.log.last_config = lambda: 0  # type: ignore[method-assign]  # it stood in the hole
    hurt.node._core.refresh_config()
    hurt.node._core.election.follow(hurt.node._core.election.term, None)
    assert hurt.node.config is None
    for name in ("n0", "n1"):
        group[name].log.forget(2)
    group.run(3, lambda: bool(hurt.resets))
    assert hurt.resets == ["n0"]
