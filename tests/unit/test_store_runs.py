"""The records of an answer are read together where they stand near one another: the same bytes as one by one."""

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.compiled.door import hotpath
from store.files.disk import Disk
from store.files.mappedfile import LogFile
from store.files.queuefile import pack_entries
from store.log.commitlog import CommitLog
from store.reads import runs as reading
from store.reads.runs import GAP_BYTES, WINDOW_BYTES
from tests.parts.send_runs import needs_hotpath

FILE_BYTES = 512 * 1024
FILES = 3


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommitLog]:
    """Three files of random bytes, on a disk: files in memory know of no reads that must not wait."""
    folder, disk = tmp_path_factory.mktemp("disk"), Disk()
    content = Random(5).randbytes(FILES * FILE_BYTES)
    files = []
    for start in range(0, FILES * FILE_BYTES, FILE_BYTES):
        (folder / f"{start:020d}").write_bytes(content[start : start + FILE_BYTES])
        files.append(LogFile(disk, folder / f"{start:020d}", start, FILE_BYTES))
    made = CommitLog(folder, FILE_BYTES, disk, files, FILES * FILE_BYTES - 8)
    yield made
    made.close()


def read_runs(log: CommitLog, runs: list[tuple[int, int]]) -> list[memoryview | bytes] | None:
    """Read twice with one scratch: what the first one gave stays as it is."""
    scratch = memoryview(bytearray(WINDOW_BYTES))
    found = reading.read_runs(log, runs, scratch)
    scratch[:] = b"\xff" * WINDOW_BYTES
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nothing is hot; how much the kernel was asked for each time."""
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 0)
    sizes: list[int] = []
    preadv = os.preadv

    def counted(fd: int, buffers: Sequence[bytearray], offset: int, flags: int) -> int:
        sizes.append(len(buffers[0]))
        return preadv(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", counted)
    return sizes


def content_of(log: CommitLog, runs: list[tuple[int, int]]) -> list[bytes]:
    return [bytes(log.read_blocking(position, size)) for position, size in runs]


def test_scattered_records_are_one_read(log: CommitLog, asked: list[int]) -> None:
    runs = [(5000 + 1700 * number, 210) for number in range(32)]
    assert read_runs(log, runs) == content_of(log, runs)
    assert asked == [31 * 1700 + 210]


def test_what_was_read_and_not_asked_for_is_not_kept(log: CommitLog, asked: list[int]) -> None:
    found = read_runs(log, [(1000 * number, 200) for number in range(30)])
    assert found is not None
    assert {type(part) for part in found} == {bytes}
    found = read_runs(log, [(300 * number, 200) for number in range(30)])
    assert found is not None
    (shared,) = {id(part.obj): part.obj for part in found if isinstance(part, memoryview)}.values()
    assert memoryview(shared).nbytes == 29 * 300 + 200 <= 2 * 30 * 200
    assert asked == [29 * 1000 + 200, 29 * 300 + 200]


def test_a_window_ends_at_its_size_at_a_wide_gap_and_at_the_file_s_end(log: CommitLog, asked: list[int]) -> None:
    apart = [(0, 10), (10 + GAP_BYTES, 10), (20 + 2 * GAP_BYTES + 1, 10)]
    assert read_runs(log, apart) == content_of(log, apart)
    assert asked == [20 + GAP_BYTES, 10]
    asked.clear()
    large = [(0, WINDOW_BYTES - 10), (WINDOW_BYTES - 10, 10), (WINDOW_BYTES, 10), (WINDOW_BYTES + 10, WINDOW_BYTES)]
    large[3] = (WINDOW_BYTES + 10, FILE_BYTES - WINDOW_BYTES - 10)
    assert read_runs(log, large) == content_of(log, large)
    assert asked == [WINDOW_BYTES, WINDOW_BYTES]
    asked.clear()
    over = [(FILE_BYTES - 100, 100), (FILE_BYTES, 100)]
    assert read_runs(log, over) == content_of(log, over)
    assert asked == [100, 100]
    asked.clear()
    one = [(7, 2 * WINDOW_BYTES - 7)]
    assert read_runs(log, one) == content_of(log, one)
    assert asked == [2 * WINDOW_BYTES - 7], "a record is never cut"


def test_what_lies_between_need_not_be_in_memory(
    log: CommitLog, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def holes(fd: int, buffers: Sequence[bytearray], offset: int, flags: int) -> int:
        if len(buffers[0]) > 500:
            # The kernel gives what it has in front of the gap.
            return preadv(fd, [buffers[0][:300]], offset, flags)
        return preadv(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", holes)
    runs = [(1000 * number, 200) for number in range(4)]
    assert read_runs(log, runs) == content_of(log, runs)
    assert asked == [300, 200, 300, 200, 300, 200, 200]

    def not_cached(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not cached")

    monkeypatch.setattr(os, "preadv", not_cached)
    assert read_runs(log, runs) is None
    assert read_runs(log, []) == []


def test_the_newest_are_views_of_the_mapping(log: CommitLog, asked: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("store.log.commitlog.HOT_BYTES", FILE_BYTES)
        runs = [
            (2 * FILE_BYTES - 400, 100),
            (2 * FILE_BYTES - 50, 50),
            (2 * FILE_BYTES, 100),
            (3 * FILE_BYTES - 108, 100),
        ]
        assert read_runs(log, runs) == content_of(log, runs)
    assert asked == [400], "what stands before is asked for"


@given(st.integers(0, 1 << 32))
def test_any_records_are_the_bytes_at_their_places(log: CommitLog, seed: int) -> None:
    dice = Random(seed)
    runs, position = [], dice.randrange(FILE_BYTES)
    for _ in range(dice.randrange(40)):
        size = dice.choice((1, 200, 5000, 70_000))
        if position % FILE_BYTES + size > FILE_BYTES:
            position += FILE_BYTES - position % FILE_BYTES
        if position + size > FILES * FILE_BYTES - 8:
            break
        runs.append((position, size))
        position += size + dice.choice((0, 1, 3000, GAP_BYTES, GAP_BYTES + 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("store.log.commitlog.HOT_BYTES", dice.choice((0, FILE_BYTES, 2 * FILE_BYTES)))
        found = read_runs(log, runs)
    assert found == content_of(log, runs)


def test_a_run_that_leads_over_the_end_of_a_file_ends_there(log: CommitLog) -> None:
    assert read_runs(log, [(FILE_BYTES - 100, 200)]) == content_of(log, [(FILE_BYTES - 100, 100)])


@needs_hotpath
def test_what_the_disk_would_have_to_be_asked_for_is_not_gathered(tmp_path_factory: pytest.TempPathFactory) -> None:
    """On a disk: files in memory are in it."""
    pages, page = 1100, mmap.PAGESIZE
    size = pages * page
    path = tmp_path_factory.mktemp("disk") / "file"
    path.write_bytes(bytes(size))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped, memoryview(mapped) as view:

        def gathered(*places: int, hot_from: int = size) -> bool:
            entries = [(place, 10, 0) for place in places]
            found = hotpath.gather(
                pack_entries(entries), None, view, 0, size, hot_from, 0x7FFFFFFF, 32, 1000, 1000, True, None, None
            )
            return found is not None

        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        if gathered(7 * page):
            pytest.skip("this file system keeps all that it has in memory")
        # One after the other, so that nothing is read ahead.
        for number in (3, 5, 6, 1050):
            os.pread(file.fileno(), 1, number * page)
        assert gathered(3 * page, 4 * page - 10, 5 * page, 6 * page - 5, 7 * page - 10)
        assert not gathered(3 * page, 4 * page - 5, 5 * page), "a part of the record is on the disk"
        assert not gathered(3 * page, 7 * page)
        assert not gathered(3 * page, 1050 * page), "too far apart to be asked about"
        assert gathered(3 * page, 7 * page, hot_from=3 * page), "what is new is not asked about"
