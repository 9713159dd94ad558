"""Reads a store folder offline, without changing a byte: for `raftmq inspect`, and for people after an accident.

Damage ends nothing here: messages() goes on at the next intact record and says what lay between. A folder that a
running broker uses may be read too; what it writes meanwhile may or may not be seen.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from raft.protocol.types import Mark
from remoting.errors import HeaderError
from remoting.fastjson import loads
from remoting.message import MessageExt
from remoting.record import RecordError, decode_record
from runtime.crc import crc32
from store.controlrecord import Control, ControlError, decode_control, is_control
from store.derived.indextable import HEADER_BYTES, read_header
from store.derived.queuescan import find_bounds
from store.errors import StoreError
from store.files.checkpoint import Checkpoint, load_checkpoint
from store.files.descriptors import Descriptors
from store.files.floorfile import read_floor
from store.files.mappedfile import NAME_DIGITS, read_cold
from store.files.queuefile import ENTRY_BYTES, ZEROS, Entry, QueueFiles, entry_end, list_files
from store.log.dispatch import dispatched_from_record, is_hidden
from store.log.logscan import Found, LogScan, Span, find_later_record
from store.types import Dispatched

# Differences that check_queues lists; more are only counted.
PROBLEMS_MAX = 100
_ENTRIES_AT_ONCE = 1024
_TORN = "an entry whose records do not match their CRC"


@dataclass(frozen=True)
class Gap:
    """A part of the CommitLog, positions [start, end), that holds no intact record."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class InspectedFile:
    """A CommitLog file. `end` is the position behind its last intact record; times are ms, 0 when it has none."""

    name: str
    start: int
    size: int
    records: int
    end: int
    first_timestamp: int
    last_timestamp: int
    gaps: list[Gap]


@dataclass(frozen=True)
class QueueSummary:
    """One ConsumeQueue: offsets [min_offset, max_offset), and the part of the CommitLog that they point into."""

    topic: str
    queue_id: int
    files: int
    min_offset: int
    max_offset: int
    first_physical: int
    end_physical: int


@dataclass(frozen=True)
class IndexSummary:
    """One index file, as its header tells."""

    name: str
    size: int
    entries: int
    slots_used: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical: int
    end_physical: int


@dataclass(frozen=True)
class Check:
    """How the ConsumeQueues compare with the log. `problems` holds at most PROBLEMS_MAX texts, `wrong` counts all."""

    records: int
    queues: int
    wrong: int
    problems: list[str]


