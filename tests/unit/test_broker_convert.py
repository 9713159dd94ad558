"""broker/convert*.py and broker/beginning.py: what is decided, in which order, and what is refused (R16, R2)."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker import convert, override
from broker.beginning import Said, putting_aside, what_was_said
from broker.classic_config import RAFT
from broker.classic_role import ClassicRole
from broker.config import BrokerConfig, LiveConfig
from broker.convert import PairConversion, forget_group
from broker.convert_group import GroupConversion
from broker.ha_pair import load_memory, save_memory
from broker.reborn import RestartAction
from raft.group import GroupConfig, Member
from raft.reset import Marker, write_marker
from raftmq.processes import free_ports
from remoting.client import RemotingClient
from remoting.codes import ClassicCode, RaftCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError, ConnectError
from remoting.server import Connection
from store.controlrecord import EntryKind
from store.errors import StoreDamaged
from store.messagestore import MessageStore
from tests.unit.entry_tools import open_node
from tests.unit.store_tools import HOST, make_config, record

NOBODY = cast(Connection, None)
PEERS = "n0-127.0.0.1:{0};n1-127.0.0.1:{1}"
GROUP_ID = "ab" * 16


class Net:
    """Answers for other brokers: their states by (address, code)."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], dict[str, Any]] = {}

    async def call(self, address: str, code: int, **_more: Any) -> Command:
        await asyncio.sleep(0)
        if (address, int(code)) not in self.states:
            raise ConnectError(f"no connection to {address}")
        return Command.response(ResponseCode.SUCCESS, body=orjson.dumps(self.states[address, int(code)]))


class Pair:
    """A classic broker, as far as its conversion goes."""

    def __init__(self, folder: Path, *, broker_id: int = 0, epoch: int = 3) -> None:
        self.root = folder / "store"
        self.store = MessageStore.open(make_config(folder), store_host=HOST)
        self.store.put(record(b"one"))
        self.store.write()
        role = "SLAVE" if broker_id else "ASYNC_MASTER"
        self.live = LiveConfig(BrokerConfig(brokerName="b", brokerRole=role, brokerId=broker_id), make_config(folder))
        self.role = ClassicRole(broker_id, epoch)
        self.net = Net()
        self.restarts: list[RestartAction] = []
        self.done: list[str] = []
        self.drains = True
        self.slaves: list[dict[str, Any]] = []
        self.conversion = PairConversion(
            self.live, self.store, self.role, cast(RemotingClient, self.net), self.restart, self, lambda: self.slaves
        )

    def restart(self, action: RestartAction) -> None:
        self.restarts.append(action)

    async def drain(self, timeout_seconds: float) -> bool:
        self.done.append(f"drained within {timeout_seconds:g} s, {'not ' if self.decided is None else ''}decided")
        return self.drains

    @property
    def decided(self) -> override.Override | None:
        return override.read(self.root)

    async def order(self, peers: str, member: str, **more: Any) -> dict[str, Any]:
        body = orjson.dumps({"peers": peers, "self": member, **more})
        answer = await self.conversion.to_raft(NOBODY, Command.request(ClassicCode.TO_RAFT, body=body))
        fields: dict[str, Any] = orjson.loads(bytes(answer.body))
        return fields

    async def restarted(self) -> RestartAction:
        async with asyncio.timeout(5):
            while not self.restarts:
                await asyncio.sleep(0.005)
        (action,) = self.restarts
        return action


@pytest.fixture
def peers() -> str:
    return PEERS.format(*free_ports(2))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, broker_id=1)
    yield made
    made.store.close()


# -- a master


async def test_R16_a_master_founds_when_nothing_more_is_taken_and_all_of_it_is_on_disk(pair: Pair, peers: str) -> None:
    pair.slaves = [{"address": "s1", "acked": pair.store.written}, {"address": "s2", "acked": pair.store.written + 9}]
    end = pair.store.written
    assert pair.store.flushed < end
    done = await pair.order(peers, "n0")
    assert (done["end"], done["slavesWithAll"], done["slavesBehind"]) == (end, ["s1", "s2"], [])
    assert pair.done == ["drained within 10 s, not decided"]
    assert pair.store.flushed == end
    decided = pair.decided
    assert decided is not None
    assert (decided.founder, decided.log_end, decided.joins, decided.epoch) == (True, end, "", 3)
    assert decided.keys == {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "b",
        "dLegerPeers": peers,
        "dLegerSelfId": "n0",
    }
    action = await pair.restarted()
    assert action.act is None
    assert "founder" in action.why


