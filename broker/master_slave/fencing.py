"""Keeping a deposed master from taking messages (rule R15), and finding out who else is a master.

A promotion raises the epoch. NameServers then refuse brokerId 0 to a master of a lower one, and ours name the one that
holds it, or held it last, in their answer; RocketMQ's say nothing, so they are asked who holds it (901): before this
broker serves, and every registerNameServerPeriod. Ours also tell the highest epoch that the name ever had (9121), whose
holder may be down by now; and the promoted one itself tells whom it deposed (9119, broker/master_slave/deposing.py). A
master that finds one of a higher epoch is fenced for good: it takes nothing and registers nowhere, over restarts too
(broker/settings/decision.py), until a person makes it a slave or promotes it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from broker.peers import Caller, Remembered, ask, epoch_of, group_known, holders, leads
from broker.reply import ok
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.fastjson import read_strictly
from remoting.server import Connection
from runtime.config import ConfigError
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# An epoch is one more than the one before: nobody comes to this one, and one more than it is still a Java long.
EPOCH_MAX = 1 << 62
# Bytes of a body of ours.
BODY_BYTES_MAX = 4096


class FencedRole(Protocol):
    """What is needed of broker/master_slave/role.py."""

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


class Deposed(msgspec.Struct, frozen=True):
    """The body of DEPOSED."""

    broker: str
    by: str
    epoch: int


class Fencing:
    """Fences a master that was deposed; see the module."""

    def __init__(
        self,
        live: LiveConfig,
        role: FencedRole,
        client: Caller,
        address: str,
        on_deposed: Callable[[], None],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """`address` is this broker's own; `on_deposed` is called when it is fenced.

        `settle` returns when the slaves have what was taken, or after a moment: whoever was promoted is one of them.
        """
        self._live = live
        self._role = role
        self._client = client
        self._address = address
        self._on_deposed = on_deposed
        self._settle = settle
        self._tasks = Tasks("fencing")
        self._deposing = False
        # Other masters of this name that serve and are not above this one: NameServers name one of all at a time.
        self._rivals: set[str] = set()

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
        """Fence this master when a NameServer knows, or knew, another one of a higher epoch."""
        if self._role.fenced is not None:
            return
        known = await group_known(self._live, self._client)
        above = [told.remembered for told in known if told.remembered.holder not in ("", self._address)]
        highest = max(above, key=lambda each: each.epoch, default=Remembered())
        if highest.epoch > self._role.term:
            await self._fence(override.Fence(highest.holder, highest.epoch))
            return
        for master in sorted({*holders((told.members for told in known), self._address), *self._rivals}):
            await self.met(master)

    def warnings(self) -> list[str]:
        """Return, for people who must end it, which other masters of this name serve."""
        return [self._rival_words(master) for master in sorted(self._rivals)]

    def _rival_words(self, master: str) -> str:
        return (
            f"another master of the name {self._live.broker.name()} serves at {master}, neither was promoted in the "
            "place of the other: stop one, or give it another brokerName, or brokerRole=SLAVE and a brokerId"
        )

    async def met(self, master: str) -> None:
        """Look at another broker that stands, or stood, as the master: fence this one when the other's epoch counts."""
        if self._role.fenced is not None:
            return
        state = await ask(self._client, master)
        self._rivals.discard(master)
        if not state or not leads(state) or state.get("broker", self._live.broker.name()) != self._live.broker.name():
            return
        if (epoch := epoch_of(state)) > self._role.term:
            await self._fence(override.Fence(master, epoch))
        elif epoch == self._role.term:
            self._rivals.add(master)
            _log.error("%s", self._rival_words(master))

    async def deposed(self, _connection: Connection, request: Command) -> Command:
        """9119: another one was promoted in the place of this master. Answered when that is certain to be kept."""
        told = deposed_body(request, self._live.broker.name())
        if told.by == self._address:
            raise CommandError(ResponseCode.INVALID_PARAMETER, "a broker is not deposed by itself")
        if told.epoch <= self._role.term:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"this master's epoch is {self._role.term}, not below {told.epoch}"
            )
        await self._fence(override.Fence(told.by, told.epoch), settle=True, must_keep=True)
        return ok()

    async def _deposed_by(self, master: str) -> None:
        try:
            await self.look()
            if self._role.fenced is None:
                # Whoever holds the id has a higher epoch, even if nobody can be asked which.
                state = await ask(self._client, master)
                await self._fence(override.Fence(master, max(self._role.term + 1, epoch_of(state or {}))))
        finally:
            self._deposing = False

    async def _fence(self, fence: override.Fence, *, settle: bool = False, must_keep: bool = False) -> None:
        """Take nothing more. Raises CommandError when that `must_keep` and cannot be written down."""
        words = self._words(fence)
        self._role.fence(words)
        if settle:
            await self._settle()
        self._on_deposed()
        config = self._live.broker
        # The keys as they are: whoever changes them in broker.conf has decided.
        keys = {"brokerRole": config.brokerRole, "brokerId": str(config.brokerId)}
        epoch = self._role.term
        try:
            await asyncio.to_thread(
                lambda: override.decide(self._live, keys, why=words, epoch=epoch, fenced=fence),
            )
        except override.Overtaken as error:
            # What was decided is to stay: as `cluster follow`, whose broker takes nothing anyway.
            _log.info("that it was deposed is not written down: %s", error)
            if must_keep:
                raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, f"{error}: try again") from None
        except (OSError, ConfigError) as error:
            _log.error("that it was deposed cannot be kept, and may be forgotten at a restart: %s", error)
            if must_keep:
                # Who told it tries again.
                raise CommandError(
                    ResponseCode.SERVICE_NOT_AVAILABLE, f"that this master was deposed cannot be kept: {error}"
                ) from None

    def _words(self, fence: override.Fence) -> str:
        return (
            f"{fence.by} was promoted to master in the place of this broker (epoch {fence.epoch}, here "
            f"{self._role.term}): `raftmq cluster follow {self._address}` makes it a slave"
        )


def deposed_body(request: Command, name: str) -> Deposed:
    """Return what a broker of this name was told by DEPOSED. Raises CommandError."""
    try:
        if len(request.body) > BODY_BYTES_MAX:
            raise msgspec.ValidationError(f"more than {BODY_BYTES_MAX} bytes")
        told = read_strictly(request.body, Deposed)
    except msgspec.DecodeError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body is not what is due: {error}") from None
    if told.broker != name:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"this is a broker of the name {name}, not {told.broker}")
    if not told.by or not 0 < told.epoch < EPOCH_MAX:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"by={told.by!r} epoch={told.epoch}: no promotion is so")
    return told
