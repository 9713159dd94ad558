"""to_raft.py, to_classic.py and join_intent.py: what is decided, in which order, and what is refused (R16, R2)."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker.master_slave import to_raft as convert
from broker.master_slave.role import ClassicRole
from broker.master_slave.to_raft import PairConversion, forget_group
from broker.raft_group.join_intent import Said, putting_aside, what_was_said
from broker.settings import decision as override
from broker.settings.config import BrokerConfig, LiveConfig
from broker.settings.restart import RestartAction
from chaos.host.processes import free_ports
from raft.protocol.config import GroupConfig, Member
from raft.protocol.types import EntryType
from raft.snapshot.protocol import Marker, write_marker
from remoting.client import RemotingClient
from remoting.codes import ClassicCode, RaftCode
from remoting.command import Command
from remoting.errors import CommandError
from store.errors import StoreDamaged
from store.messagestore import MessageStore
from tests.parts.conversions import GROUP_ID, LEADER, NOBODY, PEERS, Net, held
from tests.parts.entry_tools import open_node
from tests.parts.store_tools import HOST, make_config, record


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
        async with asyncio.timeout(20):
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


async def test_R15_a_master_that_is_deposed_while_it_comes_to_rest_founds_nothing(
    pair: Pair, peers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deposed(_timeout_seconds: float) -> bool:
        pair.role.fence("another was promoted")
        return True

    monkeypatch.setattr(pair, "drain", deposed)
    with pytest.raises(CommandError, match="it was deposed meanwhile"):
        await pair.order(peers, "n0")
    assert pair.decided is None
    assert "goes on as it was" in (await pair.restarted()).why


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
    node.log.append(EntryType.CONFIG, 1, config.encode(), 0)
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
