"""Finds the records of CommitLog files and checks their frames, many at a time: the lowest layer of logcolumns.

The chain of sizes is followed one record after the other; all else is done by numpy over the bytes of the mapped file.
What is no intact record is judged by store.log.logscan, so that the words of every gap are those of the store itself.
"""

import mmap
import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from pipeline.history.rows import UNKNOWN
from pipeline.logs.rows import GapRow
from remoting.record import BLANK_BYTES, BLANK_MAGIC, BORNHOST_V6, FIXED_BYTES, HEADS, MAGIC_V1, MAGIC_V2, STOREHOST_V6
from runtime.crc import crc32
from store.files.mappedfile import NAME_DIGITS
from store.log.logscan import Span, check_record, find_later_record

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

# Records, and about how many bytes of them, that are turned into columns together: so few that what is looked at again
# is still in the processor's cache.
PIECE_RECORDS = 8_192
PIECE_BYTES = 4 * 1024 * 1024
NOTHING = "no record, but zeros or a missing file"

_SIZE_AND_MAGIC = struct.Struct(">iI")
# The record's head in three parts, since a host takes 8 or 20 bytes: up to the born host, …
_FIRST = np.dtype(
    [("size", ">i4"), ("magic", ">u4"), ("crc", ">u4"), ("queue", ">i4"), ("flag", ">i4"), ("offset", ">i8"),
     ("position", ">i8"), ("sys_flag", ">i4"), ("born", ">i8")]
)  # fmt: skip
# … the time between the hosts, …
_STORED = np.dtype([("stored", ">i8")])
# … and what stands behind both.
_LAST = np.dtype([("reconsume", ">i4"), ("prepared", ">i8"), ("body", ">i4")])
_WIDER_HOST_BYTES = 12


class Segment:
    """One CommitLog file, mapped read-only. Raises OSError."""

    def __init__(self, span: Span) -> None:
        self.span = span
        with span.path.open("rb") as file:
            # A file that grew since it was listed is read as it was then.
            self._map = mmap.mmap(file.fileno(), span.size, access=mmap.ACCESS_READ)
        self.view = memoryview(self._map)
        self.data: Bytes = np.frombuffer(self.view, np.uint8)

    @property
    def end(self) -> int:
        """The position behind the file."""
        return self.span.start + self.span.size


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole records that stand back to back in one file, a row each. `at`, `*_at`: bytes from the file's start.

    Times are ms. `digest`: CRC-32 of the body as it is stored, UNKNOWN where CRCs were not asked for.
    """

    segment: Segment
    at: Ints
    size: Ints
    magic: Ints
    queue: Ints
    flag: Ints
    offset: Ints
    sys_flag: Ints
    born: Ints
    stored: Ints
    reconsume: Ints
    prepared: Ints
    body_at: Ints
    body_bytes: Ints
    topic_at: Ints
    topic_bytes: Ints
    properties_at: Ints
    properties_bytes: Ints
    digest: Ints

    def __len__(self) -> int:
        return len(self.at)

    @property
    def position(self) -> Ints:
        """Where the records stand in the log."""
        return self.at + self.segment.span.start

    @property
    def end(self) -> Ints:
        """The positions behind them."""
        return self.position + self.size

    def part(self, rows: "slice | Ints | Bools") -> "Frames":
        """Return some of the rows."""
        return Frames(self.segment, **{name: getattr(self, name)[rows] for name in _COLUMNS})


_COLUMNS = tuple(field.name for field in fields(Frames) if field.name != "segment")


def list_spans(folder: Path) -> list[Span]:
    """Return the CommitLog files of a store folder, in log order; empty ones are left out. Raises OSError."""
    named = [path for path in sorted((folder / "commitlog").iterdir()) if path.name.isdecimal()]
    sized = [Span(path, int(path.name), path.stat().st_size) for path in named if len(path.name) == NAME_DIGITS]
    return [span for span in sized if span.size]


def checksums(view: memoryview, starts: Ints, ends: Ints) -> Ints:
    """Return the CRC-32 of each part of `view`."""
    parts = map(view.__getitem__, map(slice, starts.tolist(), ends.tolist()))
    return np.fromiter(map(crc32, parts), np.int64, len(starts))


def gather(data: Bytes, at: Ints, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return what `dtype` describes at each offset; all must lie within `data`."""
    if not len(at):
        return np.zeros(0, dtype)
    rows: npt.NDArray[Any] = np.ascontiguousarray(sliding_window_view(data, dtype.itemsize)[at]).view(dtype)
    return rows[:, 0]


