"""R3: what a table's file says that it holds is on the log's disk, with flushDiskType=ASYNC_FLUSH too."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from broker.metadata import log_sync as logsync
from broker.metadata.log_sync import LogSync
from broker.metadata.replicated import GroupMeta
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from raft.protocol.types import EntryType, OnFate
from remoting.bodies.registry import TopicConfig
from runtime.clock import ManualClock
from store.config import StoreConfig
from tests.parts.entry_tools import Node, open_node
from tests.parts.meta_parts import GROUP, FakeRole
from tests.parts.raft_parts import SetNode
from tests.simulation.simdisk import SimDisk


class Worst(random.Random):
    """A power cut that takes all that was not synced."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


class Setting(SetNode):
    """A member whose commits do not wait for its disk, with one table."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.disk = SimDisk(folder / "disk", Worst())
        self.node = self.open()
        self.node.log.append(EntryType.CONFIG, 1, b"config", 0)
        self.node.sync()
        # Zeros ahead are synced too, and would take the rest along.
        while self.node.store.step_helper():
            pass
        self.node.log.release(1)
        self.load()
        self.meta.group = GROUP.hex()

    def open(self) -> Node:
        return open_node(self.folder / "disk", disk=self.disk)

    def load(self) -> None:
        clock = ManualClock()
        self.role = FakeRole()
        self.meta = GroupMeta(self.role, lambda *_: None, clock, LogSync(self.node.store))
        live = LiveConfig(BrokerConfig(brokerName="broker-a"), StoreConfig())
        self.topics = TopicTable(self.folder / "topics.json", live, clock, self.meta)
        self.meta.attach_node(self)

    def propose_meta(self, payload: bytes, _on_fate: OnFate) -> None:
        index = self.node.log.append(EntryType.META, 1, payload, self.node.log.commit)
        # As a majority has it, in its memory.
        self.node.log.release(index)
        self.meta.apply(index, payload)

    def lose_power(self) -> None:
        self.node.kill()
        self.disk.die()
        self.disk.lose_power()
        self.disk.revive()
        self.node = self.open()
        self.load()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_R3_a_stamp_never_leads_the_log_after_a_power_cut(setting: Setting) -> None:
    setting.role.become(1)
    setting.topics.update(TopicConfig("T", 1, 1))
    setting.meta.flush()
    assert setting.meta.index == setting.node.log.last.index > 1
    writing = asyncio.create_task(setting.meta.persist(everything=True))
    done, _ = await asyncio.wait([writing], timeout=0.2)
    setting.lose_power()
    stamp = setting.topics._file.stamp
    assert setting.node.log.last.index == 1, "the entry is lost, as ASYNC_FLUSH may"
    assert (stamp.applied if stamp is not None else 0) <= setting.node.log.last.index
    assert not done, "the file waits for the log"
    writing.cancel()
    setting.node.store.close()


async def test_R3_once_the_log_is_synced_the_file_follows(setting: Setting) -> None:
    setting.role.become(1)
    setting.topics.update(TopicConfig("T", 1, 1))
    setting.meta.flush()
    last = setting.node.log.last.index
    writing = asyncio.create_task(setting.meta.persist(everything=True))
    await asyncio.sleep(0)
    setting.node.sync()
    await writing
    setting.lose_power()
    stamp = setting.topics._file.stamp
    assert stamp is not None
    assert (stamp.applied, setting.node.log.last.index) == (last, last)
    assert setting.topics.get("T") is not None
    setting.node.store.close()


async def test_R3_a_disk_that_does_not_sync_keeps_the_old_file(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logsync, "SYNC_SECONDS_MAX", 0.05)
    setting.role.become(1)
    setting.topics.update(TopicConfig("T", 1, 1))
    setting.meta.flush()
    with pytest.raises(OSError, match="not synced up to"):
        await setting.meta.persist(everything=True)
    with pytest.raises(OSError, match="not synced up to"):
        setting.meta.stamp_all(GROUP, 1)
    assert not (setting.folder / "topics.json").exists()
    setting.node.sync()
    await setting.meta.persist(everything=True)
    assert (setting.folder / "topics.json").exists()
    setting.node.kill()
