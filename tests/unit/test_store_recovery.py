"""Starting after a stop of any kind: what is cut, what is refused, what is built anew."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from remoting.msgid import pack_host
from remoting.properties import encode_properties
from remoting.record import decode_record
from runtime.clock import ManualClock
from store.config import StoreConfig
from store.errors import StoreDamaged
from store.files.checkpoint import CHECKPOINT_NAME, Checkpoint, load_checkpoint
from store.files.lockfile import ABORT_NAME
from store.log.logscan import LogScan, Span, find_later_record
from store.messagestore import MessageStore
from store.types import PendingRecord, PutResult, PutStatus

FILE_BYTES = 8192
HOST = pack_host("10.0.0.1", 10911)


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(
        storePathRootDir=str(tmp_path / "store"),
        mappedFileSizeCommitLog=FILE_BYTES,
        mappedFileSizeConsumeQueue=400,
        maxHashSlotNum=20,
        maxIndexNum=100,
        flushIntervalCommitLog=3_600_000,
    )


def open_store(config: StoreConfig) -> MessageStore:
    return MessageStore.open(config, store_host=HOST, clock=ManualClock())


def send(store: MessageStore, count: int, *, size: int = 200, topic: str = "T") -> list[PutResult]:
    results = []
    for number in range(count):
        properties = encode_properties({"TAGS": f"t{number}", "KEYS": f"k{number}"})
        results.append(store.put(PendingRecord(topic, number % 2, 0, 0, 1, HOST, 0, 0, b"b" * size, properties)))
    assert all(result.status is PutStatus.PUT_OK for result in results)
    store.write()
    return results


def fill(config: StoreConfig, count: int = 50) -> list[PutResult]:
    store = open_store(config)
    results = send(store, count)
    store.close()
    return results


def log_path(config: StoreConfig, position: int) -> Path:
    return config.log_folder / f"{position - position % FILE_BYTES:020d}"


def damage(config: StoreConfig, position: int, data: bytes) -> None:
    with log_path(config, position).open("r+b") as file:
        file.seek(position % FILE_BYTES)
        file.write(data)


def make_unclean(config: StoreConfig) -> None:
    """As a kill leaves it, with a checkpoint that knows nothing."""
    (config.root / CHECKPOINT_NAME).unlink()
    (config.root / ABORT_NAME).write_text("1", encoding="ascii")


def queue_files(config: StoreConfig) -> dict[str, bytes]:
    folder = config.root / "consumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def offsets(store: MessageStore, topic: str = "T") -> list[int]:
    return [store.max_offset(topic, 0), store.max_offset(topic, 1)]


def test_a_clean_stop_reads_nothing_again(config: StoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    end = fill(config)[-1].end
    assert not (config.root / ABORT_NAME).exists()
    assert load_checkpoint(config.root).dispatched == end
    with caplog.at_level(logging.INFO):
        store = open_store(config)
    assert f"read from {end} (clean stop)" in caplog.text
    assert (config.root / ABORT_NAME).exists()
    assert (store.written, store.flushed, offsets(store)) == (end, end, [25, 25])
    store.close()


@pytest.mark.parametrize("lost", ["consumequeue", "index"])
def test_what_is_derived_is_built_again(config: StoreConfig, lost: str) -> None:
    fill(config)
    before = queue_files(config)
    shutil.rmtree(config.root / lost)
    if lost == "index":
        make_unclean(config)
    store = open_store(config)
    assert offsets(store) == [25, 25]
    assert len(store.query("T", "k7", 5, 0, 1 << 60).records) == 1
    store.close()
    assert queue_files(config) == before


@pytest.mark.parametrize("keep_checkpoint", [True, False])
def test_a_torn_tail_is_cut_and_zeroed(config: StoreConfig, keep_checkpoint: bool) -> None:
    """Every way in which the last record may be torn leaves the one before it, and zeros behind."""
    results = fill(config, 20)
    kept, last = results[-2], results[-1]
    whole = log_path(config, last.physical_offset).read_bytes()
    at = last.physical_offset % FILE_BYTES
    known = replace(load_checkpoint(config.root), dispatched=kept.end, flushed=kept.end)
    for torn in (0, 4, 8, 60, 90, last.size // 2, last.size - 20, last.size - 1):
        log_path(config, last.physical_offset).write_bytes(whole[: at + torn].ljust(FILE_BYTES, b"\0"))
        (config.root / CHECKPOINT_NAME).unlink()
        if keep_checkpoint:
            (config.root / CHECKPOINT_NAME).write_bytes(known.encode())
        (config.root / ABORT_NAME).write_text("1", encoding="ascii")
        store = open_store(config)
        assert (store.written, offsets(store)) == (kept.end, [10, 9])
        assert store.record_at(last.physical_offset) is None
        assert log_path(config, kept.end).read_bytes()[kept.end % FILE_BYTES :].strip(b"\0") == b""
        store.close()


def test_a_body_that_fails_its_crc_ends_the_log(config: StoreConfig) -> None:
    results = fill(config, 10)
    damage(config, results[6].physical_offset + 150, b"!")
    make_unclean(config)
    store = open_store(config)
    assert store.written == results[6].physical_offset
    store.close()


def test_without_crc_check_only_the_frame_counts(config: StoreConfig) -> None:
    results = fill(config, 10)
    damage(config, results[6].physical_offset + 150, b"!")
    make_unclean(config)
    store = open_store(replace(config, checkCRCOnRecover=False))
    assert store.written == results[-1].end
    store.close()


def test_a_remainder_is_never_taken_for_a_successor(config: StoreConfig) -> None:
    """A record of the old size is put where the damaged one stood: what stood behind must be gone."""
    results = fill(config, 10)
    damage(config, results[6].physical_offset, bytes(8))
    make_unclean(config)
    store = open_store(config)
    (again,) = send(store, 1)
    assert (again.physical_offset, again.size) == (results[6].physical_offset, results[6].size)
    store.close()
    make_unclean(config)
    store = open_store(config)
    assert (store.written, offsets(store)) == (again.end, [4, 3])
    store.close()


def test_files_behind_the_end_are_removed(config: StoreConfig) -> None:
    results = fill(config, 100)
    damage(config, results[6].physical_offset, bytes(8))
    make_unclean(config)
    store = open_store(config)
    assert store.written == results[6].physical_offset
    starts = [int(path.name) for path in config.log_folder.iterdir() if path.read_bytes().strip(b"\0")]
    assert starts == [0]
    send(store, 60)
    store.close()


def test_damage_in_what_was_flushed_is_refused(config: StoreConfig) -> None:
    """The checkpoint knows that it was flushed, so a cut would lose what was acknowledged."""
    results = fill(config, 60)
    known = replace(load_checkpoint(config.root), dispatched=0)
    (config.root / CHECKPOINT_NAME).write_bytes(known.encode())
    damage(config, results[20].physical_offset + 100, b"rot")
    log = {path.name: path.read_bytes() for path in config.log_folder.iterdir()}
    with pytest.raises(StoreDamaged, match=f"damaged at {results[20].physical_offset} .*CRC") as refusal:
        open_store(config)
    assert "Restore the file" in str(refusal.value)
    assert "remove the file 'checkpoint'" in str(refusal.value)
    assert {path.name: path.read_bytes() for path in config.log_folder.iterdir()} == log, "nothing was touched"
    # The way out that the text names; the lock was given back.
    (config.root / CHECKPOINT_NAME).unlink()
    store = open_store(config)
    assert store.written == results[20].physical_offset
    store.close()


def test_a_flushed_tail_that_is_gone_is_refused(config: StoreConfig) -> None:
    results = fill(config, 60)
    log_path(config, results[-1].physical_offset).unlink()
    for path in config.log_folder.iterdir():
        if int(path.name) > results[-1].physical_offset:
            path.unlink()
    with pytest.raises(StoreDamaged, match="had been flushed"):
        open_store(config)


def test_an_empty_log_folder_with_a_history_is_refused(config: StoreConfig) -> None:
    fill(config)
    shutil.rmtree(config.log_folder)
    with pytest.raises(StoreDamaged, match="storePathCommitLog"):
        open_store(config)


@pytest.mark.parametrize("young", [False, True])
def test_rocketmqs_checkpoint_tells_rot_by_its_timestamp(config: StoreConfig, young: bool) -> None:
    """A later intact record that is older than the timestamp was flushed; one that is younger need not have been."""
    results = fill(config, 30)
    known = load_checkpoint(config.root)
    stamp = results[-1].store_timestamp + (-1 if young else 0)
    foreign = Checkpoint(stamp, known.queue_timestamp, known.index_timestamp)
    (config.root / CHECKPOINT_NAME).write_bytes(foreign.encode()[:40])
    (config.root / ABORT_NAME).write_text("1", encoding="ascii")
    damage(config, results[5].physical_offset + 100, b"rot")
    if young:
        store = open_store(config)
        assert store.written == results[5].physical_offset
        store.close()
    else:
        with pytest.raises(StoreDamaged, match=str(results[6].physical_offset)):
            open_store(config)


def test_files_of_another_size_are_refused(config: StoreConfig) -> None:
    fill(config)
    with pytest.raises(StoreDamaged, match="mappedFileSizeCommitLog"):
        open_store(replace(config, mappedFileSizeCommitLog=16384))


def test_a_gap_is_refused(config: StoreConfig) -> None:
    fill(config, 100)
    log_path(config, FILE_BYTES).unlink()
    with pytest.raises(StoreDamaged, match=f"begins at {FILE_BYTES}"):
        open_store(config)


def test_a_file_without_a_size_yet_is_removed(config: StoreConfig) -> None:
    fill(config, 20)
    newest = max(config.log_folder.iterdir())
    (config.log_folder / f"{int(newest.name) + FILE_BYTES:020d}").touch()
    store = open_store(config)
    assert offsets(store) == [10, 10]
    store.close()


def test_strangers_are_left_alone(config: StoreConfig) -> None:
    fill(config)
    strangers = ["abort.bak", "timerwheel", "config/topics.json", "commitlog/README", "rocksdbstore/CURRENT"]
    for name in strangers:
        path = config.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name, encoding="utf-8")
    make_unclean(config)
    store = open_store(config)
    store.close()
    assert all((config.root / name).read_text(encoding="utf-8") == name for name in strangers)


def test_queues_that_do_not_match_the_log_are_built_anew(config: StoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that points to another record is what a lost page can leave; an unclean start notices."""
    fill(config)
    before = queue_files(config)
    (config.root / ABORT_NAME).write_text("1", encoding="ascii")
    path = config.root / "consumequeue" / "T" / "0" / f"{400:020d}"
    data = bytearray(path.read_bytes())
    data[4 * 20 : 5 * 20] = before["T/1/" + path.name][4 * 20 : 5 * 20]
    path.write_bytes(data)
    store = open_store(config)
    assert "built anew" in caplog.text
    assert offsets(store) == [25, 25]
    store.close()
    assert queue_files(config) == before


