"""Transactions of real processes that are killed: what was committed comes once, what was rolled back never comes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from chaos.host.processes import ServerProcess, broker_process, classic_processes, namesrv_process
from client.admin.client import AdminClient
from remoting.bodies.registry import HeartbeatData, ProducerData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import ConnectError, InvokeError
from remoting.record import decode_records
from tests.cluster.broker_peer import pull_header
from tests.cluster.process_group import leader_of, process_group, until
from tests.cluster.raft_cluster import CALM
from tests.cluster.small_files import SMALL_FILES
from tests.parts.transaction_parts import COMMIT, GROUP, ROLLBACK, UNKNOWN, ends, prepared

QUICK = {**SMALL_FILES, "transactionTimeOut": 500, "transactionCheckInterval": 500, "transactionCheckMax": 1000}
QUICK |= {"transactionOpBatchInterval": 200, "mappedFileSizeCommitLog": 4 << 20}
COUNT = 50
WAIT_S = 60


def how(number: int) -> int:
    """What becomes of a transaction in the end."""
    return ROLLBACK if number % 3 == 1 else COMMIT


class Transactor:
    """A producer that ends two transactions of three itself, and the third when it is asked."""

    def __init__(self, brokers: Sequence[ServerProcess]) -> None:
        self.brokers = brokers
        self.client = RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: self._asked})
        self.acknowledged: set[int] = set()
        self.asked: Counter[int] = Counter()

    def _asked(self, connection: Connection, request: Command) -> None:
        number = int(request.ext["msgId"])
        self.asked[number] += 1
        said = {"queueOffset": request.ext["tranStateTableOffset"], "msgId": request.ext["offsetMsgId"]}
        header = ends({**said, "transactionId": request.ext["msgId"]}, how(number), checked=True)
        with contextlib.suppress(InvokeError):
            connection.send_oneway(Command.request(RequestCode.END_TRANSACTION, header))

    async def beat(self) -> None:
        """Tell every broker that is there of the producer."""
        body = HeartbeatData(clientID="c", producerDataSet=[ProducerData(groupName=GROUP)]).encode()
        for broker in self.brokers:
            with contextlib.suppress(InvokeError, ConnectError):
                await self.client.invoke(broker.address, Command.request(RequestCode.HEART_BEAT, None, body), 2.0)

    async def transact(self, number: int) -> None:
        """Prepare a message, and end it or leave it; what fails is left."""
        request = Command.request(RequestCode.SEND_MESSAGE_V2, prepared(f"{number:032d}"), b"%d" % number)
        for broker in self.brokers:
            try:
                answer = await self.client.invoke(broker.address, request, 5.0)
            except ConnectError:
                continue
            except InvokeError:
                return
            if answer.code == ResponseCode.SUCCESS:
                break
        else:
            return
        self.acknowledged.add(number)
        header = ends(answer.ext, how(number) if number % 3 != 2 else UNKNOWN)
        with contextlib.suppress(InvokeError, ConnectError):
            end = Command.request(RequestCode.END_TRANSACTION, header, oneway=True)
            await self.client.oneway(broker.address, end)

    async def delivered(self) -> Counter[int]:
        """Read the topic."""
        found: Counter[int] = Counter()
        for broker in self.brokers:
            offset = 0
            while True:
                request = Command.request(RequestCode.PULL_MESSAGE, pull_header(offset))
                try:
                    answer = await self.client.invoke(broker.address, request, 5.0)
                except (InvokeError, ConnectError):
                    break
                if answer.code != ResponseCode.SUCCESS:
                    return found
                records = decode_records(memoryview(answer.body))
                found.update(int(bytes(record.body)) for record in records)
                offset += len(records)
        return found

    async def settled(self) -> Counter[int]:
        """Beat until everything acknowledged has come to its end; returns what was delivered."""
        wanted = {number for number in self.acknowledged if how(number) == COMMIT}
        async with asyncio.timeout(WAIT_S):
            while True:
                await self.beat()
                found = await self.delivered()
                pages = [page for broker in self.brokers if (page := broker.state("/v1/transactions")) and page["read"]]
                if wanted <= found.keys() and pages and not any(page["pending"] for page in pages):
                    return await self.delivered()
                await asyncio.sleep(0.2)


def check(found: Counter[int], sender: Transactor) -> None:
    assert max(found.values()) == 1, "none comes twice"
    assert {number for number in found if how(number) == ROLLBACK} == set(), "what was rolled back never comes"
    assert {number for number in sender.acknowledged if how(number) == COMMIT} <= found.keys()


@contextlib.asynccontextmanager
async def transactor(brokers: Sequence[ServerProcess]) -> AsyncIterator[Transactor]:
    made = Transactor(brokers)
    yield made
    await made.client.close()


@pytest.fixture
def single(tmp_path: Path) -> Iterator[ServerProcess]:
    process = broker_process(tmp_path / "broker", namesrv="", settings=QUICK)
    yield process
    process.kill()


@pytest.mark.timeout(180)
async def test_a_broker_that_is_killed_and_started_again(single: ServerProcess) -> None:
    single.start()
    async with transactor([single]) as sender:
        await sender.beat()
        for number in range(COUNT):
            await sender.transact(number)
            if number in {COUNT // 3, COUNT * 2 // 3}:
                single.kill()
                single.start()
                await sender.beat()
        check(await sender.settled(), sender)
        assert len(sender.acknowledged) >= COUNT - 2
        assert sender.asked.keys() >= {number for number in range(COUNT) if number % 3 == 2}
        # And once more, when all is over: nobody is asked, nothing comes again.
        single.kill()
        single.start()
        sender.asked.clear()
        check(await sender.settled(), sender)
        assert sender.asked == {}


@pytest.mark.timeout(240)
async def test_a_group_whose_leader_is_killed(tmp_path: Path) -> None:
    # But for the kill one leads: what nobody takes is not tried again.
    with process_group(tmp_path, {**QUICK, **CALM}) as (_namesrv, members):
        async with transactor(members) as sender:
            await sender.beat()
            for number in range(COUNT):
                await sender.transact(number)
                if number == COUNT // 2:
                    leader = await leader_of(members)
                    await asyncio.to_thread(leader.kill)
                    await asyncio.to_thread(until, "another leads", lambda: _leads(members))
                    await sender.beat()
            check(await sender.settled(), sender)
            assert len(sender.acknowledged) >= COUNT - 1


@pytest.mark.timeout(240)
async def test_a_slave_that_is_promoted_goes_on(tmp_path: Path) -> None:
    settings = {**QUICK, "haSendHeartbeatInterval": 200}
    namesrv = namesrv_process(tmp_path / "namesrv")
    pair = classic_processes(tmp_path, 1, role="SYNC_MASTER", namesrv=namesrv.address, settings=settings)
    try:
        await asyncio.to_thread(namesrv.start)
        for process in pair:
            process.launch()
        for process in pair:
            await asyncio.to_thread(process.wait_ready)
        await asyncio.to_thread(until, "the slave follows", lambda: _followed(pair[0]))
        async with transactor(pair) as sender:
            await sender.beat()
            for number in range(COUNT):
                await sender.transact(number)
                if number == COUNT // 2:
                    await asyncio.to_thread(pair[0].kill)
                    async with AdminClient(namesrv.address) as admin:
                        await admin.promote(pair[1].address, force=True, role="ASYNC_MASTER")
                    await asyncio.to_thread(until, "it is the master", lambda: _read(pair[1]))
                    await sender.beat()
            check(await sender.settled(), sender)
            assert len(sender.acknowledged) >= COUNT - 1
    finally:
        for process in (*pair, namesrv):
            process.kill()


def _followed(master: ServerProcess) -> bool:
    """Whether a slave has what there is: without one a SYNC_MASTER acknowledges nothing."""
    return any(slave["inSync"] for slave in (master.state("/v1/ha") or {}).get("slaves", ()))


def _read(broker: ServerProcess) -> bool:
    return bool((broker.state("/v1/transactions") or {}).get("read"))


def _leads(members: Sequence[ServerProcess]) -> bool:
    return any((member.state("/v1/raft") or {}).get("leads") for member in members)
