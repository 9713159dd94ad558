"""The client library without asyncio: the same classes, whose methods block.

Behind them runs one event loop in one thread, started with the first object that is started and stopped with the last
that is closed. A class here is the asynchronous one looked at through that thread: arguments, results and errors are
documented there. Objects may be used from several threads.
"""

import asyncio
import concurrent.futures
import inspect
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from client.admin.client import AdminClient as AsyncAdminClient
from client.consume.litepull import LitePullConsumer as AsyncLitePullConsumer
from client.consume.popped import PoppedMessage as AsyncPoppedMessage
from client.consume.push import PushConsumer as AsyncPushConsumer
from client.consume.simple import SimpleConsumer as AsyncSimpleConsumer
from client.errors import ClientClosed, ClientError, MessageRefused
from client.lifecycle import CALLING
from client.message import Message, SendResult
from client.produce.producer import Producer as AsyncProducer
from client.produce.transaction import LocalPart, Transaction, TransactionResult, TransactionState
from client.produce.transactions import TransactionProducer as AsyncTransactionProducer
from client.produce.transactions import decided
from client.replies import is_request, reply_to
from remoting.message import MessageExt
from runtime.loop import run

_log = logging.getLogger(__name__)

T = TypeVar("T")
# Behind the last of some items.
_END: Any = object()


class _Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


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


def _begin_anew() -> None:
    """Give a forked child a loop of its own: the parent's thread is not in it."""
    global _shared  # noqa: PLW0603 # one per process
    _shared = _LoopThread()


os.register_at_fork(after_in_child=_begin_anew)


class _Blocking:
    """An asynchronous object whose methods are called in the shared loop; before `start`, directly."""

    kind: ClassVar[Callable[..., _Startable]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._inner = self.kind(*args, **kwargs)
        self._started = False
        # Where it was started; another one after a fork.
        self._thread: _LoopThread | None = None

    def start(self) -> None:
        """Start the object."""
        if self._started:
            # The asynchronous object says that it is started already.
            self._loop().submit(self._inner.start).result()
        thread = self._thread = _shared
        thread.enter()
        # A callback may close the object while it starts.
        self._started = True
        try:
            thread.submit(self._inner.start).result()
        except BaseException:
            if self._started:
                self._started = False
                thread.leave()
            raise

    def close(self) -> None:
        """Close the object; nothing happens when it is not started.

        Inside a callback of this very object it begins to close and returns: it cannot end before the callback has.
        """
        self._end(self._inner.close)

    def _end(self, ends: Callable[[], Any]) -> None:
        if not self._started:
            return
        self._started = False
        if self._thread is not _shared:
            # After a fork: it is the parent's, whose connections are not touched.
            return
        calling = CALLING.get()
        if calling is not None and calling.client is self._inner and not calling.over:
            # Carried into the loop with the call: the object knows that it must not wait for its callback.
            self._loop().submit(ends).result()
            threading.Thread(target=self._close, args=(self._inner.close,), name="raftmq close").start()
        else:
            self._close(ends)

    def _close(self, ends: Callable[[], Any]) -> None:
        thread = self._loop()
        try:
            thread.submit(ends).result()
        finally:
            thread.leave()

    def _loop(self) -> _LoopThread:
        """Return the thread that this object was started in; raises ClientClosed after a fork."""
        if self._thread is None or self._thread is not _shared:
            raise ClientClosed(
                f"this {type(self).__name__} was started before this process was forked: make another one here"
            )
        return self._thread

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(lambda: self._inner.__aexit__(kind, error, trace))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        member = getattr(self._inner, name)
        if not callable(member):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._started:
                if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
                    raise ClientClosed(f"{type(self).__name__} is not started, or was closed")
                return member(*args, **kwargs)
            answer = self._loop().submit(lambda: member(*args, **kwargs)).result()
            if inspect.isasyncgen(answer):
                return _Items(cast(AsyncGenerator[Any], answer), lambda ask: self._loop().submit(ask).result())
            return answer

        return call


class _Items(Generic[T]):
    """What an asynchronous generator yields, one after the other; other calls of its object may take it as it is."""

    def __init__(self, items: AsyncGenerator[T], call: Callable[[Callable[[], Any]], Any]) -> None:
        self._items = items
        self._call = call

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item: T = self._call(lambda: anext(self._items, _END))
        if item is _END:
            raise StopIteration
        return item

    def __aiter__(self) -> AsyncGenerator[T]:
        return self._items

    def close(self) -> None:
        """Yield nothing more."""
        self._call(self._items.aclose)


class Producer(_Blocking):
    """client.produce.producer.Producer, blocking."""

    kind: ClassVar[Callable[..., _Startable]] = AsyncProducer

    def send_async(self, *args: Any, **kwargs: Any) -> concurrent.futures.Future[SendResult]:
        """Send without waiting for the answer; the future is one of concurrent.futures."""
        if not self._started:
            raise ClientClosed("this producer is not started, or was closed")
        producer = self._inner
        assert isinstance(producer, AsyncProducer)
        return self._loop().submit(lambda: producer.send_async(*args, **kwargs))


class TransactionProducer(Producer):
    """client.produce.transactions.TransactionProducer, blocking; the local part runs in the thread that calls."""

    kind = AsyncTransactionProducer

    @contextmanager
    def transaction(self, *args: Any, **kwargs: Any) -> Iterator[Transaction]:
        """Send the half message on entry of the block, and tell its end on exit."""
        if not self._started:
            raise ClientClosed("this producer is not started, or was closed")
        producer = self._inner
        assert isinstance(producer, AsyncTransactionProducer)
        block = producer.transaction(*args, **kwargs)
        tx = self._loop().submit(block.__aenter__).result()
        try:
            yield tx
        except BaseException as error:
            told = (type(error), error, error.__traceback__)
            self._loop().submit(lambda: block.__aexit__(*told)).result()
            raise
        self._loop().submit(lambda: block.__aexit__(None, None, None)).result()

    def send_in_transaction(self, message: Message, execute: LocalPart, **options: Any) -> TransactionResult:
        """Send a message in a transaction whose local part is a function, called in this very thread."""
        with self.transaction(message, **options, on_error=TransactionState.UNKNOWN) as tx:
            answer = execute(tx)
            tx.state = decided(self._loop().submit(lambda: answer).result() if inspect.isawaitable(answer) else answer)
        return tx.result


class PushConsumer(_Blocking):
    """client.consume.push.PushConsumer, blocking; a plain callback runs in threads of its own."""

    kind = AsyncPushConsumer


class LitePullConsumer(_Blocking):
    """client.consume.litepull.LitePullConsumer, blocking."""

    kind = AsyncLitePullConsumer


class PoppedMessage(MessageExt):
    """client.consume.popped.PoppedMessage, blocking."""

    def __init__(self, message: AsyncPoppedMessage, settle: Callable[[Callable[[], Any]], Any]) -> None:
        super().__init__(**{each.name: getattr(message, each.name) for each in fields(MessageExt)})
        self._message = message
        self._settle = settle

    def ack(self, **options: Any) -> None:
        """Tell the broker that the message is done with."""
        self._settle(lambda: self._message.ack(**options))

    def nak(self, delay: float = 0.0, **options: Any) -> None:
        """Give the message back: it comes again `delay` s from now."""
        self._settle(lambda: self._message.nak(delay, **options))

    def change_invisible(self, seconds: float, **options: Any) -> None:
        """Have the message come again `seconds` from now."""
        self._settle(lambda: self._message.change_invisible(seconds, **options))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._message, name)


