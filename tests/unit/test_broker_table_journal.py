"""broker/metadata/table_journal.py and what table_file.py does with it: changes that cost the same at any size."""

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.metadata import table_file
from broker.metadata.consumer_groups import GroupTable
from broker.metadata.table_file import MetadataError
from broker.metadata.topics import TopicTable
from broker.settings.config import BrokerConfig, LiveConfig
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from runtime.clock import ManualClock
from runtime.durable import replace_file
from runtime.journal import Journal, JournalDamaged
from store.config import StoreConfig

LIVE = LiveConfig(BrokerConfig(), StoreConfig())
# Enough that topics.json is beyond JOURNAL_FROM.
MANY = 600


def topics_of(folder: Path) -> TopicTable:
    return TopicTable(folder / "topics.json", LIVE, ManualClock())


async def grown(folder: Path) -> TopicTable:
    """A table that is large enough to have a journal, with nothing in it yet."""
    table = topics_of(folder)
    table.update(*(TopicConfig(f"old-{number}", 1, 1) for number in range(MANY)))
    await table.save()
    return table


def on_disk(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "topics.json").read_bytes())
    return content


def killed(folder: Path, target: Path) -> TopicTable:
    """What a start finds when the process was killed now."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return topics_of(target)


async def test_changes_of_a_large_table_go_into_its_journal(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    before = (folder / "topics.json").read_bytes()
    table.update(TopicConfig("new", 3, 3))
    await table.save()
    table.update(TopicConfig("old-1", 1, 1, perm=4, attributes={"message.type": "FIFO"}))
    await table.save()
    table.delete("old-2", "old-3")
    await table.save()
    assert (folder / "topics.json").read_bytes() == before
    assert 0 < (folder / "topics.journal").stat().st_size < 1000
    again = killed(folder, tmp_path / "b")
    assert again.tables == table.tables
    assert again.data_version == table.data_version
    assert not (tmp_path / "b" / "topics.journal").exists(), "a start writes the file whole"
    assert on_disk(tmp_path / "b")["topicConfigTable"].keys() == table.tables.keys()
    await table.close()
    assert not (folder / "topics.journal").exists(), "so does a stop"
    assert on_disk(folder)["topicConfigTable"].keys() == table.tables.keys()


async def test_a_change_costs_the_same_at_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes written for a thousand changes: hardly more at five times the size."""
    whole = 0

    def counting(path: Path, content: bytes, mode: int = 0o644) -> None:
        nonlocal whole
        whole += len(content)
        replace_file(path, content, mode)

    async def cost(folder: Path, size: int) -> tuple[int, int]:
        nonlocal whole
        table = topics_of(folder)
        table.update(*(TopicConfig(f"old-{number}", 1, 1) for number in range(size)))
        await table.save()
        whole = 0
        for number in range(1000):
            table.update(TopicConfig(f"new-{number}", 1, 1))
            await table.save()
        written, journal = whole, (folder / "topics.journal").stat().st_size
        await table.close()
        return written, journal

    monkeypatch.setattr(table_file, "replace_file", counting)
    small, large = await cost(tmp_path / "s", 1000), await cost(tmp_path / "l", 5000)
    assert sum(large) <= sum(small) * 1.2 + 4096
    assert sum(large) < 300 * 1000


async def test_a_small_table_has_no_journal_and_its_file_no_key_of_ours(tmp_path: Path) -> None:
    table = topics_of(tmp_path)
    table.update(TopicConfig("T", 1, 1))
    await table.save()
    assert set(on_disk(tmp_path)) == {"dataVersion", "topicConfigTable"}
    assert not (tmp_path / "topics.journal").exists()
    await table.close()


async def test_every_cut_of_the_journal_gives_a_prefix_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    states, sizes = [set(table.tables)], [0]
    for number in range(4):
        if number == 2:
            table.delete("new-0")
        else:
            table.update(TopicConfig(f"new-{number}", 1, 1))
        await table.save()
        states.append(set(table.tables))
        sizes.append((folder / "topics.journal").stat().st_size)
    content, base = (folder / "topics.journal").read_bytes(), (folder / "topics.json").read_bytes()
    await table.close()
    trial = tmp_path / "trial"
    trial.mkdir()
    for cut in range(len(content) + 1):
        for tail in (b"", bytes(40)):
            (trial / "topics.json").write_bytes(base)
            (trial / "topics.journal").write_bytes((content[:cut] + tail)[: max(cut, len(content))])
            acknowledged = max(index for index, size in enumerate(sizes) if size <= cut)
            assert set(topics_of(trial).tables) == states[acknowledged], cut


async def test_damage_in_the_middle_is_refused_with_a_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    ends = []
    for number in range(3):
        table.update(TopicConfig(f"new-{number}", 1, 1))
        await table.save()
        ends.append((folder / "topics.journal").stat().st_size)
    content, base = (folder / "topics.journal").read_bytes(), (folder / "topics.json").read_bytes()
    await table.close()
    trial = tmp_path / "trial"
    trial.mkdir()
    for at in range(ends[-2]):
        (trial / "topics.json").write_bytes(base)
        (trial / "topics.journal").write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
        with pytest.raises(MetadataError, match=r"topics\.journal.*move it away"):
            topics_of(trial)
    (trial / "topics.journal").unlink()
    assert "new-0" not in topics_of(trial).tables


async def test_a_crash_between_the_new_file_and_the_end_of_its_journal_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    table.update(TopicConfig("new", 1, 1))
    await table.save()
    journal = (folder / "topics.journal").read_bytes()
    table.delete("new")
    table.file.touch()
    await table.save()
    (folder / "topics.journal").write_bytes(journal)
    assert "new" not in killed(folder, tmp_path / "b").tables
    assert not (tmp_path / "b" / "topics.journal").exists()
    await table.close()


