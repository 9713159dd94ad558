"""broker/raft_group/retention.py: who decides what a group forgets, and what no member may forget yet."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.raft_group.retention import CLOCK_ALONE, GroupRetention, start_events
from raft.protocol.config import GroupConfig
from raft.protocol.config import Member as Listed
from raft.protocol.types import EntryType, Fate, OnFate, Refusal
from runtime.clock import ManualClock
from tests.parts.entry_tools import Node, lead, open_node
from tests.parts.meta_parts import Member
from tests.parts.raft_parts import SetNode
from tests.parts.store_tools import FILE_BYTES

CONFIG = GroupConfig(b"g" * 16, (Listed("n0", "127.0.0.1:40911", b"d" * 16),))


class Metadata:
    """What the files of metadata hold."""

    def __init__(self) -> None:
        self.oldest = 0
        self.restamped = 0

    def oldest_stamp(self) -> int:
        return self.oldest

    def restamp_soon(self) -> None:
        self.restamped += 1


class One(SetNode):
    """A member: its store, its tables, and its retention; what it proposes is committed by `agree`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.config = CONFIG
        self.clock = ManualClock()
        self.node: Node = open_node(folder, clock=self.clock)
        self.tables = Member(folder / "tables", ManualClock(), starts=start_events(lambda: self.retention))
        self.metadata = Metadata()
        self.fates: list[OnFate] = []
        self.refusal: Refusal | None = None
        self.clock_agreed = True
        self.doomed: set[str] = set()
        self.retention: GroupRetention = self.make()
        self.retention.resume()
        self.tables.role.become(3)
        self.tables.settle()

    def make(self) -> GroupRetention:
        return GroupRetention(
            self.node.store,
            self.node.log,
            self,
            self.tables.role,
            self.metadata,
            self.tables.starts,
            lambda topic: topic not in self.doomed,
            file_bytes=FILE_BYTES,
        )

    @property
    def clocks(self) -> "One":
        return self

    def agreed(self, _config: GroupConfig | None) -> bool:
        return self.clock_agreed

    @property
    def config_index(self) -> int:
        return self.node.log.last_config()

    @property
    def applied_index(self) -> int:
        return self.node.log.released

    def propose(self, append: Callable[[int, int], int], on_fate: OnFate) -> Refusal | None:
        if self.refusal is None:
            append(1, self.node.log.commit)
            self.fates.append(on_fate)
        return self.refusal

    def commit(self) -> None:
        """Everything is synced, committed, dispatched, and as old as a file may become."""
        self.node.sync()
        self.node.log.release(self.node.log.last.index)
        for fate in self.fates:
            fate(Fate.COMMITTED)
        self.fates.clear()
        for _ in range(4):
            self.clock.advance(6)
            self.node.store.idle()
            self.steps()
        for path in (self.node.folder / "store" / "commitlog").iterdir():
            os.utime(path, (0, 0))

    def steps(self) -> None:
        while self.node.store.step_helper():
            pass

    def renew_config(self) -> None:
        self.node.log.append(EntryType.CONFIG, 1, CONFIG.encode(), self.node.log.commit)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[One]:
    """A leader with three full files and a new CONFIG at their end; topic U stands in the first alone."""
    made = One(tmp_path)
    made.renew_config()
    made.node.records(b"1", b"2", b"3", topic="U", queue_id=2)
    while made.node.store.written < 3.5 * FILE_BYTES:
        lead(made.node, 1)
        made.node.records(bytes(2000))
    made.renew_config()
    made.commit()
    made.metadata.oldest = made.node.log.last.index
    yield made
    made.node.store.close()


def test_R12_the_leader_proposes_and_everybody_deletes_when_it_is_applied(one: One) -> None:
    store = one.node.store
    assert one.retention.clean(now=True).removed == []
    assert store.min_physical == 0, "nothing is agreed upon"
    assert one.retention.clean(now=True).removed == []
    one.tables.settle()
    assert store.min_physical == one.tables.starts.log_start == 3 * FILE_BYTES
    assert one.tables.starts.first("U", 2) == 3
    assert one.tables.starts.first("T", 0) == store.min_offset("T", 0) > 0
    assert one.tables.starts.first("RMQ_SYS_RAFT", 0) == 0
    one.retention.clean(now=True)
    assert one.tables.settle() == [], "there is nothing more to agree upon"


def test_R17_nothing_is_proposed_by_a_clock_that_no_majority_agrees_with(one: One) -> None:
    one.clock_agreed = False
    report = one.retention.clean(now=True)
    assert (report.removed, report.reason) == ([], CLOCK_ALONE)
    assert one.tables.settle() == [], "nothing is on its way"
    one.clock_agreed = True
    one.retention.clean(now=True)
    one.tables.settle()
    assert one.node.store.min_physical == 3 * FILE_BYTES


def test_R12_it_is_proposed_once_at_a_time_and_again_when_it_was_lost(one: One) -> None:
    one.retention.clean(now=True)
    one.retention.clean(now=True)
    one.tables.turn()
    assert len(one.tables.proposed) == 1
    one.tables.role.become(None)
    one.tables.proposed.clear()
    one.tables.role.become(4)
    one.tables.settle()
    assert one.node.store.min_physical == 0
    one.retention.clean(now=True)
    one.tables.settle()
    assert one.node.store.min_physical == 3 * FILE_BYTES


