"""A slave fed with what a RocketMQ 5.5.0 master pushed on its HA port holds what RocketMQ's own slave held then."""

import json
import os
import struct
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from remoting.msgid import pack_host
from store.config import StoreConfig
from store.messagestore import MessageStore
from store.recovery.inspect import StoreFolder
from store.slave.slavelog import SlaveLog

DATA = Path(__file__).parent / "data"
HOST = pack_host("127.0.0.1", 31921)
HEAD = struct.Struct(">qi")


def config(root: Path) -> StoreConfig:
    """What the folders were made with."""
    return StoreConfig(
        storePathRootDir=str(root),
        mappedFileSizeCommitLog=16384,
        mappedFileSizeConsumeQueue=2000,
        maxHashSlotNum=1000,
        maxIndexNum=4000,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the master (b0) and of its slave (b1)."""
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(DATA / "store-sync-slave-clean.tar.xz") as archive:
        for member in archive:
            if (content := archive.extractfile(member)) is not None:
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                os.utime(path, (member.mtime, member.mtime))
    return folder


def stream() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "ha-stream.jsonl").read_text("ascii").splitlines()]


def frames() -> Iterator[tuple[int, bytes]]:
    """What the master sent: (position, bytes), heartbeats included."""
    sent = b"".join(bytes.fromhex(line["bytes"]) for line in stream() if not line["towardsMaster"])
    at = 0
    while at < len(sent):
        position, size = HEAD.unpack_from(sent, at)
        at += HEAD.size + size
        yield position, sent[at - size : at]
    assert at == len(sent)


def reports() -> list[int]:
    """What the slave reported, in order."""
    return [int(line["bytes"], 16) for line in stream() if line["towardsMaster"]]


def contents(root: Path) -> dict[str, bytes]:
    """The log and what is derived from it; an index file's name is the time when it was made.

    Log files that are made ahead of need are left out.
    """
    found = {f"index {number}": path.read_bytes() for number, path in enumerate(sorted((root / "index").iterdir()))}
    for path in [*sorted(root.glob("commitlog/*")), *sorted(root.glob("consumequeue/*/*/*"))]:
        found[str(path.relative_to(root))] = path.read_bytes()
    return {name: content for name, content in found.items() if any(content)}


def open_slave(root: Path) -> tuple[MessageStore, SlaveLog]:
    store = MessageStore.open(config(root), store_host=HOST, slave=True)
    assert store.slave is not None
    return store, store.slave


def feed(log: SlaveLog, pieces: Sequence[tuple[int, bytes]]) -> list[int]:
    ends = []
    for position, data in pieces:
        ends.append(log.append(position, data))
        log.dispatch()
    return ends


def test_the_recorded_stream_makes_the_recorded_store(recorded: Path, tmp_path: Path) -> None:
    store, log = open_slave(tmp_path)
    ends = feed(log, list(frames()))
    assert sorted({0, *ends}) == sorted(set(reports()))
    assert (log.written, log.dispatched) == (ends[-1], ends[-1])
    store.close()
    assert contents(tmp_path) == contents(recorded / "b1")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_of_any_size_and_a_restart_make_it_too(recorded: Path, tmp_path: Path, size: int) -> None:
    pieces = [(begin + at, data[at : at + size]) for begin, data in frames() for at in range(0, len(data), size)]
    store, log = open_slave(tmp_path)
    half = pieces[: len(pieces) // 2]
    feed(log, half)
    store.close()
    store, log = open_slave(tmp_path)
    # What had come of the record that was not whole is asked for again.
    sent = b"".join(data for _, data in pieces)
    again, end = log.written, half[-1][0] + len(half[-1][1])
    assert again == log.dispatched <= end
    while (at := log.written) < len(sent):
        log.append(at, sent[at : at - at % store.file_bytes + store.file_bytes])
    while log.dispatch():
        pass
    store.close()
    assert contents(tmp_path) == contents(recorded / "b1")


def test_a_folder_that_rocketmq_s_slave_left_goes_on(recorded: Path, tmp_path: Path) -> None:
    """Both sides of the recording: our slave on RocketMQ's folder has nothing to ask for, and changes nothing."""
    for path in (recorded / "b1").rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(recorded / "b1")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    before = contents(tmp_path)
    store, log = open_slave(tmp_path)
    master = MessageStore.open(config(recorded / "b0"), store_host=HOST)
    assert (log.written, log.dispatched) == (master.written, master.written) == (reports()[-1], log.flushed)
    assert store.digest(0, store.written) == master.digest(0, master.written) is not None
    master.close()
    store.close()
    assert contents(tmp_path) == before
    assert StoreFolder(tmp_path).check_queues().wrong == 0