def gather_texts(data: Bytes, at: Ints, length: int) -> Bytes:
    """Return `length` bytes from each offset on, a row each; all must lie within `data`."""
    if not len(at) or not length:
        return np.zeros((len(at), length), np.uint8)
    rows: Bytes = sliding_window_view(data, length)[at]
    return rows


def joined(first: Frames, second: Frames) -> Frames:
    """Return the rows of two that stand back to back in one file."""
    columns = {name: np.concatenate((getattr(first, name), getattr(second, name))) for name in _COLUMNS}
    return Frames(first.segment, **columns)


def walk(spans: Sequence[Span], file_bytes: int = 0, *, check_crc: bool = True) -> Iterator[Frames | GapRow]:
    """Yield the records from the first file on, at most PIECE_RECORDS together, and gaps, in log order.

    Damage ends nothing: the walk goes on at the next intact record. `file_bytes`: the size of the log's files; by
    default that of the largest, as a copy may be cut short. Raises OSError.
    """
    if not spans:
        return
    file_bytes = file_bytes or max(span.size for span in spans)
    files = {span.start: span for span in spans}
    position = spans[0].start
    while True:
        position, damage = yield from _scan(files, file_bytes, position, check_crc)
        later = find_later_record(spans, position)
        if later is None:
            if damage:
                yield GapRow(position, spans[-1].start + spans[-1].size, damage)
            return
        yield GapRow(position, later.position, damage or NOTHING)
        position = later.position


def _scan(
    files: Mapping[int, Span], file_bytes: int, position: int, check_crc: bool
) -> Generator[Frames, None, tuple[int, str]]:
    """Go on until something else stands there than a record; return where, and what, "" for nothing at all."""
    while True:
        span = files.get(position - position % file_bytes)
        if span is None or position >= span.start + span.size:
            return position, ""
        segment = Segment(span)
        position, damage = yield from _scan_file(segment, position, check_crc)
        if position < segment.end:
            return position, damage


def _scan_file(segment: Segment, position: int, check_crc: bool) -> Generator[Frames, None, tuple[int, str]]:
    view, start = segment.view, segment.span.start
    at = position - start
    while at <= len(view) - BLANK_BYTES:
        offsets = _chain(view, at)
        frames = check_frames(segment, np.array(offsets, np.int64), check_crc=check_crc)
        if len(frames):
            at = int(frames.at[-1] + frames.size[-1])
            yield frames
            if len(frames) == len(offsets):
                continue
        total, magic = _SIZE_AND_MAGIC.unpack_from(view, at)
        if magic == BLANK_MAGIC and total == len(view) - at:
            break
        verdict = check_record(view, at, start + at, check_crc=check_crc)
        assert isinstance(verdict, str), "what the store takes for a record is one here too"
        return start + at, "" if verdict == "nothing" else verdict
    return segment.end, ""


def trace(segment: Segment) -> Ints | None:
    """Return where a file's records begin, from the sizes alone; None when those do not lead to its blank or end."""
    view = segment.view
    found: list[int] = []
    at = 0
    while some := _chain(view, at):
        found += some
        at = some[-1] + int(_SIZE_AND_MAGIC.unpack_from(view, some[-1])[0])
    blank = at <= len(view) - BLANK_BYTES and _SIZE_AND_MAGIC.unpack_from(view, at) == (len(view) - at, BLANK_MAGIC)
    return np.array(found, np.int64) if blank or at > len(view) - BLANK_BYTES else None