class StoreFolder:
    """A store folder to look into. Raises StoreError when there is none."""

    def __init__(self, root: Path, *, log_folder: Path | None = None) -> None:
        self.root = root
        self._log_folder = log_folder or root / "commitlog"
        if not root.is_dir():
            raise StoreError(f"{root} is no folder")
        if not self._log_folder.is_dir():
            raise StoreError(f"{root} is no store folder: it has no {self._log_folder.name}")

    @property
    def unclean(self) -> bool:
        """Whether a process has it open, or died while it had."""
        return (self.root / "abort").exists()

    def checkpoint(self) -> Checkpoint:
        """Return what the checkpoint file tells; see store.files.checkpoint."""
        return load_checkpoint(self.root)

    def config(self) -> dict[str, Any]:
        """Return the files config/*.json by name, decoded; one that is no JSON as {"error": text}."""
        found: dict[str, Any] = {}
        for path in sorted((self.root / "config").glob("*.json")):
            try:
                found[path.name] = loads(path.read_bytes())
            except HeaderError as error:
                found[path.name] = {"error": str(error)}
        return found

    # -- the log

    def records(self, start: int = 0) -> Iterator[Found | Gap]:
        """Yield the checked records from the first one at or behind `start`, and gaps, in log order."""
        spans = self._spans()
        if not spans:
            return
        # The scan takes the size of the log's files from the first it is given: a copy may be cut short.
        scanned = sorted(spans, key=lambda span: -span.size)
        position = max(start, spans[0].start)
        if position > spans[0].start:
            first = find_later_record(spans, position - 1)
            if first is None:
                return
            position = first.position
        while True:
            scan = LogScan(scanned, position, check_crc=True)
            yield from scan
            later = find_later_record(spans, scan.end)
            if later is None:
                if scan.damage:
                    yield Gap(scan.end, spans[-1].start + spans[-1].size, scan.damage)
                return
            yield Gap(scan.end, later.position, scan.damage or "no record, but zeros or a missing file")
            position = later.position

    def messages(self, start: int = 0) -> Iterator[MessageExt | Gap]:
        """Yield the messages from the first one at or behind position `start`, CRC checked, and gaps."""
        for found in self.records(start):
            if isinstance(found, Gap):
                yield found
                continue
            try:
                yield decode_record(found.view, found.at)
            except (RecordError, ValueError) as error:
                yield Gap(found.position, found.position + found.size, str(error))

    def entries(self, start: int = 0) -> Iterator[Control | Gap]:
        """Yield the control records of Raft entries from the first one at or behind `start`, and gaps.

        A control record that is none, or whose covered records do not match their CRC, is told as a gap.
        """
        for found in self.records(start):
            if isinstance(found, Gap):
                yield found
            elif is_control(found.view, found.at):
                try:
                    control = decode_control(found.view, found.at)
                except ControlError as error:
                    yield Gap(found.position, found.position + found.size, str(error))
                    continue
                yield control if self._covers(control) else Gap(control.position, control.end, _TORN)

    def floor(self) -> Mark | None:
        """Return up to where a group member knows its log as synced; None for a single broker."""
        return read_floor(self.root)

    def _covers(self, control: Control) -> bool:
        begin = control.position + control.size
        for span in self._spans():
            if span.start <= control.position and control.end <= span.start + span.size:
                return crc32(read_cold(span.path, begin - span.start, control.covered_bytes)) == control.covered_crc
        return False

    def segments(self) -> list[InspectedFile]:
        """Describe the CommitLog files; reads all of them."""
        spans = self._spans()
        tallies = [_Tally(span) for span in spans]
        current = iter(tallies)
        tally = next(current, None)
        for found in self.records():
            position = found.start if isinstance(found, Gap) else found.position
            while tally is not None and position >= tally.span.start + tally.span.size:
                tally = next(current, None)
            if tally is not None:
                tally.add(found)
        return [tally.segment() for tally in tallies]

    def _spans(self) -> list[Span]:
        return [
            Span(path, int(path.name), path.stat().st_size)
            for path in sorted(self._log_folder.iterdir())
            if path.name.isdecimal() and len(path.name) == NAME_DIGITS and path.stat().st_size
        ]

    # -- what is derived

    def queues(self) -> list[QueueSummary]:
        """Describe the ConsumeQueues, by topic and id."""
        with _QueueReader(self.root / "consumequeue") as reader:
            return reader.summaries()

    def queue_entries(self, topic: str, queue_id: int) -> Iterator[tuple[int, Entry]]:
        """Yield (offset, (position, size, tags code)) of one queue; nothing when it is not there."""
        with _QueueReader(self.root / "consumequeue") as reader:
            for summary in reader.summaries():
                if (summary.topic, summary.queue_id) == (topic, queue_id):
                    for start in range(summary.min_offset, summary.max_offset, _ENTRIES_AT_ONCE):
                        count = min(_ENTRIES_AT_ONCE, summary.max_offset - start)
                        yield from enumerate(reader.read(topic, queue_id, start, count), start)

    def index_files(self) -> list[IndexSummary]:
        """Describe the index files, oldest first."""
        summaries = []
        folder = self.root / "index"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.name.isdecimal():
                with path.open("rb") as file:
                    header = read_header(file.read(HEADER_BYTES))
                summaries.append(
                    IndexSummary(
                        path.name,
                        path.stat().st_size,
                        max(header.next_entry - 1, 0),
                        header.slots_used,
                        header.begin_timestamp,
                        header.end_timestamp,
                        header.begin_physical,
                        header.end_physical,
                    )
                )
        return summaries

    def check_queues(self) -> Check:
        """Compare every record of the log with its ConsumeQueue entry, and every queue's end with its last record.

        The records of a topic that was deleted, and perhaps made anew, count as wrong while they stay in the log. What
        a group has not committed yet, and may be in no queue, does not.
        """
        records = wrong = 0
        problems: list[str] = []
        # A group's records wait for the commit before they come into a queue.
        held_from = max(0, self.checkpoint().dispatched) if self.floor() is not None else sys.maxsize
        with _QueueReader(self.root / "consumequeue") as reader:
            ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in reader.summaries()}
            seen: dict[tuple[str, int], int] = {}
            for record in self._visible():
                records += 1
                queue = (record.topic, record.queue_id)
                seen[queue] = record.queue_offset + 1
                held = ZEROS
                if record.queue_offset < ends.get(queue, 0):
                    held = reader.read(*queue, record.queue_offset, 1)[0]
                expected = (record.physical_offset, record.size, record.tags_code)
                if held == ZEROS and record.physical_offset >= held_from:
                    continue
                if held != expected:
                    wrong += 1
                    if len(problems) < PROBLEMS_MAX:
                        where = f"{record.topic}/{record.queue_id} offset {record.queue_offset}"
                        problems.append(f"{where}: the queue has {held}, the log {expected}")
        for (topic, queue_id), end in ends.items():
            last = seen.get((topic, queue_id), end)
            if end > last:
                wrong += 1
                if len(problems) < PROBLEMS_MAX:
                    problems.append(f"{topic}/{queue_id} ends at {end}, its records in the log at {last}")
        return Check(records, len(ends), wrong, problems)

    def _visible(self) -> Iterator[Dispatched]:
        for found in self.records():
            if not isinstance(found, Gap):
                record = dispatched_from_record(found.view, found.at)
                if not is_hidden(record.sys_flag):
                    yield record


