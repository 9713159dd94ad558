"""broker/promotion.py and broker/fencing.py: who may become the master, what is said before, and who must stop."""

import asyncio
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from broker import fencing, override, promotion
from broker.classic_role import ClassicRole
from broker.config import LiveConfig
from broker.fencing import Fencing
from broker.ha_compare import Kind, Verdict
from broker.ha_pair import PairMemory, save_memory
from broker.ha_state import NotWaiting
from broker.override import Fence
from broker.promotion import Promotion
from broker.reborn import RestartAction
from remoting.bodies import BrokerMemberGroup, BrokerMemberGroupBody
from remoting.codes import ClassicCode, RequestCode, ResponseCode
from remoting.command import Body, Command
from remoting.errors import CommandError, ConnectError, ResponseError
from remoting.headers import Header
from remoting.server import Connection
from runtime.clock import ManualClock

NOBODY = cast(Connection, None)
OWN = "10.0.0.2:10911"
MASTER = "10.0.0.1:10911"
NAMESRV = "10.0.0.9:9876"
NOW_MS = 1_700_000_000_000


class Net:
    """Answers for other processes: what NameServers know, what brokers tell; who is not named does not answer."""

    def __init__(self) -> None:
        self.members: dict[str, dict[int, str]] = {}
        self.states: dict[str, dict[str, Any]] = {}

    async def call(
        self, address: str, code: int, _header: Header | None = None, _body: Body = b"", timeout: float = 3.0
    ) -> Command:
        assert timeout == fencing.PATIENCE_SECONDS
        await asyncio.sleep(0)
        if code == RequestCode.GET_BROKER_MEMBER_GROUP and address in self.members:
            group = BrokerMemberGroup(self.members[address], "b", "DefaultCluster")
            return Command.response(ResponseCode.SUCCESS, body=BrokerMemberGroupBody(group).encode())
        if code == ClassicCode.STATUS and address in self.states:
            state = self.states[address]
            if not state:
                raise ResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "what is 9111?", address)
            return Command.response(ResponseCode.SUCCESS, body=orjson.dumps(state))
        raise ConnectError(f"no connection to {address}")


