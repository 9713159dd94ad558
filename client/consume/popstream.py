"""Messages one after the other, received a little ahead of who works through them."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any

from client.consume.popped import PoppedMessage
from client.errors import ClientClosed, ClientError, RouteError
from client.retry import until_done
from remoting.errors import InvokeError

_log = logging.getLogger(__name__)

# After an error that may pass, in seconds; and how long giving messages back may take.
PAUSE_S = 0.5
GIVE_BACK_S = 2.0

Receive = Callable[[int], Coroutine[Any, Any, list[PoppedMessage]]]


class MessageStream:
    """One loop over a consumer's messages; stands in `streams` as long as it lasts.

    A message whose time is over while it waits here is not handed out: its broker gives it to somebody again.
    """

    def __init__(
        self,
        receive: Receive,
        most: int,
        goes_on: Callable[[], bool],
        streams: "set[MessageStream]",
        left: "Callable[[list[PoppedMessage]], None]",
        handed_out: "Callable[[list[PoppedMessage]], None]",
    ) -> None:
        """`receive` is asked for up to `most` ahead while `goes_on()`; `left` gets what nobody has taken.

        `handed_out` is told of each message that is about to be.
        """
        self._receive = receive
        self._most = most
        self._goes_on = goes_on
        self._streams = streams
        self._left = left
        self._handed_out = handed_out
        self._buffer: deque[PoppedMessage] = deque()
        self._fetching: asyncio.Task[list[PoppedMessage]] | None = None

    async def messages(self) -> AsyncGenerator[PoppedMessage]:
        """Yield one after the other."""
        self._streams.add(self)
        try:
            while self._goes_on():
                if self._fetching is None and len(self._buffer) <= self._most // 2:
                    self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name="receive ahead")
                if not self._buffer and self._fetching is not None:
                    await asyncio.wait([self._fetching])
                self._look()
                if self._buffer and (message := self._buffer.popleft()).expires_at > time.monotonic():
                    self._handed_out([message])
                    yield message
        finally:
            self._streams.discard(self)
            if self._fetching is not None:
                self._fetching.cancel()
            if rest := self.take_rest():
                self._left(rest)

    def take_rest(self) -> list[PoppedMessage]:
        """Take what was received and not handed out."""
        try:
            self._look()
        except Exception:
            _log.info("receiving ahead had failed", exc_info=True)
        rest = list(self._buffer)
        self._buffer.clear()
        return rest

    def _look(self) -> None:
        """Take what was fetched; raises what became of it."""
        fetching = self._fetching
        if fetching is not None and fetching.done():
            self._fetching = None
            if not fetching.cancelled():
                self._buffer += fetching.result()

    async def _fetch(self) -> list[PoppedMessage]:
        try:
            return await self._received()
        except (RouteError, InvokeError) as error:
            return await until_done(self._received, error, _told, again=_passes)

    async def _received(self) -> list[PoppedMessage]:
        if not self._goes_on():
            return []
        try:
            return await self._receive(self._most - len(self._buffer))
        except ClientClosed:
            return []


def _passes(error: BaseException) -> bool:
    return isinstance(error, RouteError) or (isinstance(error, InvokeError) and error.retriable)


async def _told(error: Exception, _failures: int) -> float:
    _log.warning("nothing can be received now: %s", error)
    return PAUSE_S


async def give_back(messages: Iterable[PoppedMessage]) -> None:
    """Let others have messages at once; those that cannot be given back come again when their time is over."""

    async def one(message: PoppedMessage) -> None:
        try:
            await message.change_invisible(0.0, timeout=GIVE_BACK_S)
        except ClientError as error:
            _log.info("message %s comes again only when its time is over: %s", message.msg_id, error)

    await asyncio.gather(*(one(message) for message in messages))