async def test_a_slave_that_lags_is_waited_for_and_no_longer_than_that(
    pair: Pair, peers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "SLAVES_SECONDS", 0.02)
    pair.slaves = [{"address": "s1", "acked": 0}]
    done = await pair.order(peers, "n0")
    assert (done["slavesWithAll"], done["slavesBehind"]) == ([], ["s1"])
    assert pair.decided is not None


async def test_a_master_that_cannot_come_to_rest_goes_on_as_it_was(pair: Pair, peers: str) -> None:
    pair.drains = False
    with pytest.raises(CommandError, match="some sends were not acknowledged"):
        await pair.order(peers, "n0")
    assert pair.decided is None
    assert "goes on as it was" in (await pair.restarted()).why


async def test_a_master_whose_decision_cannot_be_kept_goes_on_as_it_was(
    pair: Pair, peers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(override, "write", fails)
    with pytest.raises(CommandError, match="the disk is full"):
        await pair.order(peers, "n0")
    assert "goes on as it was" in (await pair.restarted()).why


async def test_a_fenced_master_founds_nothing(pair: Pair, peers: str) -> None:
    pair.role.fence("another was promoted")
    with pytest.raises(CommandError, match="not the one to begin a group with"):
        await pair.order(peers, "n0")
    assert (pair.decided, pair.restarts, pair.done) == (None, [], [])


async def test_an_order_is_carried_out_to_its_end_and_a_second_one_is_refused_meanwhile(
    pair: Pair, peers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, reached = asyncio.Event(), asyncio.Event()

    async def drain(timeout_seconds: float) -> bool:
        assert timeout_seconds
        reached.set()
        await go_on.wait()
        return True

    monkeypatch.setattr(pair, "drain", drain)
    asker = asyncio.create_task(pair.order(peers, "n0"))
    await reached.wait()
    with pytest.raises(CommandError, match="another conversion"):
        await pair.order(peers, "n0")
    asker.cancel()
    go_on.set()
    await pair.restarted()
    assert pair.decided is not None


async def test_a_check_changes_nothing(pair: Pair, peers: str) -> None:
    told = await pair.order(peers, "n0", check=True)
    assert (told["done"], told["fileBytes"], told["warnings"]) == (False, pair.store.file_bytes, [])
    away = peers.replace("n0-127.0.0.1", "n0-192.0.2.1")
    with pytest.raises(CommandError, match="raftSecretFile"):
        await pair.order(away, "n0", check=True)
    assert (pair.decided, pair.restarts, pair.done) == (None, [], [])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "the body is not what is due"),
        (b"{}", "the body is not what is due"),
        (b'{"peers": 1, "self": "n0"}', "the body is not what is due"),
        (b'{"peers": "", "self": "m0"}', "no member id"),
        (b'{"peers": "n1-127.0.0.1:40911", "self": "n1"}', "n1 is not this broker: its brokerId is 0"),
        (b'{"peers": "n1-127.0.0.1:40911", "self": "n0"}', "could not start as n0"),
        (b" " * 20_000, "at most"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_is_done(pair: Pair, body: bytes, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        await pair.conversion.to_raft(NOBODY, Command.request(ClassicCode.TO_RAFT, body=body))
    assert (pair.decided, pair.restarts, pair.done) == (None, [], [])


async def test_a_raft_port_that_is_taken_is_found_out_before_anything_is_done(pair: Pair, peers: str) -> None:
    port = int(peers.partition(";")[0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(CommandError, match="could not start as n0"):
        await pair.order(peers, "n0")
    assert (pair.decided, pair.done) == (None, [])


# -- a slave


LEADER = "10.0.0.1:10911"


async def test_R16_a_slave_comes_to_the_group_that_is_led_at_this_moment(slave: Pair, peers: str) -> None:
    slave.net.states[LEADER, RaftCode.STATUS] = {"leads": True, "group": "b", "group_id": GROUP_ID}
    (slave.root / "raft").mkdir()
    for name in ("floor", "reset", "reset.bak", "vote"):
        (slave.root / "raft" / name).write_bytes(b"of a group that is over")
    done = await slave.order(peers, "n1", leader=LEADER)
    assert done["group_id"] == GROUP_ID
    decided = slave.decided
    assert decided is not None
    assert (decided.founder, decided.joins, decided.keys["dLegerSelfId"]) == (False, GROUP_ID, "n1")
    assert slave.done == [], "a slave has nothing to drain"
    assert [path.name for path in (slave.root / "raft").iterdir()] == ["vote"]
    await slave.restarted()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"leads": False, "group": "b", "group_id": GROUP_ID},
        {"leads": True, "group": "another", "group_id": GROUP_ID},
        {"leads": True, "group": "b", "group_id": None},
    ],
)
async def test_R16_a_slave_comes_to_no_group_that_has_not_begun(
    slave: Pair, peers: str, state: dict[str, Any] | None
) -> None:
    if state is not None:
        slave.net.states[LEADER, RaftCode.STATUS] = state
    with pytest.raises(CommandError, match="does not lead a Raft group b: the master comes first"):
        await slave.order(peers, "n1", leader=LEADER)
    assert (slave.decided, slave.restarts) == (None, [])


# -- a member that starts


def decide(folder: Path, **more: Any) -> None:
    live = LiveConfig(BrokerConfig(brokerName="b"), make_config(folder))
    keys = {"enableDLegerCommitLog": "true", "dLegerPeers": PEERS.format(40911, 40912), "dLegerSelfId": "n0"}
    override.decide(live, keys, why="test", epoch=5, **more)


def held(folder: Path) -> int:
    """A classic store with a message; returns where its log ends."""
    store = MessageStore.open(make_config(folder), store_host=HOST)
    store.put(record(b"one"))
    store.write()
    store.close()
    return store.written


def test_R16_what_was_said_counts_for_the_log_that_was_meant(tmp_path: Path) -> None:
    end = held(tmp_path)
    node = open_node(tmp_path)
    root = tmp_path / "store"
    assert what_was_said(root, node.log) == Said()
    decide(tmp_path, founder=True, log_end=end)
    assert what_was_said(root, node.log) == Said(founds=True, epoch=5)
    decide(tmp_path, joins=GROUP_ID)
    assert what_was_said(root, node.log) == Said(joins=bytes.fromhex(GROUP_ID), epoch=5)
    for other in (end - 1, end + 1, 0):
        decide(tmp_path, founder=True, log_end=other)
        with pytest.raises(StoreDamaged, match=f"ended at {other}, and it ends at {end}"):
            what_was_said(root, node.log)
    node.store.close()


def test_R16_once_the_first_entry_is_there_nobody_founds_or_joins_again(tmp_path: Path) -> None:
    end = held(tmp_path)
    root = tmp_path / "store"
    node = open_node(tmp_path)
    config = GroupConfig(bytes.fromhex(GROUP_ID), (Member("n0", "127.0.0.1:40911", b"d" * 16),), end)
    node.log.append(EntryKind.CONFIG, 1, config.encode(), 0)
    for more in ({"founder": True, "log_end": end}, {"joins": GROUP_ID}):
        decide(tmp_path, **more)
        assert what_was_said(root, node.log) == Said()
        decided = override.read(root)
        assert decided is not None
        assert (decided.founder, decided.log_end, decided.joins) == (False, -1, "")
        assert decided.keys["enableDLegerCommitLog"] == "true"
    decide(tmp_path, joins="cd" * 16)
    said = what_was_said(root, node.log)
    assert "a group that it was in before" in said.aside
    node.store.close()
    act = putting_aside(said.aside).act
    assert act is not None
    act(make_config(tmp_path))
    again = open_node(tmp_path)
    assert again.store.written == 0
    assert what_was_said(root, again.log) == Said(joins=b"\xcd" * 16, epoch=5)
    again.store.close()
    assert list((root / "cut").iterdir()), "nothing of it is lost"


def test_what_a_group_that_is_over_promised_is_forgotten_and_the_vote_is_not(tmp_path: Path) -> None:
    forget_group(tmp_path)
    (tmp_path / "raft").mkdir()
    write_marker(tmp_path / "raft" / "reset", Marker())
    for name in ("floor", "vote"):
        (tmp_path / "raft" / name).write_bytes(b"x")
    forget_group(tmp_path)
    assert [path.name for path in (tmp_path / "raft").iterdir()] == ["vote"]


# -- back to a classic group


class Role:
    """A GroupRole that stands still."""

    def __init__(self) -> None:
        self.leads, self.term, self.broker_id, self.leader_address = False, 7, 2, None


class Former:
    """A member of a group."""

    def __init__(self, folder: Path) -> None:
        held(folder)
        self.node = open_node(folder)
        self.root = folder / "store"
        self.role = Role()
        base = self.node.store.written
        own = Member("n1", "127.0.0.1:40912", b"d" * 16)
        self.config = GroupConfig(bytes.fromhex(GROUP_ID), (own,), base)
        self.node.log.append(EntryKind.CONFIG, 1, self.config.encode(), 0)
        self.node.log.release(1)
        self.commit = self.node.store.written
        self.node.records(b"never agreed upon")
        self.net = Net()
        self.restarts: list[RestartAction] = []
        keys = {"enableDLegerCommitLog": True, "dLegerPeers": PEERS.format(1, 2), "dLegerSelfId": "n1"}
        live = LiveConfig(BrokerConfig(brokerName="b", **cast(Any, keys)), make_config(folder))
        self.conversion = GroupConversion(
            live, self.node.store, cast(Any, self), cast(RemotingClient, self.net), self.restarts.append
        )

    def status(self) -> dict[str, Any]:
        return {"group_id": GROUP_ID, "leads": False}

    async def order(self, role: str, broker_id: int, master: str = "") -> dict[str, Any]:
        body = orjson.dumps({"role": role, "brokerId": broker_id, "master": master})
        answer = await self.conversion.to_classic(NOBODY, Command.request(ClassicCode.TO_CLASSIC, body=body))
        fields: dict[str, Any] = orjson.loads(bytes(answer.body))
        return fields


@pytest.fixture
def former(tmp_path: Path) -> Iterator[Former]:
    made = Former(tmp_path)
    yield made
    made.node.store.close()


MASTER = {"role": "SYNC_MASTER", "broker": "b", "max": 10_000_000, "epoch": 7, "fileBytes": 64 * 1024}


async def test_R2_the_leader_becomes_the_master_when_the_group_has_ended_and_not_before(former: Former) -> None:
    former.role.leads = True
    with pytest.raises(CommandError, match="the group has not ended in this log"):
        await former.order("ASYNC_MASTER", 0)
    assert override.read(former.root) is None
    former.config = former.config.left()
    done = await former.order("SYNC_MASTER", 0)
    assert (done["role"], done["brokerId"], done["epoch"]) == ("SYNC_MASTER", 0, 7)
    decided = override.read(former.root)
    assert decided is not None
    assert decided.epoch == 7
    assert decided.keys == {"enableDLegerCommitLog": "false", "brokerRole": "SYNC_MASTER", "brokerId": "0"}


async def test_R16_a_slave_to_be_remembers_where_it_may_be_cut_before_it_is_decided(
    former: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_memory(former.root, load_memory(former.root).following(sync=True, end=99, epoch=2, master="m"))
    former.net.states[LEADER, ClassicCode.STATUS] = MASTER
    decided: list[int | None] = []
    decide_really = override.decide

    def watched(*arguments: Any, **more: Any) -> override.Override:
        decided.append(load_memory(former.root).free_from)
        return decide_really(*arguments, **more)

    monkeypatch.setattr(override, "decide", watched)
    done = await former.order("SLAVE", 1, LEADER)
    assert (done["commit"], decided) == (former.commit, [former.commit])
    assert done["end"] > done["commit"]
    memory = load_memory(former.root)
    assert (memory.open, memory.covered, memory.free_from) == (False, former.commit, former.commit)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "no master answers"),
        (MASTER | {"role": RAFT}, "no master answers"),
        (MASTER | {"role": "SLAVE"}, "no master answers"),
        (MASTER | {"broker": "c"}, "is of c with"),
        (MASTER | {"fileBytes": 1 << 30}, "mappedFileSizeCommitLog=1073741824"),
        (MASTER | {"max": 100}, "another member's log counts"),
        (MASTER | {"epoch": 0}, "another member's log counts"),
    ],
)
async def test_R16_nobody_becomes_the_slave_of_one_that_cannot_be_its_master(
    former: Former, state: dict[str, Any] | None, words: str
) -> None:
    if state is not None:
        former.net.states[LEADER, ClassicCode.STATUS] = state
    with pytest.raises(CommandError, match=words):
        await former.order("SLAVE", 1, LEADER)
    assert override.read(former.root) is None
    assert load_memory(former.root).free_from is None


