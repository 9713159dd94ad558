"""Administration of masters and slaves: who follows whom, and what a person decides (RaftMQ's ClassicCode).

A request goes to one broker, by its address: what the NameServers know may be just what is wrong.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from client.admin.base import AdminBase, BrokerEntry
from client.errors import RouteError
from remoting.codes import ClassicCode, NamesrvCode

# Seconds for a promotion.
PROMOTE_SECONDS = 15.0


class ClassicAdmin(AdminBase):
    """Masters and slaves of the classic modes."""

    async def ha_status(self, address: str) -> dict[str, Any]:
        """Return what a master or slave knows of its pair, as its HTTP face shows at /v1/ha."""
        return await self._classic(address, ClassicCode.STATUS)

    async def promote(
        self, address: str, *, role: str = "", force: bool = False, only_ask: bool = False
    ) -> dict[str, Any]:
        """Make a slave the master, as `role` (by default the old master's); it starts again.

        Refused while the master lives, or another slave has more, unless `force`. Returns what may be lost and the new
        epoch, see broker/master_slave/promotion.py; with `only_ask` nothing is done.
        """
        fields = {"role": role, "force": force, "ask": only_ask}
        # It asks NameServers, brokers, and the master that it deposes, each of whom may keep it waiting.
        return await self._classic(address, ClassicCode.PROMOTE, fields, max(self._timeout, PROMOTE_SECONDS))

    async def follow(self, address: str, broker_id: int = 0) -> dict[str, Any]:
        """Make a deposed master a slave with this brokerId (0: the lowest free one), which is returned; it restarts."""
        return await self._classic(address, ClassicCode.FOLLOW, {"brokerId": broker_id})

    async def accept_master(self, address: str) -> dict[str, Any]:
        """Let a slave that waits for a person cut its log to where the master's agrees with it, and go on."""
        return await self._classic(address, ClassicCode.ACCEPT_MASTER)

    async def to_raft(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a broker of a classic group a member of a Raft group; see ClassicCode.TO_RAFT for the body."""
        return await self._classic(address, ClassicCode.TO_RAFT, body)

    async def to_classic(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a former member of a Raft group a master or slave; see ClassicCode.TO_CLASSIC for the body."""
        return await self._classic(address, ClassicCode.TO_CLASSIC, body)

    async def slaves(self, name: str) -> list[BrokerEntry]:
        """Return the slaves of a broker name that the NameServers know, by brokerId; RouteError without any."""
        found = [broker for broker in await self.brokers(None) if broker.name == name and broker.broker_id != 0]
        if not found:
            raise RouteError(f"the NameServers know no slave of a broker named {name}", retriable=True)
        return found

    async def forget_epoch(self, name: str) -> dict[str, bool]:
        """Let a brokerName begin again at any epoch; returns NameServer → whether it knew the name."""
        body = orjson.dumps({"broker": name})
        found: dict[str, bool] = {}
        for address in self._addresses:
            answer = await self._call(address, NamesrvCode.FORGET, body=body)
            found[address] = bool(orjson.loads(bytes(answer.body))["known"])
        return found

    async def _classic(
        self,
        address: str,
        code: ClassicCode,
        fields: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        answer = await self._call(address, code, body=orjson.dumps(dict(fields or {})), timeout=timeout)
        found: dict[str, Any] = orjson.loads(bytes(answer.body))
        return found
