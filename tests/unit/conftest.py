"""Where unit tests keep their files: in memory where there is room, as a third of their time were waits for the disk.

What they hold is which files are synced, and when; that a disk keeps what was synced is for tests/cluster.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")  # a folder of its own is made in it
# All that one run writes at once, with room for others; a container has 64 MiB there, unless it was told otherwise.
_ROOM_BYTES = 4 * 1024**3


def _in_memory() -> bool:
    return _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder that goes with the test."""
    if not _in_memory():
        yield tmp_path_factory.mktemp("unit")
        return
    folder = Path(tempfile.mkdtemp(prefix="raftmq-unit-", dir=_MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
