"""Answers to brokers that ask what became of a transaction: a bounded queue, a few listeners' calls at a time."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from client.lifecycle import CALLING, Calling
from client.produce.transaction import CheckListener, TransactionState
from client.trace.dispatcher import TraceDispatcher
from client.trace.ends import checked
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.errors import RemotingError
from remoting.headers.registry import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from remoting.message import MessageExt
from remoting.properties import PROPERTY_REAL_TOPIC, PROPERTY_TRACE_SWITCH
from runtime.quiet import QuietLog
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# Checks that wait for the listener (RocketMQ: checkRequestHoldMax), and the bytes of their bodies: what a broker that
# asks for all its old transactions at once makes pile up. Beyond it a check is not answered: the broker asks again.
WAITING_MAX = 2000
WAITING_BYTES_MAX = 64 * 1024 * 1024
# How long an answer may wait for a broker that does not take what it is sent (RocketMQ: 3 s). Then it asks again.
ANSWER_S = 3.0
# Seconds between two looks for warnings that were left out.
_TELL_S = 5.0


@dataclass(slots=True)
class _Check:
    asker: Connection
    asked: CheckTransactionStateRequestHeader
    half: MessageExt


class CheckAnswers:
    """The checks of one producer group, and who answers them.

    Of a transaction only the newest check waits: a broker that asks again has stored its half message anew.
    """

    def __init__(
        self,
        group: str,
        listener: CheckListener,
        *,
        concurrency: int,
        timeout_s: float,
        open_here: Callable[[str], bool],
        client: object = None,
        trace: TraceDispatcher | None = None,
    ) -> None:
        """`open_here` tells whether a transaction's local part runs in this very process; `client`: whose it is."""
        self._group = group
        self._listener = listener
        self._timeout = timeout_s
        self._open_here = open_here
        self._client = client
        self._trace = trace
        self._waiting: dict[str, _Check] = {}
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._quiet = QuietLog(_log)
        target = listener if inspect.isroutine(listener) else type(listener).__call__
        self._threads = (
            None
            if inspect.iscoroutinefunction(target)
            else ThreadPoolExecutor(concurrency, thread_name_prefix="transaction check")
        )
        self._tasks = Tasks(f"transaction checks {group}")
        for number in range(concurrency):
            self._tasks.spawn(self._work(), f"check {number}")
        self._tasks.every(_TELL_S, self._quiet.tell, "warnings")

    def check(self, asker: Connection, asked: CheckTransactionStateRequestHeader, half: MessageExt) -> None:
        """Take a check; one too many is left unanswered, so that the broker asks again."""
        known = self._waiting.get(half.msg_id)
        size = len(half.body)
        if known is not None:
            self._bytes -= len(known.half.body)
        elif len(self._waiting) >= WAITING_MAX or (self._waiting and self._bytes + size > WAITING_BYTES_MAX):
            self._quiet.warning(
                "checks",
                asker.peer[0],
                "producer group %s: %d checks of transactions wait already, that of %s is left to be asked again",
                self._group,
                len(self._waiting),
                half.msg_id,
            )
            return
        self._bytes += size
        self._waiting[half.msg_id] = _Check(asker, asked, half)
        self._arrived.set()

    async def close(self) -> None:
        """Answer no more; a plain listener that runs is not waited for."""
        await self._tasks.close()
        self._waiting.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            key = next(iter(self._waiting))
            check = self._waiting.pop(key)
            self._bytes -= len(check.half.body)
            # Whose connection has ended asks again, over another one.
            if not check.asker.closed:
                try:
                    await self._answer(check)
                except Exception:
                    _log.exception("transaction %s: its check is left to be asked again", key)
            # Listeners that never wait must leave the loop to others.
            await asyncio.sleep(0)

    async def _answer(self, check: _Check) -> None:
        half, asked = check.half, check.asked
        # What runs here is decided soon, whatever its database says of it now.
        state = TransactionState.UNKNOWN if self._open_here(half.msg_id) else await self._state_of(half)
        header = EndTransactionRequestHeader(
            topic=asked.topic,
            producerGroup=self._group,
            tranStateTableOffset=asked.tranStateTableOffset,
            commitLogOffset=asked.commitLogOffset,
            commitOrRollback=state.value,
            fromTransactionCheck=True,
            msgId=half.msg_id,
            transactionId=asked.transactionId,
            bname=asked.bname,
        )
        try:
            await check.asker.drained(ANSWER_S)
            check.asker.send_oneway(Command.request(RequestCode.END_TRANSACTION, header, oneway=True))
            if self._trace is not None and half.properties.get(PROPERTY_TRACE_SWITCH) != "false":
                topic, name = half.properties.get(PROPERTY_REAL_TOPIC, half.topic), asked.transactionId or half.msg_id
                self._trace.add(checked(self._group, topic, half, name, check.asker.address, state.value))
        except RemotingError as error:
            _log.warning("transaction %s: the answer %s to its check did not leave: %s", half.msg_id, state.name, error)

    async def _state_of(self, half: MessageExt) -> TransactionState:
        """Ask the listener; whatever it raises, takes too long for or returns by mistake is logged, and unknown."""
        try:
            async with asyncio.timeout(self._timeout) as limit:
                state = await self._asked(half)
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if mine is not None and mine.cancelling():
                raise
            _log.exception("transaction %s: its check let a CancelledError of its own out: unknown", half.msg_id)
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                _log.error("transaction %s: its check took over %s s: unknown", half.msg_id, self._timeout)
            else:
                _log.exception("transaction %s: its check failed: unknown", half.msg_id)
        else:
            if isinstance(state, TransactionState):
                return state
            _log.error("transaction %s: its check returned %r, no TransactionState: unknown", half.msg_id, state)
        return TransactionState.UNKNOWN

    async def _asked(self, half: MessageExt) -> Any:
        if self._threads is None:
            answer = self._called(half)
        else:
            running = asyncio.get_running_loop().run_in_executor(self._threads, self._called, half)
            # Nobody can stop a thread: its late end is nobody's surprise.
            running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            answer = await asyncio.shield(running)
        # A plain callable may hand back an awaitable, too (a lambda around a coroutine function).
        return await answer if inspect.isawaitable(answer) else answer

    def _called(self, half: MessageExt) -> Any:
        """Call the listener, known to be inside a callback of this client: it may close it."""
        calling = Calling(self._client)
        token = CALLING.set(calling)
        try:
            answer = self._listener(half)
        finally:
            CALLING.reset(token)
        if inspect.isawaitable(answer):
            return self._awaited(answer, calling)
        calling.over = True
        return answer

    @staticmethod
    async def _awaited(answer: Awaitable[Any], calling: Calling) -> Any:
        token = CALLING.set(calling)
        try:
            return await answer
        finally:
            CALLING.reset(token)
            calling.over = True
