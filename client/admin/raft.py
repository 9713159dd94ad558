"""Administration of Raft groups: who leads, who belongs to them. Codes and bodies are RaftMQ's own (RaftCode)."""

from typing import Any

import orjson

from client.admin.base import AdminBase
from client.errors import RouteError
from remoting.codes import RaftCode


class RaftAdmin(AdminBase):
    """The Raft group of a broker name."""

    async def raft_status(self, address: str) -> dict[str, Any]:
        """Return what a member knows of its group, as its HTTP face shows at /v1/raft."""
        return await self._raft(address, RaftCode.STATUS)

    async def transfer_leader(self, group: str, to: str = "") -> dict[str, Any]:
        """Hand the lead to a member ("n1"), or to whoever has the whole log; returns its id and address."""
        return await self._raft(await self.raft_leader(group), RaftCode.TRANSFER_LEADER, to=to)

    async def add_peer(self, group: str, member: str, raft_address: str) -> dict[str, Any]:
        """Add a member, which must have been started; it learns first. Returns the leader's state."""
        return await self._raft(await self.raft_leader(group), RaftCode.ADD_PEER, id=member, address=raft_address)

    async def remove_peer(self, group: str, member: str) -> dict[str, Any]:
        """Take a member out; returns the leader's state."""
        return await self._raft(await self.raft_leader(group), RaftCode.REMOVE_PEER, id=member)

    async def leave_raft(self, group: str) -> dict[str, Any]:
        """End a group that has one member left: its store becomes a single broker's. Returns its state."""
        return await self._raft(await self.raft_leader(group), RaftCode.LEAVE)

    async def raft_leader(self, group: str) -> str:
        """Return the address of the broker that leads; RouteError when none is known."""
        for broker in await self.brokers(None):
            if broker.name == group and broker.broker_id == 0:
                return broker.address
        raise RouteError(f"no broker named {group} leads a group that the NameServer knows", retriable=True)

    async def _raft(self, broker: str, code: RaftCode, **fields: str) -> dict[str, Any]:
        answer = await self._call(broker, code, body=orjson.dumps(fields))
        found: dict[str, Any] = orjson.loads(bytes(answer.body))
        return found
