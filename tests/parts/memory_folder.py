"""A folder for a test's files: in memory where there is room, as most of what many files cost is the disk's doing."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")  # a folder of its own is made in it
# All that one run writes at once, with room for others; a container has 64 MiB there, unless it was told otherwise.
_ROOM_BYTES = 4 * 1024**3


def _in_memory() -> bool:
    return _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES


@contextmanager
def memory_folder(elsewhere: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder that goes with the test; one of pytest's where memory has no room."""
    folder = Path(tempfile.mkdtemp(prefix="raftmq-test-", dir=_MEMORY)) if _in_memory() else elsewhere.mktemp("files")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
