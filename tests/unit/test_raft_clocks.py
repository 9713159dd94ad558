"""Clocks that disagree, in groups in one process: who leads, what is stamped, how it comes right again (R17)."""

import pytest

from raft.core.clocks import ALONE_SECONDS, TELL_SECONDS, Clocks
from raft.protocol import hello as hellos
from raft.protocol.config import GroupConfig, Member
from raft.protocol.hello import CLOCK_APART_MS_MAX, Hello
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import Role
from runtime.clock import ManualClock, SteadyClock
from tests.parts.raft_hellos import GROUP_ID, hello, store_id
from tests.parts.raft_memory_log import Group

HOURS_80 = 80 * 3600 * 1000
VOTERS = GroupConfig(GROUP_ID, tuple(Member(f"n{n}", f"10.0.0.{n}:40911", store_id(n), voter=True) for n in range(3)))


def clocks(clock: ManualClock) -> Clocks:
    """Those of n0, which has just met n1 and n2."""
    made = Clocks(SteadyClock(clock), "n0")
    for number in (1, 2):
        made.met(f"n{number}", hello(number, clock_ms=clock.now_ms()))
    made.look(VOTERS, now=True)
    return made


# -- one clock that does not follow a jump


@pytest.mark.parametrize("jump_ms", [HOURS_80, -HOURS_80])
def test_R17_a_clock_that_jumps_is_not_followed_before_that_is_confirmed(jump_ms: int) -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    before = steady.now_ms()
    clock.set_wall(clock.now_ms() + jump_ms)
    clock.advance(2.5)
    assert (steady.now_ms(), steady.jumped_ms()) == (before + 2500, jump_ms)
    steady.confirm()
    assert (steady.now_ms(), steady.jumped_ms()) == (clock.now_ms(), 0)


def test_R17_small_corrections_are_followed_and_do_not_add_up() -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    clock.set_wall(clock.now_ms() + 800)
    assert steady.now_ms() == clock.now_ms()
    before = clock.now_ms()
    clock.set_wall(before + 800)
    assert steady.now_ms() == before - 800, "two corrections of 0.8 s are a step of 1.6 s"


def test_R17_a_step_within_the_bound_is_no_jump_and_waits_for_the_next_look() -> None:
    clock = ManualClock()
    known = clocks(clock)
    right = clock.now_ms()
    clock.set_wall(right + 20_000)
    assert (known.steady.now_ms(), known.steady.jumped_ms()) == (right, 0)
    known.look(VOTERS, now=True)
    assert (known.apart, known.steady.now_ms()) == ("", right + 20_000)


def test_R17_two_steps_that_are_each_within_the_bound_stamp_nothing_beyond_it() -> None:
    """The first one was agreed with; from there the second is no jump, and far from everybody's all the same."""
    clock = ManualClock()
    known = clocks(clock)
    right = clock.now_ms()
    clock.set_wall(right + 20_000)
    known.look(VOTERS, now=True)
    clock.set_wall(right + 45_000)
    assert known.steady.now_ms() == right + 20_000
    known.look(VOTERS, now=True)
    assert known.apart
    assert known.steady.now_ms() == right + 20_000


# -- what is known of others


def test_R17_what_waited_in_a_socket_is_vague_and_not_wrong() -> None:
    clock = ManualClock()
    known = clocks(clock)
    clock.advance(600)
    said = clock.now_ms()
    clock.advance(100)
    known.note("n1", said, 100.0)
    ahead = known.ahead_ms("n1")
    assert ahead is not None
    assert ahead[0] <= 0 <= ahead[1]
    assert not known.is_odd("n1")
    assert not known.agrees("n1"), "it may be 100 s off"
    known.note("n1", clock.now_ms(), 0.002)
    assert known.agrees("n1")


def test_R17_an_append_tells_only_how_far_its_sender_is_at_least() -> None:
    clock = ManualClock()
    known = clocks(clock)
    known.note("n1", clock.now_ms() - HOURS_80, None)
    assert known.agrees("n1"), "it may have been on its way for so long"
    known.note("n1", clock.now_ms() + HOURS_80, None)
    assert known.is_odd("n1")


def test_R17_a_peer_is_told_now_and_then_and_at_once_when_it_comes_back() -> None:
    clock = ManualClock()
    known = clocks(clock)
    assert known.tell("n1") == clock.now_ms()
    assert known.tell("n2") == clock.now_ms(), "each for itself"
    clock.advance(TELL_SECONDS / 2)
    assert known.tell("n1") is None
    clock.advance(TELL_SECONDS)
    clock.set_wall(clock.now_ms() + HOURS_80)
    assert known.tell("n1") == clock.now_ms(), "the clock itself, not what is held against it"
    known.left("n1")
    known.met("n1", hello(1, clock_ms=clock.now_ms()))
    assert known.tell("n1") == clock.now_ms()


