"""What a person decides about master and slaves: 9114 PROMOTE, 9115 FOLLOW, 9116 ACCEPT_MASTER (JSON bodies).

A decision is written down (broker/settings/decision.py) before it is answered, and the broker then starts again in its
process as what it has become. Nothing here is ever done by the broker on its own: who may be wrong about whether a
master lives must be somebody who can look.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import orjson

from broker.master_slave.deposing import Outcome, tell
from broker.master_slave.fencing import FencedRole
from broker.master_slave.ha_compare import LogVerdict
from broker.master_slave.ha_state import NotWaiting
from broker.master_slave.prospects import (
    OtherSlave,
    by_force,
    known_master,
    master_role,
    other_slaves,
    refusal,
    slave_end,
    words_before,
)
from broker.peers import Caller, ask, epoch_of, group_known, holders, leads, members
from broker.reply import ok
from broker.role import MASTER_ID
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.pair_keys import ASYNC_MASTER, SLAVE, SYNC_MASTER
from broker.settings.pair_memory import load_memory
from broker.settings.restart import RestartAction
from remoting.codes import ClassicCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler
from runtime.clock import Clock
from runtime.config import ConfigError

_log = logging.getLogger(__name__)

# Bytes of a request's body.
BODY_BYTES_MAX = 4096
# Seconds between an answer and the restart that it announces: it must reach the asker first.
RESTART_PAUSE_SECONDS = 0.1
# What a brokerId may be: RocketMQ's is a long, but its order decides who is asked first, and nobody has so many slaves.
BROKER_ID_MAX = 1_000_000
_NOBODY: Mapping[str, bool] = MappingProxyType({})


class SlaveReplication(Protocol):
    """A slave's part in replication; see broker/master_slave/ha_client.py."""

    def status(self) -> dict[str, Any]:
        """Return what is known of the master: address, role, epoch, max, seenAt, lastFrameAt, and the own state."""
        ...

    def accept_master(self) -> LogVerdict:
        """Begin what waits for a person's consent. Raises NotWaiting."""
        ...


class OwnLocks(Protocol):
    """The broker's queue locks; see broker/metadata/agreed_locks.py."""

    async def take_over(self, handed: bytes) -> bool:
        """Begin as the master with what the master before handed over; False: it is not all. Raises OSError."""
        ...


class Own(NamedTuple):
    """What decisions take of the broker that they are about."""

    live: LiveConfig
    address: str
    log_end: Callable[[], int]
    """Behind the last byte of its log."""
    restart: Callable[[RestartAction], None]
    clock: Clock
    locks: OwnLocks | None = None


