"""broker/role.py and broker/raft_group/role.py: what a broker is to its clients, and who learns of a change."""

import pytest

from broker.role import BrokerRole, Standalone
from tests.parts.raft_parts import SetRole


def test_a_broker_without_a_group_leads_for_good() -> None:
    role: BrokerRole = Standalone()
    role.subscribe(pytest.fail)
    assert (role.leads, role.term, role.broker_id, role.leader_address, role.lease()) == (True, 0, 0, None, True)


def test_R15_a_member_is_its_number_plus_one_and_0_while_it_leads() -> None:
    role: BrokerRole = SetRole()
    assert isinstance(role, SetRole)
    assert (role.leads, role.broker_id) == (False, 2)
    role.set(3, "n1")
    assert (role.leads, role.broker_id, role.term) == (True, 0, 3)
    role.set(4, None)
    assert (role.leads, role.broker_id, role.term) == (False, 2, 4)


def test_the_leaders_address_is_what_it_said_when_it_connected() -> None:
    role = SetRole()
    role.set(1, "n2")
    assert role.leader_address is None
    role.introduced("n2", "127.0.0.1:10931")
    assert role.leader_address == "127.0.0.1:10931"
    role.set(2, "n1")
    assert role.leader_address is None


def test_subscribers_learn_of_changes_and_only_of_them() -> None:
    role = SetRole()
    seen: list[tuple[bool, int, str | None]] = []
    role.subscribe(lambda: seen.append((role.leads, role.term, role.leader_address)))
    role.set(1, "n1")
    role.set(1, "n1")
    role.set(2, "n0")
    role.introduced("n0", "127.0.0.1:10911")
    assert seen == [(True, 1, None), (False, 2, None), (False, 2, "127.0.0.1:10911")]


def test_a_subscriber_that_fails_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    role = SetRole()
    seen: list[bool] = []

    def fails() -> None:
        raise RuntimeError("no")

    role.subscribe(fails)
    role.subscribe(lambda: seen.append(role.leads))
    role.set(1, "n1")
    assert seen == [True]
    assert "could not be followed" in caplog.text


def test_R7_there_is_a_lease_only_while_it_leads_and_the_node_says_so() -> None:
    role = SetRole()
    role.set(1, "n1")
    assert role.lease()
    role.node.lease = False
    assert not role.lease()
    role.node.lease = True
    role.set(2, "n0")
    assert not role.lease()
