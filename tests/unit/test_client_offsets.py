from pathlib import Path
from typing import cast

import pytest

from client.api import BrokerApi
from client.consume.offsets import LocalOffsets, RemoteOffsets
from client.errors import ConsumeError
from client.routes import Routes
from remoting.bodies.registry import BrokerData, MessageQueue, QueueData, TopicRouteData
from remoting.errors import ConnectError

ONE, TWO = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


async def test_offsets_come_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "group" / "offsets.json"
    offsets = LocalOffsets(path)
    assert await offsets.load(ONE) is None
    offsets.update(ONE, 5)
    offsets.update(TWO, 7)
    assert await offsets.persist() == []
    again = LocalOffsets(path)
    assert (await again.load(ONE), await again.load(TWO)) == (5, 7)


async def test_the_file_of_the_official_clients_is_read(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b'{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:42}}')
    assert await LocalOffsets(path).load(TWO) == 42


async def test_an_offset_goes_back_only_when_reset(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path / "offsets.json")
    offsets.update(ONE, 5)
    offsets.update(ONE, 3)
    assert offsets.noted(ONE) == 5
    offsets.update(ONE, 3, back=True)
    assert offsets.noted(ONE) == 3


async def test_queues_that_others_have_now_keep_their_place_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalOffsets(path)
    offsets.update(ONE, 5)
    await offsets.persist()
    offsets.forget(ONE)
    offsets.update(TWO, 7)
    await offsets.persist()
    assert await LocalOffsets(path).load(ONE) == 5


async def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    offsets = LocalOffsets(path)
    offsets.update(ONE, 5)
    await offsets.persist()
    path.unlink()
    await offsets.persist()
    assert not path.exists()


async def test_a_file_that_cannot_be_written_keeps_the_offsets_noted(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    offsets = LocalOffsets(blocked / "offsets.json")
    offsets.update(ONE, 5)
    assert await offsets.persist() == [ONE]
    assert offsets.noted(ONE) == 5


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"{")
    with pytest.raises(ConsumeError, match=r"offsets.json cannot be read .*mend or remove it"):
        await LocalOffsets(path).load(ONE)


class Brokers:
    """A master and a slave that take offsets, as far as they are there, and the NameServer's route to them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.down: set[str] = set()
        self.met: set[str] = set()
        self.gives_away = False
        self.route = {0: "m:1", 1: "s:1"}
        self.routes = Routes(self.ask, lambda: "ns:9876")
        # Only `commit` is asked for.
        self.offsets = RemoteOffsets("G", cast("BrokerApi", self), self.routes, self.meet)

    async def ask(self, _topic: str) -> TopicRouteData:
        return TopicRouteData(
            brokerDatas=[BrokerData(brokerAddrs=dict(self.route), brokerName="a", cluster="c")],
            queueDatas=[QueueData(brokerName="a", perm=6, readQueueNums=2, writeQueueNums=2)],
        )

    async def meet(self, address: str) -> None:
        self.met.add(address)
        if self.gives_away:
            self.offsets.forget(ONE)

    async def commit(
        self, address: str, _group: str, _queue: MessageQueue, offset: int, *, consumer: bool = False
    ) -> None:
        assert consumer
        assert address in self.met, "a broker is told first who consumes here"
        if address in self.down:
            raise ConnectError(f"no connection to {address}")
        self.told.append((address, offset))

    async def persist(self, offset: int) -> list[tuple[str, int]]:
        """Store an offset of one queue; return who was told what."""
        self.told.clear()
        self.offsets.update(ONE, offset)
        assert await self.offsets.persist() == []
        return self.told


async def test_without_a_master_the_slave_is_told_and_the_master_when_it_is_back() -> None:
    brokers = Brokers()
    assert await brokers.persist(5) == [("m:1", 5)]
    brokers.route = {1: "s:1"}
    await brokers.routes.poll()
    assert await brokers.persist(7) == [("s:1", 7)]
    assert await brokers.persist(7) == []
    brokers.route = {0: "m:1", 1: "s:1"}
    await brokers.routes.poll()
    assert await brokers.persist(7) == [("m:1", 7)]
    assert await brokers.persist(7) == []


async def test_a_dead_master_in_the_route_is_gone_round() -> None:
    brokers = Brokers()
    brokers.down = {"m:1"}
    assert await brokers.persist(5) == [("s:1", 5)]
    brokers.down = set()
    assert await brokers.persist(5) == [("m:1", 5)]
    assert await brokers.persist(5) == []


async def test_an_offset_that_nobody_takes_stays_noted() -> None:
    brokers = Brokers()
    brokers.down = {"m:1", "s:1"}
    brokers.offsets.update(ONE, 5)
    assert await brokers.offsets.persist() == [ONE]
    brokers.down = {"m:1"}
    assert await brokers.persist(5) == [("s:1", 5)]


async def test_a_queue_that_somebody_else_has_is_not_told_again() -> None:
    brokers = Brokers()
    await brokers.persist(5)
    brokers.offsets.forget(ONE)
    brokers.route = {1: "s:1"}
    await brokers.routes.poll()
    brokers.told.clear()
    assert await brokers.offsets.persist() == []
    assert brokers.told == []


async def test_a_queue_that_goes_to_somebody_else_meanwhile_is_not_told() -> None:
    brokers = Brokers()
    brokers.gives_away = True
    assert await brokers.persist(5) == []