class Promotion:
    """Handlers of the decisions."""

    def __init__(self, own: Own, role: FencedRole, client: Caller, follower: SlaveReplication | None) -> None:
        """`follower`: None for a master."""
        self._live, self._address, self._log_end, self._restart, self._clock, self._locks = own
        self._role = role
        self._client = client
        self._follower = follower
        self._deciding = False
        self.promoting: int | None = None
        """The epoch of a promotion that was decided and is carried out, for whoever it deposes to ask."""

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            ClassicCode.PROMOTE: self.promote,
            ClassicCode.FOLLOW: self.follow,
            ClassicCode.ACCEPT_MASTER: self.accept_master,
        }

    async def promote(self, _connection: Connection, request: Command) -> Command:
        """9114: make this slave the master, {"role", "force", "ask"}; with "ask" only tell what that would mean.

        The answer: brokerName, brokerId, address, role and epoch as a master; end of the own log; master, masterEnd,
        heardMsAgo, behind (null: not known); words for people; refused (why not, null when nothing speaks against it);
        untold (masters that lived and could not be told yet that they are deposed); done. A fenced master can be
        promoted again.
        """
        fields = _fields(request)
        force, only_ask = _flag(fields, "force"), _flag(fields, "ask")
        if self._follower is None and await self._fence() is None:
            raise _invalid("this broker is the master already")
        wanted = _text(fields, "role")
        if wanted not in ("", ASYNC_MASTER, SYNC_MASTER):
            raise _invalid(f"role {wanted}: it takes {ASYNC_MASTER} or {SYNC_MASTER}")
        report, masters, past = await self._prospects(wanted)
        if only_ask:
            return ok(body=orjson.dumps(report))
        if report["refused"] is not None and not force:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"not promoted: {report['refused']}")
        keys = {"brokerRole": str(report["role"]), "brokerId": str(MASTER_ID)}
        why = f"`raftmq cluster promote` made this broker the master{past}"
        untold = await self._decide(keys, why, int(report["epoch"]), masters)
        return ok(body=orjson.dumps({**report, "untold": untold, "done": True}))

    async def follow(self, _connection: Connection, request: Command) -> Command:
        """9115: make this fenced master a slave, {"brokerId": n}, 0 or absent: the lowest free one. It is answered."""
        fields = _fields(request)
        wanted = fields.get("brokerId", 0)
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= BROKER_ID_MAX:
            raise _invalid(f"brokerId {wanted}: it takes 1 to {BROKER_ID_MAX}, or 0 for the lowest that is free")
        if self._follower is not None or await self._fence() is None:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                "this broker is the slave of a master already"
                if self._follower is not None
                else "this broker is the master and nobody was promoted in its place: promote a slave first",
            )
        broker_id = await self._free_id(wanted)
        keys = {"brokerRole": SLAVE, "brokerId": str(broker_id)}
        await self._decide(keys, "`raftmq cluster follow` made this broker a slave", self._role.term)
        return ok(body=orjson.dumps({"brokerId": broker_id, "address": self._address, "end": self._log_end()}))

    def accept_master(self, _connection: Connection, _request: Command) -> Command:
        """9116: what a slave that waits for a person was waiting for."""
        if self._follower is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this broker is no slave: there is no master to accept")
        try:
            verdict = self._follower.accept_master()
        except NotWaiting as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return ok(body=orjson.dumps({"lost": verdict.lost, "why": verdict.why}))

    async def _prospects(self, wanted: str) -> tuple[dict[str, Any], dict[str, bool], str]:
        """Return what a promotion would mean at this moment (see promote), the masters, and what it would go past.

        The masters that it is about to depose: address → whether it lives.
        """
        root, own = self._live.store.root, self._log_end()
        memory = await asyncio.to_thread(load_memory, root)
        state = {} if self._follower is None else self._follower.status()
        known = known_master(state, memory, own, self._clock.now_ms())
        fence = await self._fence()
        told_of = await group_known(self._live, self._client)
        suspects = holders((one.members for one in told_of), self._address)
        suspects |= {known.address or self._address, self._address if fence is None else fence.by}
        suspects |= {one.remembered.holder or self._address for one in told_of}
        asked = sorted(suspects - {self._address})
        tables = [*(one.members for one in told_of), *(one.remembered.members for one in told_of)]
        beside = other_slaves(tables, {*suspects, self._address})
        addresses = [*asked, *(address for _, address in beside)]
        answers = await asyncio.gather(*(ask(self._client, each) for each in addresses))
        states = dict(zip(addresses, answers, strict=True))
        name = self._live.broker.name()
        others = [OtherSlave(number, address, slave_end(states[address], name)) for number, address in beside]
        masters = {address: _lives(states[address]) for address in asked}
        if known.connected and known.address is not None and states.get(known.address) is None:
            masters[known.address] = True
        alive = [address for address, lives in masters.items() if lives]
        told: dict[str, Any] = states.get(known.address or "") or {}
        epochs = [self._role.term, known.epoch, *map(epoch_of, filter(None, answers))]
        epochs += [one.remembered.epoch for one in told_of]
        epoch = max(epochs if fence is None else [*epochs, fence.epoch]) + 1
        master_end = _number(told, "max", known.end)
        role = wanted or master_role(told, known.role)
        report = {
            "brokerName": name,
            "brokerId": self._live.broker.brokerId,
            "address": self._address,
            "role": role,
            "epoch": epoch,
            "end": own,
            "master": known.address or (asked[0] if asked else None),
            "masterEnd": master_end,
            "heardMsAgo": 0 if "max" in told else known.heard_ms_ago,
            "behind": None if master_end is None else max(0, master_end - own),
            "words": words_before(own, master_end, master_role(told, known.role, ""), role, alive, others),
            "refused": refusal(own, alive, others),
            "untold": [],
            "done": False,
        }
        return report, masters, by_force(alive, others, own)

    async def _fence(self) -> override.Fence | None:
        """Return who was promoted in the place of this broker; None when nobody was, or it is no master."""
        decided = await asyncio.to_thread(override.read, self._live.store.root)
        return self._role.suspect if decided is None or decided.fenced is None else decided.fenced

    async def _free_id(self, wanted: int) -> int:
        tables = (await members(self._live, self._client)).values()
        taken = {broker_id for table in tables for broker_id, at in table.items() if at != self._address}
        if not tables and not wanted:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, "no NameServer tells which brokerIds are free: name one with --id"
            )
        if wanted and wanted in taken:
            raise _invalid(f"brokerId {wanted} is another broker's: taken are {', '.join(map(str, sorted(taken)))}")
        return wanted or next(each for each in range(MASTER_ID + 1, len(taken) + 2) if each not in taken)

    async def _decide(
        self, keys: dict[str, str], why: str, epoch: int, masters: Mapping[str, bool] = _NOBODY
    ) -> list[str]:
        """Write a decision down, tell the masters that live that they are deposed, and start again soon.

        Returns who could not be told.
        """
        if self._deciding:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "another decision is being carried out: try again")
        self._deciding = True
        # Not the asker's: whoever goes away in the midst of it must not leave a deposed master and nobody in its place.
        carried = asyncio.get_running_loop().create_task(self._carry_out(keys, why, epoch, masters), name="decision")
        return await asyncio.shield(carried)

    async def _carry_out(self, keys: dict[str, str], why: str, epoch: int, masters: Mapping[str, bool]) -> list[str]:
        root = self._live.store.root
        try:
            await asyncio.to_thread(
                lambda: override.decide(self._live, keys, why=why, epoch=epoch, deposes=sorted(masters))
            )
        except (ConfigError, OSError) as error:
            self._deciding = False
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the decision cannot be kept: {error}") from None
        _log.warning("%s (epoch %d)", why, epoch)
        if keys["brokerId"] == str(MASTER_ID):
            self.promoting = epoch
        try:
            # Before this broker serves. Who does not live is told when it does (broker/master_slave/deposing.py).
            living = sorted(address for address, lives in masters.items() if lives)
            name = self._live.broker.name()
            telling = (tell(self._client, each, name=name, by=self._address, epoch=epoch) for each in living)
            answers = await asyncio.gather(*telling)
            outcomes = dict(zip(living, (outcome for outcome, _ in answers), strict=True))
            if self.promoting is not None:
                await self._take_locks(answers[0][1] if len(masters) == len(answers) == 1 else b"")
            for address, outcome in outcomes.items():
                if outcome is Outcome.TOLD:
                    await asyncio.to_thread(override.told, root, address)
        except (ConfigError, OSError) as error:
            _log.warning("who was told cannot be kept, and is told again: %s", error)
        finally:
            asyncio.get_running_loop().call_later(RESTART_PAUSE_SECONDS, self._restart, RestartAction(why))
        return [address for address, outcome in outcomes.items() if outcome is not Outcome.TOLD]

    async def _take_locks(self, handed: bytes) -> None:
        """Take over the queue locks of the only master that there was, so that consumers in order go on at once."""
        if self._locks is not None and await self._locks.take_over(handed):
            _log.info("the queue locks of the master before are known here")


def _lives(state: dict[str, Any] | None) -> bool:
    return state is not None and leads(state)


def _fields(request: Command) -> dict[str, Any]:
    body = bytes(request.body[: BODY_BYTES_MAX + 1])
    if len(body) > BODY_BYTES_MAX:
        raise _invalid(f"the body takes at most {BODY_BYTES_MAX} bytes")
    try:
        fields = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise _invalid(f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _invalid("the body must be a JSON object")
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise _invalid(f"'{name}' must be a text")
    return value


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise _invalid(f"'{name}' must be true or false")
    return value


def _number(fields: dict[str, Any], name: str, otherwise: int | None) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) else otherwise


def _invalid(why: str) -> CommandError:
    return CommandError(ResponseCode.INVALID_PARAMETER, why)
