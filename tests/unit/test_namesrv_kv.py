"""The KV configuration and its file."""

import json
from pathlib import Path

import pytest

from namesrv.kv import ENTRY_LENGTH_MAX, KVConfig
from remoting.errors import CommandError
from runtime.config import ConfigError


def kv(path: Path, entries_max: int = 100) -> KVConfig:
    return KVConfig(path / "namesrv" / "kvConfig.json", entries_max=entries_max)


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    first = kv(tmp_path)
    first.put("ORDER_TOPIC_CONFIG", "t", "a:4;b:4")
    first.put("ORDER_TOPIC_CONFIG", "u", "ü")
    first.put("other", "t", "x")
    second = kv(tmp_path)
    assert second.get("ORDER_TOPIC_CONFIG", "t") == "a:4;b:4"
    assert second.namespace("ORDER_TOPIC_CONFIG") == {"t": "a:4;b:4", "u": "ü"}
    assert len(second) == 3


def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    kv(tmp_path).put("ns", "k", "v")
    content = json.loads((tmp_path / "namesrv" / "kvConfig.json").read_bytes())
    assert content == {"configTable": {"ns": {"k": "v"}}}


def test_a_file_that_fastjson_indented_is_read(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "kvConfig.json").write_text('{\n\t"configTable":{"ns":{\n\t\t"k":"v"\n\t}}\n}')
    assert kv(tmp_path).get("ns", "k") == "v"


def test_what_was_deleted_is_gone_and_an_empty_namespace_too(tmp_path: Path) -> None:
    table = kv(tmp_path)
    table.put("ns", "k", "v")
    table.delete("ns", "unknown")
    table.delete("unknown", "k")
    table.delete("ns", "k")
    assert table.get("ns", "k") is None
    assert kv(tmp_path).namespace("ns") == {}
    assert len(table) == 0


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "kvConfig.json").write_text("{broken")
    with pytest.raises(ConfigError, match="kvConfigPath"):
        kv(tmp_path)


def test_a_file_that_cannot_be_written_leaves_all_as_it_was(tmp_path: Path) -> None:
    table = kv(tmp_path)
    (tmp_path / "namesrv").write_text("a file where the folder should be")
    with pytest.raises(OSError):
        table.put("ns", "k", "v")
    assert table.get("ns", "k") is None


def test_the_limits(tmp_path: Path) -> None:
    table = kv(tmp_path, entries_max=2)
    table.put("ns", "a", "1")
    table.put("ns", "b", "1")
    table.put("ns", "b", "2")
    with pytest.raises(CommandError, match="kvEntriesMax") as full:
        table.put("other", "c", "1")
    assert full.value.code == 1
    with pytest.raises(CommandError) as long:
        table.put("ns", "a", "x" * ENTRY_LENGTH_MAX)
    assert long.value.code == 29
    assert table.namespace("ns") == {"a": "1", "b": "2"}
