"""What an administrator asks of a Raft group, as the `raftmq cluster` commands do: codes of ours with JSON bodies.

Everything but the status is asked of the leader; another member refuses and says who leads. An answer comes when the
thing is done, or when it is known that it will not be; after PATIENCE_SECONDS it says that it is not known.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from broker.raft_group.role import GroupRole
from broker.reply import ok
from raft.protocol.config import ConfigRefused, check_address, member_number
from raft.protocol.group_node import GroupNode
from raft.protocol.types import Fate, OnFate, Refusal
from remoting.codes import RaftCode, ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.server import Connection, Handler

# Seconds that an answer waits for the group; tools wait 5 s by default.
PATIENCE_SECONDS = 4.5
# Bytes of a request's body.
BODY_BYTES_MAX = 4096

_WORDS = {
    Refusal.NOT_LEADER: "this member does not lead",
    Refusal.TRANSFERRING: "a transfer of the lead is under way, or no other member can take it: try again",
    Refusal.LOG_REFUSES: "the log takes nothing: see the leader's log and disk",
    Refusal.CHANGE_PENDING: "the last change of membership is not committed yet: try again",
    Refusal.BUSY: "no other member that has room is close enough to take the lead, or too much is under way: try again",
}


class GroupControl(Protocol):
    """What is needed of this broker's part in the group."""

    @property
    def node(self) -> GroupNode:
        """The node."""
        ...

    def status(self) -> dict[str, Any]:
        """Return all that is known, for people."""
        ...

    async def add_learner(self, member_id: str, address: str) -> Refusal | Fate:
        """Meet a new member and make it a learner. Raises ConfigRefused; TimeoutError when it cannot be met."""
        ...


class RaftHandlers:
    """Handlers of RaftCode."""

    def __init__(self, control: GroupControl, role: GroupRole) -> None:
        self._control = control
        self._role = role
        self._changed = asyncio.Event()
        role.subscribe(self._changed.set)

    def table(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RaftCode.STATUS: self.status,
            RaftCode.TRANSFER_LEADER: self.transfer,
            RaftCode.ADD_PEER: self.add,
            RaftCode.REMOVE_PEER: self.remove,
            RaftCode.LEAVE: self.leave,
        }

    def status(self, _connection: Connection, _request: Command) -> Command:
        """9101: what this member knows."""
        return ok(body=orjson.dumps(self._control.status()))

    async def transfer(self, _connection: Connection, request: Command) -> Command:
        """9102: hand the lead over, and answer when somebody else has it."""
        to = _field(request, "to", needed=False)
        node = self._leading()
        self._refused(_worded(lambda: node.transfer(to or None)))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while self._role.leads or self._role.leader_address is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise _unknown(f"nobody else leads after {PATIENCE_SECONDS:g} s: see the status of the members") from None
        return ok(body=orjson.dumps({"leader": node.leader_id, "address": self._role.leader_address}))

    async def add(self, _connection: Connection, request: Command) -> Command:
        """9103: add a member, which learns first."""
        member_id, address = _field(request, "id"), _field(request, "address")
        self._leading()
        try:
            member_number(member_id)
            check_address(address)
            async with asyncio.timeout(PATIENCE_SECONDS):
                ended = await self._control.add_learner(member_id, address)
        except ConfigRefused as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        except TimeoutError:
            raise _unknown(
                f"{member_id} was not met at {address} within {PATIENCE_SECONDS:g} s, or the group did not agree: is "
                "it started, with this group in its dLegerPeers and the same secret?"
            ) from None
        if isinstance(ended, Fate):
            return self._settled(ended)
        raise _not_done(ended)

    async def remove(self, _connection: Connection, request: Command) -> Command:
        """9104: take a member out."""
        member_id = _field(request, "id")
        node = self._leading()
        return await self._agreed(lambda fate: node.remove(member_id, fate))

    async def leave(self, _connection: Connection, _request: Command) -> Command:
        """9105: end the group, whose only member this is."""
        node = self._leading()
        return await self._agreed(node.leave)

    def _leading(self) -> GroupNode:
        """Return the node when it leads; else the refusal names who does."""
        if not self._role.leads:
            leader = self._control.node.leader_id
            known = f"{leader} leads, at {self._role.leader_address}" if leader is not None else "no leader is known"
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"[RAFT] this member does not lead; {known}")
        return self._control.node

    async def _agreed(self, propose: Callable[[OnFate], Refusal | None]) -> Command:
        """Propose something and return the answer when its fate is known."""
        fate: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()
        self._refused(_worded(lambda: propose(told(fate))))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return self._settled(await fate)
        except TimeoutError:
            raise _unknown(f"not agreed upon within {PATIENCE_SECONDS:g} s: it may be yet") from None

    @staticmethod
    def _refused(refusal: Refusal | None) -> None:
        if refusal is not None:
            raise _not_done(refusal)

    def _settled(self, fate: Fate) -> Command:
        if fate is Fate.COMMITTED:
            return ok(body=orjson.dumps(self._control.status()))
        if fate is Fate.OVERWRITTEN:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "[RAFT] not done: this member lost the lead; ask the new one")
        raise _unknown("this member stopped or lost the lead meanwhile: see the status of the members")


def told(fate: "asyncio.Future[Fate]") -> OnFate:
    """Return what hands a fate to a future that may have been given up."""

    def tell(became: Fate) -> None:
        if not fate.done():
            fate.set_result(became)

    return tell


def _worded(act: Callable[[], Refusal | None]) -> Refusal | None:
    try:
        return act()
    except ConfigRefused as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None


def _not_done(refusal: Refusal) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, f"[RAFT] not done: {_WORDS[refusal]}")


def _unknown(why: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, f"[RAFT] outcome unknown: {why}")


def _field(request: Command, name: str, *, needed: bool = True) -> str:
    """Return a text of the request's JSON body; raises CommandError."""
    body = bytes(request.body)
    try:
        fields = orjson.loads(body) if body and len(body) <= BODY_BYTES_MAX else {}
    except orjson.JSONDecodeError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body is no JSON: {error}") from None
    value = fields.get(name, "") if isinstance(fields, dict) else ""
    if not isinstance(value, str) or (needed and not value):
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body must be a JSON object with a text '{name}'")
    return value
