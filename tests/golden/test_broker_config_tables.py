"""config/*.json as a RocketMQ 5.5.0 broker left them: read whole, and written again with the same meaning."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

from broker.metadata.consumer_groups import GroupTable
from broker.metadata.system_topics import system_topics
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from runtime.clock import ManualClock
from store.config import StoreConfig

RECORDED = Path(__file__).parent / "data" / "broker-config"
LIVE = LiveConfig(BrokerConfig(brokerName="broker-a"), StoreConfig())


def recorded(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / name
    shutil.copy(RECORDED / name, path)
    content = json.loads(path.read_bytes())
    assert isinstance(content, dict)
    return path, content


async def test_topics(tmp_path: Path) -> None:
    path, before = recorded("topics.json", tmp_path)
    table = TopicTable(path, LIVE, ManualClock())
    assert path.read_bytes() == (RECORDED / "topics.json").read_bytes(), "nothing was missing, nothing was written"
    assert msgspec.to_builtins(table.data_version) == before["dataVersion"]
    table.update(TopicConfig("Added"))
    await table.save()
    after = json.loads(path.read_bytes())
    added = after["topicConfigTable"].pop("Added")
    assert after["topicConfigTable"] == before["topicConfigTable"]
    assert added.keys() == before["topicConfigTable"]["TBW102"].keys()
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    await table.close()


def test_system_topics_are_those_that_rocketmq_makes(tmp_path: Path) -> None:
    _, content = recorded("topics.json", tmp_path)
    for topic in system_topics(LIVE.broker):
        assert content["topicConfigTable"][topic.topicName] == msgspec.to_builtins(topic)


async def test_groups(tmp_path: Path) -> None:
    path, before = recorded("subscriptionGroup.json", tmp_path)
    table = GroupTable(path, LIVE, ManualClock())
    assert path.read_bytes() == (RECORDED / "subscriptionGroup.json").read_bytes()
    table.update(SubscriptionGroupConfig("Added"))
    await table.save()
    after = json.loads(path.read_bytes())
    added = after["subscriptionGroupTable"].pop("Added")
    assert after["subscriptionGroupTable"] == before["subscriptionGroupTable"]
    assert added.keys() == before["subscriptionGroupTable"]["TOOLS_CONSUMER"].keys()
    await table.close()
