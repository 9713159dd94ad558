"""Applying what is committed: who is behind with it does not lead, and who leads no more knows so before."""

import pytest

from raft.core import core
from raft.protocol.messages import MessageKind
from raft.protocol.types import Fate, Role
from tests.parts.raft_memory_log import Group


def test_who_is_far_from_having_applied_everything_does_not_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a large repair: it has all entries, and could not serve before they are in its queues."""
    monkeypatch.setattr(core, "APPLY_BEHIND_BYTES_MAX", 1000)
    group = Group()
    leader, behind = group.elect("n0"), group["n1"].node
    with monkeypatch.context() as busy:
        busy.setattr(behind._core, "apply_until", lambda applied, _upto: applied)
        for _ in range(20):
            group.propose("n0", bytes(100))
        group.run(0.2)
        assert leader.node.transfer("n1") is None
        group.run(3)
        assert group.leader in {group["n0"], group["n2"]}
        assert "are to be applied still" in behind.status()["held_back"]
    group.run(0.5)
    assert behind.status()["applied"] == behind.status()["commit"]
    group.elect("n1")


def test_who_led_hears_that_it_leads_no_more_before_what_the_next_leader_has_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R7: what it answers as it applies this would be a leader's answer."""
    group = Group()
    leader = group.elect("n0")
    group.drop = lambda _source, target, message: target == "n0" and message.kind is MessageKind.APPEND_REPLY
    group.propose("n0")
    group.run(0.01)
    assert group["n1"].log.last.index == group["n2"].log.last.index == leader.log.last.index
    group.cut("n0")
    group.drop = lambda *_: False
    group.run(3, lambda: any(group[name].node.serving for name in ("n1", "n2")))
    entry, heard = leader.log.last.index, list[Role]()
    monkeypatch.setattr(leader, "on_commit", lambda _index: heard.append(leader.roles[-1][0]))
    assert leader.node.role is Role.LEADER
    group.heal()
    group.run(1)
    assert leader.node.applied_index > entry
    assert set(heard) == {Role.FOLLOWER}
    assert group.fates == [Fate.COMMITTED]
