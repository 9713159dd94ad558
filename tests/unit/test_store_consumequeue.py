"""ConsumeQueues: dense entries that survive reopening, lag behind the log but never lie; thousands are fine."""

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.derived.consumequeue import ConsumeQueues, QueueOrderError
from store.derived.queuescan import intact_entries
from store.errors import QueueShorter, StoreDamaged, StoreError
from store.files.descriptors import Descriptors
from store.types import Dispatched

FILE_BYTES = 200  # ten entries
ENTRY = struct.Struct(">qiq")


def opened(folder: Path, **options: int) -> ConsumeQueues:
    return ConsumeQueues(folder / "consumequeue", file_bytes=FILE_BYTES, **options)


def message(
    queue_id: int, offset: int, physical: int, *, topic: str = "T", size: int = 100, tag: int = 7
) -> Dispatched:
    return Dispatched(topic, queue_id, offset, physical, size, tag, 0, b"", b"", 0)


def fill(queues: ConsumeQueues, count: int, *, start: int = 0, topic: str = "T") -> None:
    queues.append_many([message(0, n, n * 100, topic=topic) for n in range(start, start + count)])


def queue_bytes(folder: Path, topic: str = "T", queue_id: int = 0) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "consumequeue" / topic / str(queue_id)).iterdir()}


def test_entries_are_read_from_memory_and_from_files_alike(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 25)
    expected = [(n * 100, 100, 7) for n in range(25)]
    assert queues.entries("T", 0, 0, 100) == expected
    assert not (tmp_path / "consumequeue").exists()
    queues.persist(sync=True)
    fill(queues, 8, start=25)
    expected += [(n * 100, 100, 7) for n in range(25, 33)]
    for offset in range(34):
        for count in (1, 3, 11, 50):
            assert queues.entries("T", 0, offset, count) == expected[offset : offset + count]
    assert queues.entries("T", 0, -1, 5) == []
    assert queues.entries("T", 1, 0, 5) == []
    queues.close()


def test_files_have_rocketmqs_names_sizes_and_zero_tail(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 12)
    queues.close()
    files = queue_bytes(tmp_path)
    assert sorted(files) == ["0" * 20, "00000000000000000200"]
    assert files["0" * 20] == b"".join(ENTRY.pack(n * 100, 100, 7) for n in range(10))
    assert files["00000000000000000200"] == b"".join(ENTRY.pack(n * 100, 100, 7) for n in (10, 11)) + bytes(160)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_reopening_finds_the_end(tmp_path: Path, count: int) -> None:
    queues = opened(tmp_path)
    fill(queues, count)
    queues.close()
    again = opened(tmp_path)
    assert again.max_offset("T", 0) == count
    assert again.min_offset("T", 0) == 0
    assert again.max_physical() == count * 100
    assert len(again.entries("T", 0, 0, 100)) == count
    fill(again, 3, start=count)
    assert len(again.entries("T", 0, 0, 100)) == count + 3
    again.close()


def test_an_empty_preallocated_file_ends_the_queue_in_the_file_before(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 10)
    queues.close()
    (tmp_path / "consumequeue/T/0/00000000000000000200").write_bytes(bytes(FILE_BYTES))
    again = opened(tmp_path)
    assert again.max_offset("T", 0) == 10
    fill(again, 1, start=10)
    assert again.entries("T", 0, 9, 5) == [(900, 100, 7), (1000, 100, 7)]
    again.close()


def test_a_file_of_another_size_is_refused_but_a_torn_last_one_is_mended(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 12)
    queues.close()
    folder = tmp_path / "consumequeue/T/0"
    (folder / "00000000000000000200").write_bytes(b"")
    again = opened(tmp_path)
    assert again.max_offset("T", 0) == 10
    again.close()
    with pytest.raises(StoreDamaged, match="mappedFileSizeConsumeQueue"):
        ConsumeQueues(tmp_path / "consumequeue", file_bytes=100)


