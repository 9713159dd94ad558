"""broker/messages/longpoll.py: a parked request leaves the table exactly once, for the right reason."""

from dataclasses import dataclass, field

from broker.messages.longpoll import LongPollTable


@dataclass(eq=False)
class Waiter:
    topic: str = "T"
    queue_id: int = 0
    offset: int = 5
    accepts: frozenset[int] | None = None
    sql: object | None = None
    owner: object = field(default="connection")


def test_an_arrival_wakes_who_waits_for_that_queue() -> None:
    table = LongPollTable[Waiter](10)
    here, elsewhere = Waiter(), Waiter(queue_id=1)
    assert table.park(here, 10.0)
    assert table.park(elsewhere, 10.0)
    assert table.arrived(("T", 0), 6, [0]) == [here]
    assert table.arrived(("T", 0), 7, [0]) == []
    assert table.size == 1
    assert table.waits_for(("T", 1))
    assert not table.waits_for(("T", 0))


def test_an_arrival_below_the_wanted_offset_wakes_nobody() -> None:
    table = LongPollTable[Waiter](10)
    table.park(Waiter(offset=9), 10.0)
    assert table.arrived(("T", 0), 9, [0]) == []
    assert len(table.arrived(("T", 0), 10, [0])) == 1


def test_tags_that_are_not_wanted_let_sleep() -> None:
    table = LongPollTable[Waiter](10)
    picky = Waiter(accepts=frozenset({65}))
    table.park(picky, 10.0)
    assert table.arrived(("T", 0), 6, [66, 67]) == []
    assert table.arrived(("T", 0), 8, [66, 65]) == [picky]


def test_who_must_see_a_message_first_stays_and_is_named() -> None:
    table = LongPollTable[Waiter](10)
    assert table.sql_waits(("T", 0), 6) == []
    picky, ahead, elsewhere, tagged = Waiter(sql="x"), Waiter(sql="x", offset=9), Waiter(sql="x", queue_id=1), Waiter()
    for waiter in (picky, ahead, elsewhere, tagged):
        table.park(waiter, 10.0)
    assert table.arrived(("T", 0), 6, [0]) == [tagged]
    assert table.sql_waits(("T", 0), 6) == [picky]
    assert table.holds(picky)
    assert table.take(picky)
    assert not table.take(picky)
    assert not table.holds(picky)
    assert table.size == 2
    table.clear()
    assert table.sql_waits(("T", 1), 6) == []


def test_deadlines_come_up_in_order_and_once() -> None:
    table = LongPollTable[Waiter](10)
    late, early = Waiter(), Waiter(queue_id=1)
    table.park(late, 20.0)
    table.park(early, 10.0)
    assert table.next_deadline() == 10.0
    assert table.expired(9.9) == []
    assert table.expired(25.0) == [early, late]
    assert table.expired(25.0) == []
    assert table.next_deadline() is None


def test_a_woken_request_has_no_deadline_any_more() -> None:
    table = LongPollTable[Waiter](10)
    table.park(Waiter(), 10.0)
    table.arrived(("T", 0), 6, [0])
    assert table.next_deadline() is None
    assert table.expired(99.0) == []


def test_the_sweep_takes_who_was_overtaken_whatever_the_tags() -> None:
    table = LongPollTable[Waiter](10)
    picky, content = Waiter(accepts=frozenset({1})), Waiter(offset=100)
    table.park(picky, 10.0)
    table.park(content, 10.0)
    assert table.overtaken(lambda _topic, _queue: 50, lambda _: False, lambda ticket: ticket is picky) == []
    assert table.overtaken(lambda _topic, _queue: 50, lambda _: False) == [picky]
    assert table.size == 1
    assert table.overtaken(lambda _topic, _queue: 50, lambda ticket: ticket is content) == [content]


def test_a_closed_connection_takes_its_requests_along() -> None:
    table = LongPollTable[Waiter](10)
    table.park(Waiter(owner="a"), 10.0)
    table.park(Waiter(owner="a", queue_id=1), 10.0)
    stays = Waiter(owner="b")
    table.park(stays, 10.0)
    assert table.drop("a") == 2
    assert table.drop("a") == 0
    assert table.clear() == [stays]
    assert table.size == 0


def test_the_table_has_a_limit() -> None:
    table = LongPollTable[Waiter](2)
    assert table.park(Waiter(), 1.0)
    assert table.park(Waiter(), 1.0)
    assert not table.park(Waiter(), 1.0)
    table.drop("connection")
    assert table.park(Waiter(), 1.0)


def test_departed_requests_do_not_pile_up_behind_their_deadlines() -> None:
    table = LongPollTable[Waiter](1000)
    for offset in range(5000):
        table.park(Waiter(offset=offset), 1e9)
        table.arrived(("T", 0), offset + 1, [0])
    assert table.size == 0
    assert len(table._deadlines) <= 65
