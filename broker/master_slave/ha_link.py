"""One slave at the master's HA port: what it reports is judged here, and the log is pushed to it from here.

A link that has sent everything waits for `HaServer.advanced()`. One that has not is gone on with by exactly one of
these: the transport (its unsent bytes have sunk), a read of what is not in memory, a timer (send-rate limit), the
loop's next turn.
"""

import asyncio
import logging
from concurrent.futures import Executor
from typing import Protocol, cast

from broker.master_slave.ha_rate import RateLimit
from broker.master_slave.ha_secret import MAGIC, MasterProof, ProofRefused
from broker.settings.pair_keys import ClassicKeys
from remoting.address import format_address
from remoting.haframes import ReportReader, head
from runtime.loop import writes

_log = logging.getLogger(__name__)

# Unsent bytes of one slave at which pushing pauses, and goes on: the rest is read from the log when its time comes.
# Together with one push this bounds what a slave that reads nothing can cost.
OUTPUT_HIGH_BYTES = 1024 * 1024
OUTPUT_LOW_BYTES = 256 * 1024
# Bytes that one slave is pushed in one turn of the loop: some tenths of a millisecond, so that one that catches up does
# not hold up the sends.
PUSH_BYTES_MAX = 1024 * 1024
# Bytes that are read from the log at a time. They may leave in several frames, see haTransferBatchSize.
PIECE_BYTES = 256 * 1024
# How long a slave whose link ends before damaged bytes may take to get what was sent before them.
LAST_SECONDS = 5.0

# What a slave that has a secret says first, read as a report.
_MAGIC_REPORT = int.from_bytes(MAGIC, "big", signed=True)


class CheckedPiece(Protocol):
    """Bytes that may go; see store.integrity.pushed.PushedPiece."""

    @property
    def data(self) -> memoryview | bytes:
        """The bytes, some unless what stands there is damaged."""
        ...

    @property
    def border(self) -> int:
        """What the next check wants to know."""
        ...

    @property
    def damaged(self) -> tuple[int, str] | None:
        """Where, and why, nothing may go."""
        ...


class PushedLog(Protocol):
    """What is needed of the store."""

    @property
    def file_bytes(self) -> int:
        """The size of a file of the log."""
        ...

    def log_range(self) -> tuple[int, int]:
        """Return the position of the first byte that is kept, and the one behind the last byte written."""
        ...

    def fresh_piece(self, position: int, size_max: int) -> memoryview | bytes | None:
        """Return bytes of one file from a position on, None unless this process wrote them and has them at hand."""
        ...

    def checked_piece(self, position: int, size_max: int, border: int) -> CheckedPiece:
        """Return such bytes from disk, their records checked, for any thread. Raises OSError and EOFError.

        `border`: what the piece before, of the same log, ended with; -1 when there is none.
        """
        ...

    def note_damaged(self, position: int, reason: str) -> None:
        """Count a place that a check has found damaged."""
        ...


class HaLinkOwner(Protocol):
    """What a link needs of the server."""

    log: PushedLog
    loop: asyncio.AbstractEventLoop
    threads: Executor
    pushing: bool

    def proof(self) -> MasterProof | None:
        """Return what a new connection must do first, None when anybody may be a slave."""
        ...

    def keys(self) -> ClassicKeys:
        """Return the configuration that holds now."""
        ...

    def opened(self, link: "HaLink") -> None:
        """Count a connection in; it may be aborted there."""
        ...

    def admit(self, link: "HaLink") -> bool:
        """Take a connection for a slave's, after its first report; False when there are too many."""
        ...

    def reported(self) -> None:
        """Note that something of what slaves hold may have changed."""
        ...

    def lost(self, link: "HaLink") -> None:
        """Count an ended connection out."""
        ...

    def damaged(self, link: "HaLink", position: int) -> None:
        """Count a connection that ends because what it is to be sent next is damaged."""
        ...

    def complain(self, link: "HaLink", what: str) -> None:
        """Log why a connection is closed."""
        ...


