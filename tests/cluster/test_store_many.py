"""10,000 topics of 8 queues in one store: files only where there are messages, and few descriptors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.messagestore import MessageStore
from tests.parts.memory_folder import memory_folder
from tests.parts.store_tools import HOST, make_config, record

TOPICS = 10_000
QUEUES = 8
DESCRIPTORS_MAX = 600


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In memory: it is about their number, and 160,000 files and folders keep a disk busy for a minute."""
    with memory_folder(tmp_path_factory) as folder:
        yield folder


@pytest.mark.timeout(180)
def test_ten_thousand_topics_of_eight_queues(tmp_path: Path) -> None:
    config = make_config(tmp_path, mappedFileSizeCommitLog=64 * 1024 * 1024, maxIndexNum=400_000)
    before = open_files()
    store = MessageStore.open(config, store_host=HOST)
    for number in range(TOPICS):
        for queue_id in range(QUEUES):
            store.put(record(f"{number}".encode(), f"topic-{number}", queue_id))
        store.write()
    assert store.stats().queues == TOPICS * QUEUES
    for _ in range(5):
        store.idle()
    for number in range(0, TOPICS, 97):
        assert store.get(f"topic-{number}", 7, 0, 1).count == 1
    assert open_files() - before < DESCRIPTORS_MAX
    store.close()
    store = MessageStore.open(config, store_host=HOST)
    assert store.stats().queues == TOPICS * QUEUES
    for number in range(0, TOPICS, 97):
        assert store.max_offset(f"topic-{number}", 3) == 1
        assert store.get(f"topic-{number}", 3, 0, 1).count == 1
    assert open_files() - before < DESCRIPTORS_MAX
    store.close()
