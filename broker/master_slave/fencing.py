"""Keeping a deposed master from taking messages (rule R15), and finding out who else is a master.

A promotion raises the epoch. NameServers then refuse brokerId 0 to a master of a lower one, and ours name the one that
holds it, or held it last, in their answer; RocketMQ's say nothing, so they are asked who holds it (901): before this
broker serves, and every registerNameServerPeriod. Ours also tell the highest epoch that the name ever had (9121), whose
holder may be down by now; and the promoted one itself tells whom it deposed (9119, broker/master_slave/deposing.py).

Whoever reaches a NameServer can register as anybody. So what is said of a promotion is asked of the promoted one, at
its own address (9111), and only its own answer fences this master for good: it takes nothing and registers nowhere,
over restarts too (broker/settings/decision.py), until a person makes it a slave or promotes it again. With haSecretFile
its answer must prove that it knows the secret (broker/settings/pair_proof.py); one that does not counts as none. While
that one does not answer:

- it was a slave of this master (broker/master_slave/known_slaves.py): it may well have been promoted. This master takes
  nothing until it answers, or a person decides; not for good, and asked again every second;
- it was not: nothing of this master's log can be there. This master goes on, and says so in its log and every status.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeGuard

import msgspec

from broker.master_slave.known_slaves import KnownSlaves
from broker.peers import Caller, ask, epoch_of, group_known, holders, leads, promoting_to
from broker.reply import ok
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from broker.settings.pair_proof import PairProof
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
# Seconds between two questions to a slave that may have been promoted, and does not answer.
SUSPECT_SECONDS = 1.0
# Seconds that a pull is parked at most while this broker is fenced: no message comes, and the route changes soon.
WAKE_SECONDS = 0.5
# Seconds between two times that the log says what cannot be believed.
DOUBTS_SECONDS = 60.0
# Brokers that are asked at a time whether they were promoted as they told; strangers may tell so of anybody.
ASKED_BACK_MAX = 4
UNPROVED = "does not prove that it knows the secret of haSecretFile"


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

    @property
    def suspect(self) -> override.Fence | None:
        """Who keeps it from taking anything and has not said so himself."""
        ...

    def fence(self, why: str, suspect: override.Fence | None = None) -> None:
        """Take nothing more."""
        ...

    def unfence(self) -> None:
        """Take messages again."""
        ...

    def hold(self, why: str | None) -> None:
        """Take nothing yet; None: begin."""
        ...


class Deposed(msgspec.Struct, frozen=True):
    """The body of DEPOSED."""

    broker: str
    by: str
    epoch: int


class HandOver(NamedTuple):
    """What a deposed master still does for the one that was promoted."""

    settle: Callable[[], Awaitable[None]]
    """Returns when the slaves have what was taken, or after a moment: whoever was promoted is one of them."""
    locks: Callable[[], bytes]
    """Returns the queue locks for that one; called when none is granted any more."""
    wake: Callable[[], None]
    """Answers every parked pull."""


class Fencing:
    """Fences a master that was deposed; see the module."""

    def __init__(
        self,
        live: LiveConfig,
        role: FencedRole,
        client: Caller,
        address: str,
        on_deposed: Callable[[], None],
        hand_over: "HandOver",
        proof: PairProof,
    ) -> None:
        """`address` is this broker's own; `on_deposed` is called when it is fenced; `proof` tells whom it believes."""
        self._live = live
        self._role = role
        self._client = client
        self._address = address
        self._on_deposed = on_deposed
        self._hand_over = hand_over
        self._proof = proof
        self._tasks = Tasks("fencing")
        self._loop = asyncio.get_running_loop()
        self.slaves = KnownSlaves(live.store.root)
        self._deposing = False
        # Other masters of this name that serve and are not above this one: NameServers name one of all at a time.
        self._rivals: set[str] = set()
        # Who is said to be above this one, and does not say so: address → epoch and what it said.
        self._doubts: dict[str, tuple[int, str]] = {}
        self._doubts_said_at = float("-inf")
        self._asking_back = 0

    async def start(self) -> None:
        """Return when it is known whether this broker may serve as a master. Raises ConfigError, OSError."""
        await asyncio.to_thread(self.slaves.load)
        decided = await asyncio.to_thread(override.read, self._live.store.root)
        if decided is not None and decided.fenced is not None:
            self._role.fence(self._words(decided.fenced))
            self._on_deposed()
        else:
            await self.look()
        self._tasks.every(self._live.broker.register_period(), self.look, "look for another master")
        self._tasks.every(SUSPECT_SECONDS, self._ask_suspect, "ask who may have been promoted")
        self._tasks.every(WAKE_SECONDS, self._wake_readers, "have who reads here look at the route")

    async def close(self) -> None:
        """End looking."""
        await self._tasks.close()
        await self.slaves.close()

    def heard(self, master: str | None) -> None:
        """Take note of what a NameServer answered to this master's registration: the address of one in its place."""
        if master and master != self._address and self._role.fenced is None and not self._deposing:
            self._deposing = True
            self._tasks.spawn(self._deposed_by(master), "deposed")

    async def look(self) -> None:
        """Ask whoever NameServers know, or knew, as another master of this name; fence this one when it is above."""
        await self._look({})

    async def _look(self, named: dict[str, int]) -> None:
        """Look; `named`: who is said to be above this one already, with the epoch."""
        if self._fenced_for_good:
            return
        known = await group_known(self._live, self._client)
        above = dict(named)
        for told in known:
            holder, epoch = told.remembered.holder, told.remembered.epoch
            if holder not in ("", self._address) and epoch > self._role.term:
                above[holder] = max(epoch, above.get(holder, 0))
        others = {*holders((told.members for told in known), self._address), *self._rivals}
        if known:
            # Whom no NameServer names any more is no longer said to be above this one.
            self._doubts = {address: doubt for address, doubt in self._doubts.items() if address in above}
        for master in sorted({*above, *others}):
            await self.met(master, above.get(master, 0))
        self._say_doubts()

    def warnings(self) -> list[str]:
        """Return, for people who must end it, which other masters of this name serve, or are said to."""
        return [*map(self._rival_words, sorted(self._rivals)), *map(self._doubt_words, sorted(self._doubts))]

    @property
    def _fenced_for_good(self) -> bool:
        return self._role.fenced is not None and self._role.suspect is None

    def _rival_words(self, master: str) -> str:
        return (
            f"another master of the name {self._live.broker.name()} serves at {master}, neither was promoted in the "
            "place of the other: stop one, or give it another brokerName, or brokerRole=SLAVE and a brokerId"
        )

    def _doubt_words(self, master: str) -> str:
        epoch, answer = self._doubts[master]
        name = self._live.broker.name()
        return (
            f"a NameServer names {master} as the master of {name} (epoch {epoch}, here {self._role.term}), which "
            f"{answer}: this broker goes on taking messages, but routes may lead elsewhere. If nobody was promoted, "
            f"somebody registers who should not: stop it, then `raftmq cluster forget {name}`"
        )

    def _say_doubts(self) -> None:
        now = self._loop.time()
        if self._doubts and now - self._doubts_said_at >= DOUBTS_SECONDS:
            self._doubts_said_at = now
            for words in map(self._doubt_words, sorted(self._doubts)):
                _log.error("%s", words)

    async def met(self, master: str, said: int = 0) -> None:
        """Ask another broker that stands, or stood, as the master, by somebody's word with the epoch `said`.

        Fence this one when the other says itself that it is above; see the module for one that does not answer.
        """
        if self._fenced_for_good:
            return
        state, proved = await self._asked(master)
        self._rivals.discard(master)
        self._doubts.pop(master, None)
        claimed = epoch_of(state) if self._speaks_for_name(state) and leads(state) else -1
        if proved and claimed > self._role.term:
            await self._fence(override.Fence(master, claimed))
            return
        if claimed == self._role.term:
            self._rivals.add(master)
            _log.error("%s", self._rival_words(master))
        elif max(said, claimed) > self._role.term:
            self._doubt(override.Fence(master, max(said, claimed)), state, proved=proved)
        suspect = self._role.suspect
        if suspect is not None and suspect.by == master and proved and state is not None and not state.get("fenced"):
            # Nobody was promoted there. Of a deposed one it is not known who was promoted after it.
            self._role.unfence()

    async def _asked(self, address: str) -> tuple[dict[str, Any] | None, bool]:
        """Return a broker's own state, as ask() does, and whether it is to be believed: without an answer it is not."""
        body, nonce = self._proof.question()
        state = await ask(self._client, address, body)
        return state, state is not None and self._proof.proves(nonce, state)

    def _speaks_for_name(self, state: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
        name = self._live.broker.name()
        return bool(state) and state is not None and state.get("broker", name) == name

    def _doubt(self, said: override.Fence, state: dict[str, Any] | None, *, proved: bool) -> None:
        if self._fenced_for_good:
            return
        how = "does not answer" if state is None else UNPROVED
        if not proved and said.by in self.slaves:
            self._role.fence(self._suspect_words(said, how), suspect=said)
            return
        answer = "does not say so itself" if proved else f"{how} and never was a slave of this broker"
        self._doubts[said.by] = said.epoch, answer

    def _suspect_words(self, said: override.Fence, how: str) -> str:
        return (
            f"{said.by} was promoted to master in the place of this broker (epoch {said.epoch}, here "
            f"{self._role.term}), as somebody says, and {how}: start it, or, should it be lost, "
            f"`raftmq cluster promote {self._live.broker.name()} --at {self._address}`"
        )

    async def _ask_suspect(self) -> None:
        """Ask again whoever keeps this master from taking anything."""
        if (suspect := self._role.suspect) is not None:
            await self.met(suspect.by, suspect.epoch)

    async def _wake_readers(self) -> None:
        """Let nobody wait here for messages that come to another broker by now: who asks again goes by the route."""
        if self._role.fenced is not None:
            self._hand_over.wake()

    async def deposed(self, _connection: Connection, request: Command) -> Command:
        """9119: another one was promoted in the place of this master. Answered when that is certain to be kept."""
        told = deposed_body(request, self._live.broker.name())
        if told.by == self._address:
            raise CommandError(ResponseCode.INVALID_PARAMETER, "a broker is not deposed by itself")
        if told.epoch <= self._role.term:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"this master's epoch is {self._role.term}, not below {told.epoch}"
            )
        await self._ask_back(told)
        await self._fence(override.Fence(told.by, told.epoch), settle=True, must_keep=True)
        return ok(body=self._hand_over.locks())

    async def _ask_back(self, told: Deposed) -> None:
        """Return when the promoted one says, asked at its own address, what was told. Raises CommandError."""
        if self._asking_back >= ASKED_BACK_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "others tell of promotions, and are asked back: try again")
        self._asking_back += 1
        try:
            state, proved = await self._asked(told.by)
        finally:
            self._asking_back -= 1
        how = "does not answer" if state is None else "does not say itself"
        if self._speaks_for_name(state):
            epoch = max(epoch_of(state) if leads(state) else 0, promoting_to(state))
            if epoch >= told.epoch and proved:
                return
            if epoch >= told.epoch:
                how = f"{UNPROVED}, so it is not believed"
                self._doubt(override.Fence(told.by, told.epoch), state, proved=False)
        raise CommandError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"{told.by} {how} that it was promoted (epoch {told.epoch}): only its own word deposes a master; try again",
        )

    async def _deposed_by(self, master: str) -> None:
        try:
            # Whoever holds the id has a higher epoch.
            await self._look({master: self._role.term + 1})
        finally:
            self._deposing = False

    async def _fence(self, fence: override.Fence, *, settle: bool = False, must_keep: bool = False) -> None:
        """Take nothing more. Raises CommandError when that `must_keep` and cannot be written down."""
        words = self._words(fence)
        self._role.fence(words)
        if settle:
            await self._hand_over.settle()
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
