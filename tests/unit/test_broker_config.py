"""broker/config.py: RocketMQ's keys, honest refusals, and changes while the broker runs."""

import pytest

from broker.config import BrokerConfig, LiveConfig, load_broker_config, outgoing_ip
from runtime.config import ConfigError


def test_defaults_are_rocketmqs() -> None:
    broker, store, unknown = load_broker_config({})
    assert unknown == []
    assert (broker.listenPort, broker.brokerClusterName, broker.brokerId) == (10911, "DefaultCluster", 0)
    assert broker.autoCreateTopicEnable
    assert broker.defaultTopicQueueNums == 8
    assert broker.flushConsumerOffsetInterval == 5000
    assert store.flushDiskType == "ASYNC_FLUSH"


def test_one_file_holds_the_keys_of_both() -> None:
    values = {"brokerName": "b", "listenPort": "0", "flushDiskType": "SYNC_FLUSH", "noSuchKey": "1"}
    broker, store, unknown = load_broker_config(values)
    assert broker.brokerName == "b"
    assert store.flushDiskType == "SYNC_FLUSH"
    assert unknown == ["noSuchKey"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enableDLegerCommitLog", "true"),
        ("brokerRole", "SLAVE"),
        ("brokerRole", "SYNC_MASTER"),
        ("enableControllerMode", "true"),
        ("enablePropertyFilter", "true"),
        ("aclEnable", "true"),
        ("storeType", "defaultRocksDB"),
        ("brokerId", "1"),
        ("listenPort", "65536"),
        ("listenPort", "x"),
        ("defaultTopicQueueNums", "0"),
        ("namesrvAddr", "nowhere"),
        ("brokerPermission", "64"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load_broker_config({key: value})


def test_modes_that_are_off_are_no_unknown_keys() -> None:
    _, _, unknown = load_broker_config({"enableDLegerCommitLog": "false", "brokerRole": "ASYNC_MASTER"})
    assert unknown == []


def test_name_servers_each_once() -> None:
    config = BrokerConfig(namesrvAddr=" a:1; b:2;;a:1 ")
    assert config.namesrv_addresses() == ("a:1", "b:2")


def test_name_servers_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")
    assert load_broker_config({})[0].namesrvAddr == "env:9876"
    assert load_broker_config({"namesrvAddr": "file:9876"})[0].namesrvAddr == "file:9876"


def test_which_address_clients_are_told() -> None:
    assert BrokerConfig(brokerIP1="192.0.2.9").advertised_ip() == "192.0.2.9"
    assert BrokerConfig(bindAddress="127.0.0.1").advertised_ip() == "127.0.0.1"
    assert BrokerConfig().advertised_ip() == outgoing_ip()


def test_the_registration_period_is_clamped() -> None:
    assert BrokerConfig(registerNameServerPeriod=1).register_period() == 10.0
    assert BrokerConfig(registerNameServerPeriod=10**9).register_period() == 60.0


def test_a_change_while_running_is_told_once() -> None:
    broker, store, _ = load_broker_config({})
    live = LiveConfig(broker, store)
    told: list[frozenset[str]] = []
    live.on_change = told.append
    assert live.update({"brokerPermission": "4", "fileReservedTime": "48", "nonsense": "1"}) == ["nonsense"]
    assert (live.broker.brokerPermission, live.store.fileReservedTime) == (4, 48)
    assert told == [frozenset({"brokerPermission", "fileReservedTime"})]
    live.update({"brokerPermission": "4"})
    assert len(told) == 1


def test_a_bad_change_changes_nothing() -> None:
    broker, store, _ = load_broker_config({})
    live = LiveConfig(broker, store)
    with pytest.raises(ConfigError, match="flushDiskType"):
        live.update({"brokerPermission": "4", "flushDiskType": "NEVER"})
    assert live.broker is broker
