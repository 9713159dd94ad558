"""broker/raft_group/to_classic.py: a member of a Raft group becomes a master, or a slave (R2, R16)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker.raft_group.to_classic import GroupConversion
from broker.settings import decision as override
from broker.settings.config import BrokerConfig, LiveConfig
from broker.settings.pair_keys import RAFT
from broker.settings.pair_memory import load_memory, save_memory
from broker.settings.pair_proof import PairProof
from broker.settings.restart import RestartAction
from raft.protocol.config import GroupConfig, Member
from raft.protocol.types import EntryType
from remoting.client import RemotingClient
from remoting.codes import ClassicCode
from remoting.command import Command
from remoting.errors import CommandError
from tests.parts.conversions import GROUP_ID, LEADER, NOBODY, PEERS, Net, held
from tests.parts.entry_tools import open_node
from tests.parts.store_tools import make_config


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
        self.node.log.append(EntryType.CONFIG, 1, self.config.encode(), 0)
        self.node.log.release(1)
        self.commit = self.node.store.written
        self.node.records(b"never agreed upon")
        self.net = Net()
        self.restarts: list[RestartAction] = []
        keys = {"enableDLegerCommitLog": True, "dLegerPeers": PEERS.format(1, 2), "dLegerSelfId": "n1"}
        self.live = LiveConfig(BrokerConfig(brokerName="b", **cast(Any, keys)), make_config(folder))
        self.conversion = GroupConversion(
            self.live, self.node.store, cast(Any, self), cast(RemotingClient, self.net), self.restarts.append
        )

    def status(self) -> dict[str, Any]:
        return {"group_id": GROUP_ID, "leads": False}

    async def order(self, role: str, broker_id: int, master: str = "", *, check: bool = False) -> dict[str, Any]:
        body = orjson.dumps({"role": role, "brokerId": broker_id, "master": master, "check": check})
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


async def test_a_member_that_could_not_start_as_a_master_says_so_before_the_group_is_ended(former: Former) -> None:
    checked = await former.order("ASYNC_MASTER", 0, check=True)
    assert checked == {"role": "ASYNC_MASTER", "brokerId": 0, "done": False}
    credentials = '{"accessKey":"brokers","secretKey":"12345678"}'
    more = {"authenticationEnabled": True, "innerClientAuthenticationCredentials": credentials}
    former.live.broker = replace(former.live.broker, bindAddress="10.0.0.1", **cast(Any, more))
    with pytest.raises(CommandError, match=r"could not start so: .*reaches the HA port"):
        await former.order("ASYNC_MASTER", 0, check=True)
    assert override.read(former.root) is None


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


async def test_R15_a_member_proves_to_a_master_of_before_that_the_group_took_over(
    former: Former, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asker = PairProof((b"a secret of the pair",))

    async def believed() -> bool:
        await former.conversion.start()
        body, nonce = asker.question()
        answer = former.conversion.status(NOBODY, Command.request(ClassicCode.STATUS, body=body))
        return asker.proves(nonce, orjson.loads(bytes(answer.body)))

    assert not await believed()
    path = tmp_path / "secret"
    former.live.broker = replace(former.live.broker, haSecretFile=str(path))
    # The group itself goes on without it.
    assert not await believed()
    assert f"haSecretFile={path}: No such file or directory" in caplog.text
    path.write_text("a secret of the pair\n")
    path.chmod(0o600)
    assert await believed()
