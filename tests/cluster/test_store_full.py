"""Stores on a file system that is really full: killed at any point they start on it, and have what was synced."""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from raft.protocol.types import EntryRefused, EntryType
from remoting.properties import encode_properties
from runtime.clock import ManualClock
from store.derived import indexfile
from store.errors import StoreWriteError
from store.messagestore import MessageStore
from store.types import PendingRecord
from tests.cluster.small_disk import NoNamespace, SmallDisk
from tests.parts.entry_tools import open_node
from tests.parts.store_tools import HOST, make_config, record

SEEDS = 24
LIVES = 3
DISK_BYTES = 1536 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path / "disk", DISK_BYTES)
    except NoNamespace as error:
        pytest.skip(str(error))
    yield made
    made.close()


def message(rng: random.Random, number: int) -> PendingRecord:
    body = b"%d" % number * rng.choice((1, 200))
    return record(body, queue_id=rng.randrange(4), properties=encode_properties({"KEYS": f"k{number}"}))


def work(store: MessageStore, clock: ManualClock, rng: random.Random) -> None:
    """Do what the store's threads and its upkeep do in a while."""
    clock.advance(rng.choice((0.5, 2, 6)))
    store.idle()
    while store.step_flush() or store.step_helper():
        pass


def kill(store: MessageStore, disk: SmallDisk) -> None:
    """End without a stop; whatever room that gave back is taken too."""
    store._health.failed = "killed"
    store.flusher._failure = OSError("killed")
    store._queues._dirty.clear()
    with suppress(OSError):
        store.close()
    disk.fill()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_single_broker_s_store(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(indexfile, "BUFFERED_MESSAGES_MAX", rng.choice((8, 64, 2048)))
    synced, content = 0, b""
    config = make_config(disk.path, mappedFileSizeConsumeQueue=4000)
    for _ in range(LIVES):
        clock = ManualClock()
        store = MessageStore.open(config, store_host=HOST, clock=clock, stepped=True)
        assert store.written >= synced
        assert read(disk, synced) == content
        fill_at = rng.randrange(60)
        for step in range(rng.randrange(20, 200)):
            if step == fill_at:
                disk.fill(rng.choice((0, 4096, 20_000, 60_000)))
            store.put(message(rng, step))
            with suppress(StoreWriteError):
                store.write()
            if rng.random() < 0.2:
                work(store, clock, rng)
        synced = store.flushed
        content = read(disk, synced)
        kill(store, disk)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_member_s_store(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(indexfile, "BUFFERED_MESSAGES_MAX", rng.choice((8, 64, 2048)))
    durable, content = 0, b""
    for _ in range(LIVES):
        clock = ManualClock()
        node = open_node(disk.path, clock=clock, mappedFileSizeConsumeQueue=4000)
        log = node.log
        assert log.whole
        assert log.last.index >= durable
        assert node.content.startswith(content)
        if log.last.index == 0:
            log.append(EntryType.CONFIG, 1, b"config", 0)
        fill_at = rng.randrange(60)
        for step in range(rng.randrange(20, 200)):
            if step == fill_at:
                disk.fill(rng.choice((0, 4096, 20_000, 60_000)))
            with suppress(EntryRefused):
                if rng.random() < 0.1:
                    log.append(rng.choice((EntryType.META, EntryType.NOOP)), 1, b"", log.commit)
                else:
                    log.append_records([message(rng, step)], 1, log.commit)
            if rng.random() < 0.3:
                node.sync()
                log.release(rng.randint(log.released, log.durable))
            if rng.random() < 0.2:
                work(node.store, clock, rng)
        durable = log.durable
        content = node.content[: log.end_position(durable)]
        kill(node.store, disk)


def read(disk: SmallDisk, end: int) -> bytes:
    """Return the log before a position."""
    folder = disk.path / "store" / "commitlog"
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))[:end] if end else b""
