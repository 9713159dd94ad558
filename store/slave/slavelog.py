"""The log of a slave: bytes that its master pushed, stored where they stood there, as soon as they are checked.

Frames end anywhere, so the last record may be there in part. It waits: queues, index and checkpoint know whole records
only, and should nothing more come, close() and recovery cut it off.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from remoting.record import RecordError
from store.errors import ReplicaRefused, StoreWriteError
from store.log.assembler import Assembler
from store.log.commitlog import CommitLog
from store.log.flusher import Flusher
from store.log.health import Health
from store.slave.recordreader import RecordReader
from store.types import Dispatched

# Checked records that wait for dispatch(), about 400 bytes each; at the limit append() dispatches them itself.
WAITING_RECORDS_MAX = 131_072
# Bytes of the log that one dispatch() takes unless it is told otherwise: some 50 ms with small messages.
DISPATCH_BYTES_MAX = 4 * 1024 * 1024


class SlaveParts(NamedTuple):
    """The parts of the store that a slave's log works with."""

    log: CommitLog
    assembler: Assembler
    flusher: Flusher
    health: Health
    deliver: Callable[[list[Dispatched]], None]
    """Brings records into queues and index and tells of them."""
    make_room: Callable[[], None]
    """Has zeros written ahead."""
    levels_ms: tuple[int, ...]


class SlaveLog:
    """Made by MessageStore.open(…, slave=True); everything is called in the store's thread."""

    def __init__(self, parts: SlaveParts) -> None:
        self._parts = parts
        self._log = parts.log
        self._file_bytes = parts.log.file_bytes
        self._reader = RecordReader(parts.levels_ms)
        # Behind the last whole record; what lies between this and the end of the log is `_open`.
        self._whole = parts.log.written
        self._open = bytearray()
        # Bytes that the open record takes, as far as its beginning tells.
        self._needed = 0
        # Where the file ends whose blank has begun, 0 when none has. What stands behind a blank's eight bytes is
        # nothing (RocketMQ leaves what it finds there), and yet the same in both logs.
        self._blank_until = 0
        # (records, position behind them) of each frame that is not dispatched yet.
        self._waiting: deque[tuple[list[Dispatched], int]] = deque()
        self._waiting_records = 0

    @property
    def written(self) -> int:
        """The position behind the last byte that stands in the log: what a master is told."""
        return self._log.written

    @property
    def flushed(self) -> int:
        """Everything before this position is on disk."""
        return self._log.flushed

    @property
    def dispatched(self) -> int:
        """The position behind the last whole record that is in queues and index."""
        return self._log.dispatched

    def append(self, position: int, data: bytes | memoryview) -> int:
        """Store bytes of one log file that stand at `written` in the master's log; return the new `written`.

        A log that is empty from position 0 on begins with whatever file the first bytes begin. Raises ReplicaRefused
        when they are not what comes next, or no log: nothing of them is stored, and of a record that began before
        them and is damaged nothing is left; StoreWriteError: nothing of them is stored.
        """
        log = self._log
        if self._parts.health.failed is not None:
            raise StoreWriteError(self._parts.health.failed)
        if self._parts.health.crowded:
            raise StoreWriteError("too many queue entries wait for room on the disk")
        begins = position != log.written
        if begins and not self._may_begin(position):
            raise ReplicaRefused(f"the log ends at {log.written}, what was sent stands at {position}")
        if not data:
            return log.written
        file_end = position - position % self._file_bytes + self._file_bytes
        if position + len(data) > file_end:
            raise ReplicaRefused(f"{len(data)} bytes at {position} do not end in their file")
        data = bytes(data)
        if begins:
            self._begin(position, data)
        if self._blank_until:
            self._write(data)
            self._end_blank()
        elif len(self._open) + len(data) < self._needed:
            self._write(data)
            self._open += data
        else:
            self._append_records(data, file_end)
        if self._waiting_records > WAITING_RECORDS_MAX:
            self.dispatch(self._waiting_bytes)
        return log.written

    def dispatch(self, bytes_max: int = DISPATCH_BYTES_MAX) -> bool:
        """Bring whole records into queues and index, up to so many bytes of the log; tell whether more are left.

        Raises StoreWriteError when they cannot be taken; the store is over then.
        """
        log, waiting = self._log, self._waiting
        until = log.dispatched + bytes_max
        batch: list[Dispatched] = []
        end = self._whole
        while waiting and (not batch or waiting[0][1] <= until):
            records, end = waiting.popleft()
            batch = batch + records if batch else records
        if batch:
            self._waiting_records -= len(batch)
            self._parts.assembler.stamp(max([entry[6] for entry in batch]))
            self._parts.deliver(batch)
        log.dispatched = end if waiting else self._whole
        return bool(waiting)

    def flush_soon(self) -> None:
        """Have all that is written made durable; StoreEvents.flushed, in a thread, tells when it is."""
        self._parts.flusher.ask(self._log.written)

    def finish(self) -> None:
        """Dispatch what is whole and cut off what is not, before the store is closed. Raises StoreWriteError."""
        while self.dispatch():
            pass
        self._drop_open()

    # -- within

    def _may_begin(self, position: int) -> bool:
        return self._log.written == 0 and position % self._file_bytes == 0

    def _begin(self, position: int, data: bytes) -> None:
        parts = self._parts
        try:
            self._reader.read(data, position, position + self._file_bytes)
            with parts.flusher.syncing:
                self._log.begin(position)
        except RecordError as error:
            raise ReplicaRefused(f"what was sent is no log: {error}") from error
        except OSError as error:
            reason = f"the CommitLog cannot begin at {position}: {error}; restart the broker"
            parts.health.fail(reason)
            raise StoreWriteError(reason) from error
        parts.assembler.moved()
        self._whole = position

    @property
    def _waiting_bytes(self) -> int:
        return self._whole - self._log.dispatched

    def _append_records(self, data: bytes, file_end: int) -> None:
        whole = bytes(self._open) + data if self._open else data
        try:
            taken = self._reader.read(whole, self._whole, file_end)
        except RecordError as error:
            # Its beginning may be what is wrong: the master is asked for all of it again.
            self._drop_open()
            raise ReplicaRefused(f"what was sent is no log: {error}") from error
        self._write(data)
        self._whole += taken.size
        self._needed = taken.needed
        self._open = bytearray()
        if taken.blank:
            self._blank_until = file_end
            self._end_blank()
        else:
            self._open += whole[taken.size :]
        if taken.batch:
            last = taken.batch[-1]
            self._waiting.append((taken.batch, last.physical_offset + last.size))
            self._waiting_records += len(taken.batch)

    def _end_blank(self) -> None:
        if self._log.written == self._blank_until:
            self._whole = self._blank_until
            self._blank_until = self._needed = 0

    def _write(self, data: bytes) -> None:
        log, parts = self._log, self._parts
        try:
            parts.health.regain()
            log.take_over(data)
            log.write()
            parts.health.wrote()
        except OSError as error:
            parts.health.undo_write(error)
            raise StoreWriteError(f"the CommitLog cannot be written: {error}") from error
        if log.wants_room:
            parts.make_room()

    def _drop_open(self) -> None:
        """Let the log end behind its last whole record."""
        log, parts = self._log, self._parts
        if log.written == self._whole:
            return
        try:
            with parts.flusher.syncing:
                parts.flusher.cut(self._whole)()
        except OSError as error:
            reason = f"the CommitLog cannot be cut at {self._whole}: {error}; restart the broker"
            parts.health.fail(reason)
            raise StoreWriteError(reason) from error
        parts.assembler.moved()
        self._open = bytearray()
        self._needed = self._blank_until = 0