class SimpleConsumer(_Blocking):
    """client.consume.simple.SimpleConsumer, blocking."""

    kind = AsyncSimpleConsumer

    def receive(self, *args: Any, **kwargs: Any) -> list[PoppedMessage]:
        """Return messages, each to be acknowledged."""
        consumer = self._open()
        messages = self._call(lambda: consumer.receive(*args, **kwargs))
        return [PoppedMessage(message, self._call) for message in messages]

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Yield the messages one after the other, until the consumer is closed."""
        consumer = self._open()
        messages = self._call(consumer.__aiter__)
        coming: concurrent.futures.Future[Any] | None = None
        try:
            while True:
                coming = self._loop().submit(lambda: anext(messages, None))
                message = coming.result()
                if message is None:
                    return
                yield PoppedMessage(message, self._call)
        finally:
            if coming is not None and not coming.done():
                # Ctrl-C: the loop ends where it waits.
                coming.cancel()
            else:
                # When the consumer was closed meanwhile, the loop has ended with it.
                with suppress(ClientClosed):
                    self._call(messages.aclose)

    def _call(self, act: Callable[[], Any]) -> Any:
        return self._loop().submit(act).result()

    def _open(self) -> AsyncSimpleConsumer:
        if not self._started:
            raise ClientClosed("this consumer is not started, or was closed")
        consumer = self._inner
        assert isinstance(consumer, AsyncSimpleConsumer)
        return consumer


class AdminClient(_Blocking):
    """client.admin.client.AdminClient, blocking."""

    kind = AsyncAdminClient


def answering(producer: Producer, answer: Callable[[MessageExt], bytes | None]) -> Callable[[list[MessageExt]], None]:
    """Return a consumer's callback that replies to requests: what `raftmq.answering` is, for a plain function."""

    def callback(messages: list[MessageExt]) -> None:
        for message in messages:
            body = answer(message)
            if body is None or not is_request(message):
                continue
            reply = reply_to(message, body)
            try:
                producer.send(reply)
            except MessageRefused:
                raise
            except ClientError as error:
                _log.warning("the reply to %s was not sent: %s", message.msg_id, error)

    return callback
