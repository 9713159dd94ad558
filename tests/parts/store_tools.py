"""What the tests of the store share: small files, plain records."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from remoting.msgid import pack_host
from remoting.properties import encode_properties
from store.config import StoreConfig
from store.messagestore import MessageStore
from store.types import PendingRecord, PutStatus

FILE_BYTES = 64 * 1024
HOST = pack_host("10.0.0.1", 10911)
HOST_V6 = pack_host("fd00::1", 10911)


def make_config(folder: Path, **changes: Any) -> StoreConfig:
    return replace(
        StoreConfig(
            storePathRootDir=str(folder / "store"),
            mappedFileSizeCommitLog=FILE_BYTES,
            mappedFileSizeConsumeQueue=2000,
            maxHashSlotNum=50,
            maxIndexNum=400,
            flushIntervalCommitLog=3_600_000,
        ),
        **changes,
    )


def record(
    body: bytes | memoryview = b"hello", topic: str = "T", queue_id: int = 0, *, tags: str = "", **changes: Any
) -> PendingRecord:
    properties = {"TAGS": tags} if tags else {}
    made = PendingRecord(topic, queue_id, 7, 0, 1000, HOST, 0, 0, body, encode_properties(properties))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def fill(store: MessageStore, count: int, **changes: Any) -> None:
    for _ in range(count):
        assert store.put(record(**changes)).status is PutStatus.PUT_OK
    store.write()


def expire(config: StoreConfig, before: int) -> None:
    """Have a closed store lose the files that end at or before a position, as retention does."""
    store = MessageStore.open(config, store_host=HOST, stepped=True)
    assert store._cleaner.remove(before, "they are old")
    store.close()