def _chain(view: memoryview, at: int) -> list[int]:
    """Follow the sizes from `at` on, as long as they and the magics may be those of records."""
    found: list[int] = []
    unpack, last = _SIZE_AND_MAGIC.unpack_from, min(at + PIECE_BYTES, len(view) - FIXED_BYTES)
    for _ in range(PIECE_RECORDS):
        if at > last:
            break
        total, magic = unpack(view, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or total < FIXED_BYTES:  # noqa: PLR1714 # twice as fast as a set
            break
        found.append(at)
        at += total
    if at > len(view):
        found.pop()
    return found


def check_frames(segment: Segment, at: Ints, *, check_crc: bool) -> Frames:
    """Return the records at the given offsets up to the first one that is not whole: the rules of check_record."""
    data = segment.data
    first = gather(data, at, _FIRST)
    size, magic = _wide(first["size"]), _wide(first["magic"])
    sys_flag = _wide(first["sys_flag"])
    born_wider = np.where(sys_flag & BORNHOST_V6, _WIDER_HOST_BYTES, 0)
    head = born_wider + np.where(sys_flag & STOREHOST_V6, _WIDER_HOST_BYTES, 0) + HEADS[0].size
    count = _good((size >= head + 3) & (_wide(first["position"]) == segment.span.start + at))
    last = gather(data, (at + head - _LAST.itemsize)[:count], _LAST)
    at, size, head, first = at[:count], size[:count], head[:count], first[:count]
    body_bytes, body_at, end = _wide(last["body"]), at + head, at + size
    wide = np.where(magic[:count] == MAGIC_V2, 2, 1)
    topic_at = body_at + body_bytes + wide
    count = _good((body_bytes >= 0) & (topic_at + 2 <= end))
    # A one-byte length is read as the second of two, whose first is left out.
    low = data[topic_at[:count] - 1].astype(np.int64)
    topic_bytes = np.where(wide[:count] == 2, data[topic_at[:count] - 2].astype(np.int64) << 8, 0) + low
    properties_at = topic_at[:count] + topic_bytes + 2
    count = _good(properties_at <= end[:count])
    properties_at = properties_at[:count]
    properties_bytes = (data[properties_at - 2].astype(np.int64) << 8) + data[properties_at - 1]
    count = _good(properties_at + properties_bytes == end[:count])
    digest = np.full(count, UNKNOWN, np.int64)
    if check_crc:
        digest = checksums(segment.view, body_at[:count], (body_at + body_bytes)[:count])
        whole = (digest ^ _wide(first["crc"])[:count]) & 0x7FFFFFFF == 0
        whole &= (properties_bytes[:count] == 0) | (data[end[:count] - 1] != 0)
        whole &= (data[topic_at[:count]] != 0) & (data[properties_at[:count] - 3] != 0)
        count = _good(whole)
    stored_at = (at + _FIRST.itemsize + 8 + born_wider[: len(at)])[:count]
    first, last = first[:count], last[:count]
    return Frames(
        segment, at[:count], size[:count], magic[:count], _wide(first["queue"]), _wide(first["flag"]),
        _wide(first["offset"]), sys_flag[:count], _wide(first["born"]),
        _wide(gather(data, stored_at, _STORED)["stored"]), _wide(last["reconsume"]), _wide(last["prepared"]),
        body_at[:count], body_bytes[:count], topic_at[:count], topic_bytes[:count], properties_at[:count],
        properties_bytes[:count], digest[:count],
    )  # fmt: skip


def _wide(column: npt.NDArray[Any]) -> Ints:
    return column.astype(np.int64)


def _good(rules: Bools) -> int:
    """Return how many rows there are before the first that breaks a rule."""
    return len(rules) if bool(rules.all()) else int(rules.argmin())
