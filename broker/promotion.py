"""What a person decides about master and slaves: 9114 PROMOTE, 9115 FOLLOW, 9116 ACCEPT_MASTER (JSON bodies).

A decision is written down (broker/override.py) before it is answered, and the broker then starts again in its process
as what it has become. Nothing here is ever done by the broker on its own: who may be wrong about whether a master
lives must be somebody who can look.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import orjson

from broker import override
from broker.admin_reply import ok
from broker.classic_config import ASYNC_MASTER, SLAVE, SYNC_MASTER
from broker.config import LiveConfig
from broker.fencing import Caller, FencedRole, ask, epoch_of, holders, leads, members
from broker.ha_compare import Verdict
from broker.ha_pair import PairMemory, load_memory
from broker.ha_state import NotWaiting, State
from broker.reborn import RestartAction
from broker.role import MASTER_ID
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
_CONNECTED = frozenset({State.COMPARING.value, State.FOLLOWING.value})


class KnownMaster(NamedTuple):
    """What a slave knows of the master that it follows, or followed last."""

    address: str | None
    """Where it took clients' requests; None when none was ever known."""
    connected: bool
    """Whether it pushes to this slave at this moment."""
    role: str | None
    """Its brokerRole, when it told."""
    epoch: int
    end: int | None
    """The end of its log, as far as it was ever heard."""
    heard_ms_ago: int | None
    """How old that knowledge is."""


class Follower(Protocol):
    """A slave's part in replication; see broker/ha_client.py."""

    def status(self) -> dict[str, Any]:
        """Return what is known of the master: address, role, epoch, max, seenAt, lastFrameAt, and the own state."""
        ...

    def accept_master(self) -> Verdict:
        """Begin what waits for a person's consent. Raises NotWaiting."""
        ...


def known_master(state: dict[str, Any], memory: PairMemory, own_end: int, now_ms: int) -> KnownMaster:
    """Return what a Follower's status tells of the master, and what was written down before this process began.

    All that stands in the own log came from the master: its log ended there at least.
    """
    told, seen, frames = state.get("max"), state.get("seenAt"), state.get("lastFrameAt")
    if told is None and frames is None:
        end, heard = None, None
    elif told is not None and told > own_end:
        end, heard = told, seen
    else:
        end, heard = own_end, max(filter(None, (seen, frames)), default=None)
    return KnownMaster(
        address=state.get("address") or memory.master or None,
        connected=state.get("state") in _CONNECTED,
        role=state.get("role") or (SYNC_MASTER if memory.open else None),
        epoch=max(state.get("epoch") or 0, memory.epoch),
        end=end,
        heard_ms_ago=None if heard is None else max(0, now_ms - heard),
    )