def test_repeated_entries_are_skipped_and_a_gap_is_refused(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 12)
    queues.persist()
    fill(queues, 15)
    assert queues.max_offset("T", 0) == 15
    assert queues.entries("T", 0, 0, 100) == [(n * 100, 100, 7) for n in range(15)]
    with pytest.raises(QueueOrderError, match="ends at 15"):
        queues.append("T", 0, 16, 1600, 100, 7)
    with pytest.raises(QueueShorter, match="ends at 15"):
        queues.append("T", 0, 3, 9000, 100, 7)
    queues.append("T", 0, 15, 1500, 100, 7)
    assert queues.next_offset("T", 0) == 16
    queues.close()


def test_a_queue_that_begins_late_gets_fillers(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    queues.append("T", 0, 13, 5000, 100, 7)
    assert (queues.min_offset("T", 0), queues.max_offset("T", 0)) == (13, 14)
    assert queues.entries("T", 0, 0, 100) == []
    assert queues.entries("T", 0, 13, 100) == [(5000, 100, 7)]
    queues.close()
    filler = ENTRY.pack(0, 0x7FFFFFFF, 0)
    assert queue_bytes(tmp_path) == {"00000000000000000200": filler * 3 + ENTRY.pack(5000, 100, 7) + bytes(120)}
    again = opened(tmp_path)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (13, 14)
    assert again.max_physical() == 5100
    again.delete_below(5000)
    assert again.min_offset("T", 0) == 13
    again.truncate_above(5000)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (13, 13)
    again.append("T", 0, 13, 5000, 50, 1)
    assert again.entries("T", 0, 13, 9) == [(5000, 50, 1)]
    again.close()


@pytest.mark.parametrize("keep", range(26))
def test_truncation_leaves_what_a_rebuild_up_to_there_gives(tmp_path: Path, keep: int) -> None:
    queues = opened(tmp_path)
    fill(queues, 22)
    queues.persist()
    fill(queues, 3, start=22)
    queues.truncate_above(keep * 100 + 99)
    assert queues.max_offset("T", 0) == min(keep, 25)
    assert queues.max_physical() == min(keep, 25) * 100
    queues.close()
    twin = opened(tmp_path / "twin")
    fill(twin, min(keep, 25))
    twin.close()
    if keep == 0:
        assert list((tmp_path / "consumequeue").rglob("0*0")) == []
    else:
        assert queue_bytes(tmp_path) == queue_bytes(tmp_path / "twin")


def test_deleting_below_raises_the_minimum_and_keeps_the_last_file(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 25)
    assert queues.delete_below(1250) == 1
    assert (queues.min_offset("T", 0), queues.max_offset("T", 0)) == (13, 25)
    assert queues.entries("T", 0, 12, 5) == []
    assert queues.entries("T", 0, 13, 1) == [(1300, 100, 7)]
    assert queues.delete_below(1250) == 0
    assert queues.delete_below(10_000) == 1
    assert (queues.min_offset("T", 0), queues.max_offset("T", 0)) == (25, 25)
    assert sorted(queue_bytes(tmp_path)) == ["00000000000000000400"]
    queues.close()
    again = opened(tmp_path)
    assert again.max_offset("T", 0) == 25
    again.delete_below(10_000)
    assert again.min_offset("T", 0) == 25
    again.append("T", 0, 25, 10_000, 1, 0)
    assert again.entries("T", 0, 25, 1) == [(10_000, 1, 0)]
    again.close()


def test_a_queue_cut_to_nothing_behind_deleted_files_keeps_its_offset(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 25)
    queues.delete_below(2000)
    queues.truncate_above(2000)
    assert (queues.min_offset("T", 0), queues.max_offset("T", 0)) == (20, 20)
    queues.close()
    again = opened(tmp_path)
    assert again.max_offset("T", 0) == 20
    again.close()


def test_scan_cuts_a_queue_at_a_page_that_never_reached_the_disk(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 25)
    fill(queues, 25, topic="Sound")
    queues.close()
    path = tmp_path / "consumequeue/T/0/00000000000000000200"
    content = bytearray(path.read_bytes())
    content[60:100] = bytes(40)
    path.write_bytes(content)
    again = opened(tmp_path)
    assert again.scan() == 1
    assert again.max_offset("T", 0) == 13
    assert again.max_offset("Sound", 0) == 25
    fill(again, 25)
    again.close()
    assert queue_bytes(tmp_path) == queue_bytes(tmp_path, "Sound")


def test_scan_zeroes_a_remainder_behind_a_false_end(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 8)
    queues.close()
    path = tmp_path / "consumequeue/T/0" / ("0" * 20)
    content = bytearray(path.read_bytes())
    content[20:120] = bytes(100)
    path.write_bytes(content)
    again = opened(tmp_path)
    again.scan()
    end = again.max_offset("T", 0)
    assert end == 1
    again.close()
    assert path.read_bytes() == ENTRY.pack(0, 100, 7) + bytes(180)


def test_rebuilding_follows_a_topic_that_was_deleted_and_made_anew(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    old = [message(0, n, n * 100) for n in range(12)]
    new = [message(0, n, 5000 + n * 100) for n in range(3)]
    queues.append_many(old + new, rebuilding=True)
    assert (queues.min_offset("T", 0), queues.max_offset("T", 0)) == (0, 3)
    assert queues.entries("T", 0, 0, 9) == [(5000, 100, 7), (5100, 100, 7), (5200, 100, 7)]
    queues.close()
    assert sorted(queue_bytes(tmp_path)) == ["0" * 20]


def test_delete_topic_forgets_and_deletes(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    fill(queues, 12)
    queues.persist()
    fill(queues, 2, start=12)
    fill(queues, 3, topic="Other")
    assert queues.topics() == {"Other": [0], "T": [0]}
    queues.delete_topic("T")
    assert queues.topics() == {"Other": [0]}
    assert not (tmp_path / "consumequeue/T").exists()
    assert queues.buffered == 3
    queues.append("T", 0, 0, 9000, 10, 0)
    assert queues.entries("T", 0, 0, 5) == [(9000, 10, 0)]
    queues.clear()
    assert queues.topics() == {}
    queues.close()
    assert list((tmp_path / "consumequeue").rglob("0" * 20)) == []


def test_persist_takes_a_bounded_number_of_queues_oldest_first(tmp_path: Path) -> None:
    queues = opened(tmp_path)
    queues.append_many([message(n, 0, n * 100) for n in range(5)])
    queues.persist(queues_max=2)
    assert (queues.dirty, queues.buffered) == (3, 3)
    assert sorted(path.name for path in (tmp_path / "consumequeue/T").iterdir()) == ["0", "1"]
    assert [queues.entries("T", n, 0, 1)[0][0] for n in range(5)] == [0, 100, 200, 300, 400]
    queues.close()


def test_tails_are_written_when_they_reach_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.derived.consumequeue.BUFFERED_ENTRIES_MAX", 10)
    queues = opened(tmp_path)
    fill(queues, 10)
    assert queues.buffered == 10
    fill(queues, 1, start=10)
    assert queues.buffered == 0
    queues.close()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b"])
def test_a_topic_that_is_no_folder_name_is_refused(tmp_path: Path, topic: str) -> None:
    queues = opened(tmp_path)
    with pytest.raises(StoreError, match="no name of a folder"):
        queues.append(topic, 0, 0, 0, 1, 0)
    queues.close()


def test_thousands_of_queues_with_few_descriptors(tmp_path: Path) -> None:
    topics, per_topic = 400, 8
    queues = opened(tmp_path, descriptors_max=16)
    for offset in range(2):
        base = offset * topics * per_topic
        queues.append_many(
            [
                message(n % per_topic, offset, (base + n) * 100, topic=f"T{n // per_topic}")
                for n in range(topics * per_topic)
            ]
        )
        queues.persist()
    queues.close()
    again = opened(tmp_path, descriptors_max=16)
    assert len(again) == topics * per_topic
    assert again.max_physical() == 2 * topics * per_topic * 100
    for topic in range(0, topics, 37):
        for queue_id in range(per_topic):
            n = topic * per_topic + queue_id
            assert again.entries(f"T{topic}", queue_id, 0, 5) == [
                (n * 100, 100, 7),
                ((topics * per_topic + n) * 100, 100, 7),
            ]
    again.close()


def test_descriptors_stay_within_their_limit(tmp_path: Path) -> None:
    descriptors = Descriptors(3)
    for n in range(10):
        descriptors.write(f"{tmp_path}/{n}", 0, b"x", file_bytes=4)
        assert len(descriptors) <= 3
    assert descriptors.read(f"{tmp_path}/0", 0, 9) == b"x\0\0\0"
    descriptors.delete(f"{tmp_path}/0")
    with pytest.raises(FileNotFoundError):
        descriptors.read(f"{tmp_path}/0", 0, 1)
    descriptors.close()
    assert len(descriptors) == 0


def test_intact_entries_stop_at_what_does_not_follow() -> None:
    good = ENTRY.pack(100, 50, 0) + ENTRY.pack(150, 50, 0)
    filler = ENTRY.pack(0, 0x7FFFFFFF, 0)
    assert intact_entries(good, 100) == (2, 200)
    assert intact_entries(good, 101) == (0, 101)
    assert intact_entries(filler * 2 + good, 0) == (4, 200)
    assert intact_entries(filler * 2, 0) == (2, 0)
    assert intact_entries(good + bytes(20), 0) == (2, 200)
    assert intact_entries(good + ENTRY.pack(199, 50, 0), 0) == (2, 200)
    assert intact_entries(b"", 5) == (0, 5)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 25)),
        st.tuples(st.just("persist"), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("scan"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 120)),
        st.tuples(st.just("delete"), st.integers(0, 120)),
    ),
    max_size=30,
)


