"""A promoted master tells the ones in whose place it stands, until each has been told (rule R15).

NameServers fence a deposed master, but they are memory, and may have been restarted while the promoted one was away.
So who was promoted, and knows the address of a master before it, tells that one itself (9119): in the promotion, when
it is alive, so that it takes nothing more before the new one takes anything; at each start, before it serves; and from
then on every TELL_SECONDS, for the old one may be down for days. The old one asks back at the address that it is told
(broker/master_slave/fencing.py): so at a start this broker listens first, and holds back until everybody who answers
was told. Whom it has still to tell stands in the decision (broker/settings/decision.py) and outlives restarts; a later
decision about this broker ends it.

Told is who says that it takes nothing more, or answers that it is no master of this name at all.
"""

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable

import orjson

from broker.master_slave.fencing import FencedRole
from broker.peers import PATIENCE_SECONDS, Caller
from broker.settings import decision as override
from broker.settings.config import LiveConfig
from remoting.codes import ClassicCode, ResponseCode
from remoting.errors import RemotingError, ResponseError
from runtime.config import ConfigError
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# Seconds between two attempts: how long an old master may take messages at most when nobody else can tell it.
TELL_SECONDS = 1.0
# Answers of a broker that is coming or going, or has too much to do.
_LATER = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


class Outcome(enum.Enum):
    """What came of telling a master that it was deposed."""

    TOLD = enum.auto()
    """It takes nothing more, or is a slave."""
    REFUSED = enum.auto()
    """It answers, and is no master that this one could depose: another name's, RocketMQ's, or of a higher epoch."""
    AWAY = enum.auto()
    """It does not answer, or cannot yet."""


async def tell(client: Caller, address: str, *, name: str, by: str, epoch: int) -> tuple[Outcome, bytes]:
    """Tell a master of a name that the one at `by` was promoted in its place, with this epoch.

    Returns with the outcome which queue locks it hands over (broker/metadata/agreed_locks.py); b"" when it hands none.
    """
    body = orjson.dumps({"broker": name, "by": by, "epoch": epoch})
    try:
        answer = await client.call(address, ClassicCode.DEPOSED, body=body, timeout=PATIENCE_SECONDS)
    except ResponseError as error:
        if error.code in _LATER:
            return Outcome.AWAY, b""
        _log.warning("%s does not take that it was deposed: %s", address, error.remark)
        return Outcome.REFUSED, b""
    except RemotingError as error:
        _log.debug("%s cannot be told that it was deposed: %s", address, error)
        return Outcome.AWAY, b""
    _log.warning("%s knows that it was deposed, and takes nothing more", address)
    return Outcome.TOLD, bytes(answer.body)


class Deposing:
    """Tells whom the decision names; see the module."""

    def __init__(
        self,
        live: LiveConfig,
        role: FencedRole,
        client: Caller,
        address: str,
        met: Callable[[str], Awaitable[None]],
    ) -> None:
        """`address` is this broker's own; `met` is called with one that refuses: it may be the one who is in force."""
        self._live = live
        self._role = role
        self._client = client
        self._address = address
        self._met = met
        self._left: tuple[str, ...] = ()
        self._tasks = Tasks("deposing")

    @property
    def left(self) -> tuple[str, ...]:
        """Who is still to be told."""
        return self._left

    async def prepare(self) -> None:
        """Have this broker take nothing before open(), when there is somebody to tell. Raises ConfigError, OSError."""
        decided = await asyncio.to_thread(override.read, self._live.store.root)
        self._left = () if decided is None else decided.deposes
        if self._left:
            self._role.hold(f"first it tells {', '.join(self._left)} that it was promoted")

    async def open(self) -> None:
        """Tell everybody once, now that this broker can be asked; and those who do not answer again and again."""
        if self._left:
            try:
                await self.tell_all()
            finally:
                self._role.hold(None)
        if self._left:
            _log.warning(
                "%s cannot be told that this broker was promoted in its place: it is tried again every %g s",
                ", ".join(self._left),
                TELL_SECONDS,
            )
            self._tasks.every(TELL_SECONDS, self.tell_all, "tell who was deposed")

    async def close(self) -> None:
        """End telling."""
        await self._tasks.close()

    async def tell_all(self) -> None:
        """Tell everybody who is left."""
        if self._left and self._role.fenced is None:
            await asyncio.gather(*(self._tell(each) for each in self._left))

    async def _tell(self, address: str) -> None:
        name = self._live.broker.name()
        outcome, _locks = await tell(self._client, address, name=name, by=self._address, epoch=self._role.term)
        if outcome is Outcome.AWAY:
            return
        if outcome is Outcome.REFUSED:
            await self._met(address)
        try:
            # When somebody has been fenced, the decision that says so has taken the place of the one that names whom to
            # tell.
            if self._role.fenced is None:
                await asyncio.to_thread(override.told, self._live.store.root, address)
        except (OSError, ConfigError) as error:
            # It is told once more after the next start, which changes nothing.
            _log.warning("that %s was told cannot be kept: %s", address, error)
        # Last, so that whoever is named nowhere any more has been told for good.
        self._left = tuple(each for each in self._left if each != address)
