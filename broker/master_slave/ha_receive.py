"""The slave's end of one connection to a master's HA port: frames into the log, reports back.

This is the slave's hot path. A frame costs one append; a report is made once per turn of the loop, whatever came in it;
queues and index are built a moment later in slices, so that no report waits for them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from broker.master_slave.ha_secret import ProofRefused, SlaveProof, slave_proof
from broker.settings.pair_keys import BATCH_BYTES_MAX
from remoting.errors import FrameError
from remoting.haframes import HaFrameReader, report
from runtime.busypoll import BusyPoll
from store.errors import StoreError

_log = logging.getLogger(__name__)

# Records that came are in queues and index after so many seconds, if there is time.
DISPATCH_SECONDS = 0.02
# Bytes of the log that are dispatched at once: some milliseconds, for so long a report may be late.
SLICE_BYTES = 256 * 1024
# Seconds that the own log may take to get to disk before its end is reported.
FLUSH_SECONDS = 30.0
# Reports that the master has not read; behind that it does not read at all.
UNSENT_BYTES_MAX = 64 * 1024
# Bytes that queues and index may lag behind; then nothing is read from the master until half of them are dispatched.
DISPATCH_BEHIND_MAX = 8 * 1024 * 1024


class ReceivedLog(Protocol):
    """What is needed of store.slave.slavelog.SlaveLog."""

    @property
    def written(self) -> int:
        """Behind the last byte."""
        ...

    @property
    def flushed(self) -> int:
        """Up to here on disk."""
        ...

    @property
    def dispatched(self) -> int:
        """Behind the last whole record that is in queues and index."""
        ...

    def append(self, position: int, data: bytes | memoryview) -> int:
        """Store bytes at the end. Raises StoreError when they do not belong there, or cannot be written."""
        ...

    def dispatch(self, bytes_max: int = ...) -> bool:
        """Bring whole records into queues and index; True when more are left. Raises StoreError."""
        ...

    def flush_soon(self) -> None:
        """Ask for fdatasync."""
        ...


class LateDispatch:
    """Brings what was appended into queues and index, a little later and a slice at a time."""

    def __init__(self, log: ReceivedLog, loop: asyncio.AbstractEventLoop, on_caught_up: Callable[[], None]) -> None:
        """`on_caught_up` is called whenever at most half of DISPATCH_BEHIND_MAX is left."""
        self._log = log
        self._loop = loop
        self._on_caught_up = on_caught_up
        self._next: asyncio.Handle | None = None
        self.failure: StoreError | None = None
        """Why nothing is dispatched any more: the store is over then."""

    def soon(self) -> None:
        """See to it that what is appended gets dispatched."""
        if self._next is None and self.failure is None:
            self._next = self._loop.call_later(DISPATCH_SECONDS, self._slice)

    def close(self) -> None:
        """Dispatch no more; the store does the rest when it is closed."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _slice(self) -> None:
        self._next = None
        log = self._log
        try:
            more = log.dispatch(SLICE_BYTES)
        except StoreError as error:
            self.failure = error
            _log.error("records of the master cannot be dispatched: %s", error)
            return
        if log.written - log.dispatched <= DISPATCH_BEHIND_MAX // 2:
            self._on_caught_up()
        if more:
            # Behind whatever has come meanwhile.
            self._next = self._loop.call_soon(self._slice)


class OnDisk:
    """Waits for the log to get to disk, and tells each time that more of it has."""

    def __init__(self, log: ReceivedLog, loop: asyncio.AbstractEventLoop, on_flushed: Callable[[], None]) -> None:
        self._log = log
        self._loop = loop
        self._on_flushed = on_flushed
        self._event = asyncio.Event()

    async def all(self) -> None:
        """Return when everything that is written now is on disk. Raises TimeoutError."""
        until = self._log.written
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while self._log.flushed < until:
                    self._event.clear()
                    self._log.flush_soon()
                    await self._event.wait()
        except TimeoutError:
            raise TimeoutError(f"the own log did not get to disk within {FLUSH_SECONDS:g} s") from None

    def flushed_in_thread(self, _position: int) -> None:
        """Carry the news from the store's flusher thread into the loop."""
        self._loop.call_soon_threadsafe(self._flushed)

    def _flushed(self) -> None:
        self._event.set()
        self._on_flushed()


