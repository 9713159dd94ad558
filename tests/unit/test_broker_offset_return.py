"""Offsets that a killed master forgot come back from its slave, and what was set back on purpose does not."""

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.master_slave import metadata_copy as slave_meta
from broker.master_slave.ha_state import Followed
from broker.master_slave.queue_ends import end_before
from broker.metadata import offset_lowered
from broker.metadata.offset_lowered import Lowerings
from remoting.bodies.registry import SubscriptionGroupConfig, TopicConfig
from store.types import QueueEntry
from tests.parts.slave_parts import MasterBroker, SlaveBroker, copying, serving

GROUPS = ("g", "h")

NOW_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_meta, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr("broker.metadata.feed.SOON_SECONDS", 0.01)
    monkeypatch.setattr("broker.metadata.feed.PROGRESS_SECONDS", 0.02)


async def after_a_kill(
    tmp_path: Path,
    meanwhile: Callable[[MasterBroker], None] = lambda _: None,
    *,
    held: int = 100,
) -> tuple[dict[int, int], dict[int, int]]:
    """Let the master be killed after commits that its file has not, and a slave has; return what both say then.

    `meanwhile` is done at the master behind the slave's copy, and is in its file; `held`: the slave's queues end there.
    """
    async with AsyncExitStack() as exits:
        folder = tmp_path / "master"
        slave = SlaveBroker(tmp_path / "slave", None)
        slave.store.max_offset = lambda *_: held  # type: ignore[method-assign] # as far as it needs any
        async with serving(MasterBroker(folder)) as master:
            master.topics.update(TopicConfig("T"))
            for group in GROUPS:
                master.groups.update(SubscriptionGroupConfig(group))
                for queue in range(2):
                    master.offsets.commit(group, "T", queue, 10, 100, None)
            slave.followed = Followed(master.address, "", 0)
            await exits.enter_async_context(copying(slave))
            await slave.copied()
            await master.offsets.persist()
            stored = (folder / "consumerOffset.json").read_bytes()
            for group in GROUPS:
                for queue in range(2):
                    master.offsets.commit(group, "T", queue, 60, 100, None)
            await slave.until(lambda: slave.offsets.offsets("h", "T") == {0: 60, 1: 60})
            slave.followed = None
            slave.copies.hurry()
            await slave.until(lambda: not slave.copies.synced)
        (folder / "consumerOffset.json").write_bytes(stored)
        again = MasterBroker(folder)
        again.topics.update(TopicConfig("T"))
        for group in GROUPS:
            again.groups.update(SubscriptionGroupConfig(group))
        assert again.offsets.offsets("g", "T") == {0: 10, 1: 10}
        meanwhile(again)
        await exits.enter_async_context(serving(again))
        slave.followed = Followed(again.address, "", 0)
        slave.copies.hurry()
        await slave.until(lambda: slave.copies.synced and slave.copies.status()["master"] == again.address)
        assert json.loads(again.offsets.encode()) == json.loads(slave.offsets.encode())
        return dict(again.offsets.offsets("g", "T")), dict(again.offsets.offsets("h", "T"))


async def test_what_a_killed_master_forgot_comes_back(tmp_path: Path) -> None:
    assert await after_a_kill(tmp_path) == ({0: 60, 1: 60}, {0: 60, 1: 60})


async def test_only_what_was_read_of_the_common_log_comes_back(tmp_path: Path) -> None:
    # Behind that the master may have other messages by now, which nobody has read.
    assert await after_a_kill(tmp_path, held=40) == ({0: 40, 1: 40}, {0: 40, 1: 40})


@pytest.mark.parametrize(
    "lower",
    [
        lambda master: master.offsets.reset("g", "T", 0, 5),
        lambda master: master.offsets.assign("g", "T", 0, 5),
        lambda master: master.offsets.commit("g", "T", 0, 5, 100, None),
    ],
)
async def test_what_was_set_back_meanwhile_stays_and_the_rest_comes_back(
    tmp_path: Path, lower: Callable[[MasterBroker], None]
) -> None:
    mine, other = await after_a_kill(tmp_path, lower)
    assert mine[0] == 5, "whoever set it back has the last word"
    assert other == {0: 60, 1: 60}


async def test_a_group_or_topic_that_was_deleted_and_made_again_gets_nothing_back(tmp_path: Path) -> None:
    assert await after_a_kill(tmp_path, lambda master: master.offsets.remove_group("g")) == ({}, {0: 60, 1: 60})
    other = tmp_path / "other"
    assert await after_a_kill(other, lambda master: master.offsets.remove_topic("T")) == ({}, {})


