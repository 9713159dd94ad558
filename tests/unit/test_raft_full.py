"""Nodes whose log has no room: none ends, nobody is asked for more than it can take, nobody leads who cannot."""

from raft.protocol.messages import MessageKind
from raft.protocol.types import Fate, Refusal, Role
from tests.parts.raft_memory_log import Group


def test_a_leader_without_room_refuses_and_keeps_the_lead() -> None:
    group = Group()
    leader = group.elect()
    term = leader.node.term
    leader.log.full = True
    assert leader.node.propose_meta(b"lost", group.fates.append) is Refusal.LOG_REFUSES
    group.run(5)
    assert (leader.node.role, leader.node.term) == (Role.LEADER, term)
    assert leader.node.has_lease()
    assert leader.node.status()["full"]
    leader.log.full = False
    assert leader.node.propose_meta(b"kept", group.fates.append) is None
    group.run(1)
    assert group.fates == [Fate.COMMITTED]


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
