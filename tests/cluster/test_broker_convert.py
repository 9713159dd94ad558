"""A master with slaves becomes a Raft group and a Raft group a master with slaves, by real processes (R16, R2)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.host.processes import HOST, ServerProcess, classic_processes, free_ports
from client.admin import convert as admin_convert
from client.admin.client import AdminClient
from client.errors import ClientError
from client.message import Message, SendStatus
from client.produce.producer import Producer
from raftmq.cli.main import app
from remoting.bodies.registry import MessageQueue
from remoting.errors import RemotingError
from tests.cluster.process_group import told
from tests.cluster.raft_site import (
    LOG_FILE_BYTES,
    NAME,
    PATIENCE_S,
    SETTINGS,
    TOPIC,
    Site,
    log_of,
    said,
    stop,
    stop_equal,
)
from tests.cluster.test_client_producer import everything

NODES = 3


class Pair(Site):
    """A master and two slaves: n0 to n2 once they are a group; `store(member)` is the folder of each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(free_ports(NODES)))

    def store(self, member: str) -> Path:
        number = int(member[1:])
        return self.folder / (f"slave{number}" if number else "master") / "store"

    def classic(self, role: str = "ASYNC_MASTER", **settings: object) -> list[ServerProcess]:
        made = classic_processes(
            self.folder,
            NODES - 1,
            role=role,
            flush="SYNC_FLUSH",
            namesrv=self.namesrv.address,
            settings={**SETTINGS, **settings},
        )
        self._started += made
        for broker in made:
            broker.start()
        return made

    async def to_raft(self) -> str:
        """Convert; returns all that was said."""
        typed = ["cluster", "to-raft", NAME, "--peers", self.peers, "-n", self.namesrv.address]
        done = await asyncio.to_thread(CliRunner().invoke, app, typed)
        assert done.exit_code == 0, done.output
        return done.output

    async def refused(self, *arguments: str) -> str:
        """Type a `raftmq cluster` command that must fail; returns what it says."""
        typed = ["cluster", *arguments, "-n", self.namesrv.address]
        done = await asyncio.to_thread(CliRunner().invoke, app, typed)
        assert done.exit_code == 1, done.output
        return done.output

    async def following(self, brokers: list[ServerProcess]) -> int:
        """Wait until all slaves have all that the master has; returns where the logs end."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                states = [await asyncio.to_thread(broker.state, "/v1/ha") for broker in brokers]
                if all(states) and len({state["max"] for state in states if state}) == 1:
                    slaves = [state["master"]["state"] for state in states if state and state["brokerId"]]
                    if len(slaves) == NODES - 1 and set(slaves) == {"following"}:
                        return int(states[0]["max"]) if states[0] else 0
                await asyncio.sleep(0.05)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_R16_a_pair_becomes_a_group_and_a_pair_and_a_group_again(pair: Pair, role: str) -> None:
    brokers = pair.classic(role)
    await pair.following(brokers)
    await pair.create()
    await pair.send()
    await pair.consume(10)
    end = await pair.following(brokers)
    bases = [(end, log_of(pair.store("n0"), end))]

    await pair.to_raft()
    first = await pair.until_voting(brokers)
    assert first["self"] == "n0"
    await pair.check(offsets=10)
    await pair.send()
    await pair.consume(20)
    await pair.cli("transfer-leader", NAME, "n2")
    await pair.check(offsets=20)
    # Once more changes nothing, wherever the leader is.
    assert "n2 leads" in await pair.to_raft()

    await pair.cli("to-classic", NAME, "--role", role)
    end = await pair.following(brokers)
    bases.append((end, log_of(pair.store("n2"), end)))
    await pair.check(offsets=20)
    await pair.send()
    await pair.consume(30)
    await pair.check(offsets=30)
    assert "the master already" not in await pair.cli("to-classic", NAME, "--role", role)

    # The master has brokerId 0: now another broker is n0, and begins a group with another id.
    end = await pair.following(brokers)
    bases.append((end, log_of(pair.store("n2"), end)))
    await pair.to_raft()
    again = await pair.until_voting(brokers)
    assert (again["self"], again["brokerAddress"]) == ("n0", brokers[2].address)
    assert again["group_id"] != first["group_id"]
    assert again["term"] > first["term"]
    await pair.check(offsets=30)
    await pair.send()
    await stop_equal(pair, brokers)
    for position, digest in bases:
        assert {log_of(pair.store(f"n{number}"), position) for number in range(NODES)} == {digest}
    for number in range(NODES):
        assert not (pair.store(f"n{number}") / "cut").exists(), "nothing was put aside or cut"
    assert not any("MiB from" in broker.log.read_text() for broker in brokers), "nothing was copied"


@pytest.mark.timeout(120)
async def test_R11_a_pair_whose_log_ends_close_to_its_file_becomes_a_group(pair: Pair) -> None:
    """The group's first entry does not fit behind it: it begins the next file, on those who join too."""
    brokers = pair.classic()
    await pair.following(brokers)
    await pair.create()
    async with Producer("close-to-the-end", pair.namesrv.address) as producer:

        async def room_after(size: int) -> int:
            """Send a body, too short to be compressed, to the first queue; return how much of its file is left."""
            message = Message(TOPIC, b"x" * size)
            assert (await producer.send(message, queue=MessageQueue(TOPIC, NAME, 0))).status is SendStatus.SEND_OK
            return LOG_FILE_BYTES - await pair.following(brokers) % LOG_FILE_BYTES

        room = await room_after(3000)
        overhead = room - await room_after(3000) - 3000
        while (room := await room_after(3000)) > 4000:
            pass
        room = await room_after(room - overhead - 100)
    assert 0 < room < 200, "no CONFIG entry fits"
    await pair.to_raft()
    await pair.until_voting(brokers)
    await stop_equal(pair, brokers)
    for broker in brokers:
        broker.launch()
    await pair.until_voting(brokers)
    await pair.send()
    await stop_equal(pair, brokers)


