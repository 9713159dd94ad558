"""broker/queue_locks.py: one holder a queue, until it lets go, leaves, or its lock runs out."""

from broker.queue_locks import FIRST_TERM, LOCK_SECONDS, TRUSTED_SECONDS, GivenBack, LockTable
from remoting.bodies.registry import MessageQueue
from runtime.clock import ManualClock

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def test_one_holder_a_queue_and_group() -> None:
    table = LockTable(ManualClock())
    assert table.lock("G", "a", [Q0]) == [Q0]
    assert table.lock("G", "b", [Q0, Q1]) == [Q1]
    assert table.lock("H", "b", [Q0]) == [Q0]
    assert table.lock("G", "a", [Q0]) == [Q0]
    assert table.holder("G", Q0) == "a"


def test_a_lock_runs_out_unless_renewed() -> None:
    clock = ManualClock()
    table = LockTable(clock)
    table.lock("G", "a", [Q0, Q1])
    clock.advance(LOCK_SECONDS - 1)
    table.lock("G", "a", [Q1])
    clock.advance(2)
    assert table.holder("G", Q0) is None
    assert table.lock("G", "b", [Q0, Q1]) == [Q0]


def test_only_the_holder_unlocks() -> None:
    table = LockTable(ManualClock())
    table.lock("G", "a", [Q0])
    table.unlock("G", "b", [Q0])
    assert table.holder("G", Q0) == "a"
    table.unlock("G", "a", [Q0, Q0, Q1])
    assert table.holder("G", Q0) is None
    assert len(table) == 0


def test_who_leaves_gives_everything_back() -> None:
    table = LockTable(ManualClock())
    table.lock("G", "a", [Q0])
    table.lock("G", "b", [Q1])
    table.release("G", "a")
    assert table.lock("G", "b", [Q0]) == [Q0]
    assert len(table) == 2


def test_the_sweep_forgets_what_ran_out() -> None:
    clock = ManualClock()
    table = LockTable(clock)
    table.lock("G", "a", [Q0])
    clock.advance(LOCK_SECONDS + 1)
    table.lock("G", "b", [Q1])
    assert table.sweep() == [GivenBack("G", "a", [Q0])]
    assert len(table) == 1
    assert list(table.rows()) == [GivenBack("G", "b", [Q1])]


def test_the_table_has_a_limit() -> None:
    table = LockTable(ManualClock(), limit=1)
    assert table.lock("G", "a", [Q0, Q1]) == [Q0]
    assert table.lock("H", "a", [Q1]) == []
    table.unlock("G", "a", [Q0])
    assert table.lock("H", "a", [Q1]) == [Q1]


def test_R14_a_new_leader_grants_nothing_while_clients_trust_the_locks_of_the_old_one() -> None:
    clock = ManualClock()
    table = LockTable(clock)
    table.lead(4)
    assert table.lock("G", "a", [Q0]) == []
    clock.advance(TRUSTED_SECONDS - 0.1)
    assert table.lock("G", "a", [Q0]) == []
    clock.advance(0.1)
    assert table.lock("G", "b", [Q0]) == [Q0]


def test_R14_locks_of_an_earlier_leadership_count_for_nothing() -> None:
    clock = ManualClock()
    table = LockTable(clock)
    table.lead(FIRST_TERM)
    assert table.lock("G", "a", [Q0]) == [Q0]
    table.lead(FIRST_TERM + 2)
    assert len(table) == 0
    assert table.lock("G", "a", [Q0]) == []


def test_R14_nobody_else_grants_in_the_first_term_nor_between_two_terms_of_one_leader() -> None:
    table = LockTable(ManualClock())
    table.lead(FIRST_TERM)
    assert table.lock("G", "a", [Q0]) == [Q0]
    table.lead(FIRST_TERM + 1)
    assert table.holder("G", Q0) == "a"
    assert table.lock("G", "b", [Q0, Q1]) == [Q1]


def test_R14_the_wait_is_not_cut_short_by_an_election_that_changes_nothing() -> None:
    clock = ManualClock()
    table = LockTable(clock)
    table.lead(4)
    clock.advance(1)
    table.lead(5)
    assert table.lock("G", "a", [Q0]) == []
    clock.advance(TRUSTED_SECONDS - 1)
    assert table.lock("G", "a", [Q0]) == [Q0]


def test_R14_who_knows_the_holders_lets_them_be_for_as_long_as_they_trust_it() -> None:
    clock = ManualClock()
    table = LockTable(clock)
    table.lock("G", "gone", [Q1])
    table.inherit({"G": {Q0: "a"}})
    assert len(table) == 1
    assert table.lock("G", "b", [Q0, Q1]) == [Q1], "what nobody holds is free at once"
    clock.advance(TRUSTED_SECONDS - 1)
    assert table.lock("G", "b", [Q0]) == []
    assert table.lock("G", "a", [Q0]) == [Q0]
    clock.advance(LOCK_SECONDS - 1)
    assert table.lock("G", "b", [Q0]) == []
    table.inherit({"G": {Q0: "a"}})
    clock.advance(TRUSTED_SECONDS)
    assert table.lock("G", "b", [Q0]) == [Q0]


def test_what_others_granted_is_taken_over() -> None:
    table = LockTable(ManualClock())
    table.lock("G", "a", [Q0])
    table.put("G", "b", [Q0, Q1])
    table.put("H", "b", [])
    assert (table.holder("G", Q0), len(table)) == ("b", 2)
    assert table.unlock("G", "a", [Q0]) == []
    assert table.release("G", "b") == [Q0, Q1]
    table.lock("G", "a", [Q0])
    table.clear()
    assert len(table) == 0


class Grants(LockTable):
    """A planted bug: a new leader takes the locks that it does not know for free."""

    def may_grant(self) -> bool:
        return True


def test_R14_planted_a_leader_that_grants_at_once_is_caught() -> None:
    table = Grants(ManualClock())
    table.lead(4)
    assert table.lock("G", "a", [Q0]) == [Q0]