def test_R17_what_was_long_not_heard_says_nothing_any_more() -> None:
    clock = ManualClock()
    known = clocks(clock)
    assert known.agrees("n1")
    clock.advance(3600)
    assert not known.agrees("n1")
    assert not known.is_odd("n1")


def test_R15_a_member_without_the_feature_is_compared_when_it_is_linked_and_that_holds() -> None:
    clock = ManualClock()
    known = clocks(clock)
    old = hello(1, clock_ms=clock.now_ms(), features=())
    known.left("n1")
    known.met("n1", old)
    assert known.tell("n1") is None
    assert known.ask({"n1", "n2"}) == [("n2", 1)]
    clock.advance(24 * 3600)
    known.look(VOTERS, now=True)
    assert known.agrees("n1")
    assert known.sure, "a rolling upgrade must not keep a log from being cleaned"


def test_R8_how_long_ago_a_peers_clock_showed_that() -> None:
    clock = ManualClock()
    known = clocks(clock)
    # The peer's clock is 20 s ahead of ours.
    known.left("n1")
    known.note("n1", clock.now_ms() + 20_000, 0.0)
    shown = clock.now_ms() + 20_000
    clock.advance(10)
    least, most = known.since_s("n1", shown)
    assert 9 <= least <= 10 <= most <= 11
    nothing = (0.0, float("inf"))
    assert known.since_s("n1", shown + 60_000) == nothing, "it has not shown that yet"
    assert known.since_s("n1", shown - HOURS_80) == nothing, "nothing is on its way for so long: that clock was set"
    assert known.since_s("n7", shown) == nothing


@pytest.mark.parametrize("number", [1, 3])
def test_an_answer_to_another_question_says_nothing(number: int) -> None:
    clock = ManualClock()
    known = clocks(clock)
    known.ask({"n1"})
    clock.advance(2)
    known.ask({"n1"})
    known.answered("n1", number, clock.now_ms() + HOURS_80)
    assert not known.is_odd("n1")
    known.answered("n1", 2, clock.now_ms() + HOURS_80)
    assert known.is_odd("n1")


@pytest.mark.parametrize(
    ("others_ms", "apart"),
    [
        ((0, 0), ""),
        ((CLOCK_APART_MS_MAX - 2000, -CLOCK_APART_MS_MAX), ""),
        ((60_000, 0), ""),
        ((60_000, 60_000), "60.0 s behind those of n1, n2"),
        ((-60_000, 60_000), "ahead of those of n1, n2"),
    ],
)
def test_R17_a_majority_decides_whose_clock_is_wrong(others_ms: tuple[int, int], apart: str) -> None:
    clock = ManualClock()
    known = clocks(clock)
    for number, ahead in enumerate(others_ms, 1):
        known.note(f"n{number}", clock.now_ms() + ahead, 0.0)
    known.look(VOTERS, now=True)
    assert apart in known.apart if apart else not known.apart


@pytest.mark.parametrize("ahead_ms", [45_000, HOURS_80])
def test_R17_two_clocks_that_are_wrong_one_after_the_other_are_no_majority(ahead_ms: int) -> None:
    clock = ManualClock()
    known = clocks(clock)
    right = clock.now_ms()
    known.note("n1", right + ahead_ms, 0.0)
    # n1 is set right, which nobody has heard of yet, and this one is set wrong.
    clock.advance(0.01)
    clock.set_wall(clock.now_ms() + ahead_ms)
    known.look(VOTERS, now=True)
    assert known.apart
    assert known.steady.now_ms() == right + 10
    assert [peer for peer, _ in known.ask({"n1", "n2"})] == ["n1", "n2"], "the others are asked at once"
    clock.advance(0.01)
    for peer in ("n1", "n2"):
        known.answered(peer, known._asked[peer][0], right + 20)
    known.look(VOTERS, now=True)
    assert known.apart
    # All of them were set, and say so.
    clock.advance(1.0)
    known.ask({"n1", "n2"})
    for peer in ("n1", "n2"):
        known.answered(peer, known._asked[peer][0], clock.now_ms())
    known.look(VOTERS, now=True)
    assert (known.apart, known.steady.now_ms()) == ("", clock.now_ms())


