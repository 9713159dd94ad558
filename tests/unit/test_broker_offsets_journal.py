"""consumer_offsets.py: what an administrator does to offsets goes into a journal, and counts after a crash."""

import json
from pathlib import Path

import pytest

from broker.metadata import table_file
from broker.metadata.consumer_offsets import OffsetTable
from runtime.clock import ManualClock
from runtime.durable import replace_file

# Enough that the file is beyond JOURNAL_FROM.
MANY = 3000
END = 1 << 40


def table_in(folder: Path) -> OffsetTable:
    return OffsetTable.load(folder / "consumerOffset.json", ManualClock())


async def grown(folder: Path, size: int = MANY) -> OffsetTable:
    """A table of so many topics, each with a group that has come to 50 in two queues; all of it is in the file."""
    folder.mkdir()
    table = table_in(folder)
    for number in range(size):
        for queue in range(2):
            table.commit("readers", f"topic-{number}", queue, 50, END, None)
    assert await table.persist()
    return table


def killed(folder: Path, target: Path) -> OffsetTable:
    """What a start finds when the process was killed now."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return table_in(target)


async def test_resets_clones_and_deletions_are_in_the_journal_and_commits_as_old_as_ever(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    before = (folder / "consumerOffset.json").read_bytes()
    table.commit("readers", "topic-1", 0, 60, END, None)
    table.commit("readers", "topic-5", 0, 60, END, None)
    table.reset("readers", "topic-1", 1, 7)
    table.assign("readers", "topic-2", 0, 8)
    table.clone("readers", "others", "topic-5")
    table.remove_topic("topic-3")
    await table.save()
    table.commit("readers", "topic-4", 0, 70, END, None)
    journal = folder / "consumerOffset.journal"
    assert (folder / "consumerOffset.json").read_bytes() == before
    assert 0 < journal.stat().st_size < 1000
    again = killed(folder, tmp_path / "b")
    assert again.offsets("readers", "topic-1") == {0: 50, 1: 7}
    assert again.offsets("readers", "topic-2") == {0: 8, 1: 50}
    assert again.offsets("others", "topic-5") == {0: 60, 1: 50}, "as it was answered, not as old as its source"
    assert again.offsets("readers", "topic-3") == {}
    assert again.offsets("readers", "topic-4") == {0: 50, 1: 50}
    assert again.data_version.counter >= 1
    # It may have been told of it already: nobody is sent back twice.
    assert not again.reset_pending("readers", "topic-1", 1)
    assert not (tmp_path / "b" / "consumerOffset.journal").exists(), "a start writes the file whole"

    # The next writing of the commits takes the journal in.
    assert table.reset_pending("readers", "topic-1", 1)
    assert await table.persist()
    assert not journal.exists()
    stored = json.loads((folder / "consumerOffset.json").read_bytes())["offsetTable"]
    assert (stored["topic-4@readers"]["0"], stored["topic-1@readers"]["1"]) == (70, 7)
    assert "topic-3@readers" not in stored
    await table.file.at_stop(table.persist)
    await again.file.at_stop(again.persist)


async def test_a_stop_leaves_no_journal(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    table = await grown(folder)
    table.assign("readers", "topic-2", 0, 8)
    await table.save()
    assert (folder / "consumerOffset.journal").exists()
    await table.file.at_stop(table.persist)
    assert not (folder / "consumerOffset.journal").exists()
    assert table_in(folder).offsets("readers", "topic-2") == {0: 8, 1: 50}


async def test_a_reset_costs_the_same_at_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = 0

    def counting(path: Path, content: bytes, mode: int = 0o644) -> None:
        nonlocal whole
        whole += len(content)
        replace_file(path, content, mode)

    async def cost(size: int) -> int:
        nonlocal whole
        folder = tmp_path / str(size)
        table = await grown(folder, size)
        whole = 0
        for number in range(200):
            table.assign("readers", f"topic-{number}", 0, 8)
            await table.save()
        written = whole + (folder / "consumerOffset.journal").stat().st_size
        await table.file.at_stop(table.persist)
        return written

    monkeypatch.setattr(table_file, "replace_file", counting)
    small, large = await cost(MANY), await cost(5 * MANY)
    assert large <= small * 1.2 + 4096
    assert large < 200 * 200
