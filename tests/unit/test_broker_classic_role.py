"""broker/master_slave/role.py: who leads a classic pair, since when, and who is told."""

import pytest

from broker.master_slave.role import ClassicRole
from broker.role import BrokerRole


def seen_by(role: ClassicRole) -> list[tuple[bool, int, str | None]]:
    seen: list[tuple[bool, int, str | None]] = []
    role.subscribe(lambda: seen.append((role.leads, role.term, role.leader_address)))
    return seen


def test_a_master_leads_from_the_start_and_a_slave_never() -> None:
    master: BrokerRole = ClassicRole(0, 3)
    slave: BrokerRole = ClassicRole(2, 3)
    assert (master.leads, master.lease(), master.broker_id, master.term) == (True, True, 0, 3)
    assert (slave.leads, slave.lease(), slave.broker_id, slave.term) == (False, False, 2, 3)


def test_R15_a_fenced_master_leads_no_more_until_it_is_unfenced() -> None:
    role = ClassicRole(0)
    seen = seen_by(role)
    role.fence("somebody else was promoted")
    role.fence("somebody else was promoted")
    assert (role.leads, role.lease(), role.fenced) == (False, False, "somebody else was promoted")
    role.unfence()
    role.unfence()
    assert (role.leads, role.lease(), role.fenced) == (True, True, None)
    assert [leads for leads, _, _ in seen] == [False, True]


def test_a_slave_that_was_fenced_is_still_a_slave() -> None:
    role = ClassicRole(1)
    role.fence("why")
    role.unfence()
    assert not role.leads


def test_R15_the_epoch_never_falls() -> None:
    role = ClassicRole(1, 4)
    seen = seen_by(role)
    role.set_epoch(3)
    role.set_epoch(4)
    role.set_epoch(6)
    assert (role.term, seen) == (6, [(False, 6, None)])


def test_subscribers_learn_of_another_master_once_and_one_that_fails_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    role = ClassicRole(1)

    def fails() -> None:
        raise RuntimeError("no")

    role.subscribe(fails)
    seen = seen_by(role)
    role.set_leader("10.0.0.1:10911")
    role.set_leader("10.0.0.1:10911")
    role.set_leader(None)
    assert seen == [(False, 0, "10.0.0.1:10911"), (False, 0, None)]
    assert "could not be followed" in caplog.text
