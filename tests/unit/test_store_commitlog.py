"""The row of files: rolling, the blank, failures that leave nothing behind, hot and cold reads."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.record import BLANK_MAGIC
from store.files.disk import Disk
from store.files.mappedfile import LogFile
from store.log.commitlog import OPEN_FILES_MAX, CommitLog

FILE_BYTES = 4096


class FailingDisk(Disk):
    """Fails as told: `fail` is asked before each write, with the number of bytes written so far."""

    def __init__(self) -> None:
        self.fail: Callable[[int], bool] = lambda _: False
        self.code = errno.ENOSPC
        self.wrote = 0

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if self.fail(self.wrote):
            os.pwrite(fd, data[: len(data) // 2], offset)
            raise OSError(self.code, os.strerror(self.code))
        self.wrote += len(data)
        super().pwrite(fd, data, offset)


def fatal(error: BaseException) -> None:
    raise AssertionError(error)


def open_log(folder: Path, disk: Disk | None = None) -> CommitLog:
    disk = disk or Disk()
    return CommitLog(folder, FILE_BYTES, disk, [LogFile.create(disk, folder, 0, FILE_BYTES)], 0)


def put(log: CommitLog, data: bytes) -> int:
    if log.end + len(data) + 8 > log.file_end:
        log.roll()
    position = log.end
    log.pieces.append(data)
    log.end += len(data)
    return position


def test_a_file_that_is_full_ends_in_a_blank(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert put(log, b"a" * 4000) == 0
    assert put(log, b"b" * 89) == FILE_BYTES, "96 bytes are left: 89 and the blank's 8 do not fit"
    log.write()
    assert log.written == log.end == FILE_BYTES + 89
    first = (tmp_path / f"{0:020d}").read_bytes()
    assert first == b"a" * 4000 + (96).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big") + bytes(88)
    assert (tmp_path / f"{FILE_BYTES:020d}").stat().st_size == FILE_BYTES
    log.close()


def test_what_just_fits_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a" * 4000)
    assert put(log, b"b" * 88) == 4000
    log.write()
    assert log.file_starts() == [0]
    log.close()


def test_one_write_for_each_run(tmp_path: Path) -> None:
    class CountingDisk(Disk):
        writes = 0

        def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            self.writes += 1
            super().pwrite(fd, data, offset)

    disk = CountingDisk()
    log = open_log(tmp_path, disk)
    for _ in range(10):
        put(log, b"x" * 500)
    log.write()
    assert disk.writes == 2, "ten records over two files"
    log.close()


@pytest.mark.parametrize("fails_after", [0, 1])
def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, fails_after: int) -> None:
    """The second file of a write fails: the first one's part must go too, or the next start would find it."""
    disk = FailingDisk()
    log = open_log(tmp_path, disk)
    put(log, b"a" * 100)
    log.write()
    for _ in range(10):
        put(log, b"b" * 1000)
    disk.fail = lambda wrote: wrote > (100 if fails_after else 0)
    with pytest.raises(OSError, match="No space"):
        log.write()
    disk.fail = lambda _: False
    log.discard()
    assert (log.end, log.written, log.file_end) == (100, 100, FILE_BYTES)
    rest = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert rest.strip(b"\0") == b"a" * 100
    assert put(log, b"c" * 50) == 100
    log.write()
    assert bytes(log.read(100, 50) or b"") == b"c" * 50
    log.close()


def test_a_full_disk_has_no_room_for_the_zeros_of_a_failed_write_either(tmp_path: Path) -> None:
    """As file systems are: blocks that are there can be overwritten, holes find no room even for zeros."""

    class FullDisk(Disk):
        room = 1 << 30

        def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
            for at in range(0, len(data), 512):
                piece = data[at : at + 512]
                if not any(os.pread(fd, len(piece), offset + at)):
                    if self.room < len(piece):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    self.room -= len(piece)
                super().pwrite(fd, piece, offset + at)

    disk = FullDisk()
    log = CommitLog(tmp_path, 1 << 16, disk, [LogFile.create(disk, tmp_path, 0, 1 << 16)], 0)
    put(log, b"a" * 512)
    log.write()
    disk.room = 6 * 512
    for _ in range(3):
        put(log, b"b" * 5120)
    with pytest.raises(OSError, match="No space"):
        log.write()
    log.discard()
    assert (tmp_path / f"{0:020d}").read_bytes().strip(b"\0") == b"a" * 512
    disk.room = 1 << 30
    assert put(log, b"c" * 512) == 512
    log.write()
    log.close()


def test_a_file_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    class FullDisk(Disk):
        def create(self, path: Path, size: int) -> int:
            if path.name != f"{0:020d}":
                raise OSError(errno.ENOSPC, "no space")
            return super().create(path, size)

    log = open_log(tmp_path, FullDisk())
    put(log, b"a" * 4000)
    with pytest.raises(OSError, match="no space"):
        log.roll()
    log.write()
    assert log.written == log.end == 4000
    log.close()


def test_zeros_are_written_ahead_and_the_next_file_made(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.wants_room
    log.prepare(fatal)
    assert [file.prepared for file in log.files] == [FILE_BYTES, FILE_BYTES]
    assert not log.wants_room
    put(log, b"a" * 4000)
    put(log, b"b" * 1000)
    log.write()
    assert log.wants_room
    assert bytes(log.read(0, 4000) or b"") == b"a" * 4000
    log.close()


def test_zeros_never_overwrite_what_was_written_first(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, b"a" * 3000)
    log.write()
    log.prepare(fatal)
    assert (tmp_path / f"{0:020d}").read_bytes()[:3000] == b"a" * 3000
    log.close()


def test_reads_are_views_that_outlive_the_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for letter in b"abc":
        put(log, bytes([letter]) * 4000)
    log.write()
    log.flushed = log.written
    view = log.read(0, 4000)
    assert isinstance(view, memoryview)
    log.remove_first(0).unlink()
    assert log.min_position == FILE_BYTES
    assert not log.contains(0, 10)
    assert log.contains(FILE_BYTES, 4000)
    assert not log.contains(FILE_BYTES, FILE_BYTES + 1)
    assert not log.contains(log.written - 5, 6)
    assert view == b"a" * 4000
    with pytest.raises(FileNotFoundError):
        log.read_blocking(0, 10)
    assert log.read_blocking(FILE_BYTES, 3) == b"bbb"
    log.close()


def test_far_behind_the_end_only_the_page_cache_answers(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk: files in memory know of no reads that must not wait."""
    monkeypatch.setattr("store.log.commitlog.HOT_BYTES", 100)
    log = open_log(tmp_path_factory.mktemp("disk"))
    put(log, b"a" * 500)
    log.write()
    assert log.read(0, 300) == b"a" * 300, "just written, so it is cached"

    def not_cached(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not cached")

    monkeypatch.setattr(os, "preadv", not_cached)
    assert log.read(0, 300) is None
    assert log.read_blocking(0, 300) == b"a" * 300
    assert isinstance(log.read(450, 50), memoryview), "the newest bytes are not asked about"
    log.close()


def test_many_files_are_read_with_few_descriptors(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3 * OPEN_FILES_MAX):
        put(log, b"x" * 4000)
    log.write()
    log.flushed = log.written
    for start in log.file_starts():
        assert log.read(start, 4000) is not None
    assert sum(file.is_open for file in log.files) <= OPEN_FILES_MAX + 2
    log.close()
    assert not any(file.is_open for file in log.files)