class _Tally:
    """Gathers what an InspectedFile tells."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._records = 0
        self._end = span.start
        self._times: list[int] = []
        self._gaps: list[Gap] = []

    def add(self, found: Found | Gap) -> None:
        if isinstance(found, Gap):
            self._gaps.append(found)
            return
        self._records += 1
        self._end = found.position + found.size
        self._times[1:] = [found.store_timestamp]

    def segment(self) -> InspectedFile:
        span = self.span
        first = self._times[0] if self._times else 0
        last = self._times[-1] if self._times else 0
        return InspectedFile(span.path.name, span.start, span.size, self._records, self._end, first, last, self._gaps)


class _QueueReader:
    """Reads queue files of whatever size they have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptors = Descriptors(read_only=True)
        self._files: dict[tuple[str, int], QueueFiles] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._descriptors.close()

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        return self._files[topic, queue_id].read(f"{self._folder}/{topic}/{queue_id}", offset, count)

    def summaries(self) -> list[QueueSummary]:
        found = []
        for folder in sorted(self._folder.glob("*/*")):
            listed = list_files(folder) if folder.name.isdecimal() and folder.is_dir() else []
            if not listed or listed[0][1] < ENTRY_BYTES:
                continue
            files = QueueFiles(self._descriptors, file_bytes=listed[0][1])
            topic, queue_id, name = folder.parent.name, int(folder.name), str(folder)
            self._files[topic, queue_id] = files
            low, end = find_bounds(files, name, listed[0][0] // ENTRY_BYTES, listed[-1][0] // ENTRY_BYTES)
            empty = low == end
            first = -1 if empty else files.entry(name, low)[0]
            last = -1 if empty else entry_end(files.entry(name, end - 1))
            found.append(QueueSummary(topic, queue_id, len(listed), low, end, first, last))
        return sorted(found, key=lambda queue: (queue.topic, queue.queue_id))
