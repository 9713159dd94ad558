"""What a start has thrown away is known until it is whole again, whatever kills the starts in between (R4)."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from raft.protocol.types import EntryType
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.derived.consumequeue import ConsumeQueues
from store.errors import StoreDamaged
from store.files.checkpoint import CHECKPOINT_NAME, load_checkpoint
from store.files.lockfile import ABORT_NAME
from store.log.dispatch import Dispatcher
from store.messagestore import MessageStore
from store.types import Dispatched
from tests.parts.entry_tools import Node, checkpoint, damage, give, lead, mend, open_node
from tests.parts.store_tools import FILE_BYTES, HOST, expire, fill, make_config

MESSAGES = 3000


class Killed(Exception):
    """The process is gone."""


def killed_after(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Have the process end when so many batches are in the queues, with what they hold written."""
    honest = Dispatcher.dispatch
    left = [batches]

    def dispatch(self: Dispatcher, batch: Sequence[Dispatched], **options: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        honest(self, batch, **options)
        self._queues.persist()

    monkeypatch.setattr(Dispatcher, "dispatch", dispatch)


def single(folder: Path) -> MessageStore:
    return MessageStore.open(make_config(folder), store_host=HOST)


def queue_bytes(folder: Path) -> dict[str, bytes]:
    queues = folder / "store" / "consumequeue"
    files = {
        str(path.relative_to(queues)): path.read_bytes().rstrip(b"\0") for path in queues.rglob("0*") if path.is_file()
    }
    return {name: content for name, content in files.items() if content}


def take_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def take_queues_and_checkpoint(root: Path) -> None:
    take_queues(root)
    (root / CHECKPOINT_NAME).unlink()


def tear_a_queue(root: Path) -> None:
    """Leave what a lost page leaves: a queue whose newest entries are not there, after an unclean stop."""
    (root / ABORT_NAME).write_text("1")
    files = sorted((root / "consumequeue" / "T" / "0").iterdir())
    for path in files[len(files) // 2 :]:
        path.unlink()


def mislead_a_queue(root: Path) -> None:
    """Have a queue's newest entry point to another record, after an unclean stop."""
    (root / ABORT_NAME).write_text("1")
    path = max((root / "consumequeue" / "T" / "0").iterdir())
    at = (len(path.read_bytes().rstrip(b"\0")) - 1) // 20 * 20
    with path.open("r+b") as file:
        file.seek(at)
        file.write((7).to_bytes(8, "big"))


TAKEN: list[Callable[[Path], None]] = [take_queues, take_queues_and_checkpoint, tear_a_queue, mislead_a_queue]


@pytest.mark.parametrize("take", TAKEN)
@pytest.mark.parametrize("kills", [1, 2])
def test_R4_a_rebuild_of_queues_that_is_killed_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: Callable[[Path], None], kills: int
) -> None:
    store = single(tmp_path)
    fill(store, MESSAGES, body=b"x" * 50)
    store.close()
    whole = queue_bytes(tmp_path)
    take(tmp_path / "store")
    for kill in range(kills):
        with monkeypatch.context() as patch:
            killed_after(patch, 2 - kill)
            with pytest.raises(Killed):
                single(tmp_path)
    assert (tmp_path / "store" / ABORT_NAME).exists()
    store = single(tmp_path)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, MESSAGES)
    store.close()
    assert queue_bytes(tmp_path) == whole


def test_R4_an_index_that_was_taken_away_is_built_again_after_any_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = single(tmp_path)
    fill(store, MESSAGES, properties=b"KEYS\x01akey\x02")
    newest = store.query("T", "akey", 4, 0, 1 << 60)
    store.close()
    shutil.rmtree(tmp_path / "store" / "index")
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            single(tmp_path)
    store = single(tmp_path)
    assert len(newest.records) == 4
    assert store.query("T", "akey", 4, 0, 1 << 60).records == newest.records
    assert store.max_offset("T", 0) == MESSAGES
    store.close()


