"""What every client has in common: it is started, used and closed, best by ``async with``.

Starting and closing are tasks of their own. A start that fails or is cancelled leaves nothing behind; a close that is
cancelled goes on, and whoever calls it again waits for the same one.
"""

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from client.errors import ClientClosed, ClientError, with_public_calls

C = TypeVar("C", bound=type)


class Calling:
    """One call of the application's code by a client; `over` once it has returned."""

    __slots__ = ("client", "over")

    def __init__(self, client: object) -> None:
        self.client = client
        self.over = False


# The call of the application that the present task or thread is part of.
CALLING: ContextVar[Calling | None] = ContextVar("CALLING", default=None)


class Lifecycle(ABC):
    """``async with`` starts on entry and closes on exit. Subclasses say how in `_start` and `_close`."""

    # How error texts call the object.
    noun: ClassVar[str] = "client"

    _starting: asyncio.Task[None] | None = None
    _closing: asyncio.Task[None] | None = None
    # The loop that it was started in.
    _home: asyncio.AbstractEventLoop | None = None
    # What was begun and must be given back, whether the start went well or not.
    _undo: AsyncExitStack

    async def start(self) -> None:
        """Connect and begin. Raises ClientError when it is started already, and what hinders the start."""
        if self._closing is not None:
            raise ClientClosed(f"this {self.noun} is being closed")
        if self._starting is not None:
            raise ClientError(f"this {self.noun} is started already")
        self._undo = AsyncExitStack()
        self._home = asyncio.get_running_loop()
        starting = self._starting = asyncio.get_running_loop().create_task(self._start(), name=f"start {self.noun}")
        try:
            await asyncio.shield(starting)
        except BaseException:
            mine = asyncio.current_task()
            closed = starting.cancelled() and mine is not None and not mine.cancelling()
            await self.close()
            if closed:
                raise ClientClosed(f"this {self.noun} was closed while it started") from None
            raise

    async def close(self) -> None:
        """End in good order; nothing happens when it is not started.

        A cancelled close goes on by itself. Inside a callback of this very client it begins to close and returns: it
        cannot end before the callback has.
        """
        if self._starting is None:
            return
        self._check_home()
        inside = self._inside_callback()
        if self._closing is None:
            work = self._close_whole(end_start=not inside)
            self._closing = asyncio.get_running_loop().create_task(work, name=f"close {self.noun}")
        if not inside:
            await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._left_well()
        await self.close()

    def _left_well(self) -> None:  # noqa: B027 # most have nothing to note
        """Take note that a block of ``async with`` ended without an exception; the close follows."""

    @abstractmethod
    async def _start(self) -> None:
        """Connect and begin; what is begun is noted in `_undo`."""

    @abstractmethod
    async def _close(self) -> None:
        """End in good order, however far the start had come; what `_undo` holds is given back after it."""

    def _check_home(self) -> None:
        """Raise ClientClosed before the start, ClientError outside the loop that this was started in."""
        if asyncio.get_running_loop() is not self._home:
            raise self._elsewhere()

    def _check_loop(self) -> None:
        """Raise ClientError outside the loop that this was started in; before the start every loop will do."""
        if self._home is not None:
            self._check_home()

    def _elsewhere(self) -> ClientError:
        if self._home is None:
            return ClientClosed(f"this {self.noun} is not started, or was closed")
        return ClientError(
            f"this {self.noun} was started in another event loop and can be used there only; raftmq.sync has objects "
            f"that may be used from any thread"
        )

    def _inside_callback(self) -> bool:
        calling = CALLING.get()
        return calling is not None and calling.client is self and not calling.over

    async def _close_whole(self, *, end_start: bool) -> None:
        try:
            starting = self._starting
            if starting is not None and not starting.done():
                # A callback that closes may run before the start has ended, which then went well all the same.
                if end_start:
                    starting.cancel()
                await asyncio.wait([starting])
            try:
                await self._close()
            finally:
                await self._undo.aclose()
        finally:
            self._starting = self._closing = self._home = None


def used_at_home(kind: C) -> C:
    """Have the public coroutines and generators of a client refuse every loop but the one that it was started in."""
    return with_public_calls(kind, _at_home, _generating_at_home)


def _at_home(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(method)
    async def call(self: Lifecycle, *args: Any, **kwargs: Any) -> Any:
        self._check_loop()
        return await method(self, *args, **kwargs)

    return call


def _generating_at_home(method: Callable[..., AsyncGenerator[Any]]) -> Callable[..., AsyncGenerator[Any]]:
    @functools.wraps(method)
    async def call(self: Lifecycle, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        self._check_loop()
        async with aclosing(method(self, *args, **kwargs)) as work:
            async for each in work:
                yield each

    return call
