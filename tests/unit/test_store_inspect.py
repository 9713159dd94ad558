"""Offline reading: everything intact is found, what is damaged is named, and nothing is written."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from remoting.message import MessageExt
from remoting.properties import encode_properties
from remoting.record import BLANK, BLANK_MAGIC, encode_record
from store.derived.consumequeue import ConsumeQueues
from store.derived.indexfile import MessageIndex
from store.errors import StoreError
from store.log.dispatch import Dispatcher, dispatched_from_record
from store.recovery.inspect import Gap, StoreFolder

FILE_BYTES = 4096
TIME = 1_700_000_000_000


def make_store(root: Path, count: int) -> list[int]:
    """Write a store folder as a broker would, without one; returns the records' positions."""
    (root / "commitlog").mkdir(parents=True)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_bytes(b'{"dataVersion":{"counter":1},"offsetTable":{"T@g":{0:1}}}')
    (root / "config" / "broken.json").write_bytes(b"{")
    queues = ConsumeQueues(root / "consumequeue", file_bytes=200)
    index = MessageIndex(root / "index", slots=10, entries=1000)
    dispatcher = Dispatcher(queues, index)
    log = bytearray()
    positions = []
    for n in range(count):
        properties = encode_properties({"KEYS": f"k{n}", "UNIQ_KEY": f"u{n}"})

        def made(position: int, n: int = n, properties: bytes = properties) -> bytes:
            return encode_record(
                "T",
                n % 2,
                b"x" * 150,
                properties,
                queue_offset=n // 2,
                physical_offset=position,
                store_timestamp=TIME + n,
            )

        room = FILE_BYTES - len(log) % FILE_BYTES
        if room < len(made(0)) + 8:
            log += BLANK.pack(room, BLANK_MAGIC).ljust(room, b"\0")
        positions.append(len(log))
        log += made(len(log))
        dispatcher.dispatch([dispatched_from_record(bytes(log), positions[-1])])
    log += bytes(-len(log) % FILE_BYTES)
    for start in range(0, len(log), FILE_BYTES):
        (root / "commitlog" / f"{start:020d}").write_bytes(log[start : start + FILE_BYTES])
    queues.close()
    index.close()
    return positions


def damage(root: Path, position: int, content: bytes) -> None:
    start = position // FILE_BYTES * FILE_BYTES
    path = root / "commitlog" / f"{start:020d}"
    data = bytearray(path.read_bytes())
    data[position - start : position - start + len(content)] = content
    path.write_bytes(data)


def read(folder: StoreFolder, start: int = 0) -> tuple[list[int], list[Gap]]:
    found = list(folder.messages(start))
    return (
        [message.physical_offset for message in found if isinstance(message, MessageExt)],
        [gap for gap in found if isinstance(gap, Gap)],
    )


def test_a_sound_folder_is_described(tmp_path: Path) -> None:
    positions = make_store(tmp_path, 50)
    folder = StoreFolder(tmp_path)
    assert read(folder) == (positions, [])
    segments = folder.segments()
    assert [segment.start for segment in segments] == [0, 4096, 8192, 12288]
    assert sum(segment.records for segment in segments) == 50
    assert (segments[0].first_timestamp, segments[-1].last_timestamp) == (TIME, TIME + 49)
    assert segments[1].end <= 8192
    queues = folder.queues()
    assert [(queue.topic, queue.queue_id, queue.files, queue.max_offset) for queue in queues] == [
        ("T", 0, 3, 25),
        ("T", 1, 3, 25),
    ]
    assert (queues[1].first_physical, queues[1].end_physical) == (positions[1], segments[-1].end)
    entries = list(folder.queue_entries("T", 1))
    assert [(offset, entry[0]) for offset, entry in entries] == list(enumerate(positions[1::2]))
    assert list(folder.queue_entries("T", 9)) == []
    (index,) = folder.index_files()
    assert (index.entries, index.begin_timestamp, index.end_physical) == (100, TIME, positions[-1])
    check = folder.check_queues()
    assert (check.records, check.queues, check.wrong) == (50, 2, 0)
    assert not folder.unclean
    assert folder.checkpoint().dispatched == -1
    for described in (segments[0], queues[0], index, check):
        assert json.loads(json.dumps(asdict(described)))


