"""Where property tests keep their files: in memory where there is room, as a sixth of their time was the disk.

Crashes and what they leave are made by a disk of their own (crash_disk.py), not by the machine's.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.memory_folder import memory_folder


@pytest.fixture(scope="module", autouse=True)
def _folders_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each example makes a folder of its own, by tempfile."""
    with memory_folder(tmp_path_factory) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder that goes with the test."""
    with memory_folder(tmp_path_factory) as folder:
        yield folder
