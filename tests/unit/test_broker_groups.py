"""The group table: creation by itself, persistence, what groups are forbidden to read."""

import json
from pathlib import Path

import pytest

import broker.metadata.consumer_groups
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.table_file import MetadataError
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.bodies.registry import SubscriptionGroupConfig
from remoting.codes import ResponseCode
from remoting.errors import CommandError
from runtime.clock import ManualClock
from store.config import StoreConfig


def table(tmp_path: Path, config: BrokerConfig | None = None) -> GroupTable:
    live = LiveConfig(config or BrokerConfig(brokerName="broker-a"), StoreConfig())
    return GroupTable(tmp_path / "subscriptionGroup.json", live, ManualClock())


async def test_system_groups_exist_from_the_start(tmp_path: Path) -> None:
    table(tmp_path)
    on_disk = json.loads((tmp_path / "subscriptionGroup.json").read_bytes())["subscriptionGroupTable"]
    assert {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_PULL", "CID_RMQ_SYS_TRANS"} <= set(on_disk)
    assert on_disk["TOOLS_CONSUMER"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "TOOLS_CONSUMER",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


async def test_a_group_is_created_when_it_is_first_seen(tmp_path: Path) -> None:
    groups = table(tmp_path)
    created = groups.find("g")
    assert created is not None
    assert created.retryMaxTimes == 16
    assert groups.find("g") is created
    await groups.close()
    assert table(tmp_path).get("g") == created


async def test_without_auto_creation_only_system_groups_come_into_being(tmp_path: Path) -> None:
    groups = table(tmp_path, BrokerConfig(brokerName="broker-a", autoCreateSubscriptionGroup=False))
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_OTHER") is not None
    await groups.close()


@pytest.mark.parametrize("name", ["", " ", "with space", "x" * 300])
async def test_names_that_are_none_create_nothing(tmp_path: Path, name: str) -> None:
    groups = table(tmp_path)
    assert groups.find(name) is None
    with pytest.raises(CommandError) as refused:
        groups.update(SubscriptionGroupConfig(groupName=name))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


async def test_updates_are_all_or_none_and_survive(tmp_path: Path) -> None:
    groups = table(tmp_path)
    with pytest.raises(CommandError, match="retryQueueNums"):
        groups.update(SubscriptionGroupConfig("a"), SubscriptionGroupConfig("b", retryQueueNums=-1))
    assert groups.get("a") is None
    groups.update(SubscriptionGroupConfig("a", consumeEnable=False, attributes={"k": "v"}))
    await groups.save()
    again = table(tmp_path)
    assert again.get("a") == SubscriptionGroupConfig("a", consumeEnable=False, attributes={"k": "v"})
    assert again.data_version == groups.data_version
    assert again.delete("a")
    assert not again.delete("a")
    await again.close()
    assert table(tmp_path).get("a") is None
    await groups.close()


async def test_forbidden_reading_is_kept_and_lifted(tmp_path: Path) -> None:
    groups = table(tmp_path)
    assert groups.readable("g", "T")
    groups.set_readable("g", "T", readable=False)
    groups.set_readable("g", "U", readable=False)
    await groups.save()
    again = table(tmp_path)
    assert not again.readable("g", "T")
    assert again.readable("g", "other")
    on_disk = json.loads((tmp_path / "subscriptionGroup.json").read_bytes())
    assert on_disk["forbiddenTable"] == {"g": {"T": 4, "U": 4}}
    again.set_readable("g", "T", readable=True)
    assert again.readable("g", "T")
    again.forget_topic("U")
    assert again.readable("g", "U")
    await again.close()
    assert json.loads((tmp_path / "subscriptionGroup.json").read_bytes())["forbiddenTable"] == {}
    await groups.close()


async def test_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = table(tmp_path)
    monkeypatch.setattr(broker.metadata.consumer_groups, "GROUPS_MAX", len(groups.tables))
    assert groups.find("one-more") is None
    with pytest.raises(CommandError, match="at most"):
        groups.update(SubscriptionGroupConfig("one-more"))
    monkeypatch.setattr(broker.metadata.consumer_groups, "FORBIDDEN_TOPICS_MAX", 1)
    groups.set_readable("g", "T", readable=False)
    with pytest.raises(CommandError, match="limit"):
        groups.set_readable("g", "U", readable=False)
    await groups.close()


async def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    path.write_bytes(b'{"subscriptionGroupTable":[1,2]}')
    with pytest.raises(MetadataError, match=r"subscriptionGroup\.json"):
        table(tmp_path)


async def test_a_page_holds_what_its_groups_are_forbidden(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.update(SubscriptionGroupConfig("z"))
    groups.set_readable("z", "T", readable=False)
    count = len(groups.tables)
    assert groups.page(0, count - 1).forbiddenTable == {}
    last = groups.page(count - 1, 10)
    assert list(last.subscriptionGroupTable) == ["z"]
    assert last.forbiddenTable == {"z": {"T": 4}}
    await groups.close()
