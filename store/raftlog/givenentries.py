"""Reads entries off bytes that a peer gave, each one checked against the chain of the one before, in one pass (R4)."""

import struct

from raft.protocol.types import EntryRefused, Mark
from remoting.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES
from store.controlrecord import Control, ControlError, continues, decode_control
from store.log.logscan import check_record
from store.raftlog.entrycheck import Checked, check_next
from store.raftlog.givenbytes import GivenBytes
from store.raftlog.groupscan import mark_of

_SIZE_AND_MAGIC = struct.Struct(">iI")


class GivenEntries:
    """What was given, and how far it was read."""

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self.bytes = GivenBytes()
        self.cursor = Mark(0, 0, 0, 0)
        """The last entry that was taken."""
        self.config = 0
        """The last CONFIG there."""
        self.at = 0
        """Where the next entry begins: behind the last one, or in the next file."""
        self.beyond = False
        """Whether the next entry continues the last one, and has no room before what is to stand behind it."""
        # What was looked at last, from a position on: as long as entries lie in it, nobody asks for another view.
        self._view = memoryview(b"")
        self._view_at = 0
        # Bytes without which the next entry cannot be read.
        self._need = 0

    def begin(self, cursor: Mark, config: int) -> None:
        """Go on behind an entry; what was given and not taken is forgotten."""
        self.cursor, self.config, self.at, self._need, self.beyond = cursor, config, cursor.end, 0, False
        self.bytes.clear(self.at)
        self._view, self._view_at = memoryview(b""), self.at

    @property
    def ready(self) -> bool:
        """Whether enough was given for the next entry to be looked at."""
        return self.bytes.end - self.at >= max(self._need, BLANK_BYTES)

    def take(self, control: Control) -> None:
        """Go on behind what next() returned."""
        self.cursor, self.config, self.at, self._need = mark_of(control), control.config, control.end, 0

    def next(self, until: int) -> Checked | None:
        """Return the next entry, all of it checked; None when not enough was given. It ends at `until` at the latest.

        Raises EntryRefused when what was given is not what is due here.
        """
        while True:
            room = self._file_bytes - self.at % self._file_bytes
            at = self._offset(BLANK_BYTES)
            if at < 0:
                return None
            size, magic = _SIZE_AND_MAGIC.unpack_from(self._view, at)
            if magic != BLANK_MAGIC:
                break
            self._step_over(size, room, until)
        limit = min(room, until - self.at)
        if not FIXED_BYTES <= size <= limit:
            raise EntryRefused(f"{self._due} has no record at {self.at}: {size} bytes, {limit} are left")
        at = self._offset(size)
        if at < 0:
            return None
        control = self._control(at, size)
        entry_bytes = control.entry_bytes
        if entry_bytes > limit:
            self.beyond = entry_bytes <= room and continues(control, self.cursor.chain)
            raise EntryRefused(f"{self._due} has {entry_bytes} bytes, {limit} are left")
        at = self._offset(entry_bytes)
        if at < 0:
            return None
        return check_next(control, self._view[at : at + entry_bytes], self.cursor, self.config, self._file_bytes)

    @property
    def _due(self) -> str:
        return f"entry {self.cursor.index + 1}"

    def _offset(self, size: int) -> int:
        """Return where the next bytes begin in the view, of which it holds `size`; -1 when not so many were given."""
        at = self.at - self._view_at
        if len(self._view) - at >= size:
            return at
        self._need = size
        view = self.bytes.view(self.at, size)
        if view is None:
            return -1
        self._view, self._view_at = view, self.at
        return 0

    def _step_over(self, size: int, room: int, until: int) -> None:
        """Go on in the next file, behind the blank that closes this one."""
        if size != room or self.at != self.cursor.end:
            raise EntryRefused(f"a blank of {size} bytes at {self.at}, where {room} are left")
        self.at, self._need = self.at + room, 0
        if self.at >= until:
            self.beyond = True
            raise EntryRefused(f"a blank at {self.cursor.end}, where {self._due} is due")

    def _control(self, at: int, size: int) -> Control:
        """Return the control record at `at`: nothing of it has been checked, each of its bytes is by decoding it."""
        try:
            control = decode_control(self._view, at)
        except (ControlError, struct.error) as error:
            why: Exception | str = error
        else:
            if control.position == self.at and control.size == size:
                return control
            why = f"entry {control.index} of {control.size} bytes at {control.position}"
        verdict = check_record(self._view[at : at + size], 0, self.at, check_crc=True)
        if isinstance(verdict, str):
            raise EntryRefused(f"{self._due} does not begin with a record: {verdict}")
        raise EntryRefused(f"{self._due} does not begin with a control record: {why}")
