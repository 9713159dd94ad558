"""R16: stores of single brokers, or of a pair, that are started as members of a group."""

from raft.protocol.types import Mark, Role
from tests.parts.raft_memory_log import Group, MemoryLog

MASTER, SLAVE = Mark(0, 0, 4096, 77), Mark(0, 0, 2048, 5)


def test_R16_of_two_stores_with_messages_none_begins_however_long_its_log_is() -> None:
    group = Group(logs={"n0": MemoryLog(SLAVE), "n1": MemoryLog(MASTER)})
    group.run(3)
    for member in ("n0", "n1", "n2"):
        assert group[member].node.role is Role.FOLLOWER
        assert group[member].node.config is None
        assert group[member].log.rows == []
        assert group[member].resets == [], "nobody is wiped for it"


def test_R16_the_live_masters_log_counts_and_the_slaves_is_neither_believed_nor_wiped() -> None:
    group = Group(logs={"n0": MemoryLog(SLAVE), "n1": MemoryLog(MASTER)})
    group.cut("n0")
    # The slave is down while the master begins: as the one voter, on its own bytes.
    group.run(3)
    leader = group["n1"].node
    assert leader.config is None, "dLegerPeers names the slave too: it must be known to be empty"
    group = Group(1, logs={"n0": MemoryLog(MASTER)})
    master = group.elect()
    assert master.node.config is not None
    assert (master.node.config.base_position, master.node.config.base_digest) == (4096, 77)
    slave = group.add("n3", MemoryLog(SLAVE))
    group.run(2)
    assert group.propose("n0") is None
    group.run(1)
    assert slave.log.rows == []
    assert slave.node.config is None
    assert slave.resets == []
    assert master.node.serving
