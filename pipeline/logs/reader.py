"""Reads CommitLog files into columns of numpy, damage or not: for artefacts, and for Spark.

A log is read in pieces, in log order; an entry and all records that it covers are in one piece. Positions are bytes of
the log, times ms. What artefact_rows.py says of its rows holds for the columns; UNKNOWN (-1) stands where something
is not there.

* logcolumns_frames: the records; logcolumns_entries: what covers them; logcolumns_messages: those that are messages;
  logcolumns_words: their topics and properties
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.logs.entries import EntryWalk, decode_controls
from pipeline.logs.frames import Bools, Frames, Ints, Segment, check_frames, joined, trace, walk
from pipeline.logs.messages import Messages
from pipeline.logs.properties import TopicNumbers
from pipeline.logs.rows import Config, EntryRow, GapRow
from remoting.record import MAGIC_V1
from remoting.topics import RAFT_TOPIC
from store.log.logscan import Span

NO_UTF8 = "the topic is not UTF-8"
# Records that are looked into together for the last entry of a file.
_TAIL_RECORDS = 8192


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of a log. `end`: behind its last whole record or entry, 0 without one; `chain`: of its last entry."""

    entries: list[EntryRow]
    configs: list[Config]
    gaps: list[GapRow]
    messages: Messages | None
    end: int
    chain: int | None


class LogReader:
    """Reads the files of a log, which may be some of a larger one.

    `file_bytes`: size of that log's files, by default that of the largest. `chain`: of the last entry before. Without
    `messages` its pieces have none. Without `check_crc` no CRC is computed or compared; without `entry_crcs` those that
    are compared are all that is computed.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        file_bytes: int = 0,
        chain: int | None = None,
        messages: bool = True,
        entry_crcs: bool = True,
        check_crc: bool = True,
    ) -> None:
        self._spans = spans
        self._file_bytes = file_bytes
        self._with_messages = messages
        self._check_crc = check_crc
        self._walk = EntryWalk(chain, check_crc=check_crc, entry_crcs=entry_crcs)
        self.topics = TopicNumbers()

    def pieces(self) -> Iterator[LogPiece]:
        """Yield the pieces. Raises OSError."""
        held: tuple[Frames, Ints] | None = None
        for found in walk(self._spans, self._file_bytes, check_crc=self._check_crc):
            if isinstance(found, GapRow):
                if held is not None:
                    yield self._piece(*held)
                    held = None
                yield LogPiece([], [], [found], None, 0, self._walk.chain)
                continue
            frames, topic = found, self.topics.column(found)
            if held is not None and held[0].segment is frames.segment and held[0].end[-1] == frames.position[0]:
                frames, topic = joined(held[0], frames), np.concatenate((held[1], topic))
            elif held is not None:
                yield self._piece(*held)
            cut = self._open_from(frames, topic)
            held = (frames.part(slice(cut, None)), topic[cut:]) if cut < len(frames) else None
            if cut:
                yield self._piece(frames.part(slice(cut)), topic[:cut])
        if held is not None:
            yield self._piece(*held)

    def _open_from(self, frames: Frames, topic: Ints) -> int:
        """Return the row from which on an entry may go on behind these records; their number when none does."""
        control = np.flatnonzero(control_rows(frames, topic, self.topics))[-1:]
        last = decode_controls(frames, control)
        if last and not isinstance(last[0], str) and frames.end[-1] < min(last[0].end, frames.segment.end):
            return int(control[0])
        return len(frames)

    def _piece(self, frames: Frames, topic: Ints) -> LogPiece:
        control = control_rows(frames, topic, self.topics)
        unreadable = np.isin(topic, [at for at, name in enumerate(self.topics.names) if not _is_text(name)]) & ~control
        entries = self._walk.take(frames, control, unreadable)
        kept = np.flatnonzero(entries.kept)
        messages = None
        if self._with_messages:
            messages = Messages(
                frames.part(kept), self.topics, topic[kept], entries.index[kept], entries.term[kept], self._check_crc
            )
        gaps = entries.gaps
        for row in np.flatnonzero(unreadable).tolist():
            gaps.append((row, 0, GapRow(int(frames.position[row]), int(frames.end[row]), NO_UTF8)))
        gaps.sort(key=lambda gap: gap[:2])
        last = int(frames.end[kept[-1]]) if len(kept) else 0
        end = max(last, entries.rows[-1].end if entries.rows else 0)
        return LogPiece(entries.rows, entries.configs, [gap for _, _, gap in gaps], messages, end, self._walk.chain)


def last_chain(spans: Sequence[Span], file_bytes: int) -> int | None:
    """Return the chain of the last whole entry in some files, None without one; reads from the end. Raises OSError."""
    for span in reversed(spans):
        segment = Segment(span)
        offsets = trace(segment)
        if offsets is None:
            # Damaged: only a walk from its start can tell.
            chain = None
            for piece in LogReader([span], file_bytes=file_bytes, messages=False, entry_crcs=False).pieces():
                chain = piece.chain
        else:
            chain = _chain_of(segment, offsets)
        if chain is not None:
            return chain
    return None


def _chain_of(segment: Segment, offsets: Ints) -> int | None:
    """Return the chain of the last whole entry among intact records that stand back to back."""
    topics = TopicNumbers()
    for end in range(len(offsets), 0, -_TAIL_RECORDS):
        begin = max(end - _TAIL_RECORDS, 0)
        frames = check_frames(segment, offsets[begin:end], check_crc=False)
        control = control_rows(frames, topics.column(frames), topics)
        (last,) = decode_controls(frames, np.flatnonzero(control)[-1:]) or ["none"]
        if isinstance(last, str) and not control.any():
            continue
        # What the last of them covers may reach into what was looked into before.
        reach = end if isinstance(last, str) else int(np.searchsorted(offsets, last.end - segment.span.start))
        frames = check_frames(segment, offsets[begin : max(end, reach)], check_crc=False)
        control = control_rows(frames, topics.column(frames), topics)
        walk_here = EntryWalk(entry_crcs=False)
        if walk_here.take(frames, control, np.zeros(len(frames), np.bool_)).rows:
            return walk_here.chain
    return None


def control_rows(frames: Frames, topic: Ints, topics: TopicNumbers) -> Bools:
    """Tell which records are of the control records' topic."""
    control: Bools = (frames.magic == MAGIC_V1) & (topic == topics.number(RAFT_TOPIC.encode()))
    return control


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
