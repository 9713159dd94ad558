"""Brokers learn what became of popped messages: acknowledged, or to come again at another time.

Acknowledgements gather while one request of them is on its way to their broker: the next takes along all that came
meanwhile. All is tried again until its time is over, wherever the broker's leader is by then. An acknowledgement that
nobody waits for any more goes on by itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from client.consume.popapi import PopApi
from client.consume.popbrokers import PopBrokers
from client.consume.pophandle import PopHandle, fits_batch
from client.consume.popped import PoppedMessage
from client.errors import ClientClosed, ClientError, RequestFailed, RouteError, as_client_error, may_be_stored
from client.retry import with_retries
from remoting.errors import InvokeError, RemotingError, ResponseError
from remoting.properties import PROPERTY_POP_CK
from runtime.tasks import Tasks

T = TypeVar("T")

# Acknowledgements of one request.
BATCH_MAX = 128
# Acknowledgements that wait for their turn, of one consumer; one more fails at once, unsent.
PENDING_MAX = 16_384
# More attempts than fit into any deadline.
_ATTEMPTS = 1_000_000


@dataclass(slots=True, eq=False)
class _Pending:
    message: PoppedMessage
    handle: PopHandle
    until: float
    done: "asyncio.Future[None]"
    sent: bool = False


class PopSettler:
    """The Settler of one consumer; must be made inside its loop."""

    def __init__(self, group: str, api: PopApi, brokers: PopBrokers, within_s: float) -> None:
        """`within_s` bounds what has no bound of its own."""
        self._group = group
        self._api = api
        self._brokers = brokers
        self._within_s = within_s
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(f"acknowledgements of {group}")
        self._waiting: dict[str, list[_Pending]] = {}
        self._sending: set[str] = set()
        # All that is not settled yet, by message.
        self._pending: dict[int, _Pending] = {}
        self._closed = False

    async def acknowledge(self, message: PoppedMessage, seconds: float | None) -> None:
        """See PoppedMessage.ack."""
        if message.acknowledged:
            return
        self._check_open()
        within = self._within_s if seconds is None else seconds
        pending = self._pending.get(id(message)) or self._put(message, within)
        await asyncio.wait([pending.done], timeout=within)
        if not pending.done.done():
            raise _failed(f"message {message.msg_id} is not acknowledged within {within:g} s", sent=pending.sent)
        pending.done.result()

    async def change_invisible(self, message: PoppedMessage, invisible_ms: int, seconds: float | None) -> None:
        """See PoppedMessage.change_invisible."""
        self._check_open()
        within = self._within_s if seconds is None else seconds
        told = _Told()
        done: asyncio.Future[PopHandle] = self._loop.create_future()

        async def change() -> None:
            try:
                handle = await self._until_told(
                    message.origin, message.handle, time.monotonic() + within, told,
                    lambda address: self._api.change_invisible(
                        address, self._group, message.origin, message.handle, invisible_ms
                    ),
                )  # fmt: skip
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(handle)

        work = self._spawn(change())
        try:
            await asyncio.wait([work], timeout=within)
        finally:
            work.cancel()
        if not done.done():
            if self._closed:
                raise ClientClosed("this consumer was closed before its broker answered")
            raise _failed(
                f"message {message.msg_id} has no other invisible time within {within:g} s: no broker answered",
                sent=told.sent,
            )
        handle = done.result()
        message.handle = handle
        message.properties[PROPERTY_POP_CK] = handle.text
        message.expires_at = time.monotonic() + invisible_ms / 1000

    async def close(self, within_s: float) -> None:
        """Let what is on its way end, up to `within_s`; what is not told by then fails."""
        self._closed = True
        waiting = [pending.done for pending in self._pending.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=within_s)
        await self._tasks.close()
        for pending in list(self._pending.values()):
            self._fail(pending, ClientClosed("this consumer was closed before the message was acknowledged"))

    def _check_open(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise ClientError("the consumer of this message belongs to another event loop: settle it there")
        if self._closed:
            raise ClientClosed("the consumer of this message was closed: the message comes again")

    def _put(self, message: PoppedMessage, within_s: float) -> _Pending:
        if len(self._pending) >= PENDING_MAX:
            raise _failed(f"{PENDING_MAX} acknowledgements are on their way already", sent=False)
        done: asyncio.Future[None] = self._loop.create_future()
        pending = _Pending(message, message.handle, time.monotonic() + within_s, done)
        self._pending[id(message)] = pending
        done.add_done_callback(lambda ended: self._ended(pending, ended))
        broker = message.handle.broker
        self._waiting.setdefault(broker, []).append(pending)
        if broker not in self._sending:
            self._sending.add(broker)
            self._spawn(self._send_all(broker))
        return pending

    def _ended(self, pending: _Pending, ended: "asyncio.Future[None]") -> None:
        self._pending.pop(id(pending.message), None)
        if ended.exception() is None:
            pending.message.acknowledged = True

    async def _send_all(self, broker: str) -> None:
        try:
            # What is acknowledged in this turn of the loop goes together.
            await asyncio.sleep(0)
            while waiting := self._waiting.pop(broker, None):
                batch = [pending for pending in waiting if fits_batch(pending.handle)]
                for start in range(0, len(batch), BATCH_MAX):
                    await self._send(batch[start : start + BATCH_MAX])
                for pending in waiting:
                    if not fits_batch(pending.handle):
                        await self._send([pending])
        finally:
            self._sending.discard(broker)

    async def _send(self, batch: list[_Pending]) -> None:
        """Tell a broker of all of these, and each of them how it went."""
        now = time.monotonic()
        for pending in batch:
            if pending.until <= now:
                self._fail(pending, _failed(f"message {pending.message.msg_id} had no turn in time", sent=False))
        batch = [pending for pending in batch if not pending.done.done()]
        if not batch:
            return
        first, told = batch[0], _Told(batch)
        until = max(pending.until for pending in batch)
        try:
            await self._until_told(
                first.message.origin, first.handle, until, told, lambda address: self._request(address, batch)
            )
        except ResponseError as error:
            if len(batch) == 1 or error.retriable:
                self._fail_all(batch, error)
            else:
                # One of them is refused: which, each finds out by itself.
                for pending in batch:
                    await self._send([pending])
        except (RemotingError, ClientError) as error:
            self._fail_all(batch, error)
        except Exception as error:
            self._fail_all(batch, RequestFailed(f"{type(error).__name__}: {error}"))
            raise
        else:
            for pending in batch:
                if not pending.done.done():
                    pending.done.set_result(None)

    async def _request(self, address: str, batch: list[_Pending]) -> None:
        if len(batch) == 1:
            pending = batch[0]
            await self._api.acknowledge(address, self._group, pending.message.origin, pending.handle)
        else:
            acks = [(pending.message.origin, pending.handle) for pending in batch]
            await self._api.acknowledge_batch(address, batch[0].handle.broker, self._group, acks)

    async def _until_told(
        self, topic: str, handle: PopHandle, until: float, told: "_Told", act: Callable[[str], Awaitable[T]]
    ) -> T:
        """Ask who leads the handle's broker, again and again until `until` or a refusal that will stay."""

        async def attempt() -> T:
            address = ""
            try:
                address = await self._brokers.address(topic, handle.broker)
                before, told.sent = told.sent, True
                try:
                    return await act(address)
                except InvokeError as error:
                    told.sent = before or may_be_stored(error)
                    raise
            except (RouteError, InvokeError) as error:
                await self._brokers.failed(topic, handle.broker, address, error)
                raise

        try:
            return await with_retries(attempt, attempts=_ATTEMPTS, deadline=until, again=_again)
        except (RouteError, InvokeError) as error:
            if told.sent and not isinstance(error, ResponseError):
                raise _failed(f"it is not known whether the broker was told: {error}", sent=True) from error
            raise

    def _fail_all(self, batch: list[_Pending], error: Exception) -> None:
        for pending in batch:
            self._fail(pending, as_client_error(error) if isinstance(error, RemotingError) else error)

    @staticmethod
    def _fail(pending: _Pending, error: Exception) -> None:
        if not pending.done.done():
            pending.done.set_exception(error)

    def _spawn(self, work: Coroutine[object, object, Any]) -> "asyncio.Task[Any]":
        return self._tasks.spawn(work, "telling")


class _Told:
    """Whether some broker may have got a request; noted for all of a batch."""

    def __init__(self, batch: list[_Pending] | None = None) -> None:
        self._batch = batch or []
        self._sent = False

    @property
    def sent(self) -> bool:
        """Whether one may have it."""
        return self._sent

    @sent.setter
    def sent(self, sent: bool) -> None:
        self._sent = sent
        for pending in self._batch:
            pending.sent = sent


def _again(error: BaseException) -> bool:
    return isinstance(error, RouteError | InvokeError) and error.retriable


def _failed(text: str, *, sent: bool) -> RequestFailed:
    error = RequestFailed(text)
    error.sent = sent
    return error