def test_a_queue_whose_messages_have_expired_keeps_its_end_through_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = single(tmp_path)
    fill(store, 40, topic="Old", body=bytes(1000))
    fill(store, 300, body=bytes(1000))
    store.close()
    expire(make_config(tmp_path), 2 * FILE_BYTES)
    mislead_a_queue(tmp_path / "store")
    store = single(tmp_path)
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (40, 40)
    assert store.max_offset("T", 0) == 300
    store.close()


# -- members of a group


def four_files(folder: Path) -> Node:
    """A member's log of three files and a half, all of it committed; stopped in good order."""
    node = open_node(folder / "a")
    lead(node)
    while node.store.written < 3.5 * FILE_BYTES:
        node.records(bytes(3000), topic="U")
    node.sync()
    node.log.release(node.log.last.index)
    node.store.close()
    shutil.copytree(folder / "a", folder / "b")
    return node.again()


def lose(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / "b" / "store" / "commitlog" / f"{number * FILE_BYTES:020d}").unlink()


def kill(node: Node) -> None:
    """End with everything that a process writes within its first seconds."""
    node.store._queues.persist()
    node.kill()


@pytest.mark.parametrize("gone", [[1], [2], [1, 2], [3], [1, 3], [0], [0, 1], [0, 3], [0, 2], [0, 1, 2, 3]])
def test_R4_a_lost_file_is_not_forgotten_by_the_starts_that_follow(tmp_path: Path, gone: list[int]) -> None:
    whole = four_files(tmp_path)
    last = whole.log.last
    lose(tmp_path, *gone)
    for _ in range(3):
        hurt = open_node(tmp_path / "b")
        assert (hurt.log.whole, hurt.log.last) == (False, last)
        kill(hurt)
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert log.damaged is not None
    # The first of its pieces, and killed again.
    give(hurt, whole.content, size=10_000)
    begin = log.damaged[0] if log.damaged is not None else 0
    kill(hurt)
    hurt = open_node(tmp_path / "b")
    log = hurt.log
    assert log.damaged is not None
    assert log.damaged[0] == begin
    mend(hurt, whole.content)
    log.release(last.index)
    assert hurt.content == whole.content
    kill(hurt)
    hurt = open_node(tmp_path / "b")
    assert (hurt.log.whole, hurt.log.last) == (True, last)
    hurt.log.release(last.index)
    assert hurt.store.max_offset("U", 0) == whole.store.max_offset("U", 0)
    hurt.store.close()
    whole.store.close()


def test_R4_a_stop_in_good_order_does_not_forget_a_hole_either(tmp_path: Path) -> None:
    clock = ManualClock()
    whole = four_files(tmp_path)
    lose(tmp_path, 1)
    hurt = open_node(tmp_path / "b", clock=clock)
    assert hurt.log.damaged is not None
    begin = hurt.log.end_position(hurt.log.damaged[0] - 1)
    checkpoint(hurt, clock)
    assert load_checkpoint(tmp_path / "b" / "store").dispatched <= begin
    hurt.store.close()
    assert load_checkpoint(tmp_path / "b" / "store").dispatched <= begin
    hurt = open_node(tmp_path / "b")
    assert hurt.log.damaged is not None
    hurt.store.close()
    whole.store.close()


@pytest.mark.parametrize("found", ["at the start", "while it runs"])
def test_R4_a_queue_that_is_taken_away_beside_a_hole_is_missed(tmp_path: Path, found: str) -> None:
    whole = four_files(tmp_path)
    if found == "at the start":
        lose(tmp_path, 2)
    hurt = open_node(tmp_path / "b")
    if found == "while it runs":
        hurt.log.mark_damaged(hurt.log.last.index - 2, hurt.log.last.index - 1)
    assert hurt.log.damaged is not None
    kill(hurt)
    shutil.rmtree(tmp_path / "b" / "store" / "consumequeue" / "U")
    hurt = open_node(tmp_path / "b")
    if hurt.log.damaged is not None:
        mend(hurt, whole.content)
    hurt.log.release(whole.log.last.index)
    assert hurt.store.max_offset("U", 0) == whole.store.max_offset("U", 0)
    assert hurt.store.queue_entries("U", 0, 0, 10_000) == whole.store.queue_entries("U", 0, 0, 10_000)
    hurt.store.close()
    whole.store.close()