class Receiver(asyncio.Protocol):
    """One connection. Nothing is taken before begin(): who sends anything earlier is no master."""

    def __init__(
        self,
        log: ReceivedLog,
        dispatch: LateDispatch,
        loop: asyncio.AbstractEventLoop,
        *,
        sync_flush: bool,
        secrets: tuple[bytes, ...] = (),
        polling: BusyPoll | None = None,
    ) -> None:
        """`sync_flush`: only what is on disk is reported, and flushed() must be called when more is.

        With `secrets` both sides prove first that they know one of them: see proved().
        """
        self._log = log
        self._append = log.append
        self._dispatch = dispatch
        self._loop = loop
        self._sync_flush = sync_flush
        self._polling = polling
        self._reader = HaFrameReader(BATCH_BYTES_MAX)
        self._feed = self._reader.feed
        self._transport: asyncio.Transport | None = None
        self._proof = slave_proof(secrets)
        self._proved: asyncio.Future[None] = loop.create_future()
        self._begun = False
        self._turn_ends = False
        self._paused = False
        # Nothing is read yet: it is not certain who sends.
        self._held = False
        self._report_at = 0.0
        self.reported = 0
        """The last report."""
        self.heard_at = 0.0
        """Loop time of the last bytes."""
        self.frames_at = 0.0
        """Loop time of the last bytes with part of the log in them; 0 when there were none."""
        self.accepted = False
        """Whether anything that was sent was what it had to be."""
        self.distrusted = False
        """Whether the logs of both sides are not known to agree any more."""
        self.lost: asyncio.Future[str] = loop.create_future()
        """Done when the connection is over, with the reason."""

    # -- what the client does

    async def proved(self) -> None:
        """Return when the master has proved itself, at once when it need not. Raises ConnectionError."""
        if self._proof is not None:
            try:
                await asyncio.wait((self._proved, self.lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not self._proved.done():
                    self.drop("it proved nothing in time")
            if not self._proved.done():
                raise ConnectionError(f"{self.lost.result()} (haSecretFile is set here: is it there as well?)")

    def begin(self, position: int, *, hold: bool = False) -> None:
        """Make the first report: from now on the master sends. With `hold` nothing of it is taken before release()."""
        self._begun = True
        self._held = hold
        if hold and self._transport is not None:
            self._transport.pause_reading()
        self._report(position)

    def release(self) -> None:
        """Take what has come since begin()."""
        if self._held and self._transport is not None and not self.lost.done():
            self._held = False
            self.heard_at = self._loop.time()
            self._transport.resume_reading()

    def tick(self, heartbeat: float, idle: float) -> None:
        """Report again after `heartbeat` seconds without one, and give a master up that is silent for `idle`."""
        now = self._loop.time()
        if self._paused or self._held:
            self.heard_at = now
        if now - self.heard_at > idle:
            self.drop(f"the master has not sent anything for {idle:g} s")
        elif self._transport is not None and self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.drop("the master reads no reports")
        elif self._begun and now - self._report_at >= heartbeat:
            self._report(max(self._log.flushed if self._sync_flush else self._log.written, self.reported))

    def flushed(self) -> None:
        """Report what is on disk by now."""
        if self._begun and not self.lost.done() and (end := self._log.flushed) > self.reported:
            self._report(end)

    def resume(self) -> None:
        """Read on, when reading had been stopped."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def drop(self, why: str) -> None:
        """End the connection."""
        if not self.lost.done():
            self.lost.set_result(why)
        if self._transport is not None:
            self._transport.abort()

    def distrust(self, why: str) -> None:
        """End the connection because what came by it is not the master's log."""
        self.distrusted = True
        self.drop(why)

    # -- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be connected."""
        # uvloop's transports have the methods but not the base class.
        self._transport = cast(asyncio.Transport, transport)
        self.heard_at = self._loop.time()
        if self._proof is not None:
            self._transport.write(self._proof.open())

    def data_received(self, data: bytes) -> None:
        """Append what came."""
        if self._polling is not None:
            self._polling.heard()
        if self.lost.done():
            return
        if self._proof is not None and not self._proof.done:
            self._prove(self._proof, data)
            return
        if not self._begun:
            self.drop("it sent something before it was asked to: is this an HA port?")
            return
        self.heard_at = now = self._loop.time()
        append = self._append
        try:
            for position, body in self._feed(data):
                if body:
                    append(position, body)
                    self.frames_at = now
                elif position != self._log.written and self._log.written:
                    self.distrust(f"the master is at {position}, this log ends at {self._log.written}")
                    break
                self.accepted = True
        except (FrameError, StoreError) as error:
            self.distrust(str(error))
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)

    def connection_lost(self, exc: Exception | None) -> None:
        """Be cut off."""
        if not self.lost.done():
            self.lost.set_result(f"the connection was lost: {exc}" if exc else "the master closed the connection")

    # -- within

    def _prove(self, proof: SlaveProof, data: bytes) -> None:
        assert self._transport is not None, "what came came by it"
        try:
            self._transport.write(proof.take(data))
        except ProofRefused as error:
            self.drop(str(error))
            return
        if proof.done:
            self._proved.set_result(None)

    def _end_turn(self) -> None:
        """Report, and have the rest done later, once for all that came in a turn of the loop."""
        self._turn_ends = False
        log = self._log
        self._dispatch.soon()
        if self.lost.done():
            return
        if self._sync_flush:
            if log.written > self.reported:
                log.flush_soon()
        elif log.written > self.reported:
            self._report(log.written)
        if not self._paused and log.written - log.dispatched > DISPATCH_BEHIND_MAX:
            assert self._transport is not None, "what came came by it"
            self._paused = True
            self._transport.pause_reading()

    def _report(self, position: int) -> None:
        assert self._transport is not None, "begin() is called on a connection"
        self.reported = position
        self._report_at = self._loop.time()
        self._transport.write(report(position))