def test_config_files_are_decoded_or_named(tmp_path: Path) -> None:
    make_store(tmp_path, 1)
    config = StoreFolder(tmp_path).config()
    assert config["topics.json"]["dataVersion"] == {"counter": 1}
    assert set(config["broken.json"]) == {"error"}


def test_reading_goes_on_behind_damage_and_names_the_gap(tmp_path: Path) -> None:
    positions = make_store(tmp_path, 50)
    folder = StoreFolder(tmp_path)
    damage(tmp_path, positions[5] + 100, b"?")  # the body
    damage(tmp_path, positions[20], bytes(300))  # a head, and some of the next
    found, gaps = read(folder)
    assert found == [*positions[:5], *positions[6:20], *positions[22:]]
    assert [(gap.start, gap.end) for gap in gaps] == [
        (positions[5], positions[6]),
        (positions[20], positions[22]),
    ]
    assert "CRC" in gaps[0].reason
    damaged = [segment.start for segment in folder.segments() if segment.gaps]
    assert damaged == [positions[5] // FILE_BYTES * FILE_BYTES, positions[20] // FILE_BYTES * FILE_BYTES]


def test_a_missing_file_and_a_torn_end_are_gaps(tmp_path: Path) -> None:
    positions = make_store(tmp_path, 50)
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    torn = positions[-1] + 100
    damage(tmp_path, torn, bytes(400))
    found, gaps = read(StoreFolder(tmp_path))
    assert found == [position for position in positions[:-1] if not 4096 <= position < 8192]
    assert [(gap.start, gap.end) for gap in gaps] == [(4096, 8192), (positions[-1], 16384)]


def test_reading_may_start_anywhere(tmp_path: Path) -> None:
    positions = make_store(tmp_path, 20)
    folder = StoreFolder(tmp_path)
    assert read(folder, positions[7])[0] == positions[7:]
    assert read(folder, positions[7] + 1)[0] == positions[8:]
    assert read(folder, 1 << 40) == ([], [])


def test_queues_that_do_not_match_the_log_are_named(tmp_path: Path) -> None:
    positions = make_store(tmp_path, 20)
    queues = ConsumeQueues(tmp_path / "consumequeue", file_bytes=200)
    queues.truncate_above(positions[15])
    queues.append("T", 1, 7, 1 << 30, 10, 0)
    for offset in range(8, 12):
        queues.append("T", 1, offset, (1 << 30) + offset * 10, 10, 0)
    queues.close()
    check = StoreFolder(tmp_path).check_queues()
    # Lost: offsets 8, 9 of queue 0 (records 16, 18); wrong: 7, 8, 9 of queue 1, which goes on for too long.
    assert (check.records, check.wrong) == (20, 6)
    assert any("T/0 offset 8" in problem for problem in check.problems)
    assert any("T/1 ends at 12" in problem for problem in check.problems)


def test_nothing_is_written_even_where_a_broker_would_mend(tmp_path: Path) -> None:
    make_store(tmp_path, 20)
    torn = tmp_path / "consumequeue" / "T" / "0" / f"{200:020d}"
    torn.write_bytes(b"")
    (tmp_path / "abort").write_bytes(b"1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for path in before:
        path.chmod(0o400)
    folder = StoreFolder(tmp_path)
    assert folder.unclean
    folder.segments()
    folder.queues()
    folder.check_queues()
    folder.index_files()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_is_no_store_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no folder"):
        StoreFolder(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="commitlog"):
        StoreFolder(tmp_path)


def test_an_empty_log_has_no_messages(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    folder = StoreFolder(tmp_path)
    assert (list(folder.messages()), folder.segments(), folder.queues(), folder.index_files()) == ([], [], [], [])
