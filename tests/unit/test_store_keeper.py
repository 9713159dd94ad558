"""Upkeep: checkpoints, retention, deleted topics, and what must be durable first."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from remoting.record import decode_record
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.files.lockfile import ABORT_NAME
from store.messagestore import MessageStore
from store.types import GetStatus
from tests.parts.store_tools import FILE_BYTES, HOST, fill, make_config, record
from tests.properties.crash_disk import CrashDisk


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    opened = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    yield opened
    opened.close()


def days_later(store: MessageStore, clock: ManualClock, days: int = 4) -> None:
    """The files' own times are those of the machine, so the clock is set by them."""
    newest = max(path.stat().st_mtime for path in Path(store._config.log_folder).iterdir())
    clock.set_wall(int(newest * 1000) + days * 86_400_000)


def until_flushed(store: MessageStore) -> None:
    """Wait until all that is written is on the disk."""
    until = time.monotonic() + 10
    while store.flushed < store.written:
        assert time.monotonic() < until, "the flusher does nothing"
        time.sleep(0.001)


def checkpoint(store: MessageStore, clock: ManualClock) -> None:
    """Bring the store to a checkpoint at its end."""
    clock.advance(10)
    store.idle()
    until_flushed(store)
    for _ in range(3):
        store.idle()
    done = Event()
    store._helper.submit(done.set)
    assert done.wait(10)
    assert store._keeper.checkpoint.dispatched == store.written


def test_expired_files_go_and_queues_follow(tmp_path: Path, clock: ManualClock) -> None:
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    fill(store, 300, body=bytes(900))
    checkpoint(store, clock)
    days_later(store, clock)
    old = store.get("T", 0, 0, 1).buffers[0]
    report = store.clean(now=True)
    assert report.removed == [number * FILE_BYTES for number in range(4)]
    low = store.min_offset("T", 0)
    assert store.min_physical == 4 * FILE_BYTES
    assert 0 < low < 300
    assert (store.get("T", 0, 0, 1).status, store.get("T", 0, 0, 1).next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
    assert store.get("T", 0, 400, 1).next_offset == 300, "the queue does not begin at 0 any more"
    assert decode_record(store.get("T", 0, low, 1).buffers[0]).queue_offset == low
    assert decode_record(old).queue_offset == 0, "who still sends a removed record may"
    store.close()
    starts = sorted(int(path.name) for path in (tmp_path / "store" / "commitlog").iterdir())
    assert starts[0] == 4 * FILE_BYTES
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (low, 300)
    store.close()


def test_nothing_goes_before_a_checkpoint_covers_it(tmp_path: Path, clock: ManualClock) -> None:
    """A queue whose last records are removed keeps its end only in its file: that must be on disk first."""
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    fill(store, 300, body=bytes(900))
    days_later(store, clock)
    assert store.clean(now=True).removed == []
    assert store.min_physical == 0
    store.close()


def test_reads_of_what_is_just_being_removed(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    fill(store, 300, body=bytes(900))
    checkpoint(store, clock)
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)
    monkeypatch.setattr(os, "RWF_NOWAIT", 0x7FFF0000)
    # It asks the kernel by itself.
    monkeypatch.setattr("store.reads.reads.COMPILED", False)
    result = store.get("T", 0, 0, 4)
    assert result.cold
    days_later(store, clock)
    store.clean(now=True)
    result = store.read_cold(result)
    assert (result.status, result.count, result.buffers) == (GetStatus.MESSAGE_WAS_REMOVING, 0, [])
    store.close()


def test_a_deleted_topic_begins_anew(tmp_path: Path, clock: ManualClock) -> None:
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    fill(store, 5)
    fill(store, 2, topic="Other")
    store.delete_topic("T")
    assert store.topics() == {"Other": [0]}
    assert store.get("T", 0, 0, 1).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.put(record()).queue_offset == 0
    store.close()
    for lost in (False, True):
        if lost:
            (tmp_path / "store" / "checkpoint").unlink()
            (tmp_path / "store" / ABORT_NAME).touch()
        store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
        assert (store.max_offset("T", 0), store.max_offset("Other", 0)) == (1, 2)
        store.close()


def test_a_kill_between_two_losses_of_power(tmp_path: Path, clock: ManualClock) -> None:
    """What was read after a kill stood in the cache; it counts as flushed only when it was synced again."""
    config = make_config(tmp_path)
    config.root.mkdir()
    disk = CrashDisk(config.root, [])
    store = MessageStore.open(config, store_host=HOST, clock=clock, disk=disk)
    fill(store, 5)
    assert store.flushed == 0
    disk.dead = True
    store.close()
    disk = CrashDisk(config.root, [], after_kill=disk)
    store = MessageStore.open(config, store_host=HOST, clock=clock, disk=disk)
    assert store.flushed == store.written > 0
    disk.dead = True
    with pytest.raises(OSError, match="power"):
        store.close()
    for seed in range(10):
        disk.lose_power(seed)
    store = MessageStore.open(config, store_host=HOST, clock=clock)
    assert store.max_offset("T", 0) == 5
    store.close()


def test_a_fresh_store_of_default_size_starts_at_once_and_small(tmp_path: Path) -> None:
    store = MessageStore.open(StoreConfig(storePathRootDir=str(tmp_path / "store")), store_host=HOST)
    done = Event()
    store._helper.submit(done.set)
    assert done.wait(10)
    (path,) = (tmp_path / "store" / "commitlog").iterdir()
    facts = path.stat()
    assert facts.st_size == 1 << 30
    assert facts.st_blocks * 512 <= 32 * 1024 * 1024
    store.close()


def test_no_checkpoint_before_every_queue_is_written(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that are only in memory are lost with a kill, and nobody would read their records again."""
    monkeypatch.setattr("store.log.checkpointer.QUEUES_PER_STEP", 1)
    store = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=clock)
    for queue_id in range(5):
        fill(store, 2, queue_id=queue_id)
    store.flush_soon(store.written)
    until_flushed(store)
    clock.advance(10)
    for left in (4, 3, 2, 1):
        store.idle()
        assert store._queues.dirty == left
        done = Event()
        store._helper.submit(done.set)
        assert done.wait(10)
        assert store._keeper.checkpoint.dispatched < store.written
    store.idle()
    done = Event()
    store._helper.submit(done.set)
    assert done.wait(10)
    assert store._keeper.checkpoint.dispatched == store.written
    store.close()


def test_a_repair_does_not_wait_for_a_checkpoint_on_its_way_to_the_disk(store: MessageStore) -> None:
    keeper = store._keeper
    keeper.hold(100)
    with keeper._saving:
        # The helper is in the middle of one.
        for position in (200, 300, None):
            mending = Thread(target=keeper.hold, args=(position,), daemon=True)
            mending.start()
            mending.join(5)
            assert not mending.is_alive()
            assert keeper._hole == position
