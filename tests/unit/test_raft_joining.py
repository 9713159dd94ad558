"""The bootstrapper: a person says which of several logs begins the group, and the others come with theirs (R16)."""

import pytest

from raft.protocol.messages import MessageKind, RaftMessage
from raft.protocol.types import Fate, Mark
from tests.parts.raft_memory_log import Group, Machine, MemoryLog

BASE = Mark(0, 0, 5000, 77)
ENDED = Mark(40, 3, 5000, 77)
"""What is left of a group that has ended, with messages behind it."""


def founded(size: int, **others: Mark) -> tuple[Group, Machine]:
    """A group of n0 alone on BASE, and brokers that hold what `others` say, linked, told nothing yet."""
    bases = {"n0": BASE} | others
    group = Group(size, logs={name: MemoryLog(base) for name, base in bases.items()}, link=False)
    group["n0"].told(founds=True)
    group.link()
    assert group.elect().name == "n0"
    config = group["n0"].node.config
    assert config is not None
    assert [member.id for member in config.members] == ["n0"]
    assert config.base == (bases["n0"].index, bases["n0"].end, bases["n0"].chain)
    return group, group["n0"]


def group_id(machine: Machine) -> bytes:
    config = machine.node.config
    assert config is not None
    return config.group_id


def comes(group: Group, name: str) -> None:
    """Start a broker again that was told to come to n0's group, and have n0 add it."""
    group[name].told(joins=group_id(group["n0"]))
    group.link([name])
    group.run(0.5)
    assert group["n0"].node.add_learner(group.member(name), group.fates.append) is None
    group.run(2)


@pytest.mark.parametrize("base", [BASE, ENDED])
def test_R16_a_member_whose_store_is_the_base_joins_as_a_learner_without_copying(base: Mark) -> None:
    group, leader = founded(3, n0=base, n1=base, n2=base)
    group.propose("n0")
    group.run(0.1)
    for name in ("n1", "n2"):
        comes(group, name)
    assert leader.node.config is not None
    assert leader.node.config.voters == ("n0", "n1", "n2")
    assert group.logs_equal()
    assert [machine.resets for machine in group.machines.values()] == [[], [], []]
    assert {machine.log.base for machine in group.machines.values()} == {base}
    assert leader.log.rows[0][0].index == base.index + 1
    group.kill("n0")
    group.run(5, lambda: group["n1"].node.serving or group["n2"].node.serving)
    assert group.leader is not None
    assert group.propose(group.leader.name) is None
    group.run(0.1)
    assert group.fates[-1] is Fate.COMMITTED


@pytest.mark.parametrize(
    "other",
    [
        BASE._replace(chain=78),
        BASE._replace(end=4900),
        BASE._replace(end=5100),
        ENDED,
    ],
)
def test_R16_one_that_holds_anything_else_is_copied_and_counts_for_nothing_until_then(other: Mark) -> None:
    group, leader = founded(2, n1=other)
    comes(group, "n1")
    assert set(group["n1"].resets) == {"n0"}
    assert group["n1"].log.rows == []
    assert leader.node.config is not None
    assert leader.node.config.learners == ("n1",)
    assert not [sent for sent in group.kinds(MessageKind.APPEND_REPLY) if sent[0] == "n1" and sent[2].fields["ok"]]


def test_R1_one_that_nobody_told_to_come_takes_nothing_even_when_it_was_added() -> None:
    group, leader = founded(2, n1=BASE)
    assert leader.node.add_learner(group.member("n1"), group.fates.append) is None
    group.run(3)
    assert group["n1"].log.rows == []
    assert group["n1"].resets == []
    assert not group.kinds(MessageKind.ADOPT)
    assert not group.kinds(MessageKind.APPEND_REPLY)


def test_R16_nothing_is_given_to_one_that_was_not_added() -> None:
    group, _ = founded(2, n1=BASE)
    group["n1"].told(joins=group_id(group["n0"]))
    group.link(["n1"])
    group.run(3)
    assert group["n1"].log.rows == []
    assert not group.kinds(MessageKind.ADOPT)


def test_R16_one_that_was_told_to_come_to_another_group_waits() -> None:
    group, leader = founded(2, n1=BASE)
    group["n1"].told(joins=b"another group id"[:16])
    group.link(["n1"])
    assert leader.node.add_learner(group.member("n1"), group.fates.append) is None
    group.run(3)
    assert group["n1"].log.rows == []
    assert group["n1"].resets == []


def test_R16_the_first_entry_is_not_taken_on_a_peers_word_alone() -> None:
    """The digest of what is here is compared once more, whoever offers the entry."""
    group, leader = founded(2, n1=BASE._replace(chain=78))
    group["n1"].told(joins=group_id(leader))
    entry = leader.log.rows[0][0]
    row = [entry.index, entry.term, entry.position, len(entry.data)]
    offer = RaftMessage(MessageKind.ADOPT, {"group_id": group_id(leader), "entries": [row]}, (entry.data,))
    group["n1"].node.connected("n0", leader.hello())
    group["n1"].node.receive("n0", offer)
    assert group["n1"].log.rows == []
    assert group["n1"].log.cuts == [0]


def test_R16_a_joiner_that_is_killed_before_the_first_entry_is_on_its_disk_comes_again() -> None:
    group, leader = founded(2, n1=BASE)
    group["n1"].auto_sync = False
    comes(group, "n1")
    assert group["n1"].log.rows
    group["n1"].log.power_loss()
    assert group["n1"].log.rows == []
    group["n1"].auto_sync = True
    group["n1"].restart()
    group.link(["n1"])
    group.run(2)
    assert leader.node.config is not None
    assert leader.node.config.voters == ("n0", "n1")
    assert group.logs_equal()


def test_R16_a_founder_that_is_killed_before_entry_1_is_on_disk_founds_again() -> None:
    group = Group(2, logs={"n0": MemoryLog(BASE), "n1": MemoryLog(BASE)}, link=False)
    group["n0"].auto_sync = False
    group["n0"].told(founds=True)
    group.run(1)
    first = group_id(group["n0"])
    assert group["n0"].log.durable == 0
    assert not group["n0"].node.serving
    group["n0"].log.power_loss()
    group["n0"].auto_sync = True
    group["n0"].restart()
    group.link()
    group.elect("n0")
    assert group_id(group["n0"]) != first, "nobody has seen the first one, which was never durable"


def test_R16_R13_a_joiner_that_comes_when_the_first_entry_is_gone_is_copied() -> None:
    group, leader = founded(2, n1=BASE)
    for _ in range(5):
        group.propose("n0")
        group.run(0.05)
    leader.log.forget(3)
    group["n1"].told(joins=group_id(leader))
    group.link(["n1"])
    group.run(1)
    assert set(group["n1"].resets) == {"n0"}