async def killed_when(process: ServerProcess, words: str) -> None:
    """Kill a process as soon as it has said something."""
    await said(process, words)
    process.kill()


@pytest.mark.timeout(120)
async def test_R16_a_founder_that_is_killed_before_it_starts_again_founds_the_group_then(pair: Pair) -> None:
    brokers = pair.classic()
    master, *slaves = brokers
    await pair.following(brokers)
    await pair.create()
    await pair.send()
    await pair.following(brokers)
    converting = asyncio.create_task(pair.to_raft())
    await killed_when(master, "made this broker the founder")
    for slave in slaves:
        # It was told nothing, and serves what it has.
        state = await asyncio.to_thread(told, slave, "/v1/ha")
        assert state is not None
        assert state["role"] == "SLAVE"
        assert slave.ready()
    master.start()
    await converting
    await pair.until_voting(brokers)
    await pair.send()
    await stop_equal(pair, brokers)
    assert not any((pair.store(f"n{number}") / "cut").exists() for number in range(NODES))


@pytest.mark.timeout(120)
async def test_R16_slaves_that_were_away_are_brought_in_later_as_they_are_or_from_the_start(pair: Pair) -> None:
    brokers = pair.classic()
    master, same, other = brokers
    await pair.following(brokers)
    await pair.create()
    await pair.send()
    await pair.following(brokers)
    stop([same])
    # The third one lacks what is sent from here on.
    other.kill()
    lacking = log_of(pair.store("n2"))
    same.start()
    await pair.send(20)
    await until_equal(pair, master, same)
    stop([same])
    assert "n1 has not registered" in await pair.to_raft()
    await pair.send()

    for slave in (same, other):
        slave.start()
        await said(slave, "it is a member of a Raft group now; bring this slave into it")
        async with AdminClient(pair.namesrv.address) as admin:
            route = await admin.route(TOPIC)
        assert route is not None
        assert [data.brokerAddrs[0] for data in route.brokerDatas] == [master.address], "it serves as no master"
    await pair.to_raft()
    await pair.until_voting(brokers)
    await pair.send()
    assert not (pair.store("n1") / "cut").exists()
    (aside,) = (pair.store("n2") / "cut").iterdir()
    assert log_of(aside) == lacking, "what it had is kept"
    await stop_equal(pair, brokers)
    # What was decided about each outlives the copy, which takes the leader's other files.
    for broker in brokers:
        broker.launch()
    await pair.until_voting(brokers)
    states = [await asyncio.to_thread(told, broker, "/v1/raft") for broker in brokers]
    assert [state["self"] for state in states if state] == ["n0", "n1", "n2"]


