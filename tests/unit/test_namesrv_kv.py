"""The KV configuration and its file."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from namesrv import kv as kv_module
from namesrv.kv import ENTRY_LENGTH_MAX, KVConfig
from remoting.errors import CommandError
from runtime.config import ConfigError
from runtime.durable import replace_file


def kv(path: Path, entries_max: int = 100) -> KVConfig:
    return KVConfig(path / "namesrv" / "kvConfig.json", entries_max=entries_max)


async def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    first = kv(tmp_path)
    await first.put("ORDER_TOPIC_CONFIG", "t", "a:4;b:4")
    await first.put("ORDER_TOPIC_CONFIG", "u", "ü")
    await first.put("other", "t", "x")
    second = kv(tmp_path)
    assert second.get("ORDER_TOPIC_CONFIG", "t") == "a:4;b:4"
    assert second.namespace("ORDER_TOPIC_CONFIG") == {"t": "a:4;b:4", "u": "ü"}
    assert len(second) == 3


async def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    await kv(tmp_path).put("ns", "k", "v")
    content = json.loads((tmp_path / "namesrv" / "kvConfig.json").read_bytes())
    assert content == {"configTable": {"ns": {"k": "v"}}}


def test_a_file_that_fastjson_indented_is_read(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "kvConfig.json").write_text('{\n\t"configTable":{"ns":{\n\t\t"k":"v"\n\t}}\n}')
    assert kv(tmp_path).get("ns", "k") == "v"


async def test_what_was_deleted_is_gone_and_an_empty_namespace_too(tmp_path: Path) -> None:
    table = kv(tmp_path)
    await table.put("ns", "k", "v")
    await table.delete("ns", "unknown")
    await table.delete("unknown", "k")
    await table.delete("ns", "k")
    assert table.get("ns", "k") is None
    assert kv(tmp_path).namespace("ns") == {}
    assert len(table) == 0


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "kvConfig.json").write_text("{broken")
    with pytest.raises(ConfigError, match="kvConfigPath"):
        kv(tmp_path)


async def test_a_file_that_cannot_be_written_leaves_all_as_it_was(tmp_path: Path) -> None:
    table = kv(tmp_path)
    (tmp_path / "namesrv").write_text("a file where the folder should be")
    with pytest.raises(OSError):
        await table.put("ns", "k", "v")
    assert table.get("ns", "k") is None


async def test_the_limits(tmp_path: Path) -> None:
    table = kv(tmp_path, entries_max=2)
    await table.put("ns", "a", "1")
    await table.put("ns", "b", "1")
    await table.put("ns", "b", "2")
    with pytest.raises(CommandError, match="kvEntriesMax") as full:
        await table.put("other", "c", "1")
    assert full.value.code == 1
    with pytest.raises(CommandError) as long:
        await table.put("ns", "a", "x" * ENTRY_LENGTH_MAX)
    assert long.value.code == 29
    assert table.namespace("ns") == {"a": "1", "b": "2"}


async def test_all_together_have_a_length(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    table = KVConfig(path, entries_max=100, characters_max=30)
    await table.put("ns", "a", "x" * 10)
    await table.put("ns", "b", "x" * 10)
    with pytest.raises(CommandError, match=r"holds 26 characters already \(kvCharactersMax") as full:
        await table.put("ns", "c", "xx")
    assert full.value.code == 1
    await table.put("ns", "c", "x")
    await table.put("ns", "a", "y" * 10)
    with pytest.raises(CommandError, match="kvCharactersMax"):
        await table.put("ns", "a", "y" * 11)
    await table.delete("ns", "b")
    again = KVConfig(path, entries_max=100, characters_max=30)
    await again.put("ns", "a", "y" * 20)
    with pytest.raises(CommandError, match="kvCharactersMax"):
        await again.put("ns", "b", "y")


class SlowDisk:
    """Writes when it is let to, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self.let = threading.Event()
        self.fails = False
        self.threads: set[threading.Thread] = set()
        monkeypatch.setattr(kv_module, "replace_file", self._replace)

    def _replace(self, path: Path, content: bytes) -> None:
        assert self.let.wait(20)
        self.writes += 1
        self.threads.add(threading.current_thread())
        if self.fails:
            raise OSError(28, "No space left on device")
        replace_file(path, content)


async def test_changes_that_come_during_a_write_share_the_next_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, table = SlowDisk(monkeypatch), kv(tmp_path, 5000)
    first = asyncio.create_task(table.put("ns", "first", "1"))
    await asyncio.sleep(0)
    puts = [asyncio.create_task(table.put("ns", str(number % 1000), str(number))) for number in range(3000)]
    gone = asyncio.create_task(table.delete("ns", "7"))
    await asyncio.sleep(0)
    assert table.get("ns", "first") is None, "it is not durable, and the loop goes on"
    disk.let.set()
    await asyncio.gather(first, *puts, gone)
    assert disk.writes == 2
    assert threading.main_thread() not in disk.threads
    for each in (table, kv(tmp_path)):
        assert len(each) == 1000
        assert (each.get("ns", "7"), each.get("ns", "8")) == (None, "2008")


async def test_a_write_that_fails_is_told_to_each_and_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, table = SlowDisk(monkeypatch), kv(tmp_path)
    disk.let.set()
    await table.put("ns", "k", "old")
    disk.fails = True
    told = await asyncio.gather(
        *(table.put("ns", "k", str(number)) for number in range(10)), table.delete("ns", "k"), return_exceptions=True
    )
    assert all(isinstance(each, OSError) for each in told)
    assert len({id(each) for each in told}) == 11
    assert table.get("ns", "k") == "old"
    disk.fails = False
    await table.put("ns", "k", "new")
    assert kv(tmp_path).get("ns", "k") == "new"


async def test_the_limits_count_what_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_module, "WAITING_MAX", 4)
    disk, table = SlowDisk(monkeypatch), kv(tmp_path, entries_max=2)
    tasks = [asyncio.create_task(table.put("ns", key, "1")) for key in ("a", "b")]
    await asyncio.sleep(0)
    with pytest.raises(CommandError, match="kvEntriesMax"):
        await table.put("ns", "c", "1")
    tasks.append(asyncio.create_task(table.delete("ns", "a")))
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(table.put("ns", "c", "1")))
    tasks += [asyncio.create_task(table.put("ns", "c", str(number))) for number in range(4)]
    await asyncio.sleep(0)
    disk.let.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert any(isinstance(each, CommandError) and "wait for the disk" in str(each) for each in outcomes)
    assert set(kv(tmp_path).namespace("ns")) == {"b", "c"}


async def test_a_close_waits_for_what_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, table = SlowDisk(monkeypatch), kv(tmp_path)
    task = asyncio.create_task(table.put("ns", "k", "v"))
    await asyncio.sleep(0)
    task.cancel()
    asyncio.get_running_loop().call_later(0.01, disk.let.set)
    await table.close()
    assert kv(tmp_path).get("ns", "k") == "v"
