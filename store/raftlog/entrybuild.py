"""Builds a leader's entries in the log's pending buffer: the hot path of every send in a group.

The records are put behind room for their control record, joined once with it, and the control record is made last,
since it speaks of all the rest.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from raft.protocol.types import EntryType, Mark
from remoting.compiled.door import COMPILED, hotpath
from remoting.record import BLANK_BYTES, BORNHOST_V6, HEADS, MAGIC_V1, STOREHOST_V6
from runtime.crc import crc32
from store.controlrecord import CONTROL_TAIL, Control, chained, control_bytes, encode_control
from store.log.assembler import Assembler
from store.log.commitlog import CommitLog
from store.recordrun import RecordRun
from store.types import Dispatched, PendingRecord, PutStatus

# Covered bytes of one entry. A single message may take 4 MiB and 64 KiB; callers make entries of up to 1 MiB.
ENTRY_BYTES_MAX = 8 * 1024 * 1024
_HEAD_BYTES_MAX = HEADS[BORNHOST_V6 | STOREHOST_V6].size
_OK = PutStatus.PUT_OK
_IPV4_BYTES = 8
_new = tuple.__new__  # without the frame of the NamedTuple's own function

Records = Sequence[PendingRecord | Sequence[PendingRecord]]


class Place(NamedTuple):
    """Where an entry comes into the log, and what its leader knows."""

    last: Mark
    last_config: int
    term: int
    commit: int


class Built(NamedTuple):
    """An entry in the pending buffer: write() stores it."""

    control: Control
    data: bytes | memoryview
    batch: list[Dispatched]
    """What its records will dispatch."""


class EntryBuilder:
    """Fills the pending buffer with one entry at a time. The assembler takes nothing between two of them."""

    def __init__(self, log: CommitLog, assembler: Assembler, store_host: bytes, file_bytes: int) -> None:
        self._log = log
        self._assembler = assembler
        self._store_host = store_host
        self._file_bytes = file_bytes
        self._control_bytes = control_bytes(store_host)
        self._bytes_max = min(ENTRY_BYTES_MAX, file_bytes - self._control_bytes - BLANK_BYTES)
        assembler.open_entry(0)

    def has_room(self, size: int) -> bool:
        """Tell whether one entry can have `size` bytes besides the fixed part of its control record."""
        return size <= self._bytes_max

    def build_control(self, kind: EntryType, place: Place, *, payload: bytes = b"", flags: int = 0) -> Built:
        """Build an entry that covers no records. Raises OSError; then nothing is pending."""
        if not self.has_room(len(payload)):
            raise ValueError(f"{len(payload)} bytes do not fit into one entry")
        self._make_room(self._control_bytes + len(payload))
        timestamp = self._assembler.stamp()
        control = self._control(kind, place, self._log.end, timestamp, payload=payload, flags=flags)
        data = encode_control(control, self._store_host)
        self._log.pieces.append(data)
        self._log.end += len(data)
        return Built(control, data, [])

    def build_records(self, records: Records, place: Place) -> tuple[Built | None, list[Any]]:
        """Build an entry of records, None when none was taken; and what became of each.

        Raises OSError; then nothing is pending.
        """
        log = self._log
        assert log.end == log.written, "entries are written as they are built"
        room = log.file_end - BLANK_BYTES - log.end - self._control_bytes
        if room < ENTRY_BYTES_MAX:
            self._make_room_for(records, room)
        position = log.end
        log.pieces.append(bytes(self._control_bytes))
        log.end += self._control_bytes
        try:
            results = self._put(records)
        except Exception:
            log.discard()
            raise
        batch = self._assembler.take_batch()
        if not batch:
            log.discard()
            return None, results
        data = bytearray().join(log.pieces)
        control = self._seal(data, place, position, len(batch))
        whole = memoryview(data).toreadonly()
        log.pieces = [whole]
        return _new(Built, (control, whole, batch)), results

    def _put(self, records: Records) -> list[Any]:
        """Put records behind the room for their control record, before the end of the file."""
        assembler = self._assembler
        limit = min(self._log.file_end - BLANK_BYTES, self._log.end + ENTRY_BYTES_MAX)
        assembler.open_entry(limit, self._bytes_max)
        try:
            if set(map(type, records)) == {PendingRecord}:
                return assembler.put_many(records)  # type: ignore[arg-type] # all of them single, as just seen
            results: list[Any] = []
            for each in records:
                if isinstance(each, PendingRecord):
                    results += assembler.put_many((each,))
                else:
                    placed = assembler.put_batch(each)
                    results.append(placed if placed[-1].status is _OK else placed[-1:])
            return results
        finally:
            assembler.open_entry(0)

    def _seal(self, data: bytearray, place: Place, position: int, count: int) -> Control:
        """Write the control record of an entry of messages to the front of its bytes."""
        last, last_config, term, commit = place
        timestamp = self._assembler.timestamp
        if COMPILED and len(self._store_host) == _IPV4_BYTES:
            assert term >= last.term, "terms never go back in a log"
            assert commit <= last.index, "an entry cannot know its own commit"
            return hotpath.seal_entry(
                Control, EntryType.MESSAGES, data, last.index + 1, position, timestamp, term, last.term, count, commit,
                last_config, last.chain, self._store_host, CONTROL_TAIL, MAGIC_V1, crc32,
            )  # fmt: skip
        covered = memoryview(data)[self._control_bytes :]
        summed = (len(covered), count, crc32(covered))
        control = self._control(EntryType.MESSAGES, place, position, timestamp, covered=summed)
        data[: self._control_bytes] = encode_control(control, self._store_host)
        return control

    def _control(
        self,
        kind: EntryType,
        place: Place,
        position: int,
        timestamp: int,
        *,
        payload: bytes = b"",
        flags: int = 0,
        covered: tuple[int, int, int] = (0, 0, 0),
    ) -> Control:
        last, term, commit = place.last, place.term, place.commit
        index = last.index + 1
        assert term >= last.term, "terms never go back in a log"
        assert commit < index, "an entry cannot know its own commit"
        config = index if kind is EntryType.CONFIG else place.last_config
        size = self._control_bytes + len(payload)
        control = Control(
            index, position, size, timestamp, kind, flags, term, last.term, *covered, commit, config, 0, payload
        )
        return chained(control, last.chain)

    def _make_room_for(self, records: Records, room: int) -> None:
        """Begin the next file when the records may not fit into what is left of this one."""
        size = sum([_bytes_at_most(each) for each in records])
        if size > room:
            self._make_room(size + self._control_bytes)

    def _make_room(self, size: int) -> None:
        """Begin the next file when an entry of `size` bytes does not fit into what is left of this one (R11)."""
        log = self._log
        if log.end + size + BLANK_BYTES > log.file_end and log.end % self._file_bytes:
            log.roll()


def _bytes_at_most(records: PendingRecord | Sequence[PendingRecord]) -> int:
    if type(records) is RecordRun:
        longest = max(map(len, records.rows.topics))
        return records.content_bytes + len(records) * (_HEAD_BYTES_MAX + longest + 4)
    if isinstance(records, PendingRecord):
        return _HEAD_BYTES_MAX + len(records.body) + len(records.topic) * 4 + 4 + len(records.properties)
    return sum([_bytes_at_most(record) for record in records])
