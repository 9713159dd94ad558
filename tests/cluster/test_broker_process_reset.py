"""R13 with real processes: a member that was killed for so long that the others forgot what it lacks."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.message import Message
from client.produce.producer import Producer
from tests.cluster.process_group import Group, leading, process_group, registered, status, until
from tests.cluster.raft_cluster import CALM
from tests.cluster.small_files import SMALL_FILES

FILE_BYTES = 256 * 1024
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": FILE_BYTES,
    "fileReservedTime": 0,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": 200,
    "flushConsumerOffsetInterval": 200,
    # An election between the last look and the kills would leave an entry that not all have.
    **CALM,
    "shutdownForwardMs": 100,
}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with process_group(tmp_path, SETTINGS) as started:
        yield started


def store(tmp_path: Path, number: int) -> Path:
    return tmp_path / f"n{number}" / "store"


def log_start(folder: Path) -> int:
    return min(int(path.name) for path in (folder / "commitlog").iterdir())


def log(folder: Path) -> tuple[int, bytes]:
    """Where a log begins, and its bytes without the zeros at its end."""
    files = sorted((folder / "commitlog").iterdir())
    return log_start(folder), b"".join(path.read_bytes() for path in files).rstrip(b"\0")


async def send(namesrv: str, count: int) -> None:
    async with Producer("producers", namesrv) as producer:
        for _ in range(count):
            await producer.send(Message("T", os.urandom(10_000)))


def test_R13_a_process_that_is_behind_retention_starts_again_and_copies_while_the_group_serves(
    group: Group, tmp_path: Path
) -> None:
    namesrv, members = group
    leader = leading(members)
    asyncio.run(registered(namesrv.address, "broker-a"))
    behind, other = (number for number in range(3) if number != leader)
    asyncio.run(send(namesrv.address, 5))
    members[behind].kill()
    asyncio.run(send(namesrv.address, 120))
    until(
        "retention moves past the killed member",
        lambda: all(log_start(store(tmp_path, number)) >= 3 * FILE_BYTES for number in (leader, other)),
    )
    members[behind].launch()
    pid = members[behind].pid
    asyncio.run(send(namesrv.address, 30))
    until("the copy is whole", lambda: "the log is whole up to index" in members[behind].log.read_text())
    members[behind].wait_ready()
    assert (members[behind].running, members[behind].pid) == (True, pid), "it began anew in the same process"
    assert "the broker starts again: the store is to be replaced by a copy of" in members[behind].log.read_text()
    assert not (store(tmp_path, behind) / "raft" / "reset").exists()
    asyncio.run(send(namesrv.address, 10))

    def level() -> bool:
        marks = [(each.get("last"), each.get("commit")) for each in map(status, members)]
        return len(set(marks)) == 1 and marks[0][0] == marks[0][1] is not None

    until("everybody has everything", level)
    # All at once: a member that stops in good order hands its lead to another, which begins its term in its log.
    for member in members:
        member.signal(signal.SIGKILL)
    for member in members:
        member.kill()
    logs = [log(store(tmp_path, number)) for number in range(3)]
    begin = max(start for start, _ in logs)
    tails = [content[begin - start :] for start, content in logs]
    assert tails[0] == tails[1] == tails[2] != b""