class Slave:
    """A HaClient as far as decisions go."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {
            "state": "connecting", "address": MASTER, "role": "ASYNC_MASTER", "epoch": 3, "max": 5000,
            "seenAt": NOW_MS - 2500, "lastFrameAt": NOW_MS - 4000,
        }  # fmt: skip
        self.waits = False

    def status(self) -> dict[str, Any]:
        return self.state

    def accept_master(self) -> Verdict:
        if not self.waits:
            raise NotWaiting("this slave waits for no decision, it is following")
        return Verdict(Kind.CUT, 4000, "the logs differ from 4000 on", person=True, lost=1000)


class Setting:
    """One broker that decisions are about."""

    def __init__(self, folder: Path, *, slave: bool, epoch: int = 2, **values: str) -> None:
        keys = {"brokerRole": "SLAVE", "brokerId": "1"} if slave else {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
        texts = {"brokerName": "b", "namesrvAddr": NAMESRV, "storePathRootDir": str(folder), **keys, **values}
        broker, store, _ = override.load(texts)
        self.texts = texts
        self.folder = folder
        self.live = LiveConfig(broker, store)
        self.role = ClassicRole(broker.brokerId, epoch)
        self.net = Net()
        self.slave = Slave() if slave else None
        self.restarts: list[RestartAction] = []
        self.end = 4096
        self.promotion = Promotion(
            self.live, self.role, lambda: self.end, self.net, OWN, self.restarts.append, self.slave, ManualClock(NOW_MS)
        )
        self.deposed = 0
        self.fencing = Fencing(self.live, self.role, self.net, OWN, self._on_deposed)

    def _on_deposed(self) -> None:
        self.deposed += 1

    async def ask(self, code: ClassicCode, body: bytes | None = None, **fields: object) -> dict[str, Any]:
        handler = cast(Any, self.promotion.table()[code])
        answer = handler(NOBODY, Command(code=int(code), body=orjson.dumps(fields) if body is None else body))
        command: Command = answer if isinstance(answer, Command) else await answer
        found: dict[str, Any] = orjson.loads(bytes(command.body))
        return found

    def depose(self) -> None:
        override.decide(self.live, {"brokerId": "0"}, why="deposed", epoch=2, fenced=Fence("10.0.0.3:10911", 3))

    def decided(self) -> override.Override:
        found = override.read(self.folder)
        assert found is not None
        return found

    async def restarted(self) -> RestartAction:
        async with asyncio.timeout(5):
            while not self.restarts:
                await asyncio.sleep(promotion.RESTART_PAUSE_SECONDS / 10)
        (action,) = self.restarts
        return action


async def test_a_slave_whose_master_is_gone_becomes_the_master(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    done = await setting.ask(ClassicCode.PROMOTE)
    assert (done["done"], done["role"], done["epoch"], done["refused"]) == (True, "ASYNC_MASTER", 4, None)
    assert (done["end"], done["master"], done["masterEnd"], done["heardMsAgo"]) == (4096, MASTER, 5000, 2500)
    assert done["behind"] == 904
    assert "904 bytes that the master has are not here, and are lost to consumers" in done["words"]
    decided = setting.decided()
    assert (decided.keys, decided.epoch) == ({"brokerRole": "ASYNC_MASTER", "brokerId": "0"}, 4)
    assert "promote" in (await setting.restarted()).why
    assert override.load(setting.texts)[0].brokerRole == "ASYNC_MASTER"


async def test_asking_alone_does_nothing(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3, "max": 6000}
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert (told["done"], told["masterEnd"], told["heardMsAgo"]) == (False, 6000, 0)
    assert f"the master at {MASTER} lives" in told["refused"]
    await asyncio.sleep(promotion.RESTART_PAUSE_SECONDS)
    assert setting.restarts == []
    assert override.read(tmp_path) is None


@pytest.mark.parametrize("how", ["it answers", "a RocketMQ master answers", "it pushes", "another was promoted"])
async def test_promote_is_refused_while_a_master_lives_unless_forced(tmp_path: Path, how: str) -> None:
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    alive = MASTER
    if how == "it answers":
        setting.net.states[MASTER] = {"role": "SYNC_MASTER", "epoch": 7}
    elif how == "a RocketMQ master answers":
        setting.net.states[MASTER] = {}
    elif how == "it pushes":
        setting.slave.state["state"] = "following"
    else:
        alive = "10.0.0.3:10911"
        setting.net.members[NAMESRV] = {0: alive, 1: OWN}
        setting.net.states[alive] = {"role": "ASYNC_MASTER", "epoch": 9}
    with pytest.raises(CommandError, match=rf"not promoted: the master at {alive} lives; stop it first") as refusal:
        await setting.ask(ClassicCode.PROMOTE)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert override.read(tmp_path) is None

    done = await setting.ask(ClassicCode.PROMOTE, force=True)
    assert any("two brokers take messages under one name" in word for word in done["words"])
    assert "although its master was alive" in setting.decided().why
    assert setting.decided().epoch == {"it answers": 8, "another was promoted": 10}.get(how, 4)


@pytest.mark.parametrize("now", [{"role": "SLAVE"}, {"role": "ASYNC_MASTER", "fenced": "10.0.0.3 was promoted"}])
async def test_a_master_that_is_none_any_more_does_not_stand_in_the_way(tmp_path: Path, now: dict[str, Any]) -> None:
    setting = Setting(tmp_path, slave=True)
    setting.net.states[MASTER] = {**now, "epoch": 5}
    assert (await setting.ask(ClassicCode.PROMOTE))["epoch"] == 6


async def test_what_a_sync_master_acknowledged_is_told(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    setting.slave.state["role"] = "SYNC_MASTER"
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert told["role"] == "SYNC_MASTER"
    assert any("acknowledged with SEND_OK is on a slave" in word for word in told["words"])
    assert any("answers 11" in word for word in told["words"])
    told = await setting.ask(ClassicCode.PROMOTE, ask=True, role="ASYNC_MASTER")
    assert told["role"] == "ASYNC_MASTER"
    assert not any("answers 11" in word for word in told["words"])


async def test_a_slave_that_was_started_after_its_master_died_remembers_it(tmp_path: Path) -> None:
    save_memory(tmp_path, PairMemory(open=True, epoch=6, master=MASTER))
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    setting.slave.state = {"state": "no master known"}
    setting.net.states[MASTER] = {"role": "SYNC_MASTER"}
    with pytest.raises(CommandError, match=MASTER):
        await setting.ask(ClassicCode.PROMOTE)
    setting.net.states.clear()
    told = await setting.ask(ClassicCode.PROMOTE, ask=True)
    assert (told["master"], told["role"], told["epoch"], told["masterEnd"]) == (MASTER, "SYNC_MASTER", 7, None)
    assert "how far the master's goes is not known" in told["words"][0]


def test_the_log_of_a_master_ended_at_least_where_the_own_one_does() -> None:
    state = {"state": "following", "address": MASTER, "max": 100, "seenAt": 50, "lastFrameAt": 70}
    known = promotion.known_master(state, PairMemory(), 400, 90)
    assert (known.end, known.heard_ms_ago, known.connected) == (400, 20, True)
    known = promotion.known_master(state, PairMemory(), 60, 90)
    assert (known.end, known.heard_ms_ago) == (100, 40)


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (ClassicCode.PROMOTE, b"{", "no JSON"),
        (ClassicCode.PROMOTE, b"[]", "JSON object"),
        (ClassicCode.PROMOTE, b"{" + b" " * promotion.BODY_BYTES_MAX + b"}", "at most"),
        (ClassicCode.PROMOTE, b'{"role": "SLAVE"}', "it takes ASYNC_MASTER or SYNC_MASTER"),
        (ClassicCode.PROMOTE, b'{"role": 1}', "'role' must be a text"),
        (ClassicCode.PROMOTE, b'{"force": "yes"}', "'force' must be true or false"),
        (ClassicCode.FOLLOW, b'{"brokerId": -1}', "it takes 1 to"),
        (ClassicCode.FOLLOW, b'{"brokerId": true}', "it takes 1 to"),
    ],
)
async def test_bad_requests_cost_one_clear_error(tmp_path: Path, code: ClassicCode, body: bytes, words: str) -> None:
    setting = Setting(tmp_path, slave=True)
    with pytest.raises(CommandError, match=words) as error:
        await setting.ask(code, body)
    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert override.read(tmp_path) is None


async def test_only_one_decision_is_carried_out(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    await setting.ask(ClassicCode.PROMOTE)
    with pytest.raises(CommandError, match="another decision"):
        await setting.ask(ClassicCode.PROMOTE)
    await setting.restarted()


async def test_a_decision_that_cannot_be_kept_is_not_carried_out(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    (tmp_path / "config").write_text("in the way")
    with pytest.raises((CommandError, OSError)):
        await setting.ask(ClassicCode.PROMOTE)
    assert setting.restarts == []


async def test_who_leads_is_not_promoted_and_follows_nobody(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    for code, words in (
        (ClassicCode.PROMOTE, "is the master already"),
        (ClassicCode.FOLLOW, "nobody was promoted in its place"),
        (ClassicCode.ACCEPT_MASTER, "is no slave"),
    ):
        with pytest.raises(CommandError, match=words):
            await setting.ask(code)
    # Taking nothing for a while, for another reason, makes it no deposed master.
    setting.role.fence("it becomes a Raft group")
    with pytest.raises(CommandError, match="nobody was promoted in its place"):
        await setting.ask(ClassicCode.FOLLOW)


async def test_a_deposed_master_follows_with_the_lowest_free_id(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    setting.depose()
    setting.net.members[NAMESRV] = {0: "10.0.0.3:10911", 1: "10.0.0.4:10911", 3: "10.0.0.5:10911"}
    with pytest.raises(CommandError, match=r"brokerId 3 is another broker's: taken are 0, 1, 3"):
        await setting.ask(ClassicCode.FOLLOW, brokerId=3)
    assert (await setting.ask(ClassicCode.FOLLOW))["brokerId"] == 2
    assert setting.decided().keys == {"brokerRole": "SLAVE", "brokerId": "2"}
    assert "follow" in (await setting.restarted()).why


async def test_without_a_name_server_the_id_must_be_said(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False)
    setting.depose()
    with pytest.raises(CommandError, match="name one with --id"):
        await setting.ask(ClassicCode.FOLLOW)
    assert (await setting.ask(ClassicCode.FOLLOW, brokerId=4))["brokerId"] == 4
    await setting.restarted()


async def test_a_slave_that_waits_for_a_person_goes_on(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=True)
    assert setting.slave is not None
    with pytest.raises(CommandError, match="waits for no decision"):
        await setting.ask(ClassicCode.ACCEPT_MASTER)
    setting.slave.waits = True
    assert await setting.ask(ClassicCode.ACCEPT_MASTER) == {"lost": 1000, "why": "the logs differ from 4000 on"}


async def fenced(setting: Setting) -> Fence:
    """Wait until a fence is written down."""
    async with asyncio.timeout(5):
        while (found := override.read(setting.folder)) is None or found.fenced is None:
            await asyncio.sleep(0.001)
    return found.fenced


async def test_R15_a_master_that_comes_back_finds_the_one_in_its_place_before_it_serves(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER, 1: "10.0.0.4:10911"}
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3}
    await setting.fencing.start()
    await setting.fencing.close()
    assert (setting.role.leads, setting.deposed) == (False, 1)
    assert setting.role.fenced is not None
    assert f"{MASTER} was promoted to master in the place of this broker (epoch 3, here 2)" in setting.role.fenced
    assert f"`raftmq cluster follow {OWN}`" in setting.role.fenced
    assert setting.decided().fenced == Fence(MASTER, 3)
    # Its own epoch stays what it was: with the other's it could claim the route.
    assert override.kept_epoch(tmp_path) == 2

    # Not forgotten when it starts while nobody else is there.
    again = Setting(tmp_path, slave=False, epoch=2)
    await again.fencing.start()
    await again.fencing.close()
    assert (again.role.fenced, again.deposed) == (setting.role.fenced, 1)

    # The way back to being a master is a promotion, above the one that deposed it.
    assert (await again.ask(ClassicCode.PROMOTE))["epoch"] == 4
    assert again.decided().fenced is None
    await again.restarted()


async def test_R15_a_master_that_a_name_server_refuses_is_fenced(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    await setting.fencing.start()
    for nobody in (None, "", OWN):
        setting.fencing.heard(nobody)
    await asyncio.sleep(0)
    assert setting.role.leads
    # Nothing can be learnt from it: that the NameServer refuses is enough.
    setting.fencing.heard(MASTER)
    assert await fenced(setting) == Fence(MASTER, 3)
    assert (setting.role.leads, setting.deposed) == (False, 1)
    await setting.fencing.close()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, False),
        ({}, False),
        ({"role": "ASYNC_MASTER", "epoch": 1}, False),
        ({"role": "ASYNC_MASTER", "epoch": "9"}, False),
        ({"role": "SLAVE", "epoch": 9}, False),
        ({"role": "ASYNC_MASTER", "epoch": 9, "fenced": "by another"}, False),
        ({"role": "ASYNC_MASTER", "epoch": 2}, True),
    ],
)
async def test_R15_only_a_living_master_of_a_higher_epoch_deposes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, state: dict[str, Any] | None, said: bool
) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER}
    if state is not None:
        setting.net.states[MASTER] = state
    await setting.fencing.look()
    assert setting.role.leads
    assert override.read(tmp_path) is None
    assert ("another master of the name b" in caplog.text) is said


async def test_a_persons_edit_ends_a_fence(tmp_path: Path) -> None:
    setting = Setting(tmp_path, slave=False, epoch=2)
    setting.net.members[NAMESRV] = {0: MASTER}
    setting.net.states[MASTER] = {"role": "ASYNC_MASTER", "epoch": 3}
    await setting.fencing.look()
    edited = Setting(tmp_path, slave=False, brokerRole="SYNC_MASTER")
    assert edited.live.broker.brokerRole == "SYNC_MASTER"
    assert override.read(tmp_path) is None
