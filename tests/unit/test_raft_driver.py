"""The driver: ticks when it should, carries news between threads and links, and whole groups over real sockets."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, cast

import pytest
import uvloop

from chaos.host import processes
from raft.core.node import RaftNode
from raft.core.votefile import VoteFile
from raft.network.driver import RaftDriver
from raft.protocol.config import GroupConfig, Member
from raft.protocol.hello import Hello
from raft.protocol.messages import RaftMessage
from raft.protocol.settings import Peer, RaftSettings
from raft.protocol.types import EntryType, Fate, Refusal, Role
from runtime.clock import BootClock
from tests.parts.raft_links import QUICK, hello_of, note
from tests.parts.raft_memory import MemoryLog


class Owner:
    """Whom a driver tells."""

    def __init__(self) -> None:
        self.committed = 0
        self.moved = asyncio.Event()
        self.role = Role.FOLLOWER
        self.configs: list[GroupConfig] = []
        self.fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.resets: list[str] = []

    def on_commit(self, index: int) -> None:
        self.committed = index
        self.moved.set()

    def on_role(self, role: Role, _term: int) -> None:
        self.role = role
        self.moved.set()

    def on_leader(self, _member_id: str | None) -> None:
        self.moved.set()

    def on_config(self, config: GroupConfig) -> None:
        self.configs.append(config)
        self.moved.set()

    def on_fatal(self, error: BaseException) -> None:
        self.fatal.set_result(error)

    def reset_wanted(self, member_id: str) -> None:
        self.resets.append(member_id)

    async def caught_up(self, other: "Owner") -> None:
        """Wait until everything that the other was told is told here too."""
        while self.committed < other.committed:
            self.moved.clear()
            await self.moved.wait()


class StubNode:
    """A node that only takes notes."""

    def __init__(self, *_: object, **parts: Any) -> None:
        self.events = parts["events"]
        self.send = parts["send"]
        self.config: GroupConfig | None = None
        self.role = Role.FOLLOWER
        self.waits: list[float] = []
        self.calls: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.refusal: Refusal | None = None
        self.transfers = 0
        self.ended: BaseException | None = None

    def start(self) -> None:
        self.events.wake()

    def stop(self) -> None:
        self.calls.put_nowait(("stop",))

    def end(self, error: BaseException) -> None:
        self.ended = error
        self.events.on_fatal(error)

    def tick(self) -> float:
        self.calls.put_nowait(("tick",))
        return self.waits.pop(0) if self.waits else 3600.0

    def durable(self, index: int) -> None:
        self.calls.put_nowait(("durable", index))

    def connected(self, peer: str, hello: Hello) -> None:
        self.calls.put_nowait(("connected", peer, hello.self_id))

    def disconnected(self, peer: str) -> None:
        self.calls.put_nowait(("disconnected", peer))

    def receive(self, peer: str, message: RaftMessage) -> None:
        self.calls.put_nowait(("receive", peer, message))

    def transfer(self, _to: str | None = None) -> Refusal | None:
        self.transfers += 1
        return self.refusal

    def status(self) -> dict[str, Any]:
        return {"term": 1}

    async def wants(self, *call: Any) -> None:
        """Wait until it is called so."""
        while await self.calls.get() != call:
            pass


class StubDriver(RaftDriver):
    node_class = cast(type[RaftNode], StubNode)


def settings_of(name: str, ports: dict[str, int]) -> RaftSettings:
    peers = tuple(Peer(peer, "127.0.0.1", port) for peer, port in ports.items())
    settings = RaftSettings(name, "g", peers, heartbeat_ms=50, election_ms_min=1000, election_ms_max=1500)
    settings.validate()
    return settings


def free_ports(*names: str) -> dict[str, int]:
    """Those that no other process is given meanwhile."""
    return dict(zip(names, processes.free_ports(len(names)), strict=True))


def votes_of(folder: Path, name: str) -> VoteFile:
    return VoteFile.open(folder / name, has_log=False, new_id=lambda: name.encode().ljust(16, b"."))


class Alone:
    """A driver with a node that takes notes."""

    def __init__(self, folder: Path, name: str = "n0", ports: dict[str, int] | None = None) -> None:
        self.log = MemoryLog()
        self.owner = Owner()
        self.linked: list[tuple[str, str]] = []
        settings = settings_of(name, ports or {name: 1})
        own = lambda: hello_of(name)  # noqa: E731 - a hello that is made anew
        self.driver = StubDriver(
            settings,
            self.log,
            votes_of(folder, name),
            hello=own,
            events=self.owner,
            secrets=(),
            limits=QUICK,
            on_linked=lambda member_id, hello: self.linked.append((member_id, hello.self_id)),
        )
        self.node = cast(StubNode, self.driver.node)
        self.port = ports[name] if ports else 0

    async def __aenter__(self) -> Self:
        await self.driver.start("127.0.0.1", self.port)
        await self.node.wants("tick")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.driver.close()


async def test_many_wakes_in_one_turn_are_one_tick_and_the_timer_is_the_nodes(tmp_path: Path) -> None:
    async with Alone(tmp_path) as one:
        for _ in range(5):
            one.driver.wake()
        one.node.waits = [0.01, 0.0, 3600.0]
        await one.node.wants("tick")
        assert one.node.calls.empty()
        await one.node.wants("tick")
        await one.node.wants("tick")
        await asyncio.sleep(0.05)
        assert one.node.calls.empty()


async def test_news_of_the_flusher_comes_into_the_loop_and_none_is_lost(tmp_path: Path) -> None:
    async with Alone(tmp_path) as one:
        tell = one.driver.durable_in_thread
        ends = []
        for _ in range(1000):
            one.log.append(EntryType.META, 1, b"x", 0)
            ends.append(one.log.last.end)
        in_loop = threading.get_ident()
        settle = one.log.settle

        def settled(position: int) -> int:
            assert threading.get_ident() == in_loop
            return settle(position)

        one.log.settle = settled  # type: ignore[method-assign]
        thread = threading.Thread(target=lambda: [tell(end) for end in ends])
        thread.start()
        await one.node.wants("durable", 1000)
        thread.join()
        await one.driver.close()
        await one.node.wants("stop")
        tell(1)
        await asyncio.sleep(0)
        assert one.node.calls.empty(), "nothing is counted any more"


async def test_a_log_that_cannot_settle_ends_the_member(tmp_path: Path) -> None:
    async with Alone(tmp_path) as one:
        one.log.fail_settling = OSError(5, "Input/output error")
        one.driver.durable_in_thread(0)
        assert await one.owner.fatal is one.log.fail_settling
        one.driver.wake()
        await asyncio.sleep(0.01)
        assert one.node.calls.empty(), "nothing ticks any more"


async def test_links_follow_the_configuration_file_and_then_the_config(tmp_path: Path) -> None:
    ports = free_ports("n0", "n1", "n2")
    first = {name: ports[name] for name in ("n0", "n1")}
    async with (
        Alone(tmp_path, "n0", first) as a,
        Alone(tmp_path, "n1", first) as b,
        Alone(tmp_path, "n2", {"n2": ports["n2"], "n0": ports["n0"]}),
    ):
        await a.node.wants("connected", "n1", "n1")
        await b.node.wants("connected", "n0", "n0")
        assert a.node.send("n1", note(1))
        await b.node.wants("receive", "n0", note(1))
        assert not a.node.send("n2", note(1))
        members = [Member(name, f"127.0.0.1:{port}", name.encode().ljust(16, b".")) for name, port in ports.items()]
        config = GroupConfig(b"G" * 16, tuple(members))
        a.node.config = config
        a.node.events.on_config(config)
        await a.node.wants("connected", "n2", "n2")
        assert a.owner.configs == [config]
        assert a.linked == [("n1", "n1"), ("n2", "n2")]
        refused = {"links_refused": 1, "links_refused_by": {}}  # Before that n2 was a stranger.
        assert a.driver.status() | refused == {"term": 1, "linked": ["n1", "n2"]} | refused
        await b.driver.close()
        await a.node.wants("disconnected", "n1")


async def test_somebody_who_is_no_member_yet_can_be_met(tmp_path: Path) -> None:
    ports = free_ports("n0", "n1")
    async with Alone(tmp_path, "n0", {"n0": ports["n0"]}) as a, Alone(tmp_path, "n1", ports):
        address = ("127.0.0.1", ports["n1"])
        assert (await a.driver.meet("n1", address, 10)).store_id == b"n1" + b"." * 14
        assert (await a.driver.meet("n1", address, 10)).self_id == "n1"
        with pytest.raises(TimeoutError):
            await a.driver.meet("n2", ("127.0.0.1", 1), 0.05)


async def test_what_the_node_tells_reaches_the_owner(tmp_path: Path) -> None:
    async with Alone(tmp_path) as one:
        events = one.node.events
        events.on_commit(5)
        events.on_role(Role.LEADER, 2)
        events.on_leader("n0")
        events.reset_wanted("n1")
        assert (one.owner.committed, one.owner.role, one.owner.resets) == (5, Role.LEADER, ["n1"])


async def test_handing_over_is_tried_until_the_time_is_over(tmp_path: Path) -> None:
    async with Alone(tmp_path) as one:
        assert await one.driver.hand_over(10), "who does not lead has nothing to hand over"
        member = Member("n0", "127.0.0.1:1", b"0" * 16)
        one.node.role = Role.LEADER
        one.node.config = GroupConfig(b"G" * 16, (member,))
        assert not await one.driver.hand_over(10), "nobody is there"
        one.node.config = one.node.config._replace(members=(member, member._replace(id="n1", store_id=b"1" * 16)))
        one.node.refusal = Refusal.BUSY
        # Time for many tries, some of which a busy machine leaves out.
        assert not await one.driver.hand_over(1.0)
        assert one.node.transfers >= 2

        def taken() -> None:
            one.node.role = Role.FOLLOWER
            one.node.events.on_role(Role.FOLLOWER, 3)

        asyncio.get_running_loop().call_later(0.01, taken)
        assert await one.driver.hand_over(10)


def test_the_clock_counts_suspension() -> None:
    clock = BootClock()
    assert 0 < clock.monotonic() <= clock.monotonic()


# ---- whole groups


class Running:
    """A member of a real group: real node, real links, a log in memory."""

    def __init__(self, folder: Path, name: str, ports: dict[str, int]) -> None:
        self.name = name
        self.port = ports[name]
        self.log = MemoryLog()
        self.owner = Owner()
        self.votes = votes_of(folder, name)
        self.driver = RaftDriver(
            settings_of(name, ports),
            self.log,
            self.votes,
            hello=self._hello,
            events=self.owner,
            secrets=(b"secret",),
            rng=random.Random(name),
            limits=QUICK,
        )
        self.log.flushed = self.driver.durable_in_thread

    def _hello(self) -> Hello:
        log = self.log
        config = GroupConfig.decode(log.payload(log.last_config())) if log.last_config() else None
        return hello_of(self.name)._replace(
            store_id=self.votes.store_id,
            group_id=config.group_id if config else b"",
            last_index=log.last.index,
            last_term=log.last.term,
            empty=not log.entries,
            has_log=bool(log.entries),
            clock_ms=1,
            config_index=log.last_config(),
            peer_ids=tuple(peer.id for peer in self.driver._settings.peers),
        )

    async def put(self, content: bytes) -> Fate | Refusal:
        """Propose an entry and return its fate."""
        fate: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()

        def append(term: int, commit: int) -> int:
            return self.log.append(EntryType.MESSAGES, term, content, commit)

        refusal = self.driver.node.propose(append, fate.set_result)
        return refusal if refusal is not None else await asyncio.wait_for(fate, 10)


@asynccontextmanager
async def group_of(folder: Path, *names: str) -> AsyncIterator[dict[str, Running]]:
    ports = free_ports(*names)
    members = {name: Running(folder, name, ports) for name in names}
    try:
        for member in members.values():
            await member.driver.start("127.0.0.1", member.port)
        yield members
    finally:
        for member in members.values():
            await member.driver.close()


async def leader_of(members: dict[str, Running]) -> Running:
    """Wait for a leader that serves."""
    for _ in range(2000):
        for member in members.values():
            if member.driver.node.serving:
                return member
        await asyncio.sleep(0.005)
    raise AssertionError("\n".join(str(member.driver.status()) for member in members.values()))


async def three_members_agree(folder: Path) -> None:
    async with group_of(folder, "n0", "n1", "n2") as members:
        leader = await leader_of(members)
        fates = await asyncio.gather(*(leader.put(b"%d" % number) for number in range(100)))
        assert fates == [Fate.COMMITTED] * 100
        for member in members.values():
            await member.owner.caught_up(leader.owner)
            assert member.log.messages() == [b"%d" % number for number in range(100)]
            assert member.log.chain() == leader.log.chain()
        assert await leader.driver.hand_over(5)
        heir = await leader_of({name: one for name, one in members.items() if one is not leader})
        assert await leader.put(b"late") is Refusal.NOT_LEADER
        assert await heir.put(b"heir") is Fate.COMMITTED
        # The heir dies; the others go on.
        await heir.driver.close()
        rest = {name: one for name, one in members.items() if one is not heir}
        third = await leader_of(rest)
        assert await third.put(b"third") is Fate.COMMITTED
        assert third.log.messages()[-2:] == [b"heir", b"third"]


async def test_three_members_elect_replicate_and_hand_over(tmp_path: Path) -> None:
    await three_members_agree(tmp_path)


def test_the_same_on_the_loop_of_the_product(tmp_path: Path) -> None:
    uvloop.run(three_members_agree(tmp_path), debug=True)


async def test_a_group_of_one_needs_nobody(tmp_path: Path) -> None:
    async with group_of(tmp_path, "n0") as members:
        leader = await leader_of(members)
        assert await leader.put(b"x") is Fate.COMMITTED
        assert not await leader.driver.hand_over(1)
