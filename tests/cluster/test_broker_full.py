"""A disk that is really full: sends are refused with 14, the broker lives, and goes on by itself once there is room."""

import asyncio
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from chaos.host.processes import ServerProcess
from client.admin.client import AdminClient
from client.errors import ClientError
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import RemotingError
from remoting.headers.send import SendMessageRequestHeader
from tests.cluster.raft_site import LOG_FILE_BYTES, QUEUES, ROUND, SETTINGS, TOPIC, Site, body
from tests.cluster.small_disk import NoNamespace, SmallDisk
from tests.cluster.test_client_producer import everything

pytestmark = pytest.mark.timeout(120)

DISK_BYTES = 6 * 1024 * 1024
EXT4_BYTES = 24 * 1024 * 1024
CHANGES = "raftmq_storage_writability_changes_total"
# Retention would delete files of a full disk, and the ratio refuse sends before the disk does.
PATIENT = {**SETTINGS, "cleanResourceInterval": 3_600_000}


class FullSite(Site):
    """A site whose stores are on small disks; `taken` are the bodies that were acknowledged, by queue."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disks: list[SmallDisk] = []
        self.ext4 = False
        self.leader = ""
        self.taken: list[list[bytes]] = [[] for _ in QUEUES]

    def put_on_disk(self, process: ServerProcess, store: Path) -> SmallDisk:
        try:
            disk = SmallDisk(store, EXT4_BYTES if self.ext4 else DISK_BYTES, ext4=self.ext4)
        except NoNamespace as error:
            pytest.skip(str(error))
        self.disks.append(disk)
        disk.take(process)
        return disk

    async def give(self, client: RemotingClient) -> int:
        """Send one message to `leader`; return the answer's code."""
        queue, content = QUEUES[self.sent % 2].queueId, body(self.sent)
        self.sent += 1
        header = SendMessageRequestHeader(
            producerGroup="producers", topic=TOPIC, defaultTopic="TBW102", defaultTopicQueueNums=2, queueId=queue,
            sysFlag=0, bornTimestamp=1, flag=0, reconsumeTimes=0,
        )  # fmt: skip
        answer = await client.invoke(self.leader, Command.request(RequestCode.SEND_MESSAGE, header, content), 10)
        if answer.code == ResponseCode.SUCCESS:
            self.taken[queue].append(content)
        else:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, (answer.code, answer.remark)
            await asyncio.sleep(0.05)
        return answer.code

    async def until(self, wanted: ResponseCode, count: int) -> None:
        """Send until so many answers in a row are the same."""
        client = RemotingClient()
        try:
            async with asyncio.timeout(60):
                row = 0
                while row < count:
                    row = row + 1 if await self.give(client) == wanted else 0
        finally:
            await client.close()

    async def until_up(self, process: ServerProcess) -> None:
        """Wait until a process serves, though it may not be ready: its disk is full."""
        async with asyncio.timeout(60):
            while await asyncio.to_thread(process.state, "/v1/status") is None:
                assert process.running, process.last_words()
                await asyncio.sleep(0.05)

    async def until_ready(self, process: ServerProcess) -> None:
        """Wait until a process says so, with nobody sending anything."""
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(process.ready):
                await asyncio.sleep(0.05)

    async def until_refused(self) -> None:
        await self.until(ResponseCode.SERVICE_NOT_AVAILABLE, 30)

    async def until_taken(self) -> None:
        await self.until(ResponseCode.SUCCESS, ROUND)

    async def check_full(self) -> None:
        """Everything acknowledged is there, in order and once, at dense offsets; sends without an answer may be."""
        await self.routed()
        found = await everything(self.namesrv.address, TOPIC, sum(map(len, self.taken)))
        for queue, taken in zip(QUEUES, self.taken, strict=True):
            here = [message for message in found if message.queue_id == queue.queueId]
            assert [message.queue_offset for message in here] == list(range(len(here)))
            assert [message.body for message in here] == taken

    def close(self) -> None:
        super().close()
        for disk in self.disks:
            disk.close()


def page(process: ServerProcess, path: str) -> tuple[int, Any]:
    """Return status and content of a page, whatever the status is."""
    connection = http.client.HTTPConnection(process.host, process.http_port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, orjson.loads(answer.read())
    finally:
        connection.close()


def metric(process: ServerProcess, name: str) -> float:
    """Return the value of a metric of which there is one series."""
    connection = http.client.HTTPConnection(process.host, process.http_port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    (line,) = (line for line in lines if line.startswith(name + "{"))
    return float(line.rpartition(" ")[2])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FullSite]:
    running = FullSite(tmp_path)
    yield running
    running.close()


async def test_a_broker_on_a_full_disk_refuses_sends_lives_and_recovers(
    site: FullSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.raft_site.SETTINGS", PATIENT)
    broker = site.single("n0", start=False)
    disk = site.put_on_disk(broker, site.store("n0"))
    broker.start()
    site.leader = broker.address
    await site.create()
    await site.until_taken()
    assert page(broker, "/readyz") == (200, {"status": "READY"})
    assert metric(broker, "raftmq_storage_writes_refused") == metric(broker, CHANGES) == 0
    assert metric(broker, "raftmq_storage_reserve_bytes") == LOG_FILE_BYTES // 4
    disk.fill()
    await site.until_refused()
    assert broker.running, broker.last_words()
    code, said = page(broker, "/readyz")
    assert (code, said["status"]) == (503, "NOT_READY")
    assert "the disk is full" in said["reason"]
    assert metric(broker, "raftmq_storage_writes_refused") == 1
    assert metric(broker, CHANGES) == 1, "one change, however many sends were refused"
    assert metric(broker, "raftmq_storage_reserve_bytes") == 0
    assert broker.log.read_text().count("the store takes no messages: ") == 1
    await site.check_full()
    # What an administrator wants goes on in what was given up. What cannot be written down at all is refused too.
    async with AdminClient(site.namesrv.address) as admin:
        await admin.create_topic("reserve", read_queues=1, write_queues=1)
        disk.fill()
        with pytest.raises((ClientError, RemotingError)):
            await admin.create_topic("more", read_queues=1, write_queues=1)
    disk.drain()
    await site.until_ready(broker)
    assert metric(broker, "raftmq_storage_writes_refused") == 0
    assert metric(broker, CHANGES) == 2
    assert metric(broker, "raftmq_storage_reserve_bytes") == LOG_FILE_BYTES // 4
    assert broker.log.read_text().count("the store takes messages again, after ") == 1
    await site.until_taken()
    await site.check_full()
    async with AdminClient(site.namesrv.address) as admin:
        await admin.create_topic("more", read_queues=1, write_queues=1)
    # Killed while it is full, it has everything too.
    disk.fill()
    await site.until_refused()
    broker.kill()
    # Whatever the kill gave back. It starts so that people and retention can make room.
    disk.fill()
    broker.launch()
    await site.until_up(broker)
    await site.check_full()
    await site.until_refused()
    # A stop in good order has no room for its queues, which is no failure.
    assert broker.stop() == 0, broker.last_words()
    disk.fill()
    broker.launch()
    await site.until_up(broker)
    await site.check_full()
    disk.drain()
    await site.until_ready(broker)
    await site.until_taken()
    assert broker.stop() == 0, broker.last_words()
    broker.start()
    await site.check_full()
    async with AdminClient(site.namesrv.address) as admin:
        assert {TOPIC, "reserve", "more"} <= set(await admin.topics())
