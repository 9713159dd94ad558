"""Walks the CommitLog record by record and checks each one, for recovery and for offline reading."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from remoting.compiled.door import COMPILED, hotpath
from remoting.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    BORNHOST_V6,
    FIXED_BYTES,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    STOREHOST_V6,
    SYSFLAG_AT,
)
from runtime.crc import crc32
from store.files.mappedfile import read_cold

# Bytes read at once; a larger record is read in a piece of its own.
WINDOW_BYTES = 4 * 1024 * 1024
_SIZE_AND_MAGIC = struct.Struct(">iI")
_SYSFLAG = struct.Struct(">i")
_HOST_BITS = BORNHOST_V6 | STOREHOST_V6
_MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


class Span(NamedTuple):
    """A file's part of the log."""

    path: Path
    start: int
    size: int


class Found(NamedTuple):
    """A checked record: `view` holds it from `at` on, for `size` bytes."""

    view: memoryview
    at: int
    position: int
    size: int
    store_timestamp: int


def check_record(view: memoryview, at: int, position: int, *, check_crc: bool) -> tuple[int, int] | str:
    """Return (size, store timestamp) of the record at `at`, or in words why it is none.

    `position` is where the record claims to stand. A record that is longer than what `view` holds is called cut short.
    """
    if COMPILED and (usual := hotpath.check_record(view, at, position, check_crc, MAGIC_V1, crc32)) is not None:
        return usual
    room = len(view) - at
    if room < FIXED_BYTES:
        return "cut short"
    total, magic = _SIZE_AND_MAGIC.unpack_from(view, at)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return "nothing" if total == 0 and magic == 0 else f"unknown magic {magic:#010x}"
    head = HEADS[_SYSFLAG.unpack_from(view, at + SYSFLAG_AT)[0] & _HOST_BITS]
    if total < head.size + 3:
        return f"impossible size {total}"
    if total > room:
        return "cut short"
    fields = head.unpack_from(view, at)
    if fields[6] != position:
        return f"a record of position {fields[6]}"
    body_at = at + head.size
    body_end = body_at + fields[14]
    wide = 2 if magic == MAGIC_V2 else 1
    if fields[14] < 0 or body_end + wide + 2 > at + total:
        return f"impossible body length {fields[14]}"
    topic_end = body_end + wide + int.from_bytes(view[body_end : body_end + wide], "big")
    end = topic_end + 2 + int.from_bytes(view[topic_end : topic_end + 2], "big")
    if end != at + total:
        return "lengths that contradict each other"
    if check_crc and crc32(view[body_at:body_end]) & 0x7FFFFFFF != fields[2] & 0x7FFFFFFF:
        return "a body that does not match its CRC"
    if check_crc and end > topic_end + 2 and view[end - 1] == 0:
        # No CRC covers them. A page that was not written in time leaves zeros, which put() lets nobody end with.
        return "properties that end in zeros"
    if check_crc and not (view[body_end + wide] and view[topic_end - 1]):
        # Nor the topic, which begins or ends in zeros when one of the two sectors that it lies in is missing.
        return "a topic with zeros"
    return total, fields[10]


class LogScan:
    """Iterates over the good records from a position on. When it ends, `end` is where and `damage` why.

    `damage` is "" when the log simply ends there: zeros, or no further file. Raises OSError when a file cannot be read.
    """

    def __init__(self, spans: Sequence[Span], position: int, *, check_crc: bool) -> None:
        self._spans = {span.start: span for span in spans}
        self._file_bytes = spans[0].size
        self._check_crc = check_crc
        self.end = position
        self.damage = ""

    def __iter__(self) -> Iterator[Found]:
        while True:
            span = self._spans.get(self.end - self.end % self._file_bytes)
            # Behind the end of a file that was cut short it is found again.
            if span is None or self.end >= span.start + span.size:
                return
            yield from self._file(span)
            if self.end < span.start + span.size:
                return

    def _file(self, span: Span) -> Iterator[Found]:
        """Go through one file; leaves `end` at the next file's start when a blank closes this one."""
        file_end = span.start + span.size
        view = memoryview(b"")
        base = self.end
        whole = False
        while self.end <= file_end - BLANK_BYTES:
            at = self.end - base
            if len(view) - at < BLANK_BYTES:
                base, at, whole = self.end, 0, False
                view = _window(span, base, WINDOW_BYTES)
            total, magic = _SIZE_AND_MAGIC.unpack_from(view, at)
            if magic == BLANK_MAGIC and total == file_end - self.end:
                break
            verdict = check_record(view, at, self.end, check_crc=self._check_crc)
            if verdict == "cut short" and not whole:
                # The window ends inside the record: read again from its start, as much as it says it needs.
                base = self.end
                view = _window(span, base, max(WINDOW_BYTES, total))
                whole = True
                continue
            if isinstance(verdict, str):
                self.damage = "" if verdict == "nothing" else verdict
                return
            size, timestamp = verdict
            yield Found(view, at, self.end, size, timestamp)
            self.end += size
            whole = False
        self.end = file_end


def _window(span: Span, position: int, size: int) -> memoryview:
    offset = position - span.start
    return memoryview(read_cold(span.path, offset, min(size, span.size - offset)))


def find_later_record(spans: Sequence[Span], position: int) -> Found | None:
    """Return the first whole, intact record behind `position`, wherever it begins; None when there is none.

    Reads everything behind `position` in the worst case.
    """
    for span in spans:
        if span.start + span.size <= position:
            continue
        start = max(position + 1, span.start)
        found = _search_file(span, start)
        if found is not None:
            return found
    return None


def _search_file(span: Span, position: int) -> Found | None:
    file_end = span.start + span.size
    while position < file_end - FIXED_BYTES:
        view = _window(span, position, WINDOW_BYTES)
        data = view.tobytes()
        at = _next_magic(data, 0)
        while at >= 0:
            start = at - 4
            if start >= 0:
                claimed = int.from_bytes(data[start:at], "big")
                whole = _window(span, position + start, max(WINDOW_BYTES, claimed))
                verdict = check_record(whole, 0, position + start, check_crc=True)
                if not isinstance(verdict, str):
                    return Found(whole, 0, position + start, *verdict)
            at = _next_magic(data, at + 1)
        if position + len(data) >= file_end:
            break
        # A magic may lie across the border of two windows, its size before it.
        position += len(data) - 8
    return None


def _next_magic(data: bytes, start: int) -> int:
    hits = [hit for hit in (data.find(magic, start) for magic in _MAGICS) if hit >= 0]
    return min(hits, default=-1)