def test_R12_a_follower_decides_nothing_and_follows_what_was_agreed_upon_as_soon_as_it_can(one: One) -> None:
    store, stamp = one.node.store, one.metadata.oldest
    one.tables.role.become(None)
    one.retention.clean(now=True)
    assert one.tables.proposed == []
    one.metadata.oldest = 1
    one.tables.role.become(5)
    one.tables.settle()
    one.tables.starts.move(2 * FILE_BYTES, {("U", 2): 3})
    one.tables.settle()
    assert store.min_physical == 0, "its files of metadata are older"
    one.tables.role.become(None)
    one.retention.clean()
    assert one.metadata.restamped > 0, "they are to be written, for they keep the log back"
    one.metadata.oldest = stamp
    one.node.log.pin()
    assert one.retention.clean().removed == [], "another member copies"
    one.node.log.unpin()
    assert one.retention.clean().removed == [0, FILE_BYTES]
    assert store.min_physical == 2 * FILE_BYTES


def test_R12_nothing_is_deleted_that_the_tables_or_the_list_of_members_need(one: One) -> None:
    log = one.node.log
    assert one.retention.keep_from() == log.end_position(log.last_config() - 1)
    one.metadata.oldest = 7
    assert one.retention.keep_from() == log.end_position(7)
    one.metadata.oldest = 0
    assert one.retention.keep_from() == 0
    one.metadata.oldest = log.last.index
    one.renew_config()
    assert one.retention.keep_from() == one.node.store.min_physical, "the newest list is not committed"


def test_R12_the_list_of_members_is_written_anew_when_it_keeps_old_files(tmp_path: Path) -> None:
    one = One(tmp_path)
    one.renew_config()
    while one.node.store.written < 2.5 * FILE_BYTES:
        one.node.records(bytes(2000))
    one.commit()
    one.metadata.oldest = one.node.log.last.index
    one.refusal = Refusal.BUSY
    one.retention.clean(now=True)
    one.refusal = None
    one.retention.clean(now=True)
    one.retention.clean(now=True)
    assert one.config_index == one.node.log.last.index > 1
    assert len(one.fates) == 1, "once at a time"
    assert GroupConfig.decode(one.node.log.payload(one.config_index)) == CONFIG
    one.commit()
    one.retention.clean(now=True)
    one.tables.settle()
    assert one.node.store.min_physical == 2 * FILE_BYTES
    one.node.store.close()


def test_R3_queues_that_lost_messages_before_there_was_a_group_are_in_its_first_table(tmp_path: Path) -> None:
    one = One(tmp_path)
    one.node.store.close()
    again = One(tmp_path / "again")
    assert again.node.store.group_cleaner is not None
    again.node.store.group_cleaner.begin_queues({"old": {1: 70}})
    again.tables.role.become(None)
    again.tables.meta.last_meta = 0
    again.tables.role.become(4)
    again.tables.settle()
    assert again.tables.starts.first("old", 1) == 70
    again.node.store.close()


def test_R3_a_queue_begins_where_the_table_says_on_members_that_have_nothing_of_it(one: One) -> None:
    one.tables.starts.move(0, {("V", 0): 12, ("U", 2): 2})
    one.tables.settle()
    store = one.node.store
    assert (store.min_offset("V", 0), store.max_offset("V", 0)) == (12, 12)
    assert store.max_offset("U", 2) == 3, "what it has counts"
    one.node.records(b"next", topic="V")
    one.commit()
    assert (store.min_offset("V", 0), store.max_offset("V", 0)) == (12, 13)


def test_R4_a_queue_whose_messages_wait_in_a_hole_does_not_begin_behind_them(
    one: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was agreed to begin at the second file, which could not go yet, when the first one is lost."""
    store, log = one.node.store, one.node.log
    one.tables.role.become(None)
    one.metadata.oldest = 1
    one.tables.role.become(5)
    one.tables.starts.move(FILE_BYTES, {("W", 0): 7})
    with monkeypatch.context() as damaged:
        damaged.setattr(type(log), "whole", property(lambda _log: False))
        # As a start does it: the table is replayed first.
        one.retention = one.make()
        one.tables.settle()
        one.retention.resume()
        one.tables.role.become(None)
        one.retention.clean()
        assert (store.min_physical, store.max_offset("W", 0)) == (0, 0), "messages 0 to 6 of W may come from the hole"
    one.retention.clean()
    assert (store.min_offset("W", 0), store.max_offset("W", 0)) == (7, 7)


def test_a_topic_that_is_being_deleted_leaves_no_start_behind(one: One) -> None:
    one.doomed.add("U")
    one.retention.clean(now=True)
    one.tables.settle()
    assert one.tables.starts.tables.keys() == {"T"}


def test_R12_a_full_disk_frees_what_it_can_and_then_refuses_messages(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (one.node.folder / "store" / "commitlog").iterdir():
        os.utime(path)
    assert one.retention.clean().removed == []
    one.tables.settle()
    assert one.node.store.min_physical == 0, "no file is old enough"
    monkeypatch.setattr(one.node.store._disk, "used_ratio", lambda _: 0.99)
    assert "before they expire" in one.retention.clean().reason
    one.tables.settle()
    assert one.node.store.min_physical == 3 * FILE_BYTES
    one.retention.clean()
    one.tables.settle()
    assert one.node.store.min_physical == 3 * FILE_BYTES
    assert one.node.store.writable() is not None
    one.renew_config()
    one.commit()
    assert one.node.log.durable == one.node.log.last.index
