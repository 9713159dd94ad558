"""async_flush_log.py: with ASYNC_FLUSH what is written counts, and nothing else of the log changes."""

from pathlib import Path

from broker.raft_group.async_flush_log import WrittenLog
from tests.parts.entry_tools import lead, open_node


def test_what_is_written_is_acknowledged_and_synced_later(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    told: list[int] = []
    log = WrittenLog(node.log, told.append)
    lead(node, 3)
    assert log.durable == node.log.last.index == 4
    assert node.log.durable == 0
    log.sync_soon()
    assert told == [node.log.last.end]
    assert log.settle(told[0]) == 4
    assert node.log.durable == 0, "that something is written is not taken for synced where it matters"
    node.sync()
    assert (log.durable, node.log.durable) == (4, 4)
    node.store.close()


def test_everything_else_is_the_logs(tmp_path: Path) -> None:
    node = open_node(tmp_path)
    log = WrittenLog(node.log, lambda _position: None)
    lead(node, 3)
    assert (log.last, log.base, log.floor) == (node.log.last, node.log.base, node.log.floor)
    log.cut(2)
    assert (log.durable, node.log.last.index) == (2, 2)
    node.store.close()
