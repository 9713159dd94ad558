"""lmq_offsets.py: what RocketMQ keeps of groups with enableLmq=true is taken over, once, and never by guessing."""

import json
from pathlib import Path

import pytest

from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.table_file import MetadataError
from runtime.clock import ManualClock

OURS, LMQ = "consumerOffset.json", "lmqConsumerOffset.json"


def write(folder: Path, name: str, **more: object) -> None:
    table = {"T@G": {0: 5, 1: 2}, **more}
    text = {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 9}, "offsetTable": table}
    (folder / name).write_text(json.dumps({**text, "lmqOffsetTable": {}, "pullOffsetTable": {}}))


def load(folder: Path) -> OffsetTable:
    return OffsetTable.load(folder / OURS, ManualClock())


async def test_alone_it_is_taken_over_into_our_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, LMQ)
    table = load(tmp_path)
    assert table.offsets("G", "T") == {0: 5, 1: 2}
    assert LMQ in caplog.text
    before = (tmp_path / LMQ).read_bytes()
    assert await table.persist()
    assert (tmp_path / LMQ).read_bytes() == before
    (tmp_path / LMQ).unlink()
    assert load(tmp_path).offsets("G", "T") == {0: 5, 1: 2}


def test_its_backup_counts_where_it_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, LMQ + ".bak")
    (tmp_path / LMQ).write_text("{")
    assert load(tmp_path).query("G", "T", 0) == 5
    (tmp_path / (LMQ + ".bak")).write_text("{")
    with pytest.raises(MetadataError, match=r"lmqConsumerOffset\.json"):
        load(tmp_path)


async def test_what_was_taken_over_does_not_come_back(tmp_path: Path) -> None:
    """A group that was set back, and one that was deleted, are not where the old file has them."""
    write(tmp_path, LMQ, **{"T@H": {0: 3}})
    table = load(tmp_path)
    table.assign("G", "T", 0, 1)
    table.remove_group("H")
    assert await table.persist()
    again = load(tmp_path)
    assert (again.query("G", "T", 0), again.query("H", "T", 0)) == (1, -1)


async def test_what_rocketmq_wrote_since_counts(tmp_path: Path) -> None:
    write(tmp_path, LMQ)
    table = load(tmp_path)
    table.commit("G", "T", 0, 9, 100, None)
    assert await table.persist()
    write(tmp_path, LMQ, **{"T@G": {0: 8}})
    assert load(tmp_path).query("G", "T", 0) == 8


@pytest.mark.parametrize(
    ("ours", "theirs", "counts"), [({0: 9, 1: 2}, {0: 5}, 9), ({0: 4}, {0: 6, 1: 1}, 6), ({0: 5, 1: -1}, {0: 5}, 5)]
)
async def test_of_two_the_one_counts_that_is_nowhere_behind(
    tmp_path: Path, ours: dict[int, int], theirs: dict[int, int], counts: int
) -> None:
    write(tmp_path, OURS, **{"T@G": ours})
    write(tmp_path, LMQ, **{"T@G": theirs, "%LMQ%$T$a@G": {0: 1}})
    table = load(tmp_path)
    assert table.query("G", "T", 0) == counts
    # It is seen now: what happens to offsets later says nothing of the two.
    table.assign("G", "T", 0, 0)
    assert await table.persist()
    assert load(tmp_path).query("G", "T", 0) == 0


def test_two_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, OURS, **{"T@G": {0: 9, 1: 2}})
    write(tmp_path, LMQ, **{"T@G": {0: 5, 1: 3}})
    with pytest.raises(MetadataError, match=r"group G of T are further in the first.*move away"):
        load(tmp_path)


def test_a_member_of_a_group_looks_at_its_own(tmp_path: Path) -> None:
    write(tmp_path, OURS)
    text = (tmp_path / OURS).read_text()
    stamp = '{"raftStamp":{"group":"00","applied":7,"lastMeta":7},'
    (tmp_path / OURS).write_text(stamp + text[1:])
    write(tmp_path, LMQ, **{"T@G": {0: 80}})
    assert load(tmp_path).query("G", "T", 0) == 5


def test_offsets_of_a_group_that_broadcasts_are_of_its_topic(tmp_path: Path) -> None:
    write(tmp_path, LMQ, **{"T@B@broadcast": {0: 4}})
    table = load(tmp_path)
    assert table.clamp(lambda topic, _queue: 100 if topic == "T" else 0) == 0
    assert table.query("B@broadcast", "T", 0) == 4
