"""Nodes whose log has no room: none ends, nobody is asked for more than it can take, nobody leads who cannot."""

from raft.core.room import HEARD_SECONDS, SEEK_SECONDS
from raft.protocol.hello import NO_ROOM, Hello, judge
from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import EntryType, Fate, Refusal, Role
from tests.parts.raft_memory_log import Group, Machine


def others_of(group: Group, one: Machine) -> tuple[Machine, Machine]:
    """The two that this one is not, in the order of their names."""
    first, second = (machine for machine in group.machines.values() if machine is not one)
    return first, second


def test_a_leader_without_any_room_refuses_and_a_member_that_has_some_takes_over() -> None:
    group = Group()
    leader = group.elect()
    leader.log.full = True
    assert leader.node.propose_meta(b"lost", group.fates.append) is Refusal.LOG_REFUSES
    waited = group.run(10, lambda: group.leader not in {None, leader})
    assert SEEK_SECONDS <= waited < 3, waited
    assert leader.node.status()["full"]
    taking = group.leader
    assert taking is not None
    assert taking.node.propose_meta(b"kept", group.fates.append) is None
    group.run(1)
    assert group.fates == [Fate.COMMITTED]
    leader.log.full = False
    group.run(1)
    assert leader.log.last == taking.log.last


def test_a_leader_without_room_hands_over_to_a_member_that_has_some() -> None:
    group = Group()
    leader = group.elect()
    full, roomy = others_of(group, leader)
    group.run(1)
    term = leader.node.term
    full.log.lacking = True
    group.run(1)
    leader.log.lacking = True
    waited = group.run(10, lambda: roomy.node.serving)
    assert SEEK_SECONDS <= waited < 3, waited
    assert leader.node.term == roomy.node.term == term + 1, "it was told to stand, so nobody else did"
    assert roomy.node.status()["last_election"]["why"] == "elected"
    assert not roomy.node.status()["peers"][leader.name]["room"]
    # And the lead stays there, though two of three are full.
    term = roomy.node.term
    group.run(10)
    assert (roomy.node.serving, roomy.node.term) == (True, term)
    leader.log.lacking = full.log.lacking = False
    assert roomy.node.propose_meta(b"kept", group.fates.append) is None
    group.run(3)
    assert group.fates == [Fate.COMMITTED]
    assert all(peer["room"] for peer in roomy.node.status()["peers"].values())
    assert (roomy.node.serving, roomy.node.term) == (True, term)


def test_a_disk_that_is_full_for_less_than_a_second_moves_nothing() -> None:
    group = Group()
    leader = group.elect()
    term = leader.node.term
    for _ in range(3):
        leader.log.lacking = True
        group.run(SEEK_SECONDS * 0.7)
        leader.log.lacking = False
        group.run(0.5)
    group.run(3)
    assert (leader.node.serving, leader.node.term) == (True, term)


def test_a_leader_whose_group_has_no_room_at_all_keeps_the_lead_until_somebody_has() -> None:
    group = Group()
    leader = group.elect()
    term = leader.node.term
    first, second = others_of(group, leader)
    first.log.lacking = second.log.lacking = True
    # They say so before it looks for anybody.
    group.run(2)
    leader.log.lacking = True
    group.run(10)
    assert (leader.node.role, leader.node.term) == (Role.LEADER, term)
    assert leader.node.has_lease()
    assert leader.node.status()["refused"]
    second.log.lacking = False
    group.run(5, lambda: second.node.serving)
    assert second.node.serving


def test_members_without_room_do_not_stand_while_another_one_has_some() -> None:
    group = Group(seed=11)
    leader = group.elect("n0")
    full, roomy = group["n1"], group["n2"]
    for _ in range(6):
        full.log.lacking = True
        group.run(2)
        group.kill(leader.name)
        roles = len(full.roles)
        group.run(10, lambda: roomy.node.serving)
        assert roomy.node.serving
        assert not [role for role, _ in full.roles[roles:] if role is not Role.FOLLOWER], "it did not even stand"
        full.log.lacking = False
        # All begin again, n0 leading.
        group.heal()
        leader.restart()
        group.link([leader.name])
        group.run(3)
        assert group.elect("n0") is leader


