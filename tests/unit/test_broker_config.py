"""broker/settings/config.py: RocketMQ's keys, honest refusals, and changes while the broker runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.settings.config import BrokerConfig, LiveConfig, load_broker_config, outgoing_ip
from broker.settings.raft_keys import (
    anybody_is_a_member,
    broker_id_of,
    check_folder,
    group_settings,
    group_warnings,
    link_tls,
    raft_bind_address,
    read_secrets,
)
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
        ("brokerRole", "SLAVE"),
        ("brokerRole", "MASTER"),
        ("allAckInSyncStateSet", "true"),
        ("haListenPort", "-2"),
        ("enableControllerMode", "true"),
        ("enableCalcFilterBitMap", "true"),
        ("enableConsumeQueueExt", "true"),
        ("filterSupportRetry", "true"),
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
    assert BrokerConfig(bindAddress="0.0.0.0").advertised_ip() == outgoing_ip()
    assert BrokerConfig().advertised_ip() == "127.0.0.1"


def test_the_registration_period_is_clamped() -> None:
    assert BrokerConfig(registerNameServerPeriod=1).register_period() == 10.0
    assert BrokerConfig(registerNameServerPeriod=10**9).register_period() == 60.0


def test_a_change_while_running_is_told_once() -> None:
    broker, store, _ = load_broker_config({})
    told: list[frozenset[str]] = []
    live = LiveConfig(broker, store, told.append)
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


GROUP = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "g",
    "dLegerPeers": "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
    "dLegerSelfId": "n1",
}
FAR = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-10.0.0.3:40911"


def test_a_group_of_rocketmqs_keys() -> None:
    broker, store, unknown = load_broker_config({**GROUP, "brokerId": "5"})
    assert unknown == []
    settings = group_settings(broker, broker.group_name())
    assert (settings.group, settings.self_id, len(settings.peers)) == ("g", "n1", 3)
    assert (settings.heartbeat_ms, settings.election_ms_min, settings.election_ms_max) == (100, 500, 1000)
    assert broker_id_of("n1") == 2
    assert store.flushDiskType == "SYNC_FLUSH"
    assert raft_bind_address(broker, settings, "0.0.0.0") == "127.0.0.1"


def test_a_group_flushes_before_it_acknowledges_unless_the_file_itself_says_otherwise() -> None:
    assert load_broker_config({**GROUP, "flushDiskType": "ASYNC_FLUSH"})[1].flushDiskType == "ASYNC_FLUSH"
    assert load_broker_config({})[1].flushDiskType == "ASYNC_FLUSH"
    broker = load_broker_config(GROUP)[0]
    settings = group_settings(broker, "g")
    assert list(group_warnings(settings, durable=True)) == []
    assert "ASYNC_FLUSH" in next(group_warnings(settings, durable=False))
    assert "does not guard the Raft port" in next(group_warnings(settings, durable=True, gap=True))
    assert anybody_is_a_member(broker)
    assert not anybody_is_a_member(replace(broker, raftSecretFile="/etc/secret"))
    assert not anybody_is_a_member(replace(broker, raftTlsCertFile="c", raftTlsKeyFile="k", raftTlsCaFile="a"))


def test_an_even_number_of_members_is_warned_about() -> None:
    broker = load_broker_config({**GROUP, "dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2"})[0]
    assert "2 members" in next(group_warnings(group_settings(broker, "g"), durable=True))


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("dLegerSelfId", "n3", "dLegerSelfId"),
        ("dLegerSelfId", "", "dLegerSelfId"),
        ("dLegerPeers", "", "dLegerPeers"),
        ("dLegerPeers", "n1:127.0.0.1:40911", "dLegerPeers"),
        ("dLegerPeers", "n1-127.0.0.1:1;n1-127.0.0.1:2", "dLegerPeers"),
        ("dLegerPeers", FAR, "raftSecretFile"),
        ("preferredLeaderId", "first", "preferredLeaderId"),
        ("raftElectionMsMin", "100", "raftElectionMsMin"),
        ("raftElectionMsMax", "400", "raftElectionMsMax"),
        ("raftHeartbeatMs", "0", "raftHeartbeatMs"),
        ("raftTlsCertFile", "cert.pem", "raftTls"),
        ("shutdownForwardMs", "-1", "shutdownForwardMs"),
    ],
)
def test_a_group_that_could_not_work_is_refused_by_name(key: str, value: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_broker_config({**GROUP, key: value})


def test_the_secret_is_read_and_neither_short_nor_missing(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    broker = load_broker_config({**GROUP, "dLegerPeers": FAR, "raftSecretFile": str(file)})[0]
    with pytest.raises(ConfigError, match="raftSecretFile"):
        read_secrets(broker)
    file.write_text("short\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="5 bytes"):
        read_secrets(broker)
    file.write_text("0123456789abcdef\n")
    assert read_secrets(broker) == (b"0123456789abcdef",)
    assert read_secrets(load_broker_config(GROUP)[0]) == ()
    assert raft_bind_address(broker, group_settings(broker, "g"), "0.0.0.0") == "0.0.0.0"


@pytest.mark.parametrize(("mode", "taken"), [(0o400, True), (0o640, True), (0o644, False), (0o602, False)])
def test_a_secret_that_any_user_may_read_or_change_is_refused(tmp_path: Path, mode: int, *, taken: bool) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(mode)
    broker = load_broker_config({**GROUP, "dLegerPeers": FAR, "raftSecretFile": str(file)})[0]
    if taken:
        assert read_secrets(broker) == (b"0123456789abcdef",)
    else:
        with pytest.raises(ConfigError, match=f"raftSecretFile={file}: any user .*chmod o= {file}"):
            read_secrets(broker)


def test_two_secrets_are_read_in_their_order_and_no_more(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("old", "new", "third")]
    for path in paths:
        path.write_text(f"the secret of {path.name}")
        path.chmod(0o600)
    two = load_broker_config({**GROUP, "dLegerPeers": FAR, "raftSecretFile": f"{paths[0]}; {paths[1]};"})[0]
    assert read_secrets(two) == (b"the secret of old", b"the secret of new")
    three = load_broker_config({**GROUP, "raftSecretFile": ";".join(map(str, paths))})[0]
    with pytest.raises(ConfigError, match="raftSecretFile names 3 files"):
        read_secrets(three)
    with pytest.raises(ConfigError, match="raftSecretFile is empty"):
        load_broker_config({**GROUP, "dLegerPeers": FAR, "raftSecretFile": " ;"})


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    keys = {key: str(tmp_path / key) for key in ("raftTlsCertFile", "raftTlsKeyFile", "raftTlsCaFile")}
    with pytest.raises(ConfigError, match="raftTlsCertFile"):
        link_tls(load_broker_config({**GROUP, **keys})[0])
    assert link_tls(load_broker_config(GROUP)[0]) is None


def test_R17_a_store_of_dledger_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path / "none")
    (tmp_path / "dledger-n0").mkdir()
    check_folder(tmp_path)
    (tmp_path / "dledger-n0" / "data").mkdir()
    with pytest.raises(ConfigError, match="dledger-n0"):
        check_folder(tmp_path)
