"""A process that keeps a journal is killed: whatever topic it had said to be safe is there, again and again."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from runtime.clock import ManualClock
from store.config import StoreConfig

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("topics", [1, 150, 700])
def test_topics_that_were_safe_survive_kills(tmp_path: Path, topics: int) -> None:
    safe: list[str] = []
    for life in ("a", "b"):
        command = [sys.executable, "-m", "tests.cluster.topic_writer", str(tmp_path), life]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            safe += [process.stdout.readline().strip() for _ in range(topics)]
            process.kill()
            # What it said until then counts too; a line that was cut off was not said.
            safe += [line.strip() for line in process.stdout if line.endswith("\n")]
        assert (tmp_path / "topics.journal").exists()
    assert len(safe) >= 2 * topics
    found = TopicTable(tmp_path / "topics.json", LiveConfig(BrokerConfig(), StoreConfig()), ManualClock())
    assert set(safe) <= found.tables.keys()
    assert not (tmp_path / "topics.journal").exists()
