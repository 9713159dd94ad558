"""Tests of pipeline/logcolumns: records of CommitLog files as columns, and what stands between them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.history.body import Tag, make_body
from pipeline.logs.frames import NOTHING, Frames, list_spans, walk
from pipeline.logs.properties import TopicNumbers, find_words, java_hashes
from pipeline.logs.reader import LogReader, last_chain
from pipeline.logs.rows import GapRow
from remoting.javahash import java_hash
from remoting.properties import encode_properties
from remoting.record import encode_record
from tests.planted.plant_stores import LOG_FILE_BYTES, RAFT, build

V6 = bytes(range(20))


def write(folder: Path, records: Sequence[Mapping[str, object]], *, tail: bytes = b"") -> Path:
    """A log of one file; each record is what encode_record takes, beside its place."""
    data = bytearray()
    for fields in records:
        given = {"topic": "T", "queue_id": 0, "body": b"body", **fields}
        data += encode_record(**given, physical_offset=len(data))  # type: ignore[arg-type]
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020d}").write_bytes(data + tail)
    return folder


def frames_of(folder: Path) -> Frames:
    (found,) = [part for part in walk(list_spans(folder)) if isinstance(part, Frames)]
    return found


def test_every_field_of_a_record_has_a_column(tmp_path: Path) -> None:
    fields = {
        "topic": "x" * 200, "queue_id": 3, "queue_offset": 2**40, "flag": 7, "sys_flag": 8, "born_timestamp": 11,
        "born_host": V6, "store_timestamp": 2**41, "reconsume_times": 5, "prepared_transaction_offset": 6,
        "properties": encode_properties({"TAGS": "a"}),
    }  # fmt: skip
    frames = frames_of(write(tmp_path, [{}, fields, {"store_host": V6, "store_timestamp": 9}]))
    assert frames.queue.tolist() == [0, 3, 0]
    assert frames.offset.tolist() == [0, 2**40, 0]
    assert frames.flag.tolist() == [0, 7, 0]
    assert frames.sys_flag.tolist() == [0, 0x18, 0x20]
    assert frames.born.tolist() == [0, 11, 0]
    assert frames.stored.tolist() == [0, 2**41, 9]
    assert frames.reconsume.tolist() == [0, 5, 0]
    assert frames.prepared.tolist() == [0, 6, 0]
    assert frames.topic_bytes.tolist() == [1, 200, 1]
    assert [bytes(frames.segment.view[at : at + 4]) for at in frames.body_at] == [b"body"] * 3
    assert frames.properties_bytes.tolist() == [0, 7, 0]
    assert frames.position.tolist() == [0, *frames.end[:-1].tolist()]


def test_a_counter_that_is_too_large_is_no_recorders(tmp_path: Path) -> None:
    bodies = [make_body(Tag(2**32 - 1, 2**63 - 1, 9)), make_body(Tag(1, 2**63, 0)), b"RMQ5" + bytes(16), b"RMQ6"]
    (piece,) = LogReader(list_spans(write(tmp_path, [{"body": body} for body in bodies]))).pieces()
    assert piece.messages is not None
    assert piece.messages.notes.writer.tolist() == [2**32 - 1, -1, -1, -1]
    assert piece.messages.notes.counter.tolist() == [2**63 - 1, -1, -1, -1]
    assert piece.messages.notes.attempt.tolist() == [9, 0, 0, 0]


def test_many_topics_are_numbered(tmp_path: Path) -> None:
    names = [f"topic{number % 40:02d}" for number in range(100)]
    topics = TopicNumbers()
    column = topics.column(frames_of(write(tmp_path, [{"topic": name} for name in names])))
    assert [topics.names[number].decode() for number in column] == names
    assert len(topics.names) == 40


def test_values_are_found_where_properties_are_written_alike(tmp_path: Path) -> None:
    written = [{"TAGS": f"t{number % 10}", "KEYS": f"k{number:03d}"} for number in range(20)]
    odd = [{"properties": b"KEYS\x01a\x02KEYS\x01b\x02"}] * 9
    frames = frames_of(write(tmp_path, [{"properties": encode_properties(one)} for one in written] + odd))
    words = find_words(frames, ["KEYS", "absent"])
    assert words.odd.tolist() == [False] * 20 + [True] * 9
    keys = words.values["KEYS"]
    texts = [bytes(frames.segment.view[at : at + size]) for at, size in zip(keys.at, keys.size, strict=True)][:20]
    assert texts == [one["KEYS"].encode() for one in written]
    assert words.tags_code[:20].tolist() == [java_hash(one["TAGS"]) for one in written]
    assert set(words.values["absent"].size.tolist()) == {-1}


@pytest.mark.parametrize("text", ["", "a", "TagA", "a tag that overflows an int of Java many times"])
def test_hashes_are_javas(text: str) -> None:
    assert java_hashes(np.frombuffer(text.encode() * 2, np.uint8).reshape(2, -1)).tolist() == [java_hash(text)] * 2


def test_a_log_goes_on_behind_damage(tmp_path: Path) -> None:
    folder = write(tmp_path, [{}, {}, {}])
    size = int(frames_of(folder).size[0])
    path = folder / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[size + 90] ^= 1
    path.write_bytes(data)
    parts = list(walk(list_spans(folder)))
    gap = GapRow(size, 2 * size, "a body that does not match its CRC")
    assert [part if isinstance(part, GapRow) else len(part) for part in parts] == [1, gap, 1]
    # What nobody compares is no damage.
    assert [len(part) for part in walk(list_spans(folder), check_crc=False) if isinstance(part, Frames)] == [3]


def test_zeros_end_a_log_unless_something_stands_behind_them(tmp_path: Path) -> None:
    folder = write(tmp_path, [{}], tail=bytes(300))
    size = int(frames_of(folder).size[0])
    assert len(list(walk(list_spans(folder)))) == 1
    second = folder / "commitlog" / f"{size + 300:020d}"
    second.write_bytes(encode_record("T", 0, b"", physical_offset=size + 300).ljust(size + 300, b"\0"))
    found = list(walk(list_spans(folder)))
    assert found[1] == GapRow(size, size + 300, NOTHING)


def test_the_last_chain_is_that_of_a_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = build(tmp_path / "group", 4, RAFT, entries=30).folder("n0")
    spans = list_spans(folder)
    assert len(spans) > 2
    for records in (1, 3, 8192):
        monkeypatch.setattr("pipeline.logs.reader._TAIL_RECORDS", records)
        for number in range(len(spans) + 1):
            expected = [piece.chain for piece in LogReader(spans[:number], file_bytes=LOG_FILE_BYTES).pieces()]
            assert last_chain(spans[:number], LOG_FILE_BYTES) == (expected[-1] if expected else None)


def test_the_last_chain_of_a_damaged_file_is_that_of_a_walk(tmp_path: Path) -> None:
    folder = build(tmp_path / "group", 4, RAFT, entries=30).folder("n0")
    spans = list_spans(folder)
    data = bytearray(spans[0].path.read_bytes())
    data[5000:5100] = bytes(100)
    spans[0].path.write_bytes(data)
    *_, last = LogReader(spans[:1]).pieces()
    assert last.chain is not None
    assert last_chain(spans[:1], LOG_FILE_BYTES) == last.chain
