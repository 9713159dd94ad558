"""The log as bytes: pieces for pushing, and digests."""

import hashlib
from pathlib import Path

import pytest

from store.files.mappedfile import LogFile
from store.log import commitlog, logbytes
from tests.parts.slave_tools import open_master, send
from tests.parts.store_tools import FILE_BYTES, expire, fill, make_config


def whole(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "store" / "commitlog").iterdir()))


def test_a_piece_never_goes_beyond_its_file_nor_the_end(tmp_path: Path) -> None:
    store = open_master(tmp_path)
    assert store.read_piece(0, 100) == b""
    send(store, 400)
    end = store.written
    log = whole(tmp_path)
    assert store.file_bytes == FILE_BYTES
    assert store.log_range() == (0, end)
    for read in (store.read_piece, store.read_piece_cold):
        for position, size, got in [
            (0, 10, 10),
            (5, 1 << 30, FILE_BYTES - 5),
            (FILE_BYTES - 1, 100, 1),
            (FILE_BYTES, 1 << 30, end - FILE_BYTES),
            (end - 3, 100, 3),
            (end, 100, 0),
            (end + 5, 100, 0),
        ]:
            found = read(position, size)
            assert found is not None
            assert bytes(found) == log[position : position + got]
    store.close()


def test_what_is_not_in_memory_is_for_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_master(tmp_path)
    fill(store, 5)
    monkeypatch.setattr(commitlog, "HOT_BYTES", 0)
    monkeypatch.setattr(LogFile, "read_cached", lambda *_: None)
    assert store.read_piece(0, 50) is None
    assert len(store.read_piece_cold(0, 50)) == 50
    store.close()


def test_what_is_not_kept_any_more_is_told_apart(tmp_path: Path) -> None:
    store = open_master(tmp_path)
    send(store, 400)
    store.close()
    expire(make_config(tmp_path), FILE_BYTES)
    store = open_master(tmp_path)
    assert store.read_piece(10, 50) is None
    with pytest.raises(FileNotFoundError):
        store.read_piece_cold(10, 50)
    assert store.digest(10, FILE_BYTES + 10) is None
    assert store.digest(FILE_BYTES, FILE_BYTES + 10) is not None
    store.close()


def test_a_digest_is_of_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbytes, "_DIGEST_CHUNK_BYTES", 1000)
    store = open_master(tmp_path)
    send(store, 400)
    log, end = whole(tmp_path), store.written
    for begin, until in [(0, end), (0, 0), (end, end), (7, 1007), (FILE_BYTES - 1, FILE_BYTES + 1)]:
        assert store.digest(begin, until) == hashlib.sha256(log[begin:until]).hexdigest()
    for begin, until in [(0, end + 1), (-1, 5), (5, 4)]:
        assert store.digest(begin, until) is None
    store.close()