async def test_what_an_administrator_edits_after_a_stop_stays(tmp_path: Path) -> None:
    table = await grown(tmp_path)
    table.update(TopicConfig("new", 1, 1))
    await table.save()
    await table.close()
    content = on_disk(tmp_path)
    del content["topicConfigTable"]["new"]
    (tmp_path / "topics.json").write_text(json.dumps(content))
    assert "new" not in topics_of(tmp_path).tables


async def test_a_file_of_somebody_else_beside_a_journal_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    table.update(TopicConfig("new", 1, 1))
    await table.save()
    trial = tmp_path / "trial"
    killed(folder, trial)
    (trial / "topics.journal").write_bytes((folder / "topics.journal").read_bytes())
    content = on_disk(folder)
    await table.close()
    del content["journalGeneration"]
    (trial / "topics.json").write_text(json.dumps(content))
    with pytest.raises(MetadataError, match=r"continues another topics\.json"):
        topics_of(trial)
    (trial / "topics.json").unlink()
    (trial / "topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(MetadataError, match="which is missing"):
        topics_of(trial)
    (trial / "topics.journal").unlink()
    assert "TBW102" in topics_of(trial).tables


async def test_the_journal_goes_on_over_the_backup_of_a_damaged_file(tmp_path: Path) -> None:
    table = await grown(tmp_path)
    table.file.touch()
    await table.save()
    table.update(TopicConfig("new", 1, 1))
    await table.save()
    (tmp_path / "topics.json").write_bytes(b"{")
    assert {"new", "old-1"} <= topics_of(tmp_path).tables.keys()
    await table.close()


async def test_a_journal_as_long_as_its_file_is_folded_into_it(tmp_path: Path) -> None:
    table = await grown(tmp_path)
    size = (tmp_path / "topics.json").stat().st_size
    for number in range(size):
        table.update(TopicConfig("again", 1, 1, attributes={"a": str(number) * 100}))
        await table.save()
        if "again" in on_disk(tmp_path)["topicConfigTable"]:
            break
    assert number > 10
    assert not (tmp_path / "topics.journal").exists()
    assert topics_of(tmp_path).tables == table.tables
    await table.close()


async def test_a_quiet_table_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "QUIET_SECONDS", 0.01)
    table = await grown(tmp_path)
    table.update(TopicConfig("new", 1, 1))
    await table.save()
    async with asyncio.timeout(20):
        while (tmp_path / "topics.journal").exists():
            await asyncio.sleep(0.005)
    assert "new" in on_disk(tmp_path)["topicConfigTable"]
    await table.close()


def refusing(path: Path, content: bytes, mode: int = 0o644) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


async def test_a_full_disk_that_has_room_for_a_record_keeps_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    table.update(TopicConfig("new", 1, 1))
    await table.save()
    monkeypatch.setattr(table_file, "replace_file", refusing)
    await table.file._fold()
    table.update(TopicConfig("newer", 1, 1))
    await table.save()
    again = killed(folder, tmp_path / "b")
    assert {"new", "newer"} <= again.tables.keys()
    again.update(TopicConfig("newest", 1, 1))
    await again.save()
    await again.close()
    await table.close()
    monkeypatch.undo()
    assert {"new", "newer", "newest"} <= topics_of(tmp_path / "b").tables.keys()


async def test_no_room_for_a_record_is_an_error_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "FULL_PAUSE", 0.001)
    folder = tmp_path / "a"
    table = await grown(folder)
    append: Callable[[Journal, bytes], None] = Journal.append

    def full(_journal: Journal, _payload: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    table.update(TopicConfig("new", 1, 1))
    with pytest.raises(OSError, match=r"No space left on device: .*topics\.json"):
        await table.save()
    assert table.file.full is not None
    monkeypatch.setattr(Journal, "append", append)
    async with asyncio.timeout(20):
        while table.file.full is not None:
            await asyncio.sleep(0.001)
    assert "new" in killed(folder, tmp_path / "b").tables
    await table.close()


async def test_groups_have_a_journal_too(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    table = GroupTable(path, LIVE, ManualClock())
    table.update(*(SubscriptionGroupConfig(groupName=f"old-{number}") for number in range(MANY)))
    await table.save()
    before = path.read_bytes()
    table.update(SubscriptionGroupConfig(groupName="new", retryMaxTimes=3))
    table.set_readable("new", "T", readable=False)
    table.delete("old-1")
    await table.save()
    assert path.read_bytes() == before
    again = GroupTable(path, LIVE, ManualClock())
    assert again.tables == table.tables
    assert not again.readable("new", "T")
    await table.close()


def test_a_journal_that_somebody_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.begin(7)
    journal.append(b"one")
    journal.path.write_bytes(b"")
    with pytest.raises(OSError, match="changed under"):
        journal.append(b"two")
    assert not journal.usable


def test_a_journal_s_head_that_is_damaged_is_no_empty_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.begin(7)
    journal.append(b"one")
    content = journal.path.read_bytes()
    journal.path.write_bytes(b"?" + content[1:])
    with pytest.raises(JournalDamaged):
        journal.read()


async def test_the_file_of_a_group_that_takes_long_to_write_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(table_file, "REST_FACTOR", 1e9)
    table = topics_of(tmp_path)
    table.update(TopicConfig("T", 1, 1))
    await table.save()
    assert table.file.rests
    monkeypatch.setattr(table_file, "SLOW_SECONDS", 60.0)
    assert not table.file.rests
    await table.close()