def test_R4_queues_in_front_of_a_hole_stay_as_they_are(tmp_path: Path) -> None:
    whole = four_files(tmp_path)
    lose(tmp_path, 3)
    hurt = open_node(tmp_path / "b")
    assert hurt.log.damaged is not None
    low = hurt.log.end_position(hurt.log.damaged[0] - 1)
    assert low > 2 * FILE_BYTES
    assert hurt.log.released == hurt.log.damaged[0] - 1
    assert 0 < hurt.store.max_offset("U", 0) < whole.store.max_offset("U", 0)
    hurt.store.close()
    whole.store.close()


def test_R4_damage_that_a_running_member_finds_is_not_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    node = open_node(tmp_path / "a", clock=clock)
    lead(node, 20)
    node.log.release(21)
    checkpoint(node, clock)
    node.store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    whole = node.again()
    damage(tmp_path / "b", whole.start_of(9) + 250)
    hurt = open_node(tmp_path / "b", clock=clock)
    assert hurt.log.whole
    assert hurt.log.read(9, 1 << 20) == []
    assert hurt.log.damaged == (9, 9)
    kill(hurt)
    hurt = open_node(tmp_path / "b", clock=clock)
    assert hurt.log.damaged == (9, 9)
    # Nor by a checkpoint that was on its way.
    mend(hurt, whole.content)
    hurt.log.release(21)
    checkpoint(hurt, clock)
    assert load_checkpoint(tmp_path / "b" / "store").dispatched == hurt.log.last.end
    lead(hurt, 3)
    hurt.log.release(24)
    clock.advance(6)
    hurt.store.idle()
    hurt.sync()
    hurt.store.idle()
    hurt.log.mark_damaged(5, 5)
    while hurt.store.step_helper():
        pass
    assert load_checkpoint(tmp_path / "b" / "store").dispatched == hurt.log.end_position(4)
    hurt.store.close()
    whole.store.close()


def test_R4_a_member_whose_first_files_are_lost_keeps_refusing(tmp_path: Path) -> None:
    """What stands before the group is nothing that another member could be asked for."""
    store = single(tmp_path)
    fill(store, 200, body=bytes(1000))
    store.close()
    node = open_node(tmp_path)
    lead(node)
    node.sync()
    node.log.release(node.log.last.index)
    node.store.close()
    (tmp_path / "store" / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    for _ in range(3):
        with pytest.raises(StoreDamaged):
            open_node(tmp_path)


def test_R4_a_member_s_rebuild_that_is_killed_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = four_files(tmp_path)
    shutil.rmtree(tmp_path / "b" / "store" / "consumequeue" / RAFT_TOPIC)
    honest = ConsumeQueues.append_many
    left = [20]

    def append_many(self: ConsumeQueues, batch: Sequence[Dispatched], **options: Any) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        honest(self, batch, **options)
        self.persist()

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueues, "append_many", append_many)
        with pytest.raises(Killed):
            open_node(tmp_path / "b")
    again = open_node(tmp_path / "b")
    assert again.log.whole
    again.log.release(again.log.last.index)
    assert again.store.max_offset("U", 0) == whole.store.max_offset("U", 0)
    again.store.close()
    whole.store.close()


def test_R4_a_list_of_members_that_rots_is_found_out_when_it_is_asked_for(tmp_path: Path) -> None:
    """Until it is mended the one before it counts; and that is remembered."""
    clock = ManualClock()
    node = open_node(tmp_path / "a", clock=clock)
    lead(node, 8)
    newer = node.log.append(EntryType.CONFIG, 1, b"newer", 9)
    lead(node, 8)
    node.log.release(18)
    checkpoint(node, clock)
    node.store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    whole = node.again()
    damage(tmp_path / "b", whole.start_of(newer) + 90)
    for _ in range(2):
        hurt = open_node(tmp_path / "b")
        assert hurt.log.last_config() == 1
        assert hurt.log.damaged == (newer, newer)
        kill(hurt)
    hurt = open_node(tmp_path / "b")
    mend(hurt, whole.content)
    assert (hurt.log.last_config(), hurt.log.payload(newer)) == (newer, b"newer")
    hurt.store.close()
    whole.store.close()
