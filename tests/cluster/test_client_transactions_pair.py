"""Transactions of our producer over a master and its slave: the master dies, and the promoted slave has what was told.

A SYNC_MASTER promises that the slave has what was acknowledged: no half message that the producer was told of is lost.
Ends are told one-way, so one that the master had alone is gone with it: the promoted slave asks for it.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.host.local import LocalCluster
from client.admin.client import AdminClient
from client.errors import SendFailed
from client.message import Message
from client.produce.transaction import TransactionState
from client.produce.transactions import TransactionProducer
from remoting.message import MessageExt
from tests.cluster.classic_site import command, follows, is_master
from tests.cluster.modes import SMALL
from tests.cluster.test_client_transactions import TOPIC, consuming, until

SOON = {"transactionTimeOut": 1000, "transactionCheckInterval": 500, "transactionOpBatchInterval": 200}
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
OPEN = 6


class Ledger:
    """The local database: what became of each local transaction, by the name that its message carries."""

    def __init__(self) -> None:
        self.comes_to: dict[str, TransactionState] = {}
        self.asked: Counter[str] = Counter()
        self.acknowledged: set[str] = set()

    async def check(self, message: MessageExt) -> TransactionState:
        name = bytes(message.body).decode()
        self.asked[name] += 1
        return self.comes_to[name]

    @property
    def due(self) -> set[str]:
        """What must be delivered: committed, and its half acknowledged."""
        return {name for name in self.acknowledged if self.comes_to[name] is COMMIT}

    async def transact(
        self, producer: TransactionProducer, name: str, comes_to: TransactionState, *, left: bool
    ) -> bool:
        """Make a transaction; one that is `left` is ended by nobody. Tell whether its half message is stored."""
        self.comes_to[name] = comes_to
        try:
            async with producer.transaction(Message(TOPIC, name.encode())) as tx:
                self.acknowledged.add(name)
                tx.state = UNKNOWN if left else comes_to
        except SendFailed:
            return False
        return True


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LocalCluster]:
    # A slave to whom a busy machine gives no time for a second has no send refused.
    settings = {**SMALL, **SOON, "slaveTimeout": 3000, "haSendHeartbeatInterval": 200}
    with LocalCluster(tmp_path, nodes=2, mode="sync", broker_settings=settings) as running:
        yield running


async def promote(pair: LocalCluster, *role: str) -> None:
    await command("promote", "broker-a", "--yes", *role, "-n", pair.address)
    await is_master(pair.brokers[1])


async def delivered(pair: LocalCluster, ledger: Ledger) -> Counter[str]:
    """Consume until all that is due has come and nothing is pending."""
    slave = pair.brokers[1]

    def settled(bodies: list[bytes]) -> bool:
        page = slave.state("/v1/transactions")
        came = {body.decode() for body in bodies}
        return ledger.due <= came and page is not None and page["read"] and not page["pending"]

    async with consuming(pair) as bodies:
        await until(lambda: settled(bodies), 60)
        # Whatever came again would come now.
        await asyncio.sleep(1.0)
        return Counter(body.decode() for body in bodies)


async def knows_the_topic(pair: LocalCluster) -> None:
    async with AdminClient(pair.address) as admin, asyncio.timeout(30):
        while await admin.topic_config(TOPIC, pair.brokers[1].address) is None:
            await asyncio.sleep(0.02)


def check(found: Counter[str], ledger: Ledger) -> None:
    assert max(found.values()) == 1, found.most_common(3)
    assert {name for name in found if ledger.comes_to[name] is ROLLBACK} == set()
    assert ledger.due <= found.keys()


@pytest.mark.timeout(180)
async def test_transactions_go_on_with_the_promoted_slave(pair: LocalCluster) -> None:
    ledger, master = Ledger(), pair.brokers[0]
    async with TransactionProducer("tellers", pair.address, on_check=ledger.check, send_timeout=8.0) as producer:
        for number in range(30):
            comes_to = ROLLBACK if number % 3 == 1 else COMMIT
            assert await ledger.transact(producer, f"before-{number}", comes_to, left=number % 5 == 4)
        await knows_the_topic(pair)
        # The local parts of some run while the master dies.
        begun, dead = asyncio.Semaphore(0), asyncio.Event()

        async def through(number: int) -> None:
            name = f"during-{number}"
            ledger.comes_to[name] = ROLLBACK if number % 2 else COMMIT
            async with producer.transaction(Message(TOPIC, name.encode())) as tx:
                ledger.acknowledged.add(name)
                begun.release()
                await dead.wait()
                tx.state = ledger.comes_to[name]

        async with asyncio.TaskGroup() as tasks:
            for number in range(OPEN):
                tasks.create_task(through(number))
            for _ in range(OPEN):
                await begun.acquire()
            # Committed in the last moment: whether the slave has heard of that end, nobody knows.
            assert await ledger.transact(producer, "last", COMMIT, left=False)
            master.kill()
            dead.set()
            await promote(pair, "--role", "ASYNC_MASTER")
        async with asyncio.timeout(60):
            stored = 0
            while stored < 12:
                name = f"after-{len(ledger.comes_to)}"
                comes_to = ROLLBACK if stored % 3 == 1 else COMMIT
                stored += await ledger.transact(producer, name, comes_to, left=stored % 4 == 3)
        found = await delivered(pair, ledger)
    assert {name for name in ledger.comes_to if name.startswith("during")} <= ledger.acknowledged
    check(found, ledger)
    left = {f"before-{number}" for number in range(30) if number % 5 == 4}
    assert left <= ledger.asked.keys(), "what nobody ended was asked about"


@pytest.mark.timeout(180)
async def test_a_half_that_one_broker_alone_has_is_refused_and_never_comes(pair: LocalCluster) -> None:
    """A SYNC_MASTER without its slave: the local part does not begin, until the old master follows."""
    ledger, (master, slave) = Ledger(), pair.brokers
    async with TransactionProducer("tellers", pair.address, on_check=ledger.check, send_timeout=8.0) as producer:
        assert await ledger.transact(producer, "before", COMMIT, left=True)
        await knows_the_topic(pair)
        master.kill()
        await promote(pair)
        for number in range(4):
            assert not await ledger.transact(producer, f"alone-{number}", COMMIT, left=False)
        assert ledger.acknowledged == {"before"}, "no local part was begun"
        # If it were asked of them it would say "commit", and they would come.
        ledger.asked.clear()
        master.launch()
        await until(lambda: bool((master.state("/v1/ha") or {}).get("fenced")), 30)
        await command("follow", master.address, "-n", pair.address)
        await follows(master, slave)
        assert await ledger.transact(producer, "again", COMMIT, left=False)
        found = await delivered(pair, ledger)
    assert found == Counter({"before": 1, "again": 1})
    assert [name for name in ledger.asked if name.startswith("alone")] == []


@pytest.mark.timeout(180)
async def test_what_an_earlier_producer_left_is_asked_of_one_that_only_waits(pair: LocalCluster) -> None:
    """A producer that sends nothing must find the promoted slave by itself.

    The master dies at once: its slave may not have heard of the topic, which must not hide a message of any queue.
    """
    ledger, master = Ledger(), pair.brokers[0]
    async with TransactionProducer("tellers", pair.address, on_check=ledger.check, send_timeout=8.0) as earlier:
        with contextlib.suppress(ZeroDivisionError):
            async with earlier.transaction(Message(TOPIC, b"undone")):
                ledger.comes_to["undone"] = ROLLBACK
                raise ZeroDivisionError
        for number in range(8):
            name, comes_to = f"left-{number}", COMMIT if number < 4 else ROLLBACK
            assert await ledger.transact(earlier, name, comes_to, left=True)
        master.kill()
    async with TransactionProducer("tellers", pair.address, on_check=ledger.check, topics=[TOPIC]):
        ledger.asked.clear()
        await promote(pair)
        found = await delivered(pair, ledger)
    check(found, ledger)
    assert found == Counter(ledger.due)
    assert {f"left-{number}" for number in range(8)} <= ledger.asked.keys()
