"""Planted bugs about what a start does when something is gone from the disk: beside those of planted.py."""

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from store.config import StoreConfig
from store.log.checkpointer import Keeper
from store.messagestore import MessageStore
from store.raftlog import entryrepair, givenentries
from store.raftlog.entrycheck import Checked
from store.raftlog.givenentries import GivenEntries
from store.recovery import opening
from store.recovery.opening import _Mending
from store.recovery.raft_recovery import GroupRecovery
from tests.simulation.member import Member, Parts


def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


class rebuild_taken_for_complete(Parts):  # noqa: N801  # named like the other bugs
    """A start that has queues to build again leaves the checkpoint as it is, and what it counts is not looked at."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        with patch.object(_Mending, "_lower", _nothing), patch.object(_Mending, "_holds", lambda *_: True):
            return super().open_store(config, member)


class first_file_taken_for_retention(Parts):  # noqa: N801  # named like the other bugs
    """Whatever file is the oldest, the log is taken to begin with it."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        with patch.object(opening, "_check_oldest", _nothing), patch.object(GroupRecovery, "_begin_at_base", _nothing):
            return super().open_store(config, member)


class forget_the_hole(Parts):  # noqa: N801  # named like the other bugs
    """A hole is known to the process that finds it, and to no other."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        with ExitStack() as planted:
            planted.enter_context(patch.object(_Mending, "_lower", _nothing))
            planted.enter_context(patch.object(_Mending, "_holds", lambda *_: True))
            planted.enter_context(patch.object(Keeper, "hold", _nothing))
            return super().open_store(config, member)


class fill_the_disk_to_the_last_byte(Parts):  # noqa: N801  # named like the other bugs
    """Messages leave no room for what the group itself needs."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        store = super().open_store(config, member)
        assert store.entries is not None, "a member's store has entries"
        store.entries._leaves, store.entries._left_by_messages = {}, 0  # for this process's life
        return store


class _Gullible(GivenEntries):
    """Takes entries that a peer gave by their control records, whatever stands behind those."""

    def next(self, until: int) -> Checked | None:
        with patch.object(givenentries, "check_next", lambda control, data, *_: Checked(control, data)):
            return super().next(until)


class take_slices_unchecked(Parts):  # noqa: N801  # named like the other bugs
    """What a peer gives for a hole is not held against CRC and chain."""

    def open_store(self, config: StoreConfig, member: Member) -> MessageStore:
        with patch.object(entryrepair, "GivenEntries", _Gullible):
            return super().open_store(config, member)
