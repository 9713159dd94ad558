import pytest

from client.consume.replica import AVOIDED_S, PAUSE_S_FIRST, PAUSE_S_MAX, ReplicaChoice
from client.routes import TopicRoute
from remoting.codes import ResponseCode
from remoting.errors import BacklogFull, ConnectError, ResponseError
from runtime.clock import ManualClock

BOTH = {0: "m:1", 1: "s:1"}


def route(replicas: dict[int, str]) -> TopicRoute:
    return TopicRoute("T", (), (), {"b": replicas})


def choice() -> tuple[ReplicaChoice, ManualClock]:
    clock = ManualClock()
    return ReplicaChoice(clock.monotonic), clock


def test_the_master_is_asked_and_whom_it_names() -> None:
    replica, _clock = choice()
    assert replica.choose(route(BOTH), "b") == "m:1"
    replica.answered(1)
    assert replica.choose(route(BOTH), "b") == "s:1"
    replica.answered(0)
    assert replica.choose(route(BOTH), "b") == "m:1"
    assert replica.choose(route(BOTH), "unknown") is None


def test_without_a_master_the_slave_is_asked_and_the_master_again_when_it_is_back() -> None:
    replica, _clock = choice()
    assert replica.choose(route({1: "s:1"}), "b") == "s:1"
    replica.answered(0)
    assert replica.choose(route({1: "s:1"}), "b") == "s:1"
    assert replica.choose(route(BOTH), "b") == "m:1"


@pytest.mark.parametrize(
    ("replicas", "follower"),
    [({0: "n0:1", 2: "n1:1", 3: "n2:1"}, "n1:1"), ({0: "n1:1", 1: "n0:1", 3: "n2:1"}, "n0:1"), ({0: "n0:1"}, "n0:1")],
)
def test_a_slow_reader_finds_a_follower_whoever_leads(replicas: dict[int, str], follower: str) -> None:
    """Brokers name id 1; member n0 of a group has it only while another one leads."""
    replica, _clock = choice()
    replica.choose(route(replicas), "b")
    replica.answered(1)
    assert replica.choose(route(replicas), "b") == follower


def test_a_slow_reader_takes_another_follower_when_one_fails() -> None:
    replicas = {0: "n0:1", 2: "n1:1", 3: "n2:1"}
    replica, _clock = choice()
    replica.choose(route(replicas), "b")
    replica.answered(1)
    assert replica.choose(route(replicas), "b") == "n1:1"
    replica.failed(ConnectError("down"))
    assert replica.choose(route(replicas), "b") == "n0:1"
    replica.answered(1)
    assert replica.choose(route(replicas), "b") == "n2:1"


def test_a_master_that_cannot_be_reached_is_left_alone_for_a_while() -> None:
    replica, clock = choice()
    assert replica.choose(route(BOTH), "b") == "m:1"
    replica.failed(ConnectError("down"))
    assert replica.choose(route(BOTH), "b") == "s:1"
    replica.answered(0)
    assert replica.choose(route(BOTH), "b") == "s:1"
    clock.advance(AVOIDED_S)
    assert replica.choose(route(BOTH), "b") == "m:1"


def test_a_slave_that_fails_is_left_for_the_master() -> None:
    replica, _clock = choice()
    replica.choose(route(BOTH), "b")
    replica.answered(1)
    assert replica.choose(route(BOTH), "b") == "s:1"
    replica.failed(ResponseError(ResponseCode.SYSTEM_ERROR, "x"))
    assert replica.choose(route(BOTH), "b") == "m:1"


def test_what_says_nothing_about_the_route_moves_nobody() -> None:
    replica, _clock = choice()
    for error in (BacklogFull("x"), ResponseError(ResponseCode.SYSTEM_BUSY, "x")):
        replica.choose(route(BOTH), "b")
        replica.failed(error)
        assert replica.choose(route(BOTH), "b") == "m:1"


def test_the_only_replica_is_asked_even_when_it_failed() -> None:
    replica, _clock = choice()
    replica.choose(route({0: "m:1"}), "b")
    replica.failed(ConnectError("down"))
    assert replica.choose(route({0: "m:1"}), "b") == "m:1"


def test_a_slave_that_points_to_a_master_in_the_route_costs_no_pause() -> None:
    replica, _clock = choice()
    replica.choose(route(BOTH), "b")
    replica.answered(1)
    assert replica.choose(route(BOTH), "b") == "s:1"
    assert replica.nothing_new(route(BOTH), "b", 0) == 0
    assert replica.choose(route(BOTH), "b") == "m:1"


def test_a_slave_that_points_to_a_master_that_is_not_there_is_not_asked_in_a_tight_loop() -> None:
    replica, _clock = choice()
    pauses = []
    for _ in range(8):
        assert replica.choose(route({1: "s:1"}), "b") == "s:1"
        pauses.append(replica.nothing_new(route({1: "s:1"}), "b", 0))
    assert pauses[0] == PAUSE_S_FIRST
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_S_MAX
    replica.answered(0)
    replica.choose(route({1: "s:1"}), "b")
    assert replica.nothing_new(route({1: "s:1"}), "b", 0) == PAUSE_S_FIRST


def test_replicas_that_point_to_one_another_are_not_asked_in_a_tight_loop() -> None:
    replica, _clock = choice()
    pauses = []
    for number in range(4):
        replica.choose(route(BOTH), "b")
        pauses.append(replica.nothing_new(route(BOTH), "b", 1 - number % 2))
    assert pauses[0] == 0
    assert all(pause > 0 for pause in pauses[1:])


def test_an_answer_that_was_waited_for_costs_no_pause() -> None:
    replica, clock = choice()
    for _ in range(3):
        replica.choose(route({0: "m:1"}), "b")
        clock.advance(2 * PAUSE_S_FIRST)
        assert replica.nothing_new(route({0: "m:1"}), "b", 0) == 0
