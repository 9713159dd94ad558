"""A reply whose client the leader does not know: another member may, and pushes it.

Clients look at routes every 30 s only. Whoever asked before a failover sends its heartbeats to the member that led, and
is known there alone, while replies come to the new leader. So that one asks the others, one after the other, by the
request that clients get (326): a member passes it on to a client of its own, never to another member.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.errors import InvokeError, RemotingError
from remoting.headers.registry import ReplyMessageRequestHeader
from remoting.properties import PROPERTY_REPLY_TO_CLIENT, decode_properties
from remoting.refusal import unsupported
from remoting.server import Connection, Handler
from remoting.signing import SIGNED_FIELDS
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# Seconds that a member has for all of it: its client's word too.
RELAY_SECONDS = 10.0


class Invoking(Protocol):
    """What is needed of the client that asks other members."""

    async def invoke(self, address: str, request: Command, timeout: float = 3.0) -> Command:
        """Send a request and return the answer, whatever its code. Raises InvokeError."""
        ...


class ReplyRelay:
    """Asks the other members to push a reply, and pushes what they ask for."""

    def __init__(
        self,
        client: Invoking,
        others: Callable[[], Iterable[str]],
        reach: Callable[[str], object | None],
        from_member: Callable[[Connection], bool],
    ) -> None:
        """`others` are the addresses of the other members; `reach` finds the connection of a client that is here."""
        self._client = client
        self._others = others
        self._reach = reach
        self._from_member = from_member
        self._tasks = Tasks("reply relay")

    def table(self) -> dict[int, Handler]:
        """Return the handler of what members ask."""
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.push}

    def relay(self, request: Command) -> "asyncio.Future[Command | None]":
        """Have another member push a reply; gives its client's answer, None when the client is nowhere."""
        told: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()
        task = self._tasks.spawn(self._relayed(request, told), "relay of a reply")
        # One that is cancelled, before its first step even, leaves nobody waiting.
        task.add_done_callback(lambda _: told.cancel())
        return told

    def push(self, connection: Connection, request: Command) -> Command | None:
        """Push a reply that another member has (326); QUERY_NOT_FOUND when its client is not here."""
        if not self._from_member(connection):
            return unsupported(request)
        properties = request.header(ReplyMessageRequestHeader).properties or ""
        client = self._reach(decode_properties(properties.encode()).get(PROPERTY_REPLY_TO_CLIENT, ""))
        if client is None:
            return Command.response(ResponseCode.QUERY_NOT_FOUND)
        # Without the other member's signature: a client could use it again.
        ext = {name: value for name, value in request.ext.items() if name not in SIGNED_FIELDS}
        onwards = Command.request(request.code, None, request.body, ext=ext)
        try:
            answer = cast(Connection, client).submit(onwards, RELAY_SECONDS)
        except RemotingError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
        answer.add_done_callback(lambda done: _pass_back(connection, request, done))
        return None

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tasks.close()

    async def _relayed(self, request: Command, told: "asyncio.Future[Command | None]") -> None:
        try:
            told.set_result(await self._asked(request))
        except RemotingError as error:
            told.set_exception(error)

    async def _asked(self, request: Command) -> Command | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RELAY_SECONDS
        for address in self._others():
            again = Command.request(request.code, None, request.body, ext=dict(request.ext))
            try:
                answer = await self._client.invoke(address, again, max(deadline - loop.time(), 0.001))
            except InvokeError as error:
                if error.sent:
                    # Its client may have it.
                    raise
                _log.debug("%s cannot be asked to push a reply: %s", address, error)
                continue
            if answer.code not in {ResponseCode.QUERY_NOT_FOUND, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}:
                return answer
        return None


def _pass_back(connection: Connection, request: Command, done: "asyncio.Future[Command]") -> None:
    error = InvokeError("this broker stops") if done.cancelled() else done.exception()
    if error is None:
        answer = done.result()
        told = Command.response(answer.code, answer.remark)
    else:
        told = Command.response(ResponseCode.SYSTEM_ERROR, str(error))
    connection.reply(request, told)
