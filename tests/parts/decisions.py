"""One broker that decisions are about: what broker/master_slave/promotion.py, fencing.py and deposing.py work with."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import orjson

from broker import peers
from broker.master_slave import promotion
from broker.master_slave.deposing import Deposing
from broker.master_slave.fencing import Fencing, HandOver
from broker.master_slave.ha_compare import LogVerdict, VerdictKind
from broker.master_slave.ha_state import NotWaiting
from broker.master_slave.promotion import Own, Promotion
from broker.master_slave.role import ClassicRole
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.decision import Fence
from broker.settings.pair_proof import PairProof
from broker.settings.restart import RestartAction
from remoting.bodies.registry import BrokerMemberGroup, BrokerMemberGroupBody
from remoting.codes import ClassicCode, NamesrvCode, RequestCode, ResponseCode
from remoting.command import Body, Command
from remoting.errors import ConnectError, ResponseError
from remoting.headers.registry import Header
from remoting.server import Connection
from runtime.clock import ManualClock

NOBODY = cast(Connection, None)
OWN = "10.0.0.2:10911"
MASTER = "10.0.0.1:10911"
NAMESRV = "10.0.0.9:9876"
OTHER, THIRD = "10.0.0.4:10911", "10.0.0.5:10911"
LOCKS = b'{"complete":true,"lockTable":{"g":{"c":[["T","b",0]]}}}'
NOW_MS = 1_700_000_000_000


class Net:
    """Answers for other processes: what NameServers know, what brokers tell; who is not named does not answer."""

    def __init__(self) -> None:
        self.members: dict[str, dict[int, str]] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.remembered: dict[str, dict[str, Any]] = {}
        # Whom DEPOSED was sent to and answered, with its body; who is named in `refuses` answers with this code.
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.refuses: dict[str, ResponseCode] = {}
        # Who knows which secret.
        self.proofs: dict[str, PairProof] = {}
        # How often each was asked about its state.
        self.asked: Counter[str] = Counter()

    async def call(
        self, address: str, code: int, header: Header | None = None, body: Body = b"", timeout: float = 3.0
    ) -> Command:
        assert header is None or code == RequestCode.GET_BROKER_MEMBER_GROUP
        assert timeout == peers.PATIENCE_SECONDS
        await asyncio.sleep(0)
        if code == ClassicCode.STATUS:
            self.asked[address] += 1
        if code == RequestCode.GET_BROKER_MEMBER_GROUP and address in self.members:
            group = BrokerMemberGroup(self.members[address], "b", "DefaultCluster")
            return Command.response(ResponseCode.SUCCESS, body=BrokerMemberGroupBody(group).encode())
        if code == NamesrvCode.REMEMBERED and address in self.members:
            if address not in self.remembered:
                raise ResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "RocketMQ's", address)
            return Command.response(ResponseCode.SUCCESS, body=orjson.dumps(self.remembered[address]))
        if code == ClassicCode.DEPOSED and address in self.states:
            if address in self.refuses:
                raise ResponseError(self.refuses[address], "not so", address)
            self.told.append((address, orjson.loads(bytes(cast(bytes, body)))))
            return Command.response(ResponseCode.SUCCESS, body=LOCKS)
        if code == ClassicCode.STATUS and address in self.states:
            state = self.proofs.get(address, PairProof()).answer(self.states[address], cast(bytes, body))
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

    def accept_master(self) -> LogVerdict:
        if not self.waits:
            raise NotWaiting("this slave waits for no decision, it is following")
        return LogVerdict(VerdictKind.CUT, 4000, "the logs differ from 4000 on", person=True, lost=1000)


class Locks:
    """Queue locks as far as decisions go."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def take_over(self, handed: bytes) -> bool:
        self.taken.append(handed)
        return True


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
        self.locks = Locks()
        own = Own(self.live, OWN, lambda: self.end, self.restarts.append, ManualClock(NOW_MS), self.locks)
        self.promotion = Promotion(own, self.role, self.net, self.slave)
        self.woken = asyncio.Event()
        self.deposed = 0
        self.settled = 0
        self.proof = PairProof()
        hand_over = HandOver(self._settle, self._handed, self._wake)
        self.fencing = Fencing(self.live, self.role, self.net, OWN, self._on_deposed, hand_over, self.proof)
        self.deposing = Deposing(self.live, self.role, self.net, OWN, self.fencing.met)

    def _on_deposed(self) -> None:
        self.deposed += 1

    async def _settle(self) -> None:
        assert not self.role.leads, "first it takes nothing more"
        assert self.deposed == 0, "slaves get what it has before it stops pushing"
        self.settled += 1

    def _wake(self) -> None:
        assert not self.role.leads, "whoever reads here waits for what comes"
        self.woken.set()

    def _handed(self) -> bytes:
        assert not self.role.leads, "no lock is granted any more"
        return LOCKS

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
        async with asyncio.timeout(20):
            while not self.restarts:
                await asyncio.sleep(promotion.RESTART_PAUSE_SECONDS / 10)
        (action,) = self.restarts
        return action
