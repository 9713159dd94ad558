"""broker/mode.py: what a leader makes of NameServers that name another master."""

from broker.raft_group.mode import RefusedLead


def test_R15_a_leader_that_name_servers_refuse_says_so_once_in_a_term() -> None:
    refused = RefusedLead()
    # The first one may answer what was sent before it led.
    assert [refused.heard("a:1", 3) for _ in range(4)] == [False, True, False, False]
    assert [refused.heard(None, 3), refused.heard("a:1", 4), refused.heard("a:1", 5)] == [False, False, False]
    assert refused.heard("b:1", 5)
