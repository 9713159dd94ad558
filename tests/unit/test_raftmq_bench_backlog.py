"""The backlog bench's own arithmetic: what it takes for lost or repeated, and when it refuses a disk."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from raftmq.bench.backlog import BacklogBook, BacklogLoad, NoRoomForBacklog, check_room
from remoting.message import MessageExt

HOST = ("127.0.0.1", 1)


def message(queue: int, number: int) -> MessageExt:
    body = b"%020d" % number + b"x" * 80
    return MessageExt("backlog", queue, number, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, body, 0)


def test_a_backlog_tells_what_was_skipped_and_what_came_again() -> None:
    book = BacklogBook({0: 0, 1: 5})
    book.take([message(0, 0), message(1, 5), message(0, 1)])
    assert (book.passed, book.repeated, book.skipped) == (3, 0, 0)
    book.take([message(0, 1)])
    assert (book.passed, book.repeated, book.skipped) == (3, 1, 0)
    book.take([message(0, 4), message(0, 3)])
    assert (book.passed, book.repeated, book.skipped) == (6, 2, 2)
    assert book.expected == {0: 5, 1: 6}


def test_a_backlog_needs_room_on_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = BacklogLoad(messages=1_000_000)
    needed = load.needed_bytes()
    assert needed > 1_000_000 * 300

    def disk(total: float, used: float, free: float) -> None:
        usage = SimpleNamespace(total=int(total * needed), used=int(used * needed), free=int(free * needed))
        monkeypatch.setattr("shutil.disk_usage", lambda _folder: usage)

    disk(10, 7.4, 2.6)
    check_room(load, tmp_path)
    # Too little is free; and too little until brokers remove files.
    for total, used, free in ((1000, 1, 0.99), (10, 7.6, 2.4)):
        disk(total, used, free)
        with pytest.raises(NoRoomForBacklog, match=r"^1,000,000 messages of 100 B need about 2\.5 GB, and the disk of"):
            check_room(load, tmp_path)
