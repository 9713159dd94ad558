"""Two sockets, and a chain of stages in each direction between them."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterable
from random import Random
from typing import cast

from chaos.proxy.journal import Counters, StreamCounters
from chaos.proxy.stages import STAGES, Outlet, Stage, Timers
from chaos.proxy.toxics import STREAMS, Stream, Toxic

# What the stages of one direction of one connection may keep before its source is read no more: then TCP holds the
# sender back, and nothing is lost. A piece counts as its bytes and what it costs to keep it.
KEPT_BYTES_MAX = 4 * 1024 * 1024
PIECE_COST_BYTES = 128
# What may wait in a socket's write buffer before the other socket is read no more.
WRITE_BUFFER_BYTES_MAX = 256 * 1024
# SO_LINGER with no time: a close that resets.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ProxySide(asyncio.Protocol):
    """One socket of a connection: the dialler's or the answerer's."""

    def __init__(self, made: Callable[[], None], lost: Callable[["ProxySide"], None]) -> None:
        """`made` is called when the socket is there, `lost`, once, when it is gone or will never be there."""
        self._made = made
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._stopped = False
        self._feeds: Direction | None = None
        self._fed_by: Direction | None = None
        # What came before the other side was there.
        self._early: list[bytes] = []
        self._ended = False
        self.gone = False

    def join(self, feeds: "Direction", fed_by: "Direction") -> None:
        """Give what comes in to `feeds`; `fed_by` writes here."""
        self._feeds, self._fed_by = feeds, fed_by
        for data in self._early:
            feeds.take(data)
        self._early.clear()
        if self._ended:
            feeds.finish()
        if self.gone:
            fed_by.nobody_takes()
        self.read(not feeds.full)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self._transport = cast("asyncio.Transport", transport)
        if self.gone:
            # Aborted while it was dialled.
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._made()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; before the other side is there, keep one piece and read no more."""
        if self._feeds is None:
            self._early.append(data)
            self.read(wanted=False)
        else:
            self._feeds.take(data)

    def eof_received(self) -> bool:
        """Pass the end on; this socket is still written to."""
        self._end()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        """Pass the end on, and tell that nobody takes anything here."""
        if self.gone:
            return
        self.gone = True
        self._end()
        if self._fed_by is not None:
            self._fed_by.nobody_takes()
        self._lost(self)

    def pause_writing(self) -> None:
        """Note that the peer does not read fast enough."""
        if self._fed_by is not None:
            self._fed_by.sink_is_full(full=True)

    def resume_writing(self) -> None:
        """Note that the peer has read."""
        if self._fed_by is not None:
            self._fed_by.sink_is_full(full=False)

    def read(self, wanted: bool) -> None:
        """Read from the socket, or not for now."""
        if self._transport is None or self._transport.is_closing() or self._ended or self._stopped is not wanted:
            return
        self._stopped = not wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def write(self, data: bytes) -> bool:
        """Write bytes; returns False when the socket takes none any more."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        return True

    def close(self) -> None:
        """Close behind what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, reset: bool = False) -> None:
        """Close now; with `reset` the peer gets a RST and no end of stream."""
        if self._transport is None:
            self.connection_lost(None)
            return
        if reset and not self._transport.is_closing():
            # The peer may have gone in this very moment: there is nobody to reset, then.
            with contextlib.suppress(OSError):
                held = self._transport.get_extra_info("socket")
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self._feeds is not None:
                self._feeds.finish()


