"""RaftNode: whole groups in one process, with a clock by hand."""

from raft.types import Fate, Role
from tests.unit.raft_memory_log import Group


def test_three_empty_nodes_begin_elect_replicate_and_commit() -> None:
    group = Group()
    leader = group.elect()
    assert {m.node.leader_id for m in group.machines.values()} == {leader.name}
    assert group.propose(leader.name) is None
    group.run(0.05)
    assert group.fates == [Fate.COMMITTED]
    assert group.logs_equal()
    assert {m.node.commit_index for m in group.machines.values()} == {leader.log.last.index}
    assert [m.fatal for m in group.machines.values()] == [None, None, None]
    assert sorted(m.node.role for m in group.machines.values()) == [Role.FOLLOWER, Role.FOLLOWER, Role.LEADER]