async def until_equal(pair: Pair, *brokers: ServerProcess) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            states = [await asyncio.to_thread(broker.state, "/v1/ha") for broker in brokers]
            if len({state["max"] for state in states if state}) == 1 and all(states):
                return
            await asyncio.sleep(0.05)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", ["the group has ended", "made this broker a master"])
async def test_R2_a_conversion_to_a_pair_that_is_cut_short_goes_on_when_it_is_repeated(
    pair: Pair, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = pair.classic()
    await pair.create()
    await pair.send()
    await pair.to_raft()
    leader = brokers[0]
    await pair.consume(10)
    if moment == "the group has ended":
        for member in ("n1", "n2"):
            await pair.cli("remove-peer", NAME, member)
        await pair.cli("leave-raft", NAME)
        leader.kill()
    else:
        # Longer than a step takes beside others: it is to be given up after the kill only.
        monkeypatch.setattr(admin_convert, "STEP_SECONDS", 15.0)
        converting = asyncio.create_task(pair.refused("to-classic", NAME, "--role", "SYNC_MASTER"))
        await killed_when(leader, moment)
        assert "repeat the command" in await converting
        monkeypatch.undo()
    leader.launch()
    async with asyncio.timeout(60):
        while not leader.state("/v1/raft") and not leader.state("/v1/ha"):
            await asyncio.sleep(0.05)
    await pair.cli("to-classic", NAME, "--role", "SYNC_MASTER")
    await pair.following(brokers)
    await pair.check(offsets=10)
    await pair.send()
    stop(brokers)
    assert not any((pair.store(f"n{number}") / "cut").exists() for number in range(NODES))


@pytest.mark.timeout(120)
async def test_clients_go_on_through_both_conversions_and_nothing_acknowledged_is_lost(pair: Pair) -> None:
    brokers = pair.classic("SYNC_MASTER")
    await pair.following(brokers)
    await pair.create()
    acknowledged: list[int] = []
    longest = 0.0
    over = asyncio.Event()

    async def produce() -> None:
        nonlocal longest
        loop, last = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        async with Producer("going-on", pair.namesrv.address) as producer:
            number = 0
            while not over.is_set():
                number += 1
                try:
                    sent = await producer.send(Message(TOPIC, b"%d" % number))
                except (ClientError, RemotingError):
                    await asyncio.sleep(0.05)
                    continue
                if sent.status is SendStatus.SEND_OK:
                    acknowledged.append(number)
                    longest, last = max(longest, loop.time() - last), loop.time()
                await asyncio.sleep(0.01)

    async def more(count: int) -> None:
        """Wait for so many more to be acknowledged."""
        wanted = len(acknowledged) + count
        async with asyncio.timeout(60):
            while len(acknowledged) < wanted:
                await asyncio.sleep(0.05)

    producing = asyncio.create_task(produce())
    await more(1)
    await pair.to_raft()
    await more(1)
    await pair.cli("to-classic", NAME, "--role", "SYNC_MASTER")
    await pair.following(brokers)
    await more(20)
    over.set()
    await producing
    # On a machine that does ten other things; with the next route, which is asked for each 30 s, it were more.
    assert longest < 20
    async with AdminClient(pair.namesrv.address) as admin:
        stats = await admin.topic_stats(TOPIC)
    # Some may be there twice: a send whose answer got lost is tried again.
    stored = sum(queue.maxOffset - queue.minOffset for queue in stats.offsetTable.values())
    found = [int(message.body) for message in await everything(pair.namesrv.address, TOPIC, stored)]
    assert len(found) == stored
    assert set(acknowledged) <= set(found)
    stop(brokers)
