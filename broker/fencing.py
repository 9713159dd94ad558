"""Keeping a deposed master from taking messages (rule R15), and finding out who else is a master.

A promotion raises the epoch. NameServers then refuse brokerId 0 to a master of a lower one, and ours name the one that
holds it in their answer; RocketMQ's say nothing, so they are asked who holds it (901): before this broker serves, and
every registerNameServerPeriod. A master that finds one of a higher epoch is fenced for good: it takes nothing and
registers nowhere, over restarts too (broker/override.py), until a person makes it a slave or promotes it again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import orjson

from broker import override
from broker.classic_config import SLAVE
from broker.config import LiveConfig
from broker.role import MASTER_ID
from remoting.bodies import BrokerMemberGroupBody
from remoting.codes import ClassicCode, RequestCode
from remoting.command import Body, Command
from remoting.errors import RemotingError, ResponseError
from remoting.headers import GetBrokerMemberGroupRequestHeader, Header
from runtime.config import ConfigError
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# Seconds that a NameServer or a broker has for an answer before it counts as gone.
PATIENCE_SECONDS = 2.0


class Caller(Protocol):
    """What is needed of RemotingClient."""

    async def call(
        self, address: str, code: int, header: Header | None = None, body: Body = b"", timeout: float = 3.0
    ) -> Command:
        """Send a request and return the answer; ResponseError unless its code is SUCCESS, else RemotingError."""
        ...


class FencedRole(Protocol):
    """What is needed of broker/classic_role.py."""

    @property
    def term(self) -> int:
        """The epoch."""
        ...

    @property
    def fenced(self) -> str | None:
        """Why it takes nothing."""
        ...

    def fence(self, why: str) -> None:
        """Take nothing more."""
        ...


class Fencing:
    """Fences a master that was deposed; see the module."""

    def __init__(
        self, live: LiveConfig, role: FencedRole, client: Caller, address: str, on_deposed: Callable[[], None]
    ) -> None:
        """`address` is this broker's own; `on_deposed` is called once, when it is fenced."""
        self._live = live
        self._role = role
        self._client = client
        self._address = address
        self._on_deposed = on_deposed
        self._tasks = Tasks("fencing")
        self._deposing = False

    async def start(self) -> None:
        """Return when it is known whether this broker may serve as a master. Raises ConfigError, OSError."""
        decided = await asyncio.to_thread(override.read, self._live.store.root)
        if decided is not None and decided.fenced is not None:
            self._role.fence(self._words(decided.fenced))
            self._on_deposed()
        else:
            await self.look()
        self._tasks.every(self._live.broker.register_period(), self.look, "look for another master")

    async def close(self) -> None:
        """End looking."""
        await self._tasks.close()

    def heard(self, master: str | None) -> None:
        """Take note of what a NameServer answered to this master's registration: the address of one in its place."""
        if master and master != self._address and self._role.fenced is None and not self._deposing:
            self._deposing = True
            self._tasks.spawn(self._deposed_by(master), "deposed")

    async def look(self) -> None:
        """Fence this master when a NameServer knows another one, which tells a higher epoch."""
        if self._role.fenced is not None:
            return
        for master in sorted(await holders(self._live, self._client, self._address)):
            state = await ask(self._client, master)
            if not state or not leads(state):
                continue
            if (epoch := epoch_of(state)) > self._role.term:
                await self._fence(override.Fence(master, epoch))
                return
            if epoch == self._role.term:
                _log.error(
                    "another master of the name %s serves at %s, neither was promoted in the place of the other: stop "
                    "one, or give it another brokerName, or brokerRole=SLAVE and a brokerId",
                    self._live.broker.name(),
                    master,
                )

    async def _deposed_by(self, master: str) -> None:
        try:
            state = await ask(self._client, master)
            # Whoever holds the id has a higher epoch, even if it cannot be asked which.
            await self._fence(override.Fence(master, max(self._role.term + 1, epoch_of(state or {}))))
        finally:
            self._deposing = False

    async def _fence(self, fence: override.Fence) -> None:
        words = self._words(fence)
        self._role.fence(words)
        self._on_deposed()
        config = self._live.broker
        # The keys as they are: whoever changes them in broker.conf has decided.
        keys = {"brokerRole": config.brokerRole, "brokerId": str(config.brokerId)}
        epoch = self._role.term
        try:
            await asyncio.to_thread(
                lambda: override.decide(self._live, keys, why=words, epoch=epoch, fenced=fence),
            )
        except (OSError, ConfigError) as error:
            _log.error("that it was deposed cannot be kept, and may be forgotten at a restart: %s", error)

    def _words(self, fence: override.Fence) -> str:
        return (
            f"{fence.by} was promoted to master in the place of this broker (epoch {fence.epoch}, here "
            f"{self._role.term}): `raftmq cluster follow {self._address}` makes it a slave"
        )


async def members(live: LiveConfig, client: Caller) -> dict[str, dict[int, str]]:
    """Return what each NameServer that answers knows of this broker's group: brokerId → address."""
    config = live.broker
    header = GetBrokerMemberGroupRequestHeader(clusterName=config.brokerClusterName, brokerName=config.name())

    async def asked(address: str) -> tuple[str, dict[int, str]] | None:
        try:
            answer = await client.call(address, RequestCode.GET_BROKER_MEMBER_GROUP, header, timeout=PATIENCE_SECONDS)
            return address, BrokerMemberGroupBody.decode(answer.body).brokerMemberGroup.brokerAddrs
        except RemotingError as error:
            _log.debug("NameServer %s does not tell the members: %s", address, error)
            return None

    return dict(found for found in await _all(asked(each) for each in config.namesrv_addresses()) if found)


async def holders(live: LiveConfig, client: Caller, own: str) -> set[str]:
    """Return who stands as master of this broker's group at any NameServer, apart from itself."""
    known = await members(live, client)
    return {table[MASTER_ID] for table in known.values() if table.get(MASTER_ID, own) != own}


async def ask(client: Caller, address: str) -> dict[str, Any] | None:
    """Return a broker's own state (9111), {} when it lives and tells none, as RocketMQ's; None without an answer."""
    try:
        answer = await client.call(address, ClassicCode.STATUS, timeout=PATIENCE_SECONDS)
        found = orjson.loads(bytes(answer.body))
    except ResponseError:
        return {}
    except RemotingError:
        return None
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def leads(state: dict[str, Any]) -> bool:
    """Tell whether a broker of this state is a master that takes messages."""
    return state.get("role") != SLAVE and not state.get("fenced")


def epoch_of(state: dict[str, Any]) -> int:
    """Return the epoch that a broker tells, 0 when it tells none."""
    epoch = state.get("epoch")
    return epoch if isinstance(epoch, int) else 0


async def _all(asking: Iterable[Any]) -> list[Any]:
    return await asyncio.gather(*asking)
