"""The orders of a conversion (broker/master_slave/to_raft.py): their bodies, and how one is carried out."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from broker.settings.restart import RestartAction
from remoting.codes import ResponseCode
from remoting.command import Command
from remoting.errors import CommandError
from remoting.fastjson import read_strictly
from runtime.config import ConfigError

_log = logging.getLogger(__name__)

BODY_BYTES_MAX = 16 * 1024
# Seconds between an answer and the restart that it announces: it must reach the asker first.
RESTART_PAUSE_SECONDS = 0.1

T = TypeVar("T")


class ToRaft(msgspec.Struct, frozen=True):
    """The body of TO_RAFT."""

    peers: str
    """dLegerPeers of the group."""
    member: str = msgspec.field(name="self")
    """dLegerSelfId of the broker that is asked: "n" and its brokerId."""
    leader: str = ""
    """For a slave: where the founder takes clients' requests."""
    check: bool = False
    """Tell only whether it could be done."""


class ToClassic(msgspec.Struct, frozen=True, rename="camel"):
    """The body of TO_CLASSIC."""

    role: str
    broker_id: int
    master: str = ""
    """For a slave: where the master takes clients' requests."""
    check: bool = False
    """Tell only whether this broker could start so."""


class ConversionOrders:
    """What both conversions have in common: one at a time, carried out to its end whoever still waits for it."""

    def __init__(self, restart: Callable[[RestartAction], None]) -> None:
        self._restart = restart
        self._running: asyncio.Task[Any] | None = None

    async def close(self) -> None:
        """Give up what is under way."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait((self._running,))

    async def carry_out(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an order to its end. Raises CommandError."""
        if self._running is not None and not self._running.done():
            raise not_done("another conversion is being carried out: try again")
        # Not the asker's task: a connection that ends must not leave a master behind that takes nothing.
        running = self._running = asyncio.get_running_loop().create_task(work(), name="conversion")
        try:
            return await asyncio.shield(running)
        except (ConfigError, OSError) as error:
            raise not_done(str(error)) from None

    def again(self, why: str) -> None:
        """Have the broker start again as what was decided, once the answer is on its way."""
        _log.warning("%s", why)
        asyncio.get_running_loop().call_later(RESTART_PAUSE_SECONDS, self._restart, RestartAction(why))


def decoded(request: Command, kind: type[T]) -> T:
    """Return a request's JSON body; raises CommandError."""
    body = bytes(request.body[: BODY_BYTES_MAX + 1])
    if len(body) > BODY_BYTES_MAX:
        raise invalid(f"the body takes at most {BODY_BYTES_MAX} bytes")
    try:
        return read_strictly(body or b"{}", kind)
    except msgspec.DecodeError as error:
        raise invalid(f"the body is not what is due: {error}") from None


def invalid(why: str) -> CommandError:
    """Return the refusal of what was asked for wrongly."""
    return CommandError(ResponseCode.INVALID_PARAMETER, why)


def not_done(why: str) -> CommandError:
    """Return the refusal of what cannot be done now; nothing has changed."""
    return CommandError(ResponseCode.SYSTEM_ERROR, f"not converted: {why}")