@given(start=st.sampled_from([0, 7, 10, 23]), steps=STEPS)
def test_any_history_agrees_with_a_list(start: int, steps: list[tuple[str, int]]) -> None:
    """A queue beside a list of its entries; the log begins and ends where a record does."""
    with TemporaryDirectory() as folder:
        queues = opened(Path(folder))
        held: list[tuple[int, int, int]] = []
        low = end = start
        head = physical = 0
        borders = [0]
        for what, amount in steps:
            if what == "append":
                for n in range(amount):
                    entry = (physical, 10 + n, n)
                    queues.append("T", 0, end, *entry)
                    held.append(entry)
                    end += 1
                    physical += 10 + n
                    borders.append(physical)
            elif what == "persist":
                queues.persist()
            elif what == "reopen":
                queues.close()
                queues = opened(Path(folder))
                queues.delete_below(head)
            elif what == "scan":
                assert queues.scan() == 0
            elif what == "truncate":
                # Never below the head: the log has nothing there to end at.
                physical = max(head, borders[amount * (len(borders) - 1) // 120])
                borders = [border for border in borders if border <= physical]
                queues.truncate_above(physical)
                while held and held[-1][0] + held[-1][1] > physical:
                    held.pop()
                    end -= 1
                low = min(low, end)
            elif held:
                head = max(head, borders[amount * (len(borders) - 1) // 120])
                queues.delete_below(head)
                low = next((offset for offset in range(low, end) if held[offset - end][0] >= head), end)
                held = held[len(held) - (end - low) :]
            known = queues.known("T", 0)
            if known:
                assert (queues.min_offset("T", 0), queues.max_offset("T", 0)) == (low, end)
                assert queues.entries("T", 0, low, 1000) == held
            else:
                assert not held
        queues.close()
