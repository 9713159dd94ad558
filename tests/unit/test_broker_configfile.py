"""broker/metadata/table_file.py: which stamp a table has that was loaded from which file."""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from broker.metadata import table_file as configfile
from broker.metadata.operations import LocalMeta, without_room
from broker.metadata.table_file import ConfigFile, MetadataError, Stamp, stamp_part, stamped, table_text
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from remoting import fastjson
from remoting.bodies.registry import TopicConfig
from runtime.clock import ManualClock
from runtime.durable import replace_file
from store.config import StoreConfig
from store.errors import is_full


def make(path: Path, stamp: Stamp | None = None) -> ConfigFile:
    file = ConfigFile(path, lambda stamp: lambda: table_text([*stamp_part(stamp), ("table", b"{}")]))
    if stamp is not None:
        file.stamped_by(lambda: stamp)
    return file


def test_R3_the_stamp_is_that_of_the_content_that_was_used(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    file = make(path, Stamp("ab", 5, 4))
    file.write_now()
    file.stamped_by(lambda: Stamp("ab", 9, 7))
    file.write_now()
    assert (file.stamp, file.backup_stamp) == (Stamp("ab", 9, 7), Stamp("ab", 5, 4))
    again = make(path)
    again.load(fastjson.loads)
    assert (again.stamp, again.backup_stamp) == (Stamp("ab", 9, 7), Stamp("ab", 5, 4))
    path.write_bytes(b'{"raftStamp":{"group":"ab","applied":99,"lastMeta":7},')
    damaged = make(path)
    damaged.load(fastjson.loads)
    assert damaged.stamp == Stamp("ab", 5, 4), "the .bak was used: what it lacks is to be applied again"


@pytest.mark.parametrize(
    "content",
    [
        b'{"table":{}}',
        b'{"table":{},"note":"raftStamp"}',
        b'{"raftStamp":null}',
        b'{"raftStamp":{"group":1,"applied":2,"lastMeta":3}}',
        b'{"raftStamp":{"group":"ab"}}',
        b'{"raftStamp":{0:1}}',
        b'{"raftStamp":[]}',
    ],
)
def test_R3_what_is_no_stamp_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(content)
    file = make(path)
    assert file.load(fastjson.loads) is not None
    assert file.stamp is None


def test_R3_rocketmq_rewriting_a_file_drops_the_stamp(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    make(path, Stamp("ab", 5, 4)).write_now()
    content = json.loads(path.read_bytes())
    assert list(content) == ["raftStamp", "table"]
    del content["raftStamp"]
    path.write_text(json.dumps(content))
    again = make(path)
    again.load(fastjson.loads)
    assert again.stamp is None


def test_a_file_without_a_stamp_has_rocketmqs_keys_only() -> None:
    assert stamped(b'{"a":1}', None, more={}) == b'{"a":1}'
    assert json.loads(stamped(b'{"a":1}', Stamp("ab", 5, 4), more={"b": 2})) == {
        "raftStamp": {"group": "ab", "applied": 5, "lastMeta": 4},
        "more": {"b": 2},
        "a": 1,
    }


async def test_a_stamped_file_is_written_only_when_asked_for(tmp_path: Path) -> None:
    file = make(tmp_path / "table.json", Stamp("ab", 5, 4))
    file.mark()
    assert file.dirty
    assert file._keeper is None
    await file.flush()
    assert not file.dirty
    assert file.stamp == Stamp("ab", 5, 4)
    before = file.path.stat().st_mtime_ns
    await file.flush()
    assert file.path.stat().st_mtime_ns == before
    file.touch()
    await file.close()
    assert file.path.stat().st_mtime_ns > before


def test_neither_file_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"{")
    with pytest.raises(MetadataError, match=r"table\.json"):
        make(path).load(fastjson.loads)


async def test_a_writing_without_room_is_told_tried_again_and_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configfile, "FULL_PAUSE", 0.001)
    tries, full = 0, True

    def refusing(path: Path, content: bytes, mode: int = 0o644) -> None:
        nonlocal tries
        tries += 1
        if full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace_file(path, content, mode)

    meta = LocalMeta()
    topics = TopicTable(tmp_path / "topics.json", LiveConfig(BrokerConfig(), StoreConfig()), ManualClock(), meta)
    assert without_room(meta) is None
    monkeypatch.setattr(configfile, "replace_file", refusing)
    topics.update(TopicConfig("T"))
    with pytest.raises(OSError, match="No space left"):
        await topics.save()
    found = without_room(meta)
    assert found is not None
    assert is_full(found)
    async with asyncio.timeout(20):
        while tries < 5:
            await asyncio.sleep(0.001)
    full = False
    async with asyncio.timeout(20):
        while without_room(meta) is not None:
            await asyncio.sleep(0.001)
    await topics.save()
    assert "T" in json.loads((tmp_path / "topics.json").read_bytes())["topicConfigTable"]
    await topics.close()


@pytest.mark.parametrize("stamp", [None, Stamp("ab", 9, 7)])
async def test_at_a_stop_only_what_a_group_s_log_has_too_may_find_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamp: Stamp | None
) -> None:
    def refusing(_path: Path, _content: bytes, _mode: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = make(tmp_path / "table.json")
    file.stamped_by(lambda: stamp)
    file.touch()
    monkeypatch.setattr(configfile, "replace_file", refusing)
    if stamp is None:
        with pytest.raises(OSError, match=r"No space left on device: .*table\.json"):
            await file.close()
    else:
        await file.close()
        assert file.dirty
