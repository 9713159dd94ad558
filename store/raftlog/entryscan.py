"""Walks a log that may hold Raft entries: yields plain records one by one, and entries as a whole, checked."""

import struct
from collections.abc import Iterator, Sequence

from remoting.record import BLANK_BYTES, BLANK_MAGIC
from runtime.crc import crc32
from store.controlrecord import Control, ControlDamaged, decode_control, is_control
from store.files.mappedfile import read_cold
from store.log.logscan import WINDOW_BYTES, Found, Span, check_record

_SIZE_AND_MAGIC = struct.Struct(">iI")


class EntryScan:
    """As LogScan, with entries: a control record is yielded as Control once the bytes behind it match its CRC.

    When it ends, `end` is where and `damage` why, "" for zeros or no further file. Raises ControlError for a whole
    record of the control records' topic that is none, OSError.
    """

    def __init__(self, spans: Sequence[Span], position: int) -> None:
        self._spans = {span.start: span for span in spans}
        self._file_bytes = spans[0].size
        self.end = position
        self.damage = ""
        self._base = 0
        self._view = memoryview(b"")

    def __iter__(self) -> Iterator[Found | Control]:
        while True:
            span = self._spans.get(self.end - self.end % self._file_bytes)
            if span is None:
                return
            yield from self._file(span)
            if self.end < span.start + span.size:
                return

    def _file(self, span: Span) -> Iterator[Found | Control]:
        file_end = span.start + span.size
        self._base, self._view = self.end, memoryview(b"")
        while self.end <= file_end - BLANK_BYTES:
            total, magic = _SIZE_AND_MAGIC.unpack_from(self._need(span, BLANK_BYTES), self.end - self._base)
            if magic == BLANK_MAGIC and total == file_end - self.end:
                break
            view = self._need(span, min(max(total, BLANK_BYTES), file_end - self.end))
            verdict = check_record(view, self.end - self._base, self.end, check_crc=True)
            if isinstance(verdict, str):
                self.damage = "" if verdict == "nothing" else verdict
                return
            item = self._item(span, *verdict)
            if isinstance(item, str):
                self.damage = item
                return
            size = item.entry_bytes if isinstance(item, Control) else item.size
            yield item
            self.end += size
        self.end = file_end

    def _item(self, span: Span, size: int, timestamp: int) -> Found | Control | str:
        at = self.end - self._base
        if not is_control(self._view, at):
            return Found(self._view, at, self.end, size, timestamp)
        try:
            control = decode_control(self._view, at)
        except ControlDamaged as error:
            return str(error)
        if control.end + BLANK_BYTES > span.start + span.size:
            return "an entry that is longer than its file"
        view = self._need(span, control.entry_bytes)
        at = self.end - self._base
        if crc32(view[at + size : at + control.entry_bytes]) != control.covered_crc:
            return f"entry {control.index}, whose records do not match their CRC"
        return control

    def _need(self, span: Span, size: int) -> memoryview:
        """Return a window that holds `size` bytes from `end` on."""
        if len(self._view) - (self.end - self._base) < size:
            self._base = self.end
            offset = self.end - span.start
            self._view = memoryview(read_cold(span.path, offset, min(max(WINDOW_BYTES, size), span.size - offset)))
        return self._view
