"""What all connections of one server, or of one client, share: handlers, limits, the set of them, the end of a turn."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sized
from typing import Any, Generic, Protocol, TypeVar

from remoting.codec import decode_parts, decode_signed_parts
from remoting.command import Command
from remoting.errors import FrameError
from remoting.limits import ConnectionLimits, ServerLimits
from remoting.per_address import PerAddress
from remoting.signing import Credentials
from remoting.turns import Turns
from remoting.unfinished import UnfinishedFrames
from runtime.busypoll import BusyPoll
from runtime.quiet import QuietLog
from runtime.tasks import Tasks

_log = logging.getLogger(__name__)

# The sweep runs this often per idle span, so a silent connection lives at most an eighth longer than it may.
SWEEPS_PER_IDLE = 8
# Seconds between two looks for frames that have taken too long, and for warnings that were left out.
OVERDUE_LOOKS_S = 5.0
# What a server refuses before a handler sees it: one connection too many; a frame that never became whole; bytes that
# are no frame (another protocol's, a length out of bounds, a header that cannot be read); answers that nobody takes.
REFUSALS = ("connections", "unfinished", "protocol", "length", "malformed", "unread")


class OpenConnection(Protocol):
    """What is needed of one connection."""

    @property
    def address(self) -> str:
        """The peer, "host:port"."""
        ...

    @property
    def peer(self) -> tuple[str, int]:
        """The peer, host and port."""
        ...

    @property
    def touched(self) -> int:
        """The sweep before which something moved last."""
        ...

    @property
    def waiting(self) -> Sized:
        """Requests of ours that are not answered."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it lives in."""
        ...

    @property
    def unserved(self) -> int:
        """Bytes of commands that wait for their turn."""
        ...

    @property
    def spent(self) -> int:
        """Bytes of answers of this turn."""
        ...

    def serve_more(self, most: int) -> bool:
        """Serve some of them; tell whether it can go on."""
        ...

    def flush(self) -> None:
        """Send what this turn has written."""
        ...

    def close(self) -> None:
        """End it when that has left."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


C = TypeVar("C", bound=OpenConnection)


def unfinished_frames(limits: ServerLimits, loop: asyncio.AbstractEventLoop) -> UnfinishedFrames[Any]:
    """Return a budget for frames that are not whole, for one server or for all of a process."""
    return UnfinishedFrames(limits.unfinished_bytes_max, limits.unfinished_seconds, loop.time)


class Side(Generic[C]):
    """Made once by each server and client, and handed to every connection."""

    def __init__(
        self,
        name: str,
        handlers: Mapping[int, Callable[[C, Command], Any]],
        limits: ConnectionLimits,
        *,
        connections_max: int,
        on_open: Callable[[C], None] | None = None,
        on_close: Callable[[C], None] | None = None,
        on_unsupported: Callable[[C, Command], Command | None] | None = None,
        congested: Callable[[], bool] = lambda: False,
        signed: bool = False,
        unfinished: UnfinishedFrames[C] | None = None,
        polling: BusyPoll | None = None,
    ) -> None:
        """`unfinished`: the budget that it shares with other ports; a server that is given none has one of its own."""
        self.name = name
        self.decode = decode_signed_parts if signed else decode_parts
        self.handlers = handlers
        self.limits = limits
        self.connections_max = connections_max
        self.on_open = on_open
        self.on_close = on_close
        self.on_unsupported = on_unsupported
        # What a client's requests are signed with.
        self.credentials: Credentials | None = None
        self.connections: set[C] = set()
        self.tasks = Tasks(name)
        # Bytes of the requests that these hold.
        self.task_bytes = 0
        self.tick = 0
        self.polling = polling
        # What is logged of peers that send what they should not.
        self.quiet = QuietLog(_log)
        # A server reads as fast as its peers take their answers, and in turns: a client reads what it has asked for.
        self.pauses_reading = isinstance(limits, ServerLimits)
        self._unfinished: UnfinishedFrames[C] | None = None
        self._per_address: PerAddress | None = None
        self.turns: Turns[C] | None = None
        if isinstance(limits, ServerLimits):
            loop = asyncio.get_running_loop()
            self._unfinished = unfinished_frames(limits, loop) if unfinished is None else unfinished
            self._unfinished.joined(self._cut_off)
            self._per_address = PerAddress(limits.connections_per_address_max)
            self.turns = Turns(loop.call_soon, loop.call_later, loop.time, congested)
        self.refused = dict.fromkeys(REFUSALS, 0)
        self._written: list[C] = []
        self._empty = asyncio.Event()
        self._closing = False

    def written(self, connection: C) -> None:
        """Remember a connection that has something to send at the end of this turn."""
        if not self._written:
            connection.loop.call_soon(self._flush)
        self._written.append(connection)

    def holds(self, size: int) -> bool:
        """Count in a request that a task holds, so many bytes; False when all that they hold would be too much."""
        if self.task_bytes + size > self.limits.task_bytes_max:
            return False
        self.task_bytes += size
        return True

    def sweep(self) -> None:
        """Close the connections on which nothing has moved for the idle span; called SWEEPS_PER_IDLE times in it."""
        self.tick += 1
        for connection in list(self.connections):
            if self.tick - connection.touched > SWEEPS_PER_IDLE and not connection.waiting:
                _log.debug("%s: nothing from %s for %g s", self.name, connection.address, self.limits.idle_seconds)
                connection.close()

    def cut_off_overdue(self) -> None:
        """Close the connections with a frame that is not whole in its time."""
        if self._unfinished is not None:
            for connection in self._unfinished.overdue():
                # Those of another port that shares the budget are found by that one.
                self._cut_off(connection, f"a frame is not whole after {self._unfinished.seconds_max:g} s")

    def kept(self, connection: C, size: int, *, anew: bool) -> None:
        """Note what a connection has of a frame that is not whole, `anew`: of another one than before."""
        if self._unfinished is None:
            return
        victim = self._unfinished.note(connection, size, anew=anew)
        if victim is not None:
            why = f"{self._unfinished.total} bytes are kept of frames that are not whole, it has most"
            self._unfinished.close(victim, why)

    def bad_frame(self, error: FrameError) -> None:
        """Count bytes that are no frame, by what FrameReader says of them."""
        said = str(error)
        what = "protocol" if said.startswith("no frame but") else "length" if said.startswith("a frame of") else ""
        self.refused[what or "malformed"] += 1

    def _cut_off(self, connection: C, why: str) -> bool:
        if connection not in self.connections:
            return False
        self.refused["unfinished"] += 1
        self.warn("unfinished", connection, "closed: %s", why)
        connection.abort()
        return True

    def warn(self, kind: str, connection: C, text: str, *values: object) -> None:
        """Log a warning about a peer; of one address and kind one line in ten seconds (runtime/quiet.py)."""
        self.quiet.warning(kind, connection.peer[0], "%s: %s " + text, self.name, connection.address, *values)

    def start_sweeping(self) -> None:
        """Sweep from now on until `close`."""
        self.tasks.every(self.limits.idle_seconds / SWEEPS_PER_IDLE, self.sweep, "idle sweep")
        self.tasks.every(OVERDUE_LOOKS_S, self.quiet.tell, "warnings left out")
        if self._unfinished is not None:
            # Not with the idle span, which a configuration may make an hour.
            self.tasks.every(OVERDUE_LOOKS_S, self.cut_off_overdue, "frames that are not whole")

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

    def opened(self, connection: C) -> bool:
        """Count a new connection in; False when there are too many or no more are wanted."""
        if self._closing:
            return False
        if len(self.connections) >= self.connections_max:
            self.refused["connections"] += 1
            self.warn("connections", connection, "refused, %d connections are open", self.connections_max)
            return False
        if self._per_address is not None and not self._per_address.enter(connection.peer[0]):
            self.refused["connections"] += 1
            most = self._per_address.limit
            self.warn("address", connection, "refused, its address has %d connections", most)
            return False
        self.connections.add(connection)
        if self.on_open is not None:
            self.on_open(connection)
        return True

    def lost(self, connection: C) -> None:
        """Count an ended connection out."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        if self._per_address is not None:
            self._per_address.leave(connection.peer[0])
        self.kept(connection, 0, anew=True)
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
