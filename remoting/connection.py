"""One TCP connection that carries commands, the same on either side: both may ask and both may answer.

`Side` is what all connections of one server or client share. A handler is a plain function; see `Reply` for what it may
return. On the hot path nothing is created per request but the command itself: no task, no future, no timer; what is
written during one turn of the loop leaves in one `transport.write` per connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, cast

from remoting.address import format_address, host_bytes
from remoting.codec import encode, encode_head
from remoting.codes import ResponseCode
from remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Body, Command
from remoting.errors import BacklogFull, CommandError, ConnectionLost, FrameError, HeaderError
from remoting.framing import VIEW_BYTES_MIN, FrameReader
from remoting.limits import ConnectionLimits
from remoting.waiting import Waiting
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# A Command answers at once; bytes are a whole frame, already encoded (hot path); None means that the answer comes later
# through Connection.reply or write, or never (one-way); an awaitable is run as a task and its result is the answer.
Reply = Command | bytes | None | Awaitable[Command | None]
Handler = Callable[["Connection", Command], Reply]

# The sweep runs this often per idle span, so a silent connection lives at most an eighth longer than it may.
SWEEPS_PER_IDLE = 8


class Side:
    """What the connections of one server or one client share: handlers, limits, the set of them, and the write turn."""

    def __init__(
        self,
        name: str,
        handlers: Mapping[int, Handler],
        limits: ConnectionLimits,
        *,
        pauses_reading: bool,
        connections_max: int,
        on_open: Callable[["Connection"], None] | None = None,
        on_close: Callable[["Connection"], None] | None = None,
    ) -> None:
        self.name = name
        self.handlers = handlers
        self.limits = limits
        self.pauses_reading = pauses_reading
        self.connections_max = connections_max
        self.on_open = on_open
        self.on_close = on_close
        self.connections: set[Connection] = set()
        self.tasks = Tasks(name)
        self.tick = 0
        self._written: list[Connection] = []
        self._empty = asyncio.Event()
        self._closing = False

    def written(self, connection: "Connection") -> None:
        """Remember a connection that has something to send at the end of this turn."""
        if not self._written:
            connection.loop.call_soon(self._flush)
        self._written.append(connection)

    def sweep(self) -> None:
        """Close the connections on which nothing has moved for the idle span; called SWEEPS_PER_IDLE times in it."""
        self.tick += 1
        for connection in list(self.connections):
            if self.tick - connection.touched > SWEEPS_PER_IDLE and not connection.waiting:
                _log.debug("%s: nothing from %s for %g s", self.name, connection.address, self.limits.idle_seconds)
                connection.close()

    def start_sweeping(self) -> None:
        """Sweep from now on until `close`."""
        self.tasks.every(self.limits.idle_seconds / SWEEPS_PER_IDLE, self.sweep, "idle sweep")

    async def close(self) -> None:
        """End the handlers' tasks and all connections; who does not take what is left for it is cut off."""
        self._closing = True
        for connection in list(self.connections):
            connection.close()
        await self.tasks.close()
        if not await self._emptied():
            for connection in list(self.connections):
                connection.abort()
            await self._emptied()

    def opened(self, connection: "Connection") -> bool:
        """Count a new connection in; False when there are too many or no more are wanted."""
        if self._closing:
            return False
        if len(self.connections) >= self.connections_max:
            _log.warning("%s: %s refused, %d connections are open", self.name, connection.address, self.connections_max)
            return False
        self.connections.add(connection)
        if self.on_open is not None:
            self.on_open(connection)
        return True

    def lost(self, connection: "Connection") -> None:
        """Count an ended connection out."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        if self.on_close is not None:
            try:
                self.on_close(connection)
            except Exception:
                _log.exception("%s: the close of %s was not handled", self.name, connection.address)
        if not self.connections:
            self._empty.set()

    async def _emptied(self) -> bool:
        self._empty.clear()
        if self.connections:
            try:
                await asyncio.wait_for(self._empty.wait(), self.limits.close_seconds)
            except TimeoutError:
                return False
        return True

    def _flush(self) -> None:
        written = self._written
        self._written = []
        for connection in written:
            connection.flush()


class Connection(asyncio.Protocol):
    """One open connection. `peer` is (host, port), `address` the same as text, `peer_host` as records hold it.

    `attachments` is for whoever handles requests (who is this client). `closed` is set as soon as nothing can be sent
    any more; writing to a closed connection does nothing.
    """

    _transport: asyncio.Transport

    def __init__(self, side: Side, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.peer: tuple[str, int] = ("", 0)
        self.peer_host = b""
        self.address = ""
        self.closed = False
        self.heard = False
        self.attachments: dict[str, Any] = {}
        self.touched = side.tick
        self._side = side
        self._limits = side.limits
        self._handlers = side.handlers
        self._reader = FrameReader(side.limits.frame_bytes_max)
        self.waiting = Waiting(loop, "", side.limits.in_flight_max)
        self._out: list[Body] = []
        self._write_paused = False
        self._running = 0

    # ---- what handlers and callers use

    def write(self, *pieces: Body) -> None:
        """Send bytes at the end of this turn of the loop, joined with what else is written in it."""
        if self.closed:
            return
        out = self._out
        if not out:
            self._side.written(self)
        out.extend(pieces)

    def reply(self, request: Command, response: Command) -> None:
        """Answer a request, in its serialize type; dropped when it was one-way or the connection is closed."""
        if request.flag & ONEWAY_FLAG or self.closed:
            return
        response.flag |= RESPONSE_FLAG
        response.opaque = request.opaque
        response.serialize_type = request.serialize_type
        try:
            self._send(response)
        except Exception as error:
            _log.warning("the answer to code %d of %s cannot be sent: %s", request.code, self.address, error)
            remark = f"the answer cannot be sent: {error}" if isinstance(error, FrameError) else _remark(error)
            failure = Command.response(ResponseCode.SYSTEM_ERROR, remark)
            failure.opaque = request.opaque
            failure.serialize_type = request.serialize_type
            self._send(failure)

    def handle(self, handler: Handler, request: Command) -> None:
        """Give a request to a handler later than it came, and answer as if it came now."""
        try:
            result = handler(self, request)
        except Exception as error:
            self.reply(request, _refusal(request, error))
            return
        if result is not None:
            self._answer(request, result)

    def submit(self, request: Command, timeout: float) -> "asyncio.Future[Command]":
        """Send a request; the future gives its answer, whatever its code, or ConnectionLost or InvokeTimeout.

        Raises ConnectionLost when closed, BacklogFull at the limits of requests or of unsent bytes, FrameError for a
        request that is too long; nothing has been sent then.
        """
        self._admit()
        request.opaque = opaque = self.waiting.next_opaque()
        future = self.waiting.add(opaque, timeout)
        try:
            self._send(request)
        except Exception:
            self.waiting.forget(opaque)
            raise
        return future

    async def invoke(self, request: Command, timeout: float) -> Command:
        """Send a request and return its answer, whatever its code; errors as of `submit`."""
        return await self.submit(request, timeout)

    def send_oneway(self, request: Command) -> None:
        """Send a request that gets no answer; ConnectionLost when closed, BacklogFull when too much is unsent."""
        self._admit()
        request.flag |= ONEWAY_FLAG
        request.opaque = self.waiting.next_opaque()
        self._send(request)

    def close(self) -> None:
        """Send what has been written and end the connection."""
        if not self.closed:
            self.flush()
            self.closed = True
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once; what is unsent is lost."""
        self.closed = True
        self._out = []
        self._transport.abort()

    # ---- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up a connection that has come about."""
        # uvloop's transports have the methods but not the base class.
        transport = self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = (str(peer[0]), int(peer[1])) if peer else ("0.0.0.0", 0)
        self.peer_host = host_bytes(*self.peer)
        self.address = format_address(*self.peer)
        self.waiting = Waiting(self.loop, self.address, self._limits.in_flight_max)
        transport.set_write_buffer_limits(self._limits.output_high_bytes, self._limits.output_low_bytes)
        if not self._side.opened(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Handle what a read has brought."""
        if self.closed:
            return
        self.touched = self._side.tick
        commands = self._reader.feed(data)
        handlers = self._handlers
        if commands:
            self.heard = True
        for command in commands:
            if command.flag & RESPONSE_FLAG:
                self.waiting.answer(command)
                continue
            handler = handlers.get(command.code)
            if handler is None:
                self._unsupported(command)
                continue
            try:
                result = handler(self, command)
            except Exception as error:
                self.reply(command, _refusal(command, error))
                continue
            if result is not None:
                self._answer(command, result)
        if self._reader.error is not None:
            _log.warning("%s: %s closed, it sent %s", self._side.name, self.address, self._reader.error)
            self.close()

    def pause_writing(self) -> None:
        """Note that the peer takes its answers too slowly; a server then reads no more requests of it."""
        self._write_paused = True
        if self._side.pauses_reading and not self.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._write_paused = False
        if self._side.pauses_reading and not self.closed:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self.closed = True
        self._out = []
        reason = f": {exc}" if exc is not None else ""
        self.waiting.fail(ConnectionLost(f"the connection to {self.address} ended{reason}"))
        self._side.lost(self)

    def flush(self) -> None:
        """Hand to the transport what this turn has written: small pieces joined, large ones as they are."""
        pieces = self._out
        if not pieces or self.closed:
            return
        self._out = []
        self.touched = self._side.tick
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif max(map(len, pieces)) < VIEW_BYTES_MIN:
            self._transport.write(b"".join(pieces))
        else:
            self._write_runs(pieces)
        if self._write_paused and self._transport.get_write_buffer_size() > self._limits.output_bytes_max:
            _log.warning("%s: %s closed, it does not read its answers", self._side.name, self.address)
            self.abort()

    # ---- inside

    def _write_runs(self, pieces: list[Body]) -> None:
        run: list[Body] = []
        for piece in pieces:
            if len(piece) < VIEW_BYTES_MIN:
                run.append(piece)
                continue
            if run:
                self._transport.write(b"".join(run))
                run = []
            self._transport.write(piece)
        if run:
            self._transport.write(b"".join(run))

    def _admit(self) -> None:
        if self.closed:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if self._write_paused and self._transport.get_write_buffer_size() > self._limits.output_bytes_max:
            raise BacklogFull(f"{self.address} does not take what is sent to it")

    def _send(self, command: Command) -> None:
        if command.parts:
            self.write(encode_head(command, command.body_bytes), *command.parts)
        elif len(command.body) >= VIEW_BYTES_MIN:
            self.write(encode_head(command, len(command.body)), command.body)
        else:
            self.write(encode(command))

    def _unsupported(self, request: Command) -> None:
        remark = f" request type {request.code} not supported"
        self.reply(request, Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))

    def _answer(self, request: Command, result: Command | bytes | Awaitable[Command | None]) -> None:
        """Send what a handler has returned, or wait for it."""
        if isinstance(result, Command):
            self.reply(request, result)
        elif isinstance(result, bytes):
            if not request.flag & ONEWAY_FLAG:
                self.write(result)
        else:
            self._run(request, result)

    def _run(self, request: Command, work: Awaitable[Command | None]) -> None:
        if self._running >= self._limits.tasks_max:
            if isinstance(work, Coroutine):
                work.close()
            remark = "[OVERLOAD]system busy, start flow control for a while"
            self.reply(request, Command.response(ResponseCode.SYSTEM_BUSY, remark))
            return
        self._running += 1
        task = self._side.tasks.spawn(self._finish(request, work), f"code {request.code} of {self.address}")
        if isinstance(work, Coroutine):
            # A task that is cancelled before its first step never gets to it; of one that is over nothing is left.
            task.add_done_callback(lambda _task: work.close())

    async def _finish(self, request: Command, work: Awaitable[Command | None]) -> None:
        try:
            response = await work
        except Exception as error:
            response = _refusal(request, error)
        finally:
            self._running -= 1
        if response is not None:
            self.reply(request, response)


def _refusal(request: Command, error: Exception) -> Command:
    """Return the response that a handler's exception amounts to."""
    if isinstance(error, CommandError):
        return Command.response(error.code, error.remark)
    if isinstance(error, HeaderError):
        return Command.response(ResponseCode.SYSTEM_ERROR, str(error))
    _log.error("the handler of code %d failed", request.code, exc_info=error)
    return Command.response(ResponseCode.SYSTEM_ERROR, _remark(error))


def _remark(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
