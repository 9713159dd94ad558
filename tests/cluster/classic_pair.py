"""A master and a slave as real processes, under senders that never repeat a send, with a link that can be cut.

The master runs on a disk that can lose power (chaos/site/member.py). Every attempt to send is a message of its own,
and what was acknowledged with SUCCESS is what must not get lost; "stored, but no slave has it" is no such promise.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chaos.host.powerloss import lose_power
from chaos.host.processes import HOST, ServerProcess, classic_processes, namesrv_process
from chaos.site.site import SiteMember
from chaos.site.toxiproxy import server
from remoting.client import RemotingClient
from remoting.codes import PullSysFlag, RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.registry import PullMessageRequestHeader
from remoting.record import decode_records
from store.types import GetStatus
from tests.cluster.classic_senders import GROUP, NUMBER_BYTES, QUEUES, TOPIC, History, Senders
from tests.cluster.modes import SMALL
from tests.cluster.process_group import told

# It ends what hangs. Below the 30 s after which brokers register anew and clients look at routes, whatever happened.
PATIENCE_S = 28.0
POLL_S = 0.02
PULL_COUNT = 512
ENDS = {GetStatus.OFFSET_OVERFLOW_ONE.name, GetStatus.NO_MESSAGE_IN_QUEUE.name}
SETTINGS = {
    **SMALL,
    "mappedFileSizeCommitLog": 4 << 20,
    "defaultTopicQueueNums": QUEUES,
    "slaveReadEnable": True,
    "slaveTimeout": 300,
    "haSendHeartbeatInterval": 200,
    "haHousekeepingInterval": 3000,
    # With ASYNC_FLUSH nothing may be flushed when the power goes.
    "flushIntervalCommitLog": 5000,
}


class Pair:
    """`master` and `slave` are how they were started; a promotion changes what they are."""

    def __init__(self, folder: Path, role: str, flush: str, **settings: object) -> None:
        self.folder = folder
        self.role, self.flush = role, flush
        self.history = History()
        self.namesrv = namesrv_process(folder / "namesrv")
        master, self.slave = classic_processes(
            folder,
            1,
            role=role,
            flush=flush,
            namesrv=self.namesrv.address,
            settings={**SETTINGS, **settings},
        )
        self.master = SiteMember("master", master, folder / "master", raft=False, planted="")
        self._stack = contextlib.ExitStack()
        toxi = self._stack.enter_context(server())
        # The slave's link goes through the proxy, and nothing else does.
        self._link = toxi.create("ha", f"{HOST}:{_ha_port(folder / 'master' / 'broker.conf')}")
        with (folder / "slave1" / "broker.conf").open("a") as config:
            config.write(f"haMasterAddress={self._link.listen}\n")

    @property
    def stores(self) -> list[Path]:
        return [self.master.store, self.folder / "slave1" / "store"]

    def start(self) -> None:
        """Whoever made it closes it, however this ends."""
        self.namesrv.start()
        self.master.process.launch()
        self.slave.launch()
        self.master.process.wait_ready()
        self.slave.wait_ready()

    def close(self) -> None:
        self.master.kill()
        self.slave.kill()
        self.namesrv.kill()
        self._stack.close()

    def cut_link(self) -> None:
        """Let nothing more through between master and slave; their connection stays open, and silent."""
        self._link.hold("upstream", "downstream")

    def heal_link(self) -> None:
        self._link.clear()

    def slow_disk(self, ms: float) -> None:
        """Let each sync of the master take so much longer from now on."""
        assert self.master.disk is not None, "it runs by chaos/site/member.py"
        self.master.disk.write_text(json.dumps({"fsync_ms": ms}), encoding="ascii")

    async def whole(self) -> None:
        """Start whoever is down, and wait until both have the same and sends are acknowledged."""
        self.heal_link()
        for one in (self.master.process, self.slave):
            if not one.running:
                one.launch()
        await asyncio.to_thread(self.master.process.wait_ready)
        await asyncio.to_thread(self.slave.wait_ready)
        await self.caught_up()

    async def caught_up(self) -> None:
        def equal() -> bool:
            master, slave = status(self.master.process), status(self.slave)
            return bool(master and slave and master["slaves"] and master["max"] == slave["dispatched"])

        await until(equal, "the slave did not catch up")

    async def dispatched(self, broker: ServerProcess) -> None:
        """Wait until all that a slave has can be read there: it tells its master what it has before that."""

        def readable() -> bool:
            found = status(broker)
            return found is not None and (not found["brokerId"] or found["dispatched"] == found["max"])

        await until(readable, f"{broker.name} does not dispatch what it has")

    async def send_for(self, seconds: float, during: Callable[[], None] | None = None) -> dict[str, int]:
        """Send for so long, do something, and go on for as long; return what went wrong with how many sends.

        However slow the machine is, something was acknowledged before, and something was sent after.
        """
        before, known = dict(self.history.errors), self.history.acknowledged
        senders = Senders(self.master.process.address, self.history)
        try:
            # The load is what must have gone on for a while; there is no event to wait for.
            await asyncio.sleep(seconds)
            if during is not None:
                await until(lambda: self.history.acknowledged > known, "no send was acknowledged")
                await asyncio.to_thread(during)
                begun = len(self.history.queue)
                await asyncio.sleep(seconds)
                await until(lambda: len(self.history.queue) > begun, "nobody sends any more")
        finally:
            await senders.stop()
        return {what: count - before.get(what, 0) for what, count in self.history.errors.items()}

    async def send_each(self, count: int) -> None:
        """Send until so many messages of each queue are acknowledged: as far as a group may commit, on any machine."""
        senders = Senders(self.master.process.address, self.history)
        try:
            await until(
                lambda: min(map(self.history.queue.count, range(QUEUES))) >= count, "a queue got too few messages"
            )
        finally:
            await senders.stop()

    def acknowledged(self) -> dict[int, tuple[int, int]]:
        """Return number → (queue, offset) of every send that was acknowledged."""
        told = zip(self.history.queue, self.history.offset, strict=True)
        return {number: place for number, place in enumerate(told) if place[0] >= 0}

    async def missing_at(self, broker: ServerProcess) -> dict[int, tuple[int, int]]:
        """Return what was acknowledged and is not to be had from a broker; what it has stands where it was told."""
        await self.dispatched(broker)
        found = await read_all(broker.address)
        missing = {}
        for number, place in self.acknowledged().items():
            if place not in found:
                missing[number] = place
            else:
                assert found[place] == number
        return missing

    def lose_power(self, seed: int) -> int:
        """Take the master's power; return how many bytes had not been synced."""
        self.master.kill()
        assert self.master.undo is not None, "it runs by chaos/site/member.py"
        return lose_power(self.master.undo, random.Random(seed))