class HaLink(asyncio.Protocol):
    """A connection at the HA port. Positions: `sent` behind what was pushed, `acked` as the slave has reported.

    `proof` is what must come first, if anything; `in_use` tells whether a report was accepted: before, it is nobody's.
    """

    _transport: asyncio.Transport

    def __init__(self, owner: HaLinkOwner) -> None:
        self._owner = owner
        self._log = owner.log
        self._loop = owner.loop
        self._reader = ReportReader()
        self.proof = owner.proof()
        self.host = ""
        self.address = ""
        self.in_use = False
        self.closed = False
        self.at_end = False
        self.sent = 0
        self.acked = 0
        self.begin = 0
        # Bytes pushed on this connection, and per second as of the last look.
        self.pushed_bytes = 0
        self.bytes_per_second = 0.0
        self._measured = (owner.loop.time(), 0)
        # Another connection of this host has reported since. This one may be a dead end of the same slave: for counting
        # heads it must first hold something behind this position, which it can only have got after that.
        self.doubted_at: int | None = None
        self._heard_at = self._wrote_at = owner.loop.time()
        self._rate = RateLimit(self._heard_at)
        self._paused = False
        self._busy = False
        # A border of records at or before `sent`, -1 when none is known.
        self._border = -1

    # -- what the server uses

    @property
    def counts_as_another(self) -> bool:
        """Whether this is for sure not a dead connection of a slave that has a newer one."""
        return self.doubted_at is None or self.acked > self.doubted_at

    def push(self) -> None:
        """Send what the log has behind `sent`, as far as limits allow."""
        owner = self._owner
        self.at_end = False
        if self._paused or self._busy or self.closed or not owner.pushing:
            return
        least, written = self._log.log_range()
        if self.sent < least:
            self.fail(f"needs the log from {self.sent} on, of which only what stands behind {least} is kept")
            return
        keys = owner.keys()
        left = PUSH_BYTES_MAX
        if keys.haFlowControlEnable and self.sent < written and (left := self._rate_left(keys)) == 0:
            return
        while self.sent < written:
            if left <= 0:
                self._busy = True
                self._loop.call_soon(self._go_on)
                return
            piece = self._log.fresh_piece(self.sent, min(left, PIECE_BYTES))
            if piece is None:
                self._read_cold(min(left, PIECE_BYTES))
                return
            self._send(piece, keys)
            left -= len(piece)
            if self._paused or self.closed:
                return
        self.at_end = True

    def look(self, now: float, keys: ClassicKeys) -> None:
        """Give a sign of life when it is time for one, and end a connection whose other side gives none."""
        if now - self._heard_at > keys.haHousekeepingInterval / 1000:
            self.fail(f"was silent for {now - self._heard_at:.1f} s")
            return
        if self.in_use and not self._paused and now - self._wrote_at >= keys.haSendHeartbeatInterval / 1000:
            self._beat(now)
        then, before = self._measured
        if now - then >= 1.0:
            self.bytes_per_second = (self.pushed_bytes - before) / (now - then)
            self._measured = (now, self.pushed_bytes)

    def _beat(self, now: float) -> None:
        self._wrote_at = now
        self._transport.write(head(self.sent, 0))

    def fail(self, what: str) -> None:
        """End the connection at once and log why."""
        if not self.closed:
            self._owner.complain(self, what)
            self.abort()

    def close(self) -> None:
        """Send what has been written, and end the connection."""
        self.closed = True
        self.at_end = False
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once; what is unsent is lost."""
        self.closed = True
        self.at_end = False
        self._transport.abort()

    # -- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take up a connection that has come about."""
        # uvloop's transports have the methods but not the base class.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else "?"
        self.address = format_address(self.host, int(peer[1])) if peer else "?"
        self._transport.set_write_buffer_limits(OUTPUT_HIGH_BYTES, OUTPUT_LOW_BYTES)
        self._writes = writes(self._transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Take the slave's reports; the first one that cannot be true ends the connection and moves nothing."""
        if self.closed:
            return
        self._heard_at = self._loop.time()
        if self.proof is not None and not (data := self._prove(self.proof, data)):
            return
        offsets = self._reader.feed(data)
        if not offsets:
            return
        for offset in offsets:
            if not self.in_use:
                if not self._first_report(offset):
                    return
            elif offset == self.acked:
                continue
            elif not max(self.acked, self.begin) <= offset <= self.sent:
                self.fail(f"reported {offset}, but had reported {self.acked} and was sent {self.begin} to {self.sent}")
                return
            else:
                self.acked = offset
        self._owner.reported()

    def pause_writing(self) -> None:
        """Note that the slave takes the log too slowly."""
        self._paused = True
        self.at_end = False

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        if self.in_use:
            self.push()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the slave; nothing that it had reported counts any more."""
        self.closed = True
        self.at_end = False
        if self.in_use:
            reason = f": {exc}" if exc is not None else ""
            _log.info("slave %s is gone at %d%s", self.address, self.acked, reason)
        self._owner.lost(self)

    # -- inside

    def _prove(self, proof: MasterProof, data: bytes) -> bytes:
        """Take what comes before the first report; returns what came behind it."""
        try:
            answer, rest = proof.take(data)
        except ProofRefused as error:
            self.fail(str(error))
            return b""
        if answer:
            self._transport.write(answer)
        if proof.done:
            self.proof = None
        return rest

    def _first_report(self, offset: int) -> bool:
        """Accept what a connection says first, and begin to push; False when it was ended."""
        least, written = self._log.log_range()
        if offset == _MAGIC_REPORT:
            self.fail("wants proof of the secret of haSecretFile, and this master has none")
        elif offset < 0 or offset > written:
            self.fail(f"reported {offset} at first, but the log ends at {written}")
        elif 0 < offset < least:
            self.fail(f"reported {offset} at first, but the log is kept from {least} on: empty this slave's store")
        elif not self._owner.admit(self):
            self.abort()
        else:
            keys = self._owner.keys()
            begin = offset
            if offset == 0:
                begin = max(least, written - written % self._log.file_bytes) if keys.syncFromLastFile else least
            self.in_use = True
            self.begin = self.sent = begin
            self.acked = offset
            _log.info("slave %s has the log up to %d and is sent it from %d on", self.address, offset, begin)
            self.push()
            if self.at_end and not self.pushed_bytes:
                # A sign of life: the slave need not wait for the first message to know that it is served.
                self._beat(self._loop.time())
            return not self.closed
        return False

    def _send(self, data: memoryview | bytes, keys: ClassicKeys) -> None:
        """Hand bytes that stand at `sent` to the transport, in frames, in one write and without copying them.

        What lies in a mapped file stays valid while the transport keeps it, also when the file is given up or removed
        meanwhile: a view keeps its mapping, a mapping its file's bytes; and written bytes of a master's log never
        change.
        """
        size, batch = len(data), keys.haTransferBatchSize
        assert size, "the log is written further, but nothing can be read there"
        sent = self.sent
        if size <= batch:
            pieces: list[memoryview | bytes] = [head(sent, size), data]
        else:
            view = memoryview(data)
            pieces = []
            for at in range(0, size, batch):
                piece = view[at : at + batch]
                pieces += (head(sent + at, len(piece)), piece)
        # First: the transport may call pause_writing, and whoever is asked then must see what was sent.
        self.sent = sent + size
        self.pushed_bytes += size
        self._wrote_at = self._loop.time()
        if keys.haFlowControlEnable:
            self._rate.spent(size)
        self._writes(pieces)

    def _rate_left(self, keys: ClassicKeys) -> int:
        """Return how many bytes may leave now, by haFlowControlEnable; 0 when a timer will go on."""
        rate = keys.maxHaTransferByteInSecond
        count, seconds = self._rate.allowed(rate, keys.haTransferBatchSize, self._loop.time())
        if count == 0:
            self._busy = True
            self._loop.call_later(seconds, self._go_on)
        return min(count, PUSH_BYTES_MAX)

    def _read_cold(self, size_max: int) -> None:
        self._busy = True
        checked = self._log.checked_piece
        reading = self._loop.run_in_executor(self._owner.threads, checked, self.sent, size_max, self._border)
        reading.add_done_callback(self._cold_read)

    def _cold_read(self, reading: "asyncio.Future[CheckedPiece]") -> None:
        self._busy = False
        if self.closed or reading.cancelled():
            return
        error = reading.exception()
        if error is not None:
            self.fail(f"cannot be sent the log at {self.sent}: {type(error).__name__}: {error}")
            return
        piece = reading.result()
        if self._owner.pushing and piece.damaged is not None:
            self._stop_at(*piece.damaged)
        elif self._owner.pushing and piece.data:
            self._border = piece.border
            self._send(piece.data, self._owner.keys())
        self.push()

    def _stop_at(self, position: int, reason: str) -> None:
        """End the connection before a record that is not what was written (R18), which no slave of RocketMQ checks.

        What was sent before it arrives first: else a slave that comes again would never have more than it has now.
        """
        self._log.note_damaged(position, reason)
        self._owner.complain(self, f"is not sent what stands damaged in the CommitLog at {position}: {reason}")
        self._owner.damaged(self, position)
        self.close()
        self._loop.call_later(LAST_SECONDS, self._transport.abort)

    def _go_on(self) -> None:
        self._busy = False
        self.push()
