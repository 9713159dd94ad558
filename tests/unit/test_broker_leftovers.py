"""What a store from RocketMQ holds and nobody serves is found, and said: leftovers.py, store/timerwheel.py."""

import struct
from pathlib import Path

import pytest

from broker.messages.leftovers import REVIVE_GROUP, leftovers
from broker.server import Broker
from broker.settings.config import load_broker_config
from remoting.bodies.registry import TopicConfig
from remoting.topics import REVIVE_LOG_PREFIX, TIMER_TOPIC, TRANS_HALF_TOPIC
from store.timerwheel import timers_pending

REVIVE = REVIVE_LOG_PREFIX + "DefaultCluster"
NOW_S = 1_700_000_000


class Store:
    """Ends of queues, and offsets of groups."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ends: dict[tuple[str, int], int] = {}
        self.begins: dict[tuple[str, int], int] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.topics: dict[str, TopicConfig] = {}

    def found(self, timers: int = 0) -> list[str]:
        queues: dict[str, list[int]] = {}
        for topic, queue in self.ends:
            queues.setdefault(topic, []).append(queue)
        return leftovers(
            self.root,
            self.topics,
            queues,
            lambda topic, queue: self.begins.get((topic, queue), 0),
            lambda topic, queue: self.ends.get((topic, queue), 0),
            lambda group, topic, queue: self.offsets.get((group, topic, queue), -1),
            timers,
        )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_nothing_is_said_of_a_store_of_ours(store: Store) -> None:
    store.ends = {("T", 0): 5, ("SCHEDULE_TOPIC_XXXX", 2): 5}
    store.topics = {"T": TopicConfig("T", attributes={"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"})}
    assert store.found() == []


def test_half_messages_are_served(store: Store) -> None:
    store.ends = {(TRANS_HALF_TOPIC, 0): 9}
    assert store.found() == []


def test_check_points_of_pop_in_all_queues(store: Store) -> None:
    store.ends = {(REVIVE, 0): 4, (REVIVE, 5): 3}
    store.offsets = {(REVIVE_GROUP, REVIVE, 0): 2}
    (said,) = store.found()
    assert said.startswith("POP consumption (5 check points")
    store.offsets[REVIVE_GROUP, REVIVE, 0] = 4
    store.offsets[REVIVE_GROUP, REVIVE, 5] = 3
    assert store.found() == []
    (store.root / "kvStore").mkdir()
    assert store.found() == []
    (store.root / "kvStore" / "CURRENT").touch()
    assert "kvStore" in store.found()[0]


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


def wheel(root: Path, read_ms: int, taken: int, slots: dict[int, int]) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "timercheck").write_bytes(struct.pack(">7q", read_ms, 0, taken, 0, 0, 0, 0))
    empty = struct.pack(">qqqii", 0, -1, -1, 0, 0)
    used = b"".join(struct.pack(">qqqii", second, 0, 52, count, 0) for second, count in slots.items())
    (root / "timerwheel").write_bytes(used + empty * 10)


def test_timers_in_the_wheel_and_those_that_never_came_there(tmp_path: Path) -> None:
    assert timers_pending(tmp_path, 0) == 0
    assert timers_pending(tmp_path, 3) == 3, "no check point: nothing is known to be delivered"
    wheel(tmp_path, NOW_S * 1000, 10, {NOW_S - 60: 8, NOW_S: 2, NOW_S + 3600: 3})
    assert timers_pending(tmp_path, 10) == 5, "what is due before the time of the check point was delivered"
    assert timers_pending(tmp_path, 14) == 9
    wheel(tmp_path, NOW_S * 1000, 10, {NOW_S - 60: 8})
    assert timers_pending(tmp_path, 10) == 0


async def test_it_is_said_once_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wheel(tmp_path, NOW_S * 1000, 0, {NOW_S + 3600: 3})
    values = {"storePathRootDir": str(tmp_path), "listenPort": "0", "bindAddress": "127.0.0.1", "brokerName": "b"}
    values |= {"mappedFileSizeCommitLog": "65536", "httpEnable": "false", "haListenPort": "-1"}
    broker = Broker(*load_broker_config({**values, "maxHashSlotNum": "100", "maxIndexNum": "100"})[:2])
    await broker.start()
    await broker.close()
    (said,) = [each for each in caplog.records if "DOES NOT SERVE" in each.getMessage()]
    assert said.levelname == "WARNING"
    assert f"timer messages (up to 3 in timerwheel and {TIMER_TOPIC}, " in said.getMessage()