def test_R17_a_group_of_one_goes_on_and_takes_a_jump_over_when_it_has_stood() -> None:
    clock = ManualClock()
    alone = GroupConfig(GROUP_ID, VOTERS.members[:1])
    known = Clocks(SteadyClock(clock), "n0")
    known.look(alone, now=True)
    assert known.agreed(alone)
    right = clock.now_ms()
    clock.set_wall(right + HOURS_80)
    assert not known.agreed(alone), "retention waits"
    assert known.apart == "", "nobody else could lead"
    clock.advance(ALONE_SECONDS - 1)
    known.look(alone, now=True)
    assert known.steady.now_ms() == right + (ALONE_SECONDS - 1) * 1000
    clock.advance(1)
    assert known.agreed(alone)
    assert known.steady.now_ms() == clock.now_ms()


# -- whole groups


@pytest.mark.parametrize("jump_ms", [HOURS_80, -HOURS_80])
def test_R17_a_leader_whose_clock_is_set_hands_over_and_comes_back_when_it_is_right(jump_ms: int) -> None:
    group = Group()
    leader = group.elect("n0")
    group.run(1)
    term, before = leader.node.term, leader.node.steady.now_ms()
    leader.clock.ahead_ms = jump_ms
    assert abs(leader.node.steady.now_ms() - before) < 1000, "not one stamp of the wrong time"
    group.run(2)
    assert leader.node.role is Role.FOLLOWER
    found = group.leader
    assert found is not None
    assert found.node.term == term + 1, "it handed over: nobody had to wait for an election"
    assert group.kinds(MessageKind.TIMEOUT_NOW)
    said = leader.node.status()["clock"]
    assert "R17" in said["apart"]
    assert said["jumped_ms"] == jump_ms
    assert not leader.node.clocks.agreed(leader.node.config)
    assert found.node.clocks.agreed(found.node.config)
    leader.clock.ahead_ms = 0
    group.run(2)
    assert leader.node.clocks.apart == ""
    assert leader.node.clocks.agreed(leader.node.config)
    assert found.node.transfer("n0") is None
    group.run(2, lambda: leader.node.serving)
    assert leader.node.serving


def test_R17_a_follower_whose_clock_is_set_does_not_stand_nor_is_it_handed_the_lead() -> None:
    group = Group()
    leader = group.elect("n0")
    group["n2"].clock.ahead_ms = HOURS_80
    group.run(2.5)
    assert group["n2"].node.clocks.apart
    assert leader.node.clocks.apart == ""
    assert leader.node.transfer("n2") is not None
    group.kill("n0")
    group.run(3)
    assert group["n1"].node.serving
    assert group["n2"].node.role is Role.FOLLOWER


def test_R17_nobody_leads_while_no_majority_agrees_and_somebody_does_when_one_does() -> None:
    group = Group()
    group.elect("n0")
    for number, name in enumerate(group.names):
        group[name].clock.ahead_ms = number * HOURS_80
    group.run(5)
    assert group.leader is None
    group["n2"].clock.ahead_ms = HOURS_80
    group.run(5)
    assert group.leader is not None
    assert group.leader.name in {"n1", "n2"}


def test_R17_machines_whose_monotonic_clock_slept_go_on_by_one_another() -> None:
    """A machine that is suspended with its host finds its clock set when it goes on; here all three of them do."""
    group = Group()
    group.elect("n0")
    group.run(1)
    for machine in group.machines.values():
        machine.clock.ahead_ms = 3_600_000
    group.run(5)
    leader = group.leader
    assert leader is not None
    assert all(machine.node.clocks.apart == "" for machine in group.machines.values())
    assert leader.node.steady.now_ms() == leader.clock.now_ms()


def test_R17_a_leader_that_nobody_can_follow_stops_all_the_same() -> None:
    """The others are too far behind to be handed the lead in time."""
    group = Group()
    leader = group.elect("n0")
    group.run(1)
    group.drop = lambda _source, target, message: target != "n0" and message.kind is MessageKind.TIMEOUT_NOW
    leader.clock.ahead_ms = HOURS_80
    group.run(5)
    assert leader.node.role is Role.FOLLOWER
    assert group.leader is not None


def test_R17_an_older_program_is_told_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group in which nobody names the feature, not one message is other than before."""
    monkeypatch.setattr(hellos, "FEATURES", ())
    original = Hello.encode
    monkeypatch.setattr(Hello, "encode", lambda self: original(self._replace(features=())))
    group = Group(link=False)
    for one in group.names:
        for other in group.names:
            if one != other:
                group[one].node.connected(other, group[other].hello()._replace(features=()))
    leader = group.elect()
    group.propose(leader.name)
    group.run(3)
    assert leader.node.serving
    told: list[RaftMessage] = [message for _, _, message in group.seen]
    assert not [message for message in told if message.kind in {MessageKind.CLOCK, MessageKind.CLOCK_REPLY}]
    assert not [message for message in told if "clock" in message.fields]
