"""One connection between two members: the handshake, then messages; framing, bounded buffers, signs of life.

A link never decides what a message means. What is sent during one turn of the loop leaves in at most two `writelines`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from raft.network.handshake import Acceptor, Dialler, HandshakeRefused
from raft.protocol.messages import MessageError, RaftMessage, decode
from raft.protocol.wire import FRAME_BYTES_MAX, KEEPALIVE, Piece, RaftFrameReader, frame, frame_message

# Bytes that one link takes in one turn of the loop: a member that catches up gets them faster than it can check them,
# and who else has something to do waits meanwhile. A frame that is longer is taken alone.
TURN_BYTES = 1024 * 1024
# Reads of less are not counted: a loop that reads several times in one turn does so while the kernel has much.
SMALL_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """What one member lets another one cost it."""

    # Unsent output of one link. Beyond it send() answers False: four windows of entries in flight.
    output_bytes_max: int = 64 * 1024 * 1024
    # Connections accepted and not yet closed. Beyond it the oldest that has proved nothing is closed, or the new one.
    incoming_max: int = 64
    # From the connection to the end of the handshake. Beyond it the link is closed.
    handshake_seconds: float = 2.0
    # How long a connection may take to come about.
    connect_seconds: float = 2.0
    # A link that was quiet for so long sends a sign of life; quiet and stalled links are looked for as often.
    beat_seconds: float = 0.5
    # Beats without a byte received, or without a byte taken of those that wait, after which the link is closed; the
    # kernel is told the same of bytes that are not acknowledged (TCP_USER_TIMEOUT).
    beats_max: int = 10
    # The wait before dialling again, doubled up to the second figure; up to a quarter more at random.
    backoff_first_seconds: float = 0.02
    backoff_max_seconds: float = 1.0


class LinkOwner(Protocol):
    """Who is told, in the loop, what becomes of a link: made, opened, received …, closed, the second only perhaps."""

    def link_made(self, link: "Link") -> None:
        """Take note that there is a connection; the handshake begins."""
        ...

    def link_opened(self, link: "Link") -> None:
        """Take note that the other side is proved; messages may be sent."""
        ...

    def link_received(self, link: "Link", message: RaftMessage) -> None:
        """Take a message."""
        ...

    def link_closed(self, link: "Link", reason: str) -> None:
        """Take note that the connection has ended; `link.opened` tells whether it ever got through the handshake."""
        ...


class Link(asyncio.BufferedProtocol):
    """One connection, on either side of it."""

    def __init__(self, shake: Dialler | Acceptor, limits: LinkLimits, owner: LinkOwner) -> None:
        self.shake = shake
        self.ended = asyncio.Event()
        self.address: tuple[str, int] = ("", 0)
        self.opened = False
        self.closed = False
        self.fixed_heads = False
        """Whether the other side reads them."""
        self._limits = limits
        self._owner = owner
        self._reader = RaftFrameReader()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        # What follows the first message of this turn, and the bytes of all of them; and whether _flush() is to come.
        self._out: list[Piece] = []
        self._out_bytes = 0
        self._flushes = False
        self._reason = ""
        # Bytes received in this turn of the loop, and what begins the next one.
        self._turn_bytes = 0
        self._next_turn: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        # Beats since a byte came, or was written; and since the kernel took some of what waits. Beats and not seconds:
        # a process that was stopped must not find all its links dead when it wakes up.
        self._quiet_in = 0
        self._quiet_out = 0
        self._stalled = 0
        self._written = 0
        self._taken_before = 0

    @property
    def peer(self) -> str:
        """The member at the other end; proved once the link is open."""
        return self.shake.peer

    @property
    def certificate(self) -> Mapping[str, Any]:
        """What the other side showed of itself, as ssl tells it; empty without TLS."""
        return self._transport.get_extra_info("peercert") or {}

    @property
    def given_up(self) -> bool:
        """Whether this side ended it, or is about to: also when the other one has said that it will not have us."""
        return bool(self._reason)

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return 0 if self.closed else self._out_bytes + self._transport.get_write_buffer_size()

    # ---- sending

    def send(self, message: RaftMessage) -> bool:
        """Send a message after those before it; False when the link is not open or too much waits already.

        Never calls back. Raises raft.protocol.wire.WireError for a message that no frame holds.
        """
        return self.send_frame(*frame_message(message, fixed=self.fixed_heads))

    def send_frame(self, pieces: list[Piece], size: int) -> bool:
        """Send a message that was framed with this link's kind of heads; see send()."""
        if not self.opened or self.closed or self._reason:
            return False
        if self._out_bytes + self._transport.get_write_buffer_size() + size > self._limits.output_bytes_max:
            return False
        self._write(pieces, size)
        return True

    def close(self, reason: str) -> None:
        """Send what waits, then close."""
        if not self.closed:
            self._reason = self._reason or reason
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once."""
        if not self.closed:
            self._reason = self._reason or reason
            self._transport.abort()

    def beat(self) -> None:
        """Once each beat: show life, and give a link up that shows none."""
        if self.closed:
            return
        self._quiet_in += 1
        self._quiet_out += 1
        waiting = self.unsent
        taken = self._written - waiting
        self._stalled = self._stalled + 1 if waiting and taken == self._taken_before else 0
        self._taken_before = taken
        if self._stalled > self._limits.beats_max:
            self.abort(f"it takes nothing of the {waiting} bytes that wait for it")
        elif self._quiet_in > self._limits.beats_max:
            self.abort("nothing was heard of it")
        elif self._quiet_out > 1 and self.opened and not waiting:
            self._write([KEEPALIVE], len(KEEPALIVE))

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.address = (str(peer[0]), int(peer[1]))
        self._tune(transport)
        self._deadline = self._loop.call_later(self._limits.handshake_seconds, self._late)
        self._owner.link_made(self)
        if isinstance(self.shake, Dialler):
            self._write(*frame(self.shake.open()))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the next bytes go."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes in."""
        self._quiet_in = 0
        if nbytes >= SMALL_BYTES:
            self._count(nbytes)
        for head, payload in self._reader.filled(nbytes):
            if self.closed or self._reason:
                return
            if not self.opened:
                self._shake_on(head)
                continue
            try:
                message = decode(head, payload)
            except MessageError as error:
                self.abort(f"a message that cannot be read: {error}")
                return
            self._owner.link_received(self, message)
        if self._reader.error is not None:
            self.abort(str(self._reader.error))

    def eof_received(self) -> None:
        """Close: no link is used half."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner, once."""
        self.closed = True
        self._out = []
        if self._deadline is not None:
            self._deadline.cancel()
        if self._next_turn is not None:
            self._next_turn.cancel()
        reason = self._reason or (str(exc) if exc is not None else "the other side closed it")
        self.ended.set()
        self._owner.link_closed(self, reason)

    # ---- inside

    def _count(self, received: int) -> None:
        """Read no more in this turn of the loop once it is enough."""
        self._turn_bytes += received
        if self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._turn)
        if self._turn_bytes >= TURN_BYTES and not self._transport.is_closing():
            self._transport.pause_reading()

    def _turn(self) -> None:
        self._next_turn = None
        enough, self._turn_bytes = self._turn_bytes >= TURN_BYTES, 0
        if enough and not self.closed and not self._transport.is_closing():
            self._transport.resume_reading()

    def _shake_on(self, head: bytes) -> None:
        try:
            step = self.shake.take(head)
        except HandshakeRefused as refused:
            if refused.farewell:
                self._write(*frame(refused.farewell))
            self.close(str(refused))
            return
        if step.reply:
            self._write(*frame(step.reply))
        if step.done:
            assert self._deadline is not None, "set when the connection was made"
            self._deadline.cancel()
            self.opened = True
            self._reader.limit = FRAME_BYTES_MAX
            self._owner.link_opened(self)

    def _late(self) -> None:
        self.abort(f"no handshake within {self._limits.handshake_seconds:g} s")

    def _write(self, pieces: list[Piece], size: int) -> None:
        self._out_bytes += size
        self._written += size
        self._quiet_out = 0
        if self._flushes:
            self._out += pieces
            return
        # The first of a turn does not wait for the next one: an entry that comes alone is under way at once.
        self._flushes = True
        self._loop.call_soon(self._flush)
        self._hand_over(pieces)

    def _flush(self) -> None:
        self._flushes = False
        pieces, self._out, self._out_bytes = self._out, [], 0
        if pieces and not self.closed:
            self._hand_over(pieces)

    def _hand_over(self, pieces: list[Piece]) -> None:
        # A transport that failed to write is closed before connection_lost tells, and takes nothing then.
        if not self._transport.is_closing():
            self._transport.writelines(pieces)

    def _tune(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        if sock is None:
            return
        unanswered_ms = int(self._limits.beat_seconds * self._limits.beats_max * 1000)
        with contextlib.suppress(OSError):  # a socket that is gone already is reported by connection_lost
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unanswered_ms)