def test_who_has_no_room_stands_at_once_when_nobody_has_any() -> None:
    group = Group()
    leader = group.elect()
    first, second = others_of(group, leader)
    first.log.lacking = second.log.lacking = True
    group.run(2)
    group.kill(leader.name)
    waited = group.run(10, lambda: first.node.serving or second.node.serving)
    assert waited < 3, "a group without room has a leader"


def test_who_has_no_room_leads_until_the_one_that_has_some_has_caught_up() -> None:
    group = Group()
    leader = group.elect("n0")
    full, behind = group["n1"], group["n2"]
    group.run(1)
    group.cut_links |= {("n0", "n2"), ("n2", "n0"), ("n1", "n2"), ("n2", "n1")}
    for number in range(5):
        assert leader.node.propose_meta(b"%d" % number, group.fates.append) is None
        group.run(0.2)
    assert group.fates == [Fate.COMMITTED] * 5
    # Only who is full has what was acknowledged: the other one gets no vote, and the full one must not wait for it.
    full.log.lacking = True
    group.kill("n0")
    group.cut_links -= {("n1", "n2"), ("n2", "n1")}
    group.link(["n2"])
    group.run(10, lambda: behind.node.serving)
    assert behind.node.serving, "the one that is full has led, and handed over"
    assert Role.LEADER in {role for role, _ in full.roles}
    assert [bytes(row[0].data)[1:] for row in behind.log.rows if row[1] is EntryType.META] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_a_named_member_without_room_is_not_handed_the_lead_unless_nobody_has_any() -> None:
    group = Group(preferred_leader="n1", preferred_check_ms=100)
    group.run(5, lambda: group["n1"].node.serving)
    group["n1"].log.lacking = True
    group.run(3, lambda: group.leader not in {None, group["n1"]})
    leader = group.leader
    assert leader is not None
    term = leader.node.term
    for _ in range(10):
        assert leader.node.transfer("n1") is Refusal.BUSY
        group.run(0.5)
    assert (leader.node.serving, leader.node.term) == (True, term), "the preferred one is not handed it either"
    group["n1"].log.lacking = False
    group.run(5, lambda: group["n1"].node.serving)
    assert group["n1"].node.serving
    for machine in group.machines.values():
        machine.log.lacking = True
    group.run(2)
    term = group["n1"].node.term
    assert group["n1"].node.transfer(None) is None
    group.run(2)
    # To be handed it back at once, as the preferred one.
    assert group["n1"].node.term == term + 2


def test_who_stops_hands_over_to_a_full_member_rather_than_to_one_that_is_far_behind() -> None:
    group = Group(catch_up_entries=1)
    leader = group.elect("n0")
    group["n1"].log.lacking = True
    group.run(2)
    group.cut_links |= {("n0", "n2"), ("n2", "n0")}
    for _ in range(5):
        assert leader.node.propose_meta(b"x", group.fates.append) is None
    group.run(0.2)
    assert leader.node.transfer() is None
    assert leader.node.status()["transferring_to"] == "n1"
    assert group.fates == [Fate.COMMITTED] * 5


def test_a_leader_of_full_members_says_that_nothing_would_be_committed() -> None:
    group = Group(5)
    leader = group.elect()
    others = [machine for machine in group.machines.values() if machine is not leader]
    assert leader.node.starved() is None
    for machine in others[:2]:
        machine.log.lacking = True
    group.run(2)
    assert leader.node.starved() is None, "three of five have room"
    others[2].log.lacking = True
    group.run(2)
    assert f"{others[2].name} have none" in (leader.node.starved() or "")
    assert leader.node.serving
    others[0].log.lacking = False
    group.run(2)
    assert leader.node.starved() is None


