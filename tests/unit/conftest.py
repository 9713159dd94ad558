"""What unit tests share. Their files are in memory where there is room: a third of their time were waits for the disk.

What they hold is which files are synced, and when; that a disk keeps what was synced is for tests/cluster.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.parts.memory_folder import memory_folder
from tests.parts.pair_of_masters import Pair


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder that goes with the test."""
    with memory_folder(tmp_path_factory) as folder:
        yield folder


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """Give two masters and their NameServer, for clients."""
    made = Pair()
    await made.start()
    yield made
    await made.close()
