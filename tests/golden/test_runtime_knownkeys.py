"""Every key of RocketMQ's broker, store and NameServer: honoured, known and without effect, or refused by name."""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import broker.settings.foreign_keys
import namesrv.foreign_keys
from auth.quota_keys import ADDRESS_KEYS, KEY_ENDS, USER_KEYS
from broker.settings.config import BrokerConfig, LiveConfig, load_broker_config
from namesrv.config import NamesrvConfig, load_namesrv_config
from runtime.config import ConfigError, load_properties
from runtime.knownkeys import KnownKeys, Lacking
from store.config import StoreConfig

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data" / "rocketmq-keys"
BROKER = (BrokerConfig, StoreConfig)
BROKER_FILES = ("broker-5.3.properties", "broker-5.5.0.properties")
NAMESRV_FILE = "namesrv-5.5.0.properties"
# What a broker's or a NameServer's code is, and where a configuration is only checked, which is not using it.
READERS = ("broker", "auth", "namesrv", "store", "raft", "raftmq", "runtime")
CHECKS = frozenset({"validate", "check_classic", "check_group", "check_tls"})
NOBODYS = "notSoToday"


def fields(*classes: type) -> set[str]:
    return {field.name for each in classes for field in dataclasses.fields(each)}


def refusable(table: KnownKeys) -> Iterator[tuple[str, str]]:
    for key in table:
        default = table.default(key)
        if default is not None:
            yield key, default


@pytest.mark.parametrize("file", BROKER_FILES)
def test_every_key_of_a_broker_is_honoured_or_known(file: str) -> None:
    keys = load_properties(DATA / file)
    assert len(keys) >= 401
    table, honoured = broker.settings.foreign_keys.KEYS, fields(*BROKER)
    assert [key for key in keys if (key in honoured) == (key in table)] == [], "exactly one of the two"


def test_every_key_of_a_name_server_is_honoured_or_known() -> None:
    table, honoured = namesrv.foreign_keys.KEYS, fields(NamesrvConfig)
    keys = load_properties(DATA / NAMESRV_FILE)
    assert [key for key in keys if (key in honoured) == (key in table)] == [], "exactly one of the two"


@pytest.mark.parametrize("file", BROKER_FILES)
def test_a_file_that_writes_out_all_defaults_starts(file: str) -> None:
    values = load_properties(DATA / file)
    if "5.3" in file:
        # Left open there: the machine decides.
        values = {key: value for key, value in values.items() if value}
    made, _store, unknown = load_broker_config(values)
    assert unknown == []
    assert made.defaultTopicQueueNums == 8


def test_a_name_servers_defaults_start() -> None:
    made, unknown = load_namesrv_config(load_properties(DATA / NAMESRV_FILE))
    assert unknown == []
    assert made.listenPort == 9876


def test_the_defaults_in_the_tables_are_rocketmqs() -> None:
    printed = load_properties(DATA / "broker-5.5.0.properties")
    printed.update(load_properties(DATA / NAMESRV_FILE))
    for table in (broker.settings.foreign_keys.KEYS, namesrv.foreign_keys.KEYS):
        assert {k: (d, printed[k]) for k, d in refusable(table) if k in printed and printed[k] != d} == {}


def test_what_is_not_there_is_refused_by_name_all_of_it_in_one_line() -> None:
    keys = [key for key, _ in refusable(broker.settings.foreign_keys.KEYS)]
    assert {"readOnlyCommitLogStorePaths", "enableConsumeQueueExt", "lockInStrictMode"} <= set(keys)
    assert {"timerRocksDBEnable", "enablePopBatchAck", "tls.config.file", "aclEnable"} <= set(keys)
    with pytest.raises(ConfigError) as refused:
        load_broker_config(dict.fromkeys(keys, NOBODYS))
    text = str(refused.value)
    assert "\n" not in text
    assert [key for key in keys if f"{key}=" not in text] == []
    for key in keys:
        with pytest.raises(ConfigError, match=f"{key}="):
            load_broker_config({key: NOBODYS})


