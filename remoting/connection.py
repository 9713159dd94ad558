"""One TCP connection that carries commands, the same on either side: both may ask and both may answer.

A handler is a plain function; see `Reply` for what it may return. On the hot path nothing is created per request but
the command itself: no task, no future, no timer; what is written during one turn of the loop leaves in one
`transport.write` per connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from remoting.address import format_address, host_bytes
from remoting.codec import decode_parts, encode, encode_head
from remoting.codes import ResponseCode
from remoting.command import COMMAND_BYTES, ONEWAY_FLAG, RESPONSE_FLAG, Body, Command
from remoting.errors import BacklogFull, ConnectionLost, FrameError
from remoting.framing import VIEW_BYTES_MIN, Decode, FrameReader
from remoting.refusal import busy, refusal, remark_of, unsupported
from remoting.runs import RequestRun, cut_for, requests_in
from remoting.side import Side
from remoting.signing import sign
from remoting.turns import ANSWER_BYTES, LOOK_COMMANDS
from remoting.waiting import Waiting
from remoting.writing import PIECE_BYTES_MIN, write_runs
from runtime.tls import tls_words

_log = logging.getLogger(__name__)

_NEVER = float("inf")
# What one read brings at most, bytes: of uvloop 256,000, of asyncio 256 KiB.
READ_BYTES = 256_000

# A Command answers at once; bytes are a whole frame, already encoded (hot path); None means that the answer comes later
# through Connection.reply or write, or never (one-way); an awaitable is run as a task and its result is the answer. Who
# is given a run may return it: then what it has left of itself is served in its place.
Reply = Command | bytes | RequestRun | None | Awaitable[Command | None]
Handler = Callable[["Connection", Command], Reply]


class Connection(asyncio.Protocol):
    """One open connection. `peer` is (host, port), `address` the same as text, `peer_host` as records hold it.

    `attachments` is for whoever handles requests (who is this client). `closed` is set as soon as nothing can be sent
    any more; writing to a closed connection does nothing.
    """

    _transport: asyncio.Transport

    def __init__(self, side: "Side[Connection]", loop: asyncio.AbstractEventLoop) -> None:
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
        self._credentials = side.credentials
        self._reader = FrameReader(side.limits.frame_bytes_max, side.decode)
        self._turns = side.turns
        self._polling = side.polling
        # When what is not served yet was read, on the loop's clock; whether reading pauses for that.
        self._read_at = 0.0
        self._waits = False
        self.waiting = Waiting(loop, "", side.limits.in_flight_max)
        self._out: list[Body] = []
        # Commands that were read and are not served, for those before them took long, or have long answers.
        self._left: list[Command] = []
        self.spent = 0
        """Bytes of bodies that this turn has written: who writes one adds it; see turns.ANSWER_BYTES."""
        # Bytes of a frame that is not whole.
        self._kept = 0
        self._write_paused = False
        self._writable = asyncio.Event()
        self._running = 0

    # ---- what handlers and callers use

    @property
    def own_host(self) -> str:
        """The address of this machine that the connection came to, "" when that is not known."""
        own = self._transport.get_extra_info("sockname")
        return str(own[0]) if own else ""

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
        if isinstance(request, RequestRun):
            for each in request.commands():
                self.reply(each, response)
            return
        if request.flag & ONEWAY_FLAG or self.closed:
            return
        response.flag |= RESPONSE_FLAG
        response.opaque = request.opaque
        response.serialize_type = request.serialize_type
        try:
            self._send(response)
        except Exception as error:
            _log.warning("the answer to code %d of %s cannot be sent: %s", request.code, self.address, error)
            remark = f"the answer cannot be sent: {error}" if isinstance(error, FrameError) else remark_of(error)
            failure = Command.response(ResponseCode.SYSTEM_ERROR, remark)
            failure.opaque = request.opaque
            failure.serialize_type = request.serialize_type
            self._send(failure)

    def handle(self, handler: Handler, request: Command) -> None:
        """Give a request to a handler later than it came, and answer as if it came now."""
        try:
            result = handler(self, request)
        except Exception as error:
            self.reply(request, refusal(request, error))
            return
        assert not isinstance(result, RequestRun), "runs are not kept for later"
        if result is not None:
            self._answer(request, result)

    def submit(self, request: Command, timeout: float) -> "asyncio.Future[Command]":
        """Send a request; the future gives its answer, whatever its code, or ConnectionLost or InvokeTimeout.

        Raises ConnectionLost when closed, BacklogFull at the limits of requests or of unsent bytes, FrameError for a
        request that is too long; nothing has been sent then.
        """
        self._admit()
        if self._credentials is not None:
            sign(request, self._credentials)
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
        if self._credentials is not None:
            sign(request, self._credentials)
        request.opaque = self.waiting.next_opaque()
        self._send(request)

    def decode_by(self, decode: Decode) -> None:
        """Have commands decoded by this from the next read on, in place of what the port does, to the same outcome."""
        self._reader.decode = decode

    def close(self) -> None:
        """Send what has been written and end the connection."""
        if not self.closed:
            self.flush()
            self.closed = True
            self._transport.close()

    async def drained(self, timeout: float) -> None:
        """Wait until the peer has taken most of what it was sent before; BacklogFull when it does not in time (s)."""
        if self.spent > self._limits.output_high_bytes:
            self.flush()
        if not self._write_paused or self.closed:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._writable.wait()
        except TimeoutError:
            raise BacklogFull(f"{self.address} has not taken what it was sent for {timeout:g} s") from None

    def abort(self) -> None:
        """End the connection at once; what is unsent is lost."""
        self.closed = True
        self._out = []
        self._transport.abort()
        self._reader, self._left = FrameReader(), []
        self._side.kept(self, 0, anew=True)

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
        if self._polling is not None:
            self._polling.heard()
        self.touched = self._side.tick
        turns = self._turns
        if turns is None:
            self._serve(self._reader.feed(data))
            return
        self._reader.cuts = cut_for(self._handlers) if self._reader.decode is decode_parts else None
        commands = self._reader.feed(data, turns.at_once)
        if self._left:
            self._left += commands
        else:
            self._serve(commands)
        # A whole buffer: there is more to read, and others shall come in between.
        more = self._reader.held or self._left or len(data) >= READ_BYTES
        if more and not self.closed and not self._waits:
            self._read_at = self.loop.time()
            self._waits = True
            self._transport.pause_reading()
            turns.add(self)

    @property
    def unserved(self) -> int:
        """Bytes that were read, and of which no command is served yet."""
        return self._reader.unread + sum([len(each.body) + each.header_bytes + COMMAND_BYTES for each in self._left])

    def serve_more(self, most: int) -> bool:
        """Serve so many of the commands that wait for their turn; tell whether more do, and it can go on."""
        if self.closed:
            return False
        if (self._left or self._reader.held) and not self._write_paused:
            commands, self._left = self._left or self._reader.more(most), []
            waited = self.loop.time() - self._read_at
            for command in commands:
                command.waited = waited
            if self._turns is not None:
                self._turns.times.add(waited, requests_in(commands))
            self._serve(commands)
        if self._write_paused or self.closed:
            return False  # resume_writing goes on from here
        if self._left or self._reader.held:
            return True
        self._waits = False
        self._transport.resume_reading()
        return False

    def _serve(self, commands: list[Command]) -> None:
        if self._reader.rest or self._kept:
            self._kept = kept = self._reader.buffered
            self._side.kept(self, kept, anew=bool(commands))
        handlers, turns = self._handlers, self._turns
        if commands:
            self.heard = True
        until = turns.until() if turns is not None and len(commands) > LOOK_COMMANDS else _NEVER
        for count, command in enumerate(commands):
            late = count % LOOK_COMMANDS == 0 and until < _NEVER and self.loop.time() > until
            if (late or self.spent > ANSWER_BYTES) and turns is not None:
                self._left = commands[count:]
                return
            if command.flag & RESPONSE_FLAG:
                self.waiting.answer(command)
                continue
            handler = handlers.get(command.code)
            try:
                result = self._unsupported(command) if handler is None else handler(self, command)
            except Exception as error:
                self.reply(command, refusal(command, error))
                continue
            if isinstance(result, RequestRun):
                # Each by itself, as if they had been read so.
                commands[count + 1 : count + 1] = result.left()
                until = turns.until() if turns is not None and until == _NEVER else until
            elif result is not None:
                self._answer(command, result)
        if self._reader.error is not None:
            self._side.bad_frame(self._reader.error)
            self._side.warn("frame", self, "closed, it sent %s", self._reader.error)
            self.close()

    def pause_writing(self) -> None:
        """Note that the peer takes its answers too slowly; a server then reads no more requests of it."""
        self._write_paused = True
        self._writable.clear()
        if self._side.pauses_reading and not self.closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._write_paused = False
        self._writable.set()
        if self.closed:
            return
        if self._waits and self._turns is not None:
            self._turns.add(self)
        elif self._side.pauses_reading:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self.closed = True
        self._out = []
        reason = f": {tls_words(exc)}" if exc is not None else ""
        self.waiting.fail(ConnectionLost(f"the connection to {self.address} ended{reason}"))
        self._writable.set()
        self._side.lost(self)

    def flush(self) -> None:
        """Hand to the transport what this turn has written: small pieces joined, large ones as they are."""
        pieces = self._out
        if not pieces or self.closed:
            return
        self._out = []
        self.spent = 0
        self.touched = self._side.tick
        if self._transport.is_closing():
            return  # it failed to write, takes nothing any more, and connection_lost comes next
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif max(map(len, pieces)) < PIECE_BYTES_MIN:
            self._transport.write(b"".join(pieces))
        else:
            write_runs(self._transport, pieces)
        # Only a server: a client's requests are refused one by one (see _admit), and what waits for answers lives on.
        over = self._write_paused and self._transport.get_write_buffer_size() > self._limits.output_bytes_max
        if over and self._side.pauses_reading:
            self._side.refused["unread"] += 1
            self._side.warn("slow", self, "closed, it does not read its answers")
            self.abort()

    # ---- inside

    def _admit(self) -> None:
        if self.closed:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if self.spent > self._limits.output_high_bytes:
            # So much of one turn is not kept here: what the transport holds of it is what counts.
            self.flush()
        if self._write_paused and self._transport.get_write_buffer_size() > self._limits.output_bytes_max:
            raise BacklogFull(f"{self.address} does not take what is sent to it")

    def _send(self, command: Command) -> None:
        size = command.body_bytes if command.parts else len(command.body)
        if command.parts:
            self.write(encode_head(command, size), *command.parts)
        elif size >= VIEW_BYTES_MIN:
            self.write(encode_head(command, size), command.body)
        else:
            self.write(encode(command))
        self.spent += size

    def _unsupported(self, request: Command) -> Reply:
        if isinstance(request, RequestRun):
            return request  # Nobody takes runs any more: quotas are on since it was read.
        told = self._side.on_unsupported
        answer = None if told is None else told(self, request)
        return unsupported(request) if answer is None else answer

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
        held = len(request.body) + request.header_bytes
        if self._running >= self._limits.tasks_max or not self._side.holds(held):
            if isinstance(work, Coroutine):
                work.close()
            self.reply(request, busy())
            return
        self._running += 1
        task = self._side.tasks.spawn(self._finish(request, work, held), f"code {request.code} of {self.address}")
        if isinstance(work, Coroutine):
            # A task that is cancelled before its first step never gets to it; of one that is over nothing is left.
            task.add_done_callback(lambda _task: work.close())

    async def _finish(self, request: Command, work: Awaitable[Command | None], held: int) -> None:
        try:
            response = await work
        except Exception as error:
            response = refusal(request, error)
        finally:
            self._running -= 1
            self._side.task_bytes -= held
        if response is not None:
            self.reply(request, response)
