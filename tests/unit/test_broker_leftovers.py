"""What a store from RocketMQ holds and nobody serves is found, and said: leftovers.py, store/timerwheel.py."""

import struct
from pathlib import Path

import pytest

from broker.messages.leftovers import leftovers
from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.bodies.registry import TopicConfig
from store.timerwheel import read_check


class Store:
    """A folder, and the topics in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.topics: dict[str, TopicConfig] = {}

    def found(self) -> list[str]:
        return leftovers(self.root, self.topics)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_nothing_is_said_of_a_store_of_ours(store: Store) -> None:
    store.topics = {"T": TopicConfig("T", attributes={"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"})}
    assert store.found() == []


def test_check_points_of_pop_in_rocksdb(store: Store) -> None:
    (store.root / "kvStore").mkdir()
    assert store.found() == []
    (store.root / "kvStore" / "CURRENT").touch()
    assert "kvStore" in store.found()[0]


@pytest.mark.parametrize(
    ("text", "count"), [('{"table":{"T@G":{0:{"o":[0,1]}}}}', 1), ('{"table":{}}', 0), ("{", 0), ("[]", 0)]
)
def test_what_was_taken_in_order(store: Store, text: str, count: int) -> None:
    (store.root / "config").mkdir()
    (store.root / "config" / "consumerOrderInfo.json").write_text(text, encoding="utf-8")
    assert len(store.found()) == count


def test_topics_of_other_kinds_are_named(store: Store) -> None:
    for number in range(7):
        store.topics[f"b{number}"] = TopicConfig(f"b{number}", attributes={"queue.type": "BatchCQ"})
    store.topics["c"] = TopicConfig("c", attributes={"cleanup.policy": "COMPACTION"})
    batch, compacted = store.found()
    assert "b0, b1, b2, b3, b4 and 2 more" in batch
    assert "compacted topics (c)" in compacted


@pytest.mark.parametrize("folder", ["batchconsumequeue", "consumequeue_ext"])
def test_folders_count_when_they_hold_something(store: Store, folder: str) -> None:
    (store.root / folder).mkdir()
    assert store.found() == []
    (store.root / folder / "T").mkdir()
    assert folder in store.found()[0]


def test_how_far_the_timer_of_rocketmq_came(tmp_path: Path) -> None:
    assert read_check(tmp_path) is None
    (tmp_path / "config").mkdir()
    check = tmp_path / "config" / "timercheck"
    check.write_bytes(b"short")
    assert read_check(tmp_path) is None
    check.write_bytes(struct.pack(">7q", 1_700_000_000_000, 0, 7, 0, 0, 0, 0))
    assert read_check(tmp_path) == (1_700_000_000_000, 7)


async def test_it_is_said_once_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kvStore").mkdir()
    (tmp_path / "kvStore" / "CURRENT").touch()
    values = {"storePathRootDir": str(tmp_path), "listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "b"}
    values |= {"mappedFileSizeCommitLog": "65536", "httpEnable": "false", "haListenPort": "-1"}
    broker = Broker(*load_broker_config({**values, "maxHashSlotNum": "100", "maxIndexNum": "100"})[:2])
    await broker.start()
    await broker.close()
    (said,) = [each for each in caplog.records if "DOES NOT SERVE" in each.getMessage()]
    assert said.levelname == "WARNING"
    assert "POP consumption in RocksDB (kvStore)" in said.getMessage()
