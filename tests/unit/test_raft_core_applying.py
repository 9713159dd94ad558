"""Who has committed entries to apply still: it may follow and vote, and does not lead."""

import pytest

from raft.core import core
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