async def test_a_reset_before_the_kill_is_not_undone_by_what_was_committed_at_the_slave(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.topics.update(TopicConfig("T"))
        master.groups.update(SubscriptionGroupConfig("g"))
        master.offsets.commit("g", "T", 0, 30, 100, None)
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        await slave.copied()
        followed, slave.followed = slave.followed, None
        slave.copies.hurry()
        await slave.until(lambda: not slave.copies.synced)
        master.offsets.assign("g", "T", 0, 3)
        slave.offsets.commit("g", "T", 0, 50, 100, None)
        assert followed is not None
        slave.followed = followed._replace(position=1)
        slave.copies.hurry()
        await slave.copied()
        assert (master.offsets.query("g", "T", 0), slave.offsets.query("g", "T", 0)) == (3, 3)


async def test_planted_the_greater_offset_wins_whatever_was_set_back_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lowerings, "since", lambda _self, _mark: lambda _key: False)
    with pytest.raises(AssertionError, match="the last word"):
        await test_what_was_set_back_meanwhile_stays_and_the_rest_comes_back(
            tmp_path, lambda master: master.offsets.assign("g", "T", 0, 5)
        )


def test_marks_tell_what_was_lowered_since_and_when_nothing_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lowerings = Lowerings()
    before = lowerings.mark
    lowerings.note("T@g")
    told = lowerings.since(before)
    assert told is not None
    assert (told("T@g"), told("T@h")) == (True, False)
    now = lowerings.since(lowerings.mark)
    assert now is not None
    assert not now("T@g")
    # Another table's, none, nonsense, and one that was never given.
    for mark in ("", "x", "x:1", f"{before.partition(':')[0]}:9", before + "x", before.replace(":", ":-")):
        assert lowerings.since(mark) is None
    again = Lowerings.resumed(json.loads(json.dumps(lowerings.stored())), NOW_MS)
    told = again.since(before)
    assert told is not None
    assert told("T@g")
    # A number that was given and lost with a crash is not given again.
    assert int(again.mark.partition(":")[2]) > int(lowerings.mark.partition(":")[2])
    monkeypatch.setattr(offset_lowered, "KEYS_MAX", 3)
    for number in range(4):
        lowerings.note(f"T@{number}")
    assert lowerings.since(before) is None, "what was lowered first is forgotten"
    assert len(lowerings.stored()["keys"]) == 3


def test_a_mark_of_a_life_that_left_nothing_in_the_file_is_known_to_the_next() -> None:
    """A slave that stopped between two kills of its master still gives back what both lives have lost."""
    stored = json.loads(json.dumps(Lowerings().stored()))
    for start_ms in range(NOW_MS, NOW_MS + 20_000, 1000):
        lost = Lowerings.resumed(stored, start_ms)
        lost.note("T@g")
        after = Lowerings.resumed(stored, start_ms + 500)
        assert after.since(lost.mark) is not None
        assert int(after.mark.partition(":")[2]) > int(lost.mark.partition(":")[2]), "and given to nothing else"
        stored = json.loads(json.dumps(after.stored()))


async def test_a_promoted_slaves_table_has_marks_of_its_own(tmp_path: Path) -> None:
    async with AsyncExitStack() as exits:
        master = await exits.enter_async_context(serving(MasterBroker(tmp_path / "master")))
        master.offsets.commit("g", "T", 0, 30, 100, None)
        slave = await exits.enter_async_context(copying(SlaveBroker(tmp_path / "slave", master.address)))
        await slave.copied()
        assert master.offsets.lowerings is not None
        assert slave.offsets.mark == master.offsets.lowerings.mark
    promoted = MasterBroker(tmp_path / "slave")
    assert promoted.offsets.lowerings is not None
    assert promoted.offsets.lowerings.since(slave.offsets.mark) is None
    # And the old master, which became its slave, knows only its own.
    assert SlaveBroker(tmp_path / "master", None).offsets.mark.startswith(slave.offsets.mark.partition(":")[0])


class Queue:
    """A queue whose messages stand at these positions; the first has an offset of its own."""

    def __init__(self, first: int, positions: list[int]) -> None:
        self.first, self.positions = first, positions

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return self.first

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return self.first + len(self.positions)

    def queue_entries(self, _topic: str, _queue_id: int, index: int, count: int) -> list[QueueEntry]:
        at = index - self.first
        return [QueueEntry(position, 1, 0) for position in self.positions[at : at + count]]


def test_where_a_queue_ended_when_the_log_did() -> None:
    for first in (0, 7):
        queue = Queue(first, [10, 20, 30, 40])
        for position, behind in ((0, 0), (10, 0), (11, 1), (30, 2), (31, 3), (99, 4)):
            assert end_before(queue, "T", 0, position) == first + behind
    assert end_before(Queue(5, []), "T", 0, 99) == 5
