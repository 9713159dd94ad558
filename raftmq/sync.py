"""The client library without asyncio: the same classes, whose methods block.

Behind them runs one event loop in one thread, started with the first object that is started and stopped with the last
that is closed. A class here is the asynchronous one looked at through that thread: arguments, results and errors are
documented there. Objects may be used from several threads.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

from client.admin import AdminClient as AsyncAdminClient
from client.errors import ClientClosed
from client.litepull import LitePullConsumer as AsyncLitePullConsumer
from client.message import SendResult
from client.producer import Producer as AsyncProducer
from client.push import PushConsumer as AsyncPushConsumer
from runtime.loop import run


class _Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


class _LoopThread:
    """An event loop in a thread, as long as somebody uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                ready = threading.Event()
                self._thread = threading.Thread(target=lambda: run(self._main(ready)), name="raftmq", daemon=True)
                self._thread.start()
                ready.wait()

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                assert self._loop is not None
                assert self._stop is not None
                assert self._thread is not None
                self._loop.call_soon_threadsafe(self._stop.set)
                self._thread.join()
                self._loop = None

    def submit(self, act: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Call `act` in the loop, await what it returns if that can be awaited."""
        loop = self._loop
        if loop is None:
            raise ClientClosed("this object is not started, or was closed")
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call inside the client's own loop would wait for itself: use the async class"
            )

        async def go() -> Any:
            answer = act()
            return await answer if inspect.isawaitable(answer) else answer

        return asyncio.run_coroutine_threadsafe(go(), loop)

    async def _main(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        ready.set()
        await self._stop.wait()


_shared = _LoopThread()


class _Blocking:
    """An asynchronous object whose methods are called in the shared loop; before `start`, directly."""

    kind: ClassVar[Callable[..., _Startable]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._inner = self.kind(*args, **kwargs)
        self._started = False

    def start(self) -> None:
        """Start the object."""
        _shared.enter()
        try:
            _shared.submit(self._inner.start).result()
        except BaseException:
            _shared.leave()
            raise
        self._started = True

    def close(self) -> None:
        """Close the object; nothing happens when it is not started."""
        if self._started:
            self._started = False
            try:
                _shared.submit(self._inner.close).result()
            finally:
                _shared.leave()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        member = getattr(self._inner, name)
        if not callable(member):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._started:
                if inspect.iscoroutinefunction(member):
                    raise ClientClosed(f"{type(self).__name__} is not started, or was closed")
                return member(*args, **kwargs)
            return _shared.submit(lambda: member(*args, **kwargs)).result()

        return call


class Producer(_Blocking):
    """client.producer.Producer, blocking."""

    kind = AsyncProducer

    def send_async(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future[SendResult]:
        """Send without waiting for the answer; the future is one of concurrent.futures."""
        if not self._started:
            raise ClientClosed("this producer is not started, or was closed")
        producer = self._inner
        assert isinstance(producer, AsyncProducer)
        return _shared.submit(lambda: producer.send_async(*args, **kwargs))


class PushConsumer(_Blocking):
    """client.push.PushConsumer, blocking; a plain callback runs in threads of its own."""

    kind = AsyncPushConsumer


class LitePullConsumer(_Blocking):
    """client.litepull.LitePullConsumer, blocking."""

    kind = AsyncLitePullConsumer


class AdminClient(_Blocking):
    """client.admin.AdminClient, blocking."""

    kind = AsyncAdminClient