def test_store_timestamps_go_on_after_a_start(config: StoreConfig) -> None:
    clock = ManualClock()
    store = MessageStore.open(config, store_host=HOST, clock=clock)
    clock.advance(100)
    last = send(store, 1)[0].store_timestamp
    store.close()
    for unclean in (False, True):
        if unclean:
            make_unclean(config)
        store = MessageStore.open(config, store_host=HOST, clock=ManualClock())
        assert send(store, 1)[0].store_timestamp == last, "the clock stands 100 s behind the log"
        store.close()


class TestScan:
    """The walk itself."""

    @pytest.fixture
    def spans(self, config: StoreConfig) -> list[Span]:
        fill(config, 60)
        return [Span(path, int(path.name), FILE_BYTES) for path in sorted(config.log_folder.iterdir())]

    def test_small_windows_find_the_same(self, spans: list[Span], monkeypatch: pytest.MonkeyPatch) -> None:
        whole = [(found.position, found.size) for found in LogScan(spans, 0, check_crc=True)]
        assert len(whole) == 60
        for window in (97, 300, 1000):
            monkeypatch.setattr("store.log.logscan.WINDOW_BYTES", window)
            scan = LogScan(spans, 0, check_crc=True)
            assert [(found.position, found.size) for found in scan] == whole
            assert scan.damage == ""

    def test_found_views_hold_the_record(self, spans: list[Span]) -> None:
        queue_offsets = [
            decode_record(found.view, found.at).queue_offset for found in LogScan(spans, 0, check_crc=True)
        ]
        assert queue_offsets == [number // 2 for number in range(60)]

    @pytest.mark.parametrize("window", [300, 4096])
    def test_a_later_record_is_found_across_windows(
        self, spans: list[Span], monkeypatch: pytest.MonkeyPatch, window: int
    ) -> None:
        positions = [found.position for found in LogScan(spans, 0, check_crc=True)]
        monkeypatch.setattr("store.log.logscan.WINDOW_BYTES", window)
        for before, after in pairwise(positions):
            later = find_later_record(spans, before)
            assert later is not None
            assert later.position == after
        assert find_later_record(spans, positions[-1]) is None


CHANGES: list[Callable[[Checkpoint], Checkpoint]] = [
    lambda known: replace(known, log_timestamp=known.log_timestamp + 1),
    lambda known: replace(known, index_timestamp=0),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_that_rocketmq_rewrote_counts_by_its_timestamps(
    change: Callable[[Checkpoint], Checkpoint],
) -> None:
    """RocketMQ changes its own fields and leaves ours as they were."""
    ours = Checkpoint(5, 6, 7, 100, 200, replication=bytes(range(16)))
    page = ours.encode()
    assert Checkpoint.decode(page) == ours
    changed = change(ours).encode()[:40] + page[40:]
    found = Checkpoint.decode(changed)
    assert (found.dispatched, found.flushed) == (-1, -1)
    assert found.log_timestamp == change(ours).log_timestamp
    assert found.replication == bytes(range(16))


@pytest.mark.parametrize("page", [b"", b"\0" * 4096, b"\xff" * 4096, b"short"])
def test_a_checkpoint_without_sense_knows_nothing(page: bytes) -> None:
    assert Checkpoint.decode(page).flushed == -1