class Direction:
    """The chain of stages from one side to the other; an Outlet itself: its last link, which writes to the sink."""

    def __init__(
        self, source: ProxySide, sink: ProxySide, counters: StreamCounters, timers: Timers, reset: Callable[[], None]
    ) -> None:
        self.timers = timers
        self.reset = reset
        self._source = source
        self._sink = sink
        self._counters = counters
        self._stages: dict[str, Stage | None] = {}
        # The chance of each toxic in this connection, drawn once: it keeps it when the toxicity is changed.
        self._rolls: dict[str, float] = {}
        self._head: Outlet = _Writer(self)
        self._tail = self._head
        self._kept_pieces = 0
        self._kept_bytes = 0
        self._sink_full = False
        self._dropped = False

    @property
    def full(self) -> bool:
        """Whether its source is to be read no more for now."""
        kept = self._kept_bytes + self._kept_pieces * PIECE_COST_BYTES
        return not self._dropped and (self._sink_full or kept > KEPT_BYTES_MAX)

    def take(self, data: bytes) -> None:
        """Take bytes of the source."""
        self._counters.received += len(data)
        self._head.take(data)

    def finish(self) -> None:
        """Take the end of the source."""
        self._head.end()

    def add(self, toxic: Toxic, random: Random) -> None:
        """Put a toxic at the chain's end, if this connection is to have it."""
        if self._dropped:
            return
        self._rolls[toxic.name] = random.random()
        has_it = self._rolls[toxic.name] < toxic.toxicity
        self._stages[toxic.name] = stage = STAGES[toxic.type](self, toxic.attributes, random) if has_it else None
        self._link()
        if stage is not None:
            stage.start()

    def update(self, toxic: Toxic, random: Random) -> None:
        """Give a toxic other attributes or another toxicity."""
        if toxic.name not in self._stages:
            return
        stage, has_it = self._stages[toxic.name], self._rolls[toxic.name] < toxic.toxicity
        if stage is not None and has_it:
            stage.retune(toxic.attributes)
        elif stage is not None:
            self._stages[toxic.name] = None
            self._take_out(stage)
        elif has_it:
            self._stages[toxic.name] = stage = STAGES[toxic.type](self, toxic.attributes, random)
            self._link()
            stage.start()

    def remove(self, name: str) -> None:
        """Take a toxic out of the chain; what it kept goes on first."""
        stage = self._stages.pop(name, None)
        self._rolls.pop(name, None)
        if stage is not None:
            self._take_out(stage)

    def nobody_takes(self) -> None:
        """Throw away what is kept and what comes: the sink is gone. Read on, so that the source's end is seen."""
        if self._dropped:
            return
        self._dropped = True
        stages = [stage for stage in self._stages.values() if stage is not None]
        self.lose(self._kept_bytes)
        for stage in stages:
            stage.drop()
        self._stages.clear()
        self._head = self._tail
        self._source.read(wanted=True)

    def sink_is_full(self, full: bool) -> None:
        """Note that the sink takes no more for now, or again."""
        self._sink_full = full
        self._source.read(not self.full)

    def keep(self, pieces: int, count: int) -> None:
        """Note what stages keep."""
        self._kept_pieces += pieces
        self._kept_bytes += count
        self._counters.kept += count
        self._source.read(not self.full)

    def lose(self, count: int) -> None:
        """Note bytes that were thrown away."""
        self._counters.lost += count

    def write(self, data: bytes) -> None:
        """Give bytes to the sink."""
        if self._sink.write(data):
            self._counters.sent += len(data)
        else:
            self.lose(len(data))

    def close(self) -> None:
        """End the sink."""
        self._sink.close()

    def _take_out(self, stage: Stage) -> None:
        # Its `after` stays: it gives away what it kept to whoever stands behind it.
        stage.leave()
        if not self._dropped:
            self._link()

    def _link(self) -> None:
        after: Outlet = self._tail
        for stage in reversed(self._stages.values()):
            if stage is not None:
                stage.after = after
                after = stage
        self._head = after


class _Writer:
    """The end of the chain."""

    def __init__(self, direction: Direction) -> None:
        self.take = direction.write
        self.end = direction.close


class ProxiedConnection:
    """The dialler's socket, the answerer's once it is there, and what stands between them."""

    def __init__(
        self,
        number: int,
        counters: Counters,
        timers: Timers,
        accepted: Callable[[], None],
        done: Callable[["ProxiedConnection"], None],
    ) -> None:
        """Count it as `number` of its proxy, from 0.

        `accepted` is called with the dialler's socket there, `done` once both sockets are gone.
        """
        self.number = number
        self.near = ProxySide(accepted, self._side_lost)
        self.far = ProxySide(lambda: None, self._side_lost)
        self._counters = counters
        self._timers = timers
        self._done = done
        self._ends = {self.near, self.far}
        self._directions: dict[Stream, Direction] = {}

    def join(self, toxics: Iterable[tuple[Toxic, Random]]) -> None:
        """Let bytes flow between the dialler (`near`) and the answerer (`far`), whose socket is there now."""
        near, far = self.near, self.far
        up, down = self._counters.upstream, self._counters.downstream
        self._directions = {
            "upstream": Direction(near, far, up, self._timers, self.reset),
            "downstream": Direction(far, near, down, self._timers, self.reset),
        }
        for toxic, random in toxics:
            self.add(toxic, random)
        upstream, downstream = (self._directions[stream] for stream in STREAMS)
        far.join(downstream, upstream)
        near.join(upstream, downstream)

    def add(self, toxic: Toxic, random: Random) -> None:
        """Add a toxic to the chain of its direction."""
        if direction := self._directions.get(toxic.stream):
            direction.add(toxic, random)

    def update(self, toxic: Toxic, random: Random) -> None:
        """Change a toxic; `random` is for a connection that gets it only now."""
        if direction := self._directions.get(toxic.stream):
            direction.update(toxic, random)

    def remove(self, toxic: Toxic) -> None:
        """Remove a toxic."""
        if direction := self._directions.get(toxic.stream):
            direction.remove(toxic.name)

    def reset(self) -> None:
        """Reset both sides."""
        self._counters.reset += 1
        self.abort(reset=True)

    def abort(self, reset: bool = False) -> None:
        """Close both sides now; what is kept is thrown away."""
        for direction in self._directions.values():
            direction.nobody_takes()
        for side in (self.near, self.far):
            side.abort(reset)

    def _side_lost(self, side: ProxySide) -> None:
        self._ends.remove(side)
        if not self._ends:
            self._done(self)
