"""store/reads/gathering.py: entries that are read ahead, and how often the kernel is asked what it has in memory."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remoting.compiled.door import hotpath
from remoting.topics import RAFT_TOPIC
from runtime.clock import ManualClock
from store.messagestore import MessageStore
from store.reads import gathering
from store.reads.gathering import AHEAD, Framed, Gathering, Sitting
from tests.parts.send_runs import needs_hotpath
from tests.parts.store_tools import HOST, fill, make_config

pytestmark = needs_hotpath
HEAD = (b"from ", b" of %d to %d, %d and %d", 3, 4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    made = MessageStore.open(make_config(tmp_path), store_host=HOST, clock=ManualClock(), stepped=True)
    yield made
    made.close()


def gathering_of(store: MessageStore) -> Gathering:
    made = store.gathering()
    assert made is not None
    return made


def ask(
    store: MessageStore, offset: int, count: int = 2, sitting: Sitting | None = None, queue: int = 0
) -> Framed | None:
    reads = gathering_of(store)
    return reads.framed(("T", queue), offset, count, 1 << 20, HEAD, sitting or reads.sitting(1))


def test_an_answer_has_its_frame_around_it(store: MessageStore) -> None:
    fill(store, 5)
    found = ask(store, 1)
    assert found is not None
    frame, messages, size, behind, end = found
    header = b"from 3 of 5 to 0, 3 and 4"
    records = b"".join(store.get("T", 0, 1, 2).buffers)
    assert frame[8:] == header + records
    assert (int.from_bytes(frame[:4]), int.from_bytes(frame[4:8])) == (len(frame) - 4, len(header))
    assert (messages, size, behind, end) == (2, len(records), 2 * size // 2, 5)


@pytest.mark.parametrize("offset", [-1, 5, 6, 1 << 40])
def test_an_offset_at_which_nothing_stands_is_for_get(store: MessageStore, offset: int) -> None:
    fill(store, 5)
    assert ask(store, offset) is None
    assert ask(store, 0, queue=1) is None


def test_records_of_the_group_itself_are_no_messages(store: MessageStore) -> None:
    fill(store, 5, topic=RAFT_TOPIC)
    assert store.max_offset(RAFT_TOPIC, 0) == 5
    reads = gathering_of(store)
    assert reads.framed((RAFT_TOPIC, 0), 0, 2, 1 << 20, HEAD, reads.sitting(1)) is None


def test_entries_are_read_ahead_but_not_past_their_queue(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 150)
    store.idle()
    fill(store, 20)
    asked = list[tuple[int, int]]()
    real = store._queues.packed

    def packed(topic: str, queue_id: int, offset: int, count: int) -> bytes:
        asked.append((offset, count))
        return real(topic, queue_id, offset, count)

    monkeypatch.setattr(store._queues, "packed", packed)
    sitting = gathering_of(store).sitting(2)
    for offset in (*range(0, 170, 10), 5, 169):
        found = ask(store, offset, 10, sitting)
        assert found == ask(store, offset, 10)
        assert found is not None
        assert found.messages == min(10, 170 - offset)
    with_ahead = [each for each in asked if each[1] != 10 or each[0] in {165, 169}]
    assert [each for each in with_ahead if each[1] > 10] == [
        (0, 10 * AHEAD), (40, 10 * AHEAD), (80, 10 * AHEAD), (120, 10 * AHEAD), (5, 10 * AHEAD)
    ]  # fmt: skip
    assert max(offset + count for offset, count in asked) == 170


def held(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[float]]:
    """Have all count as old, and tell what the kernel is asked for, by a clock that the test moves."""
    asked, now = list[int](), [100.0]

    def in_memory(_view: memoryview, at: int, size: int) -> bool:
        assert 0 < size <= gathering.MEMORY_BYTES
        assert at + size <= store._log.written, "of holes nothing is in memory"
        asked.append(at)
        return True

    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)
    monkeypatch.setattr(hotpath, "in_memory", in_memory)
    monkeypatch.setattr(gathering, "monotonic", lambda: now[0])
    return asked, now


def test_the_kernel_is_asked_once_for_a_stretch_and_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, mappedFileSizeCommitLog=4 * gathering.MEMORY_BYTES)
    with closing(MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True)) as store:
        fill(store, 100, body=bytes(5000))
        asked, now = held(store, monkeypatch)
        for offset in range(100):
            assert ask(store, offset, 1) is not None
        stretches = [0, gathering.MEMORY_BYTES]
        assert asked == stretches
        now[0] += gathering.MEMORY_SECONDS * 0.9
        assert ask(store, 0) is not None
        assert asked == stretches
        now[0] += gathering.MEMORY_SECONDS * 0.2
        assert ask(store, 0) is not None
        assert asked == [*stretches, 0]
        across = next(each for each in range(100) if store.get("T", 0, each, 2).size and _crosses(store, each))
        assert ask(store, across) is not None
        assert asked[-1] == gathering.MEMORY_BYTES, "of both that it lies in"


def _crosses(store: MessageStore, offset: int) -> bool:
    first, second = store.queue_entries("T", 0, offset, 2)
    ends = second.physical_offset + second.size
    return first.physical_offset < gathering.MEMORY_BYTES < ends


def test_what_is_remembered_of_memory_has_a_limit(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_STRETCHES_MAX", 2)
    fill(store, 1000, body=bytes(500))
    asked, _ = held(store, monkeypatch)
    monkeypatch.setattr(gathering, "MEMORY_BYTES", 16 * 1024)
    reader = gathering_of(store)
    for offset in range(0, 1000, 10):
        assert ask(store, offset, 1) is not None
        assert len(reader._in_memory) <= 2
    assert len(asked) > 20


def test_what_is_on_the_disk_only_is_asked_for_piece_by_piece(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch is not in memory as a whole: the records may be."""
    fill(store, 10)
    held(store, monkeypatch)
    monkeypatch.setattr(hotpath, "in_memory", lambda *_: False)
    reader = gathering_of(store)
    assert ask(store, 0) is not None
    assert not reader._in_memory


def test_the_kernel_is_not_asked_for_what_lies_between_far_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, mappedFileSizeCommitLog=8 * gathering.MEMORY_BYTES)
    with closing(MessageStore.open(config, store_host=HOST, clock=ManualClock(), stepped=True)) as store:
        fill(store, 1)
        fill(store, 110, body=bytes(5000), queue_id=1)
        fill(store, 1)
        asked, _ = held(store, monkeypatch)
        assert ask(store, 0) is not None
        assert asked == []