async def test_a_leader_becomes_no_slave(former: Former) -> None:
    former.role.leads = True
    former.net.states[LEADER, ClassicCode.STATUS] = MASTER
    with pytest.raises(CommandError, match="this member leads"):
        await former.order("SLAVE", 1, LEADER)
    with pytest.raises(CommandError, match="brokerId=0: a slave"):
        await former.order("SLAVE", 0, LEADER)


async def test_a_member_says_that_it_is_no_master_and_takes_an_order_to_be_one_twice(former: Former) -> None:
    answer = former.conversion.status(NOBODY, Command.request(ClassicCode.STATUS))
    state = orjson.loads(bytes(answer.body))
    assert (state["role"], state["epoch"], state["max"]) == (RAFT, 7, former.node.store.written)
    body = orjson.dumps({"peers": "", "self": "n1"})
    again = former.conversion.to_raft(NOBODY, Command.request(ClassicCode.TO_RAFT, body=body))
    assert orjson.loads(bytes(again.body)) == {"self": "n1", "done": False, "group_id": GROUP_ID, "leads": False}
    with pytest.raises(CommandError, match="already, not n2"):
        former.conversion.to_raft(NOBODY, Command.request(ClassicCode.TO_RAFT, body=body.replace(b'"n1"', b'"n2"')))
