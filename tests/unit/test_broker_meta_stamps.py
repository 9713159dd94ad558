"""R3: files of metadata carry stamps, what a stamp covers is not applied again, and none grows old."""

import json
import shutil
from pathlib import Path

import pytest

import broker.metadata.replicated
from broker.metadata.operations import Operation
from broker.metadata.table_file import ConfigFile, Stamp
from remoting.bodies.registry import TopicConfig
from runtime.clock import ManualClock
from tests.parts.meta_parts import GROUP, Member, leader


def test_R3_every_file_is_stamped_and_rocketmq_still_reads_it(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.topics.update(TopicConfig("T"))
    member.offsets.assign("g", "T", 0, 5)
    member.settle()
    member.write()
    for table in member.tables:
        content = json.loads(table.file.path.read_bytes())
        stamp = {"group": GROUP.hex(), "applied": member.meta.index, "lastMeta": member.meta.last_meta}
        assert content.pop("raftStamp") == stamp
        assert content == member.state()[table.file.path.name], "beside it, the file is RocketMQ's"


def test_R3_replay_skips_what_a_tables_stamp_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = leader(tmp_path)
    member.offsets.assign("g", "T", 0, 5)
    member.topics.update(TopicConfig("T"))
    entries = member.settle()
    member.offsets.file.write_now()
    after = member.state()
    again = Member(tmp_path, ManualClock())
    assert again.meta.replay_from() == 2, "the other tables' files are as old as the group"
    assert again.offsets.query("g", "T", 0) == 5
    assert again.topics.get("T") is None

    def never(_operation: Operation, *, own: bool) -> None:
        raise AssertionError(f"its stamp covers all of it, own: {own}")

    monkeypatch.setattr(again.offsets, "apply", never)
    everything = [*_history(member), *entries]
    for index, payload in enumerate(everything, 2):
        again.meta.apply(index, payload)
    assert again.state() == after
    assert again.topics.file._current_stamp() == Stamp(GROUP.hex(), member.meta.index, member.meta.last_meta)


def _history(member: Member) -> list[bytes]:
    """The entries that a first leader of the same clock proposes."""
    fresh = Member(member.folder / "again", ManualClock())
    fresh.role.become(3)
    return fresh.settle()


def test_R3_a_foreign_or_missing_or_old_stamp_is_refused(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.settle()
    member.write()
    assert member.meta.load_stamps(GROUP, 2) is None
    assert "another group" in (member.meta.load_stamps(bytes(16), 2) or "")
    assert "the log is kept from entry 100 on" in (member.meta.load_stamps(GROUP, 100) or "")
    path = member.groups.file.path
    content = json.loads(path.read_bytes())
    del content["raftStamp"]
    path.write_text(json.dumps(content))
    plain = Member(tmp_path, ManualClock())
    assert plain.meta.index == 1, "taken for a bootstrap here: it was stamped anew"
    path.write_text(json.dumps(content))
    fresh = ConfigFile(path, plain.groups._snapshot)
    fresh.load(lambda data: data)
    assert fresh.stamp is None


def test_R3_the_oldest_stamp_counts_the_backup_too(tmp_path: Path) -> None:
    member = leader(tmp_path)
    assert member.meta.oldest_stamp() == 1
    member.settle()
    index = member.meta.index
    member.write()
    assert member.meta.oldest_stamp() == 1, "the .bak files are older"
    member.meta.advance(index + 50)
    member.write()
    assert member.meta.oldest_stamp() == index
    again = Member(tmp_path, ManualClock())
    assert again.meta.oldest_stamp() == index, "read from the files"


async def test_R3_files_are_written_when_dirty_and_stamped_anew_from_time_to_time(tmp_path: Path) -> None:
    clock = ManualClock()
    member = leader(tmp_path, clock)
    await member.meta.persist()
    written = {table.file.path: table.file.path.read_bytes() for table in member.tables}
    member.meta.advance(member.meta.index + 10)
    await member.meta.persist()
    assert written == {path: path.read_bytes() for path in written}
    member.topics.update(TopicConfig("T"))
    member.settle()
    await member.meta.persist()
    changed = [path.name for path, content in written.items() if path.read_bytes() != content]
    assert changed == ["topics.json"]
    clock.advance(broker.metadata.replicated.RESTAMP_SECONDS)
    await member.meta.persist()
    assert all(table.file.stamp == member.topics.file._current_stamp() for table in member.tables)


async def test_R3_each_of_many_kills_leaves_no_more_entries_to_look_at(tmp_path: Path) -> None:
    most = broker.metadata.replicated.RESTAMP_ENTRIES
    leader(tmp_path).write()
    for _ in range(4):
        # It lives for less than RESTAMP_SECONDS, and is gone without a word.
        member = Member(tmp_path, ManualClock())
        begin = member.meta.replay_from()
        member.meta.advance(begin + most // 2)
        await member.meta.persist()
        assert Member(tmp_path, ManualClock()).meta.replay_from() == begin, "not for so few"
        member.meta.advance(begin + most)
        await member.meta.persist()
        assert Member(tmp_path, ManualClock()).meta.replay_from() == begin + most + 1


@pytest.mark.parametrize("written", [False, True])
def test_R3_a_first_leader_that_is_killed_in_the_middle_leaves_no_table_half_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    monkeypatch.setattr("broker.metadata.replicated.ENTRY_BYTES_MAX", 1200)
    monkeypatch.setattr("broker.metadata.meta_entry.OPERATION_BYTES_MAX", 600)
    known = leader(tmp_path / "known")
    known.topics.update(*[TopicConfig(f"topic-{number}") for number in range(100)])
    for number in range(100):
        known.offsets.assign("g", f"topic-{number}", 0, number)
    known.settle()
    for table in known.tables:
        table.file.stamp = None
    known.meta.stamp_all(GROUP, 1)
    known.locks.file.path.unlink()
    entries = len(_first(known.folder, tmp_path / "all").settle())
    assert entries > 5
    for committed in range(entries + 1):
        member = _first(known.folder, tmp_path / f"killed-{committed}")
        other = Member(tmp_path / f"other-{committed}", ManualClock())
        log: list[bytes] = []
        member.turn()
        for payload, _ in member.proposed[:committed]:
            log.append(payload)
            member.meta.apply(1 + len(log), payload)
        member.meta.advance(1 + len(log))
        if written:
            member.write()
        again = Member(member.folder, ManualClock())
        for index in range(again.meta.replay_from(), 2 + len(log)):
            again.meta.apply(index, log[index - 2])
        again.at = 1 + len(log)
        again.role.become(5)
        log += again.settle()
        for index, payload in enumerate(log, 2):
            other.meta.apply(index, payload)
        offsets = again.state()["consumerOffset.json"]["offsetTable"]
        assert offsets == known.state()["consumerOffset.json"]["offsetTable"], committed
        assert set(again.topics.tables) == set(known.topics.tables), committed
        assert other.state() == again.state(), committed


def _first(source: Path, folder: Path) -> Member:
    """The only member of a group that has just begun on files that were there; it leads."""
    shutil.copytree(source, folder)
    member = Member(folder, ManualClock())
    member.role.become(3)
    return member


async def test_nothing_is_written_before_the_group_has_begun(tmp_path: Path) -> None:
    member = Member(tmp_path, ManualClock())
    member.meta.group = None
    assert member.meta.oldest_stamp() == 0
    before = (tmp_path / "topics.json").stat().st_mtime_ns
    await member.meta.persist(everything=True)
    assert (tmp_path / "topics.json").stat().st_mtime_ns == before


async def test_a_broker_without_a_group_keeps_the_stamps(tmp_path: Path) -> None:
    member = leader(tmp_path)
    member.settle()
    member.write()
    stamp = member.topics.file.stamp
    config = member.topics._config
    alone = type(member.topics)(tmp_path / "topics.json", config, ManualClock())
    alone.update(TopicConfig("T"))
    await alone.close()
    assert alone.data_version.stateVersion == 3, "R15: it never falls in the life of a store"
    again = Member(tmp_path, ManualClock())
    assert again.topics.file.stamp == stamp
    assert again.topics.get("T") == TopicConfig("T")
