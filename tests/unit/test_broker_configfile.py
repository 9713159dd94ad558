"""broker/configfile.py: which stamp a table has that was loaded from which file."""

import json
from pathlib import Path

import pytest

from broker.configfile import ConfigFile, MetadataError, Stamp, stamp_part, stamped, table_text
from remoting import fastjson


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
