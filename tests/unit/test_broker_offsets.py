"""consumer_offsets.py: offsets are within the queue, do not go back by accident, and survive in RocketMQ's file."""

from pathlib import Path

import orjson
import pytest

from broker.metadata.committers import ANYBODY
from broker.metadata.consumer_offsets import OffsetTable
from broker.metadata.table_file import MetadataError
from runtime.clock import ManualClock


class Someone:
    def __init__(self) -> None:
        self.closed = False


def make(folder: Path) -> OffsetTable:
    return OffsetTable.load(folder / "consumerOffset.json", ManualClock())


def test_unknown_is_minus_one(tmp_path: Path) -> None:
    assert make(tmp_path).query("G", "T", 0) == -1


def test_a_commit_is_kept_per_group_topic_and_queue(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert table.commit("G", "T", 0, 7, 10, None)
    assert table.query("G", "T", 0) == 7
    assert table.query("G", "T", 1) == -1
    assert table.query("H", "T", 0) == -1
    assert table.groups_of("T") == ["G"]
    assert table.topics_of("G") == ["T"]


def test_a_commit_beyond_the_end_is_cut_down(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.commit("G", "T", 0, 99, 10, None)
    assert table.query("G", "T", 0) == 10


def test_minus_one_changes_nothing(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert table.commit("G", "T", 0, -1, 10, None)
    assert table.query("G", "T", 0) == -1
    table.commit("G", "T", 0, 7, 10, None)
    assert table.commit("G", "T", 0, -1, 10, None)
    assert table.query("G", "T", 0) == 7


def test_a_late_commit_of_a_former_owner_is_ignored(tmp_path: Path) -> None:
    table, before, now = make(tmp_path), Someone(), Someone()
    table.commit("G", "T", 0, 5, 100, before)
    table.commit("G", "T", 0, 50, 100, now)
    assert table.commit("G", "T", 0, 8, 100, before)
    assert table.query("G", "T", 0) == 50


def test_the_last_committer_may_seek_back(tmp_path: Path) -> None:
    table, client = make(tmp_path), Someone()
    table.commit("G", "T", 0, 50, 100, client)
    table.commit("G", "T", 0, 8, 100, client)
    assert table.query("G", "T", 0) == 8


def test_who_follows_a_closed_client_may_seek_back(tmp_path: Path) -> None:
    table, gone, restarted = make(tmp_path), Someone(), Someone()
    table.commit("G", "T", 0, 50, 100, gone)
    gone.closed = True
    table.commit("G", "T", 0, 8, 100, restarted)
    assert table.query("G", "T", 0) == 8


def test_what_a_member_passed_on_may_be_anybodys_and_is_taken(tmp_path: Path) -> None:
    """One client, at the leader and by way of another member: it goes back by intention, whichever way it takes."""
    table, client = make(tmp_path), Someone()
    table.commit("G", "T", 0, 50, 100, client)
    table.commit("G", "T", 0, 20, 100, ANYBODY)
    assert table.query("G", "T", 0) == 20
    table.commit("G", "T", 0, 8, 100, client)
    assert table.query("G", "T", 0) == 8


def test_a_reset_wins_until_a_pull_took_it(tmp_path: Path) -> None:
    table, client = make(tmp_path), Someone()
    table.commit("G", "T", 0, 50, 100, client)
    table.reset("G", "T", 0, 3)
    assert not table.commit("G", "T", 0, 51, 100, client)
    assert table.query("G", "T", 0) == 3
    assert table.take_reset("G", "T", 1) == -1
    assert table.take_reset("G", "T", 0) == 3
    assert table.take_reset("G", "T", 0) == -1
    assert table.commit("G", "T", 0, 4, 100, client)
    assert table.query("G", "T", 0) == 4


def test_what_a_crash_left_beyond_the_end_is_cut_down(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.assign("G", "T", 0, 80)
    table.assign("G", "T", 1, 8)
    assert table.clamp(lambda _topic, _queue: 10) == 1
    assert (table.query("G", "T", 0), table.query("G", "T", 1)) == (10, 8)


def test_clone_and_removal(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.assign("G", "T", 0, 8)
    table.clone("G", "H", "T")
    assert table.offsets("H", "T") == {0: 8}
    table.remove_group("G")
    assert table.query("G", "T", 0) == -1
    table.remove_topic("T")
    assert table.topics_of("H") == []


async def test_it_survives_in_the_file(tmp_path: Path) -> None:
    table = make(tmp_path)
    assert not await table.persist()
    table.commit("G", "T", 3, 7, 10, None)
    assert await table.persist()
    assert not await table.persist()
    written = orjson.loads((tmp_path / "consumerOffset.json").read_bytes())
    assert written["offsetTable"] == {"T@G": {"3": 7}}
    assert set(written["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    assert make(tmp_path).query("G", "T", 3) == 7


def test_it_reads_what_rocketmq_writes(tmp_path: Path) -> None:
    version = '{"counter":4,"stateVersion":0,"timestamp":9}'
    table_text = '{"T@G":{0:2,1:-1}}'
    text = f'{{"dataVersion":{version},"groupTopicMap":{{}},"offsetTable":{table_text}}}'
    (tmp_path / "consumerOffset.json").write_text(text)
    table = make(tmp_path)
    assert table.offsets("G", "T") == {0: 2}
    assert orjson.loads(table.encode())["dataVersion"] == {"counter": 4, "stateVersion": 0, "timestamp": 9}


@pytest.mark.parametrize("text", ["[]", "{", '{"offsetTable":{"nothing":{}}}', '{"offsetTable":{"T@G":{"x":1}}}'])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "consumerOffset.json").write_text(text)
    with pytest.raises(MetadataError, match=r"consumerOffset\.json"):
        make(tmp_path)