def test_what_a_name_server_lacks_is_refused_by_name() -> None:
    for key, _ in refusable(namesrv.foreign_keys.KEYS):
        with pytest.raises(ConfigError, match=f"{key}="):
            load_namesrv_config({key: NOBODYS})


@pytest.mark.parametrize(
    "setting",
    [
        "readOnlyCommitLogStorePaths=/mnt/old",
        "enableConsumeQueueExt=true",
        "timerCongestNumEachSlot=5",
        "enablePopBatchAck=true",
        "tls.config.file=/etc/tls.properties",
        "lockInStrictMode=true",
        "fetchNamesrvAddrByAddressServer=true",
        "metricsExporterType=PROM",
    ],
)
def test_what_to_do_is_said(setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(ConfigError, match="remove each of these keys, or set it to its default") as refused:
        load_broker_config({key: value})
    assert setting in str(refused.value)


@pytest.mark.parametrize(
    "setting",
    [
        "indexFileReadEnable= true ",
        "enableConsumeQueueExt=FALSE",
        "timerWheelEnable=false",
        "tls.enable=false",
        "defaultMessageRequestMode=pull",
        "aclEnable=",
        "enableCompaction=false",
    ],
)
def test_the_default_in_any_spelling_and_what_switches_off_start(setting: str) -> None:
    key, _, value = setting.partition("=")
    assert load_broker_config({key: value})[2] == []


def test_a_majority_agrees_on_locks_in_a_raft_group_alone() -> None:
    group = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-127.0.0.1:40911", "dLegerSelfId": "n0"}
    made, store, unknown = load_broker_config({**group, "lockInStrictMode": "true"})
    assert unknown == []
    assert LiveConfig(made, store).update({"lockInStrictMode": "true"}) == []


def test_secrets_are_not_repeated() -> None:
    table = KnownKeys((), (Lacking("a feature with a password is not there", "featurePassword="),))
    with pytest.raises(ConfigError, match="featurePassword=") as refused:
        table.refuse({"featurePassword": "s3cret"})
    assert "s3cret" not in str(refused.value)


def test_harmless_keys_take_any_value_and_are_told_with_the_reason() -> None:
    table = broker.settings.foreign_keys.KEYS
    idle = [key for key in table if table.default(key) is None]
    assert load_broker_config(dict.fromkeys(idle, NOBODYS))[2] == []
    told = table.without_effect([*idle, "aclEnable", "noSuchKey", "listenPort"])
    assert sorted(key for keys in told.values() for key in keys) == sorted(idle)
    assert all(why for why in told)


def test_a_change_at_run_time_that_asks_for_what_is_not_there_changes_nothing() -> None:
    made, store, _ = load_broker_config({})
    live = LiveConfig(made, store)
    with pytest.raises(ConfigError, match="lockInStrictMode=true"):
        live.update({"fileReservedTime": "1", "lockInStrictMode": "true"})
    assert live.store is store
    assert live.update({"fileReservedTime": "1", "sendMessageThreadPoolNums": "9", "noSuchKey": "1"}) == ["noSuchKey"]
    assert live.store.fileReservedTime == 1


def attributes_read() -> set[str]:
    """Names of all attributes that the code reads, but where a configuration is only checked."""
    found: set[str] = set()
    for path in sorted(path for folder in READERS for path in (ROOT / folder).rglob("*.py")):
        todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.FunctionDef) and node.name in CHECKS:
                continue
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            todo.extend(ast.iter_child_nodes(node))
    return found


def test_every_honoured_key_is_read_by_some_code() -> None:
    # Put together of whose quota it is, and of what: tests/unit/test_auth_quotas.py has each one refuse something.
    composed = {f"{of}{end}" for of in (ADDRESS_KEYS, USER_KEYS) for end in KEY_ENDS.values()}
    assert fields(*BROKER, NamesrvConfig) - attributes_read() == composed
