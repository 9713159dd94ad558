"""raft/core/votefile.py: a vote is on disk before it counts, and a member that forgot its votes does not start."""

import os
import struct
import zlib
from pathlib import Path

import pytest

from raft.core.votefile import FILE_BYTES, VoteFile, VoteFileDamaged, VoteFileMissing

STORE_ID = bytes(range(16))


def opened(path: Path, *, has_log: bool = True) -> VoteFile:
    return VoteFile.open(path, has_log=has_log, new_id=lambda: STORE_ID)


def never() -> bytes:
    raise AssertionError("the store id is made once")


def test_the_first_start_makes_a_store_id_and_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "raft" / "vote"
    first = opened(path, has_log=False)
    assert (first.store_id, first.term, first.voted_for) == (STORE_ID, 0, "")
    again = VoteFile.open(path, has_log=False, new_id=never)
    assert (again.store_id, again.term, again.voted_for) == (STORE_ID, 0, "")


def test_term_and_vote_survive(tmp_path: Path) -> None:
    votes = opened(tmp_path / "vote", has_log=False)
    votes.save(7, "")
    votes.save(7, "n2")
    votes.save(7, "n2")
    again = opened(tmp_path / "vote")
    assert (again.store_id, again.term, again.voted_for) == (STORE_ID, 7, "n2")
    again.save(8, "")
    assert opened(tmp_path / "vote").voted_for == ""


def test_file_and_folder_are_fsynced_before_save_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    votes = opened(tmp_path / "vote", has_log=False)
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append("folder" if Path(f"/proc/self/fd/{fd}").is_dir() else "file")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    votes.save(3, "n1")
    assert synced == ["file", "folder"]


def test_R6_a_missing_file_beside_a_log_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(VoteFileMissing, match=r"(?s)is missing.*Remove it from the group.*again as a learner"):
        opened(tmp_path / "vote")
    assert not (tmp_path / "vote").exists()


def test_R6_an_older_vote_is_never_taken_for_the_last(tmp_path: Path) -> None:
    path = tmp_path / "vote"
    votes = opened(path, has_log=False)
    votes.save(1, "n0")
    votes.save(2, "n1")
    assert path.with_name("vote.bak").exists()
    path.unlink()
    with pytest.raises(VoteFileMissing):
        opened(path)
    path.write_bytes(b"")
    with pytest.raises(VoteFileDamaged, match="0 bytes"):
        opened(path)


@pytest.mark.parametrize("has_log", [False, True])
def test_R6_every_damaged_byte_is_found(tmp_path: Path, has_log: bool) -> None:
    path = tmp_path / "vote"
    opened(path, has_log=False).save(5, "n1")
    good = path.read_bytes()
    assert len(good) == FILE_BYTES
    for place in range(FILE_BYTES):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        with pytest.raises(VoteFileDamaged):
            opened(path, has_log=has_log)
    for content in (good[:-1], good + b"\0", bytes(FILE_BYTES)):
        path.write_bytes(content)
        with pytest.raises(VoteFileDamaged, match="again as a learner"):
            opened(path, has_log=has_log)


@pytest.mark.parametrize(
    ("version", "length", "term", "name", "text"),
    [
        (2, 2, 1, b"n1", "version 2.*start the program that wrote it"),
        (1, 41, 1, b"n1", "cannot be"),
        (1, 1, 1, b"n1", "cannot be"),
        (1, 2, -1, b"n1", "cannot be"),
        (1, 2, 1 << 62, b"n1", "cannot be"),
        (1, 2, 1, b"\xff\xff", "cannot be"),
    ],
)
def test_a_good_crc_over_nonsense_is_refused(
    tmp_path: Path, version: int, length: int, term: int, name: bytes, text: str
) -> None:
    body = struct.pack(">4sHH16sq40s", b"RMQV", version, length, STORE_ID, term, name)
    (tmp_path / "vote").write_bytes(body + struct.pack(">I", zlib.crc32(body)))
    with pytest.raises(VoteFileDamaged, match=text):
        opened(tmp_path / "vote")


def test_another_file_is_no_vote_file(tmp_path: Path) -> None:
    body = struct.pack(">4sHH16sq40s", b"JUNK", 1, 0, STORE_ID, 1, b"")
    (tmp_path / "vote").write_bytes(body + struct.pack(">I", zlib.crc32(body)))
    with pytest.raises(VoteFileDamaged, match="no vote file"):
        opened(tmp_path / "vote")


def test_what_could_not_be_written_is_not_believed(tmp_path: Path) -> None:
    fail = False

    def replace(path: Path, content: bytes) -> None:
        if fail:
            raise OSError(5, "Input/output error")
        path.write_bytes(content)

    votes = VoteFile.open(tmp_path / "vote", has_log=False, new_id=lambda: STORE_ID, replace=replace)
    votes.save(1, "n0")
    fail = True
    with pytest.raises(OSError, match="Input/output"):
        votes.save(2, "n1")
    assert (votes.term, votes.voted_for) == (1, "n0")


def test_the_disk_that_cannot_hold_the_first_vote_stops_the_start(tmp_path: Path) -> None:
    def replace(_path: Path, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        VoteFile.open(tmp_path / "vote", has_log=False, new_id=lambda: STORE_ID, replace=replace)


@pytest.mark.parametrize(("term", "voted_for"), [(4, ""), (5, "n2"), (5, ""), (-1, ""), (1 << 62, "")])
def test_neither_term_nor_vote_goes_back(tmp_path: Path, term: int, voted_for: str) -> None:
    votes = opened(tmp_path / "vote", has_log=False)
    votes.save(5, "n1")
    with pytest.raises(AssertionError):
        votes.save(term, voted_for)
    assert (opened(tmp_path / "vote").term, opened(tmp_path / "vote").voted_for) == (5, "n1")


def test_a_vote_fits_and_a_name_that_does_not_is_caught(tmp_path: Path) -> None:
    votes = opened(tmp_path / "vote", has_log=False)
    votes.save(1, "n" * 40)
    assert opened(tmp_path / "vote").voted_for == "n" * 40
    with pytest.raises(AssertionError, match="does not fit"):
        votes.save(2, "n" * 41)