def only_tails(missing: dict[int, tuple[int, int]], found: dict[tuple[int, int], int]) -> bool:
    """Tell whether what is missing lies behind everything that is there, in each queue."""
    ends = [max((offset for at, offset in found if at == queue), default=-1) for queue in range(QUEUES)]
    return all(offset > ends[queue] for queue, offset in missing.values())


async def read_all(address: str) -> dict[tuple[int, int], int]:
    """Return (queue, offset) → number of all that one broker has to read."""
    found: dict[tuple[int, int], int] = {}
    client = RemotingClient()
    try:
        async with asyncio.timeout(PATIENCE_S):
            for queue in range(QUEUES):
                offset = 0
                while (answer := await _pull(client, address, queue, offset)) is not None:
                    for message in decode_records(bytes(answer.body)) if answer.code == ResponseCode.SUCCESS else ():
                        found[queue, message.queue_offset] = int(message.body[:NUMBER_BYTES])
                    offset = int(answer.ext["nextBeginOffset"])
    finally:
        await client.close()
    return found


async def _pull(client: RemotingClient, address: str, queue: int, offset: int) -> Command | None:
    """Return an answer that leads on, None at the end of the queue."""
    header = PullMessageRequestHeader(
        consumerGroup=GROUP,
        topic=TOPIC,
        queueId=queue,
        queueOffset=offset,
        maxMsgNums=PULL_COUNT,
        sysFlag=int(PullSysFlag.SUBSCRIPTION),
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
        subscription="*",
    )
    while True:
        answer = await client.invoke(address, Command.request(RequestCode.PULL_MESSAGE, header), PATIENCE_S)
        if answer.code == ResponseCode.PULL_NOT_FOUND and answer.remark in ENDS:
            return None
        if answer.code == ResponseCode.SUCCESS or int(answer.ext.get("nextBeginOffset", offset)) != offset:
            return answer
        # A slave that has not copied the group yet.
        await asyncio.sleep(POLL_S)


def status(broker: ServerProcess) -> dict[str, Any] | None:
    """Return what /v1/ha says, None from one that does not answer."""
    found: dict[str, Any] | None = told(broker, "/v1/ha")
    return found


async def until(what: Callable[[], bool], words: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(what):
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(words) from None


def _ha_port(config: Path) -> int:
    (line,) = [line for line in config.read_text().splitlines() if line.startswith("haListenPort=")]
    return int(line.partition("=")[2])


MakePair = Callable[..., Pair]


@contextlib.contextmanager
def pairs(folder: Path) -> Iterator[MakePair]:
    """Give what starts a pair of a role, with settings of its own; whatever was started is closed in the end."""
    made: list[Pair] = []

    def start(role: str, **settings: object) -> Pair:
        made.append(Pair(folder, role, "ASYNC_FLUSH", **settings))
        made[-1].start()
        return made[-1]

    try:
        yield start
    finally:
        for pair in made:
            pair.close()