class Promotion:
    """Handlers of the decisions."""

    def __init__(
        self,
        live: LiveConfig,
        role: FencedRole,
        log_end: Callable[[], int],
        client: Caller,
        address: str,
        restart: Callable[[RestartAction], None],
        follower: Follower | None,
        clock: Clock,
    ) -> None:
        """`log_end`: behind the last byte of the own log. `follower`: None for a master. `address` is the own one."""
        self._live = live
        self._role = role
        self._log_end = log_end
        self._client = client
        self._address = address
        self._restart = restart
        self._follower = follower
        self._clock = clock
        self._deciding = False

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
        done. A fenced master can be promoted again.
        """
        fields = _fields(request)
        force, only_ask = _flag(fields, "force"), _flag(fields, "ask")
        if self._follower is None and await self._fence() is None:
            raise _invalid("this broker is the master already")
        wanted = _text(fields, "role")
        if wanted not in ("", ASYNC_MASTER, SYNC_MASTER):
            raise _invalid(f"role {wanted}: it takes {ASYNC_MASTER} or {SYNC_MASTER}")
        report = await self._prospects(wanted)
        if only_ask:
            return ok(body=orjson.dumps(report))
        if report["refused"] is not None and not force:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"not promoted: {report['refused']}")
        keys = {"brokerRole": str(report["role"]), "brokerId": str(MASTER_ID)}
        forced = ", although its master was alive" if report["refused"] is not None else ""
        why = f"`raftmq cluster promote` made this broker the master{forced}"
        await self._decide(keys, why, int(report["epoch"]))
        return ok(body=orjson.dumps({**report, "done": True}))

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

    async def _prospects(self, wanted: str) -> dict[str, Any]:
        """Return what a promotion would mean at this moment; see promote."""
        root, own = self._live.store.root, self._log_end()
        memory = await asyncio.to_thread(load_memory, root)
        state = {} if self._follower is None else self._follower.status()
        known = known_master(state, memory, own, self._clock.now_ms())
        fence = await self._fence()
        suspects = await holders(self._live, self._client, self._address)
        suspects |= {known.address or self._address, self._address if fence is None else fence.by}
        asked = sorted(suspects - {self._address})
        states = dict(zip(asked, await asyncio.gather(*(ask(self._client, each) for each in asked)), strict=True))
        alive = [address for address, state in states.items() if state is not None and leads(state)]
        if known.connected and known.address is not None and states.get(known.address) is None:
            alive.append(known.address)
        told = states.get(known.address or "") or {}
        epochs = [self._role.term, known.epoch, *map(epoch_of, filter(None, states.values()))]
        epoch = max(epochs if fence is None else [*epochs, fence.epoch]) + 1
        master_end = _number(told, "max", known.end)
        role = wanted or _master_role(told, known.role)
        return {
            "brokerName": self._live.broker.name(),
            "brokerId": self._live.broker.brokerId,
            "address": self._address,
            "role": role,
            "epoch": epoch,
            "end": own,
            "master": known.address or (asked[0] if asked else None),
            "masterEnd": master_end,
            "heardMsAgo": 0 if "max" in told else known.heard_ms_ago,
            "behind": None if master_end is None else max(0, master_end - own),
            "words": _words(own, master_end, _master_role(told, known.role, ""), role, alive),
            "refused": _refusal(alive),
            "done": False,
        }

    async def _fence(self) -> override.Fence | None:
        """Return who was promoted in the place of this broker; None when nobody was, or it is no master."""
        decided = await asyncio.to_thread(override.read, self._live.store.root)
        return None if decided is None else decided.fenced

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

    async def _decide(self, keys: dict[str, str], why: str, epoch: int) -> None:
        """Write a decision down, and start again soon."""
        if self._deciding:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "another decision is being carried out: try again")
        self._deciding = True
        try:
            await asyncio.to_thread(lambda: override.decide(self._live, keys, why=why, epoch=epoch))
        except (ConfigError, OSError) as error:
            self._deciding = False
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the decision cannot be kept: {error}") from None
        _log.warning("%s (epoch %d)", why, epoch)
        asyncio.get_running_loop().call_later(RESTART_PAUSE_SECONDS, self._restart, RestartAction(why))


def _master_role(told: dict[str, Any], heard: str | None, otherwise: str = ASYNC_MASTER) -> str:
    """Return the brokerRole of a master, as it says now, or was heard to be."""
    role = told.get("role")
    return role if role in (ASYNC_MASTER, SYNC_MASTER) else heard or otherwise


def _words(own: int, master_end: int | None, master_role: str, role: str, alive: list[str]) -> list[str]:
    """Return what a person should know before promoting."""
    words = []
    if master_end is None:
        words.append(f"this log ends at {own}; how far the master's goes is not known")
    elif master_end > own:
        words.append(f"{master_end - own} bytes that the master has are not here, and are lost to consumers")
    else:
        words.append("this log holds everything that the master was heard to have")
    if master_role == SYNC_MASTER:
        words.append(
            "the master was a SYNC_MASTER: what it acknowledged with SEND_OK is on a slave; promote the slave whose "
            "log ends last, then none of that is lost"
        )
    else:
        words.append(
            "the master did not wait for slaves: what it acknowledged after it was last heard is lost without a trace"
        )
    if role == SYNC_MASTER:
        words.append("as a SYNC_MASTER this broker answers 11 (SLAVE_NOT_AVAILABLE) to sends until a slave follows it")
    if alive:
        words.append(
            f"{', '.join(alive)} lives: until it learns of the promotion two brokers take messages under one name, and "
            "what it takes is cut off when it follows this one"
        )
    return words


def _refusal(alive: list[str]) -> str | None:
    if not alive:
        return None
    return (
        f"the master at {', '.join(alive)} lives; stop it first, or, when nobody else can reach it, use --force, which "
        "leaves two masters until it learns of the promotion"
    )


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