def test_members_of_older_programs_say_nothing_and_have_room() -> None:
    group = Group()
    leader = group.elect()
    silent, roomy = others_of(group, leader)
    old = silent.hello

    def as_before(message: RaftMessage) -> bool:
        return message.kind is MessageKind.HELLO and NO_ROOM in Hello.decode(message.fields["hello"]).features

    group.drop = lambda source, _, message: source == silent.name and as_before(message)
    silent.log.lacking = True
    group.run(2)
    assert leader.node.status()["peers"][silent.name]["room"]
    assert NO_ROOM not in old().features
    # What an older member makes of the word is nothing at all.
    marked = old()._replace(features=(*old().features, NO_ROOM))
    assert judge(roomy.hello(), marked, None) is None
    assert Hello.decode(marked.encode()) == marked


def test_what_was_said_of_room_ends_when_it_is_not_said_again() -> None:
    group = Group()
    leader = group.elect()
    full, _ = others_of(group, leader)
    full.log.lacking = True
    group.run(2)
    assert not leader.node.status()["peers"][full.name]["room"]
    # The news that it has room again is lost.
    group.drop = lambda source, _, message: source == full.name and message.kind is MessageKind.HELLO
    full.log.lacking = False
    group.run(1)
    assert not leader.node.status()["peers"][full.name]["room"]
    group.run(HEARD_SECONDS)
    assert leader.node.status()["peers"][full.name]["room"]


def test_a_follower_without_room_is_heard_of_and_sent_nothing_until_it_has_some() -> None:
    group = Group()
    leader = group.elect()
    full, _ = (machine for machine in group.machines.values() if machine is not leader)
    group.run(1)
    before = full.log.last.index
    full.log.full = True
    group.seen.clear()
    for number in range(20):
        assert leader.node.propose_meta(b"%d" % number, group.fates.append) is None
        group.run(0.5)
    assert group.fates == [Fate.COMMITTED] * 20
    assert full.fatal is None
    assert full.log.last.index == before
    assert all(
        said.fields["durable"] <= before
        for source, _, said in group.kinds(MessageKind.APPEND_REPLY)
        if source == full.name
    )
    carried = [said for _, to, said in group.kinds(MessageKind.APPEND) if to == full.name and said.fields["entries"]]
    assert len(carried) <= 2, "what it cannot take is not sent again and again"
    assert leader.node.status()["peers"][full.name]["last_ack_ms"] < 1000, "it is there all the same"
    full.log.full = False
    group.run(1)
    assert full.log.last == leader.log.last
    assert full.node.commit_index == leader.node.commit_index


def test_what_a_follower_without_room_has_is_committed_there() -> None:
    group = Group()
    leader = group.elect()
    full = next(machine for machine in group.machines.values() if machine is not leader)
    group.run(1)
    # It has the entry, and not the news that the others have it too.
    group.drop = lambda _, to, said: to == full.name and said.kind is MessageKind.APPEND and not said.fields["entries"]
    assert leader.node.propose_meta(b"last", group.fates.append) is None
    group.settle()
    group.drop = lambda *_: False
    assert full.log.last == leader.log.last
    full.log.full = True
    group.run(1)
    assert full.node.commit_index == leader.log.last.index


def test_who_has_no_room_for_its_no_op_has_not_led() -> None:
    group = Group()
    leader = group.elect()
    group.run(1)
    one, other = (machine for machine in group.machines.values() if machine is not leader)
    group.kill(leader.name)

    class Late:
        """There is room until the no-op is to be written."""

        def __init__(self) -> None:
            self.tried = 0

    late = Late()
    for machine in (one, other):
        append = machine.log.append

        def refusing(*arguments: object, log: object = machine.log, append: object = append) -> int:
            late.tried += 1
            log.full = True  # type: ignore[attr-defined]
            return append(*arguments)  # type: ignore[operator, no-any-return]

        machine.log.append = refusing  # type: ignore[method-assign, assignment]
    group.run(10)
    assert late.tried
    assert one.fatal is other.fatal is None
    assert not one.node.serving
    assert not other.node.serving
    assert Role.LEADER not in {one.node.role, other.node.role}
    for machine in (one, other):
        del machine.log.append
        machine.log.full = False
    group.run(5)
    assert one.node.serving or other.node.serving
