"""R4 and R12 with real processes: a member that lost a file, and is killed before the others have filled the hole."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess
from client.admin.client import AdminClient
from client.message import Message
from client.produce.producer import Producer
from raftmq.bench.group import until_done
from remoting.bodies.registry import MessageQueue
from tests.cluster.process_group import Group, leading, process_group, status, until
from tests.cluster.raft_cluster import CALM
from tests.cluster.small_files import SMALL_FILES
from tests.cluster.test_client_producer import everything

FILE_BYTES = 256 * 1024
QUEUES = [MessageQueue("T", "broker-a", queue) for queue in range(4)]
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": FILE_BYTES,
    # Who is told to lead is to be the leader still when it is looked at.
    **CALM,
    "shutdownForwardMs": 100,
}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with process_group(tmp_path, SETTINGS) as started:
        yield started


def level(members: Sequence[ServerProcess]) -> bool:
    """Whether everybody has everything, and knows it."""
    marks = [(each.get("last"), each.get("applied"), each.get("whole")) for each in map(status, members)]
    return len(set(marks)) == 1 and marks[0][0] == marks[0][1] is not None and bool(marks[0][2])


async def send(namesrv: str, first: int, last: int) -> None:
    """Send each message to the queue of its number, and wait for all of them."""
    async with Producer("producers", namesrv) as producer:
        for begin in range(first, last, 200):
            numbers = range(begin, min(last, begin + 200))
            bodies = [(b"%d " % number).ljust(600, b"x") for number in numbers]
            await asyncio.gather(
                *(
                    producer.send(Message("T", body), queue=QUEUES[number % 4])
                    for number, body in zip(numbers, bodies, strict=True)
                )
            )


async def read(namesrv: str, count: int) -> list[int]:
    return sorted(int(message.body.split()[0]) for message in await everything(namesrv, "T", count))


async def lead(namesrv: str, member: str) -> None:
    async with AdminClient(namesrv) as admin:
        await admin.transfer_leader("broker-a", member)


async def create(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        # Who leads need not be registered yet.
        await until_done(lambda: admin.create_topic("T", read_queues=4, write_queues=4))


def queues(store: Path) -> dict[str, bytes]:
    """The files of the queues."""
    folder = store / "consumequeue"
    return {
        str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def known_entries(store: Path) -> int:
    """Count the entries that the queue of the Raft log knows on disk."""
    return len(queues(store).get(f"RMQ_SYS_RAFT/0/{0:020d}", b"")) // 20


def queued(member: ServerProcess, store: Path) -> bool:
    """Whether a member, which may not answer in time, has written its queues."""
    last = status(member).get("last")
    return last is not None and known_entries(store) >= min(last, 900)


def started_with_a_hole(member: ServerProcess, store: Path, others: Sequence[ServerProcess]) -> None:
    """Start a member while nobody can help it, and kill it once it knows its hole and has written its queues."""
    for other in others:
        other.signal(signal.SIGSTOP)
    try:
        member.launch()
        until("the hole is seen", lambda: status(member).get("whole") is False)
        until("the queues are written", lambda: queued(member, store))
        member.kill()
    finally:
        for other in others:
            other.signal(signal.SIGCONT)


def leads_and_all_are_equal(members: list[ServerProcess], hurt: int, namesrv: str, folder: Path) -> str:
    """Hand the mended member the lead, send, read and stop all; return what they logged."""
    asyncio.run(lead(namesrv, f"n{hurt}"))
    until("the mended member leads", lambda: leading(members) == hurt)
    asyncio.run(send(namesrv, 1500, 1504))
    assert asyncio.run(read(namesrv, 1504)) == list(range(1504))
    until("all have everything", lambda: level(members))
    for member in members:
        assert member.stop() == 0, member.last_words()
    said = "".join(member.log.read_text() for member in members)
    assert "starts again at" not in said
    assert "Traceback" not in said
    found = [queues(folder / f"n{number}" / "store") for number in range(3)]
    # Entries go on while one after the other stops; messages do not.
    messages = [{name: content for name, content in each.items() if name.startswith("T/")} for each in found]
    assert messages[0] == messages[1] == messages[2]
    return said


@pytest.mark.timeout(120)
def test_R4_a_hole_that_outlives_a_kill_is_filled_and_nobody_s_queue_is_cut(group: Group, tmp_path: Path) -> None:
    namesrv, members = group
    until("a leader", lambda: any(status(member).get("leads") for member in members))
    asyncio.run(create(namesrv.address))
    asyncio.run(send(namesrv.address, 0, 1500))
    until("all have it", lambda: level(members))
    hurt = (leading(members) + 1) % 3
    assert members[hurt].stop() == 0
    (tmp_path / f"n{hurt}" / "store" / "commitlog" / f"{FILE_BYTES:020d}").unlink()
    for _ in range(2):
        others = [member for number, member in enumerate(members) if number != hurt]
        started_with_a_hole(members[hurt], tmp_path / f"n{hurt}" / "store", others)
    members[hurt].launch()
    until("whole again", lambda: level(members))
    leads_and_all_are_equal(members, hurt, namesrv.address, tmp_path)


def log_bytes(store: Path, end: int) -> bytes:
    """Everything in the log before a position."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:end]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("gone", [[0], [0, 1, 2, 3, 4, 5]], ids=["the first file", "all files"])
def test_R4_the_oldest_file_is_no_retention_s_work(group: Group, tmp_path: Path, gone: list[int]) -> None:
    """In it stands the group's first entry, which says who the members are; killed before it has it again."""
    namesrv, members = group
    until("a leader", lambda: any(status(member).get("leads") for member in members))
    asyncio.run(create(namesrv.address))
    asyncio.run(send(namesrv.address, 0, 1500))
    until("all have it", lambda: level(members))
    hurt = (leading(members) + 1) % 3
    store, other = tmp_path / f"n{hurt}" / "store", tmp_path / f"n{(hurt + 1) % 3}" / "store"
    assert len(list((store / "commitlog").iterdir())) > 3
    assert members[hurt].stop() == 0
    for number in gone:
        (store / "commitlog" / f"{number * FILE_BYTES:020d}").unlink(missing_ok=True)
    members[hurt].launch()
    until("it answers", lambda: status(members[hurt]).get("whole") is not None)
    members[hurt].kill()
    members[hurt].launch()
    until("whole again", lambda: level(members))
    end = status(members[hurt])["end"]
    assert status(members[hurt])["base"] == 0
    assert log_bytes(store, end) == log_bytes(other, end)
    said = leads_and_all_are_equal(members, hurt, namesrv.address, tmp_path)
    assert "is to be replaced by a copy" not in said
