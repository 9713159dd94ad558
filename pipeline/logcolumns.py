"""Reads CommitLog files into columns of numpy, damage or not: for artefacts, and for Spark.

A log is read in pieces, in log order; an entry and all records that it covers are in one piece. Positions are bytes of
the log, times ms. What artefact_rows.py says of its rows holds for the columns; UNKNOWN (-1) stands where something
is not there.

* logcolumns_frames: the records; logcolumns_entries: what covers them; logcolumns_words: their topics and properties
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from client.compression import CompressionError, decompress
from pipeline.artefact_rows import Config, EntryRow, GapRow
from pipeline.body import HEAD, MAGIC, digest, read_tag
from pipeline.history import UNKNOWN
from pipeline.logcolumns_entries import EntryWalk, decode_controls
from pipeline.logcolumns_frames import (
    Bools,
    Frames,
    Ints,
    Segment,
    check_frames,
    checksums,
    gather,
    joined,
    trace,
    walk,
)
from pipeline.logcolumns_words import Topics, Words, find_words
from remoting.codes import MessageSysFlag
from remoting.properties import PROPERTY_KEYS, PROPERTY_TRANSACTION_ID, PROPERTY_UNIQ_KEY
from remoting.record import MAGIC_V1, decode_record
from remoting.topics import RAFT_TOPIC, TRANS_OP_HALF_TOPIC
from store.dispatch import SCHEDULE_TOPIC, dispatched_from_record
from store.logscan import Span

NO_UTF8 = "the topic is not UTF-8"
WANTED = (PROPERTY_UNIQ_KEY, PROPERTY_KEYS, PROPERTY_TRANSACTION_ID)

_TAG = np.dtype([("magic", "S4"), ("writer", ">u4"), ("counter", ">i8"), ("attempt", ">u4")])
# Records that are looked into together for the last entry of a file.
_TAIL_RECORDS = 8192
# What is longer is no offset: it would not fit into 64 bits.
_OFFSET_DIGITS_MAX = 18
# Their records take part in more than a queue: one by one.
_SPECIAL = (TRANS_OP_HALF_TOPIC.encode(), SCHEDULE_TOPIC.encode(), RAFT_TOPIC.encode())


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a piece: records that are no control records, and whole with what covers them.

    `frames`: where and what they are. `topic`: number in `topics.names`. `index`, `term`: of the covering entry.
    `writer`, `counter`, `attempt`: the recorder's tag. `digest`: CRC-32 of the body, unpacked. `crc`: that of the whole
    record. What few messages have stands beside the columns, by row: `transactions` (ids), `refers` (offsets of halves
    that a record settles), `keys` (of those of which `words` cannot tell them).
    """

    frames: Frames
    topics: Topics
    topic: Ints
    index: Ints
    term: Ints
    tags_code: Ints
    writer: Ints
    counter: Ints
    attempt: Ints
    digest: Ints
    crc: Ints
    words: Words
    transactions: dict[int, str] = field(default_factory=dict)
    refers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    keys: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.topic)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log. `end`: behind its last whole record or entry, 0 without one; `chain`: of its last entry."""

    entries: list[EntryRow]
    configs: list[Config]
    gaps: list[GapRow]
    messages: Messages | None
    end: int
    chain: int | None


class LogReader:
    """Reads the files of a log, which may be some of a larger one.

    `file_bytes`: size of that log's files, by default that of the largest. `chain`: of the last entry before. `wanted`:
    names of properties of which Messages.words tells; None where messages are not looked into. Without `check_crc` no
    CRC is computed or compared.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        file_bytes: int = 0,
        chain: int | None = None,
        wanted: Sequence[str] | None = WANTED,
        check_crc: bool = True,
    ) -> None:
        self._spans = spans
        self._file_bytes = file_bytes
        self._wanted = None if wanted is None else tuple(dict.fromkeys((*WANTED, *wanted)))
        self._check_crc = check_crc
        self._walk = EntryWalk(chain, check_crc=check_crc)
        self.topics = Topics()

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces. Raises OSError."""
        held: tuple[Frames, Ints] | None = None
        for found in walk(self._spans, self._file_bytes, check_crc=self._check_crc):
            if isinstance(found, GapRow):
                if held is not None:
                    yield self._piece(*held)
                    held = None
                yield Piece([], [], [found], None, 0, self._walk.chain)
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

    def _piece(self, frames: Frames, topic: Ints) -> Piece:
        control = control_rows(frames, topic, self.topics)
        unreadable = np.isin(topic, [at for at, name in enumerate(self.topics.names) if not _is_text(name)]) & ~control
        entries = self._walk.take(frames, control, unreadable)
        kept = np.flatnonzero(entries.kept)
        messages = None
        if self._wanted is not None:
            words = find_words(frames.part(kept), self._wanted)
            messages = self._messages(frames.part(kept), topic[kept], entries.index[kept], entries.term[kept], words)
        gaps = entries.gaps
        for row in np.flatnonzero(unreadable).tolist():
            gaps.append((row, 0, GapRow(int(frames.position[row]), int(frames.end[row]), NO_UTF8)))
        gaps.sort(key=lambda gap: gap[:2])
        last = int(frames.end[kept[-1]]) if len(kept) else 0
        end = max(last, entries.rows[-1].end if entries.rows else 0)
        return Piece(entries.rows, entries.configs, [gap for _, _, gap in gaps], messages, end, self._walk.chain)

    def _messages(self, frames: Frames, topic: Ints, index: Ints, term: Ints, words: Words) -> Messages:
        data = frames.segment.data
        rows = len(frames)
        tagged = np.flatnonzero(frames.body_bytes >= HEAD.size)
        tags = gather(data, frames.body_at[tagged], _TAG)
        # What a column of 64 bits cannot hold is no recorder's count.
        own = (tags["magic"] == MAGIC) & (tags["counter"] >= 0)
        tagged, tags = tagged[own], tags[own]
        writer, counter, attempt = np.full(rows, UNKNOWN), np.full(rows, UNKNOWN), np.zeros(rows, np.int64)
        writer[tagged], counter[tagged], attempt[tagged] = tags["writer"], tags["counter"], tags["attempt"]
        crc = np.full(rows, UNKNOWN)
        if self._check_crc:
            crc = checksums(frames.segment.view, frames.at, frames.at + frames.size)
        messages = Messages(
            frames, self.topics, topic, index, term, words.tags_code, writer, counter, attempt, frames.digest.copy(),
            crc, words,
        )  # fmt: skip
        special = [self.topics.number(name) for name in _SPECIAL]
        slow = words.odd | (frames.sys_flag & MessageSysFlag.COMPRESSED != 0) | np.isin(topic, special)
        for row in np.flatnonzero(slow).tolist():
            self._take_slowly(messages, row)
        ids = words.values[PROPERTY_TRANSACTION_ID]
        for row in np.flatnonzero((ids.size > 0) & ~slow).tolist():
            at = int(ids.at[row])
            messages.transactions[row] = str(frames.segment.view[at : at + int(ids.size[row])], "utf-8")
        return messages

    def _take_slowly(self, messages: Messages, row: int) -> None:
        """Read one message with the readers that know everything."""
        frames = messages.frames
        view, at = frames.segment.view, int(frames.at[row])
        record = decode_record(view, at)
        messages.tags_code[row] = dispatched_from_record(view, at).tags_code
        if record.sys_flag & MessageSysFlag.COMPRESSED:
            try:
                body = decompress(record.body, record.sys_flag)
            except CompressionError:
                # What its CRC vouches for, and nobody can unpack: no recorder made it, and consumers get it as it is.
                body = record.body
            tag = read_tag(body)
            if tag is not None and tag.counter < 2**63:
                messages.writer[row], messages.counter[row], messages.attempt[row] = tag
            else:
                messages.writer[row], messages.counter[row], messages.attempt[row] = UNKNOWN, UNKNOWN, 0
            messages.digest[row] = digest(body) if self._check_crc else UNKNOWN
        else:
            body = record.body
        transaction = record.properties.get(PROPERTY_TRANSACTION_ID, "")
        if transaction:
            messages.transactions[row] = transaction
        if record.topic == TRANS_OP_HALF_TOPIC:
            messages.refers[row] = settled(body)
        words = (record.properties.get(PROPERTY_UNIQ_KEY, ""), *record.properties.get(PROPERTY_KEYS, "").split(" "))
        messages.keys[row] = tuple(word for word in words if word)


def last_chain(spans: Sequence[Span], file_bytes: int) -> int | None:
    """Return the chain of the last whole entry in some files, None without one; reads from the end. Raises OSError."""
    for span in reversed(spans):
        segment = Segment(span)
        offsets = trace(segment)
        if offsets is None:
            # Damaged: only a walk from its start can tell.
            chain = None
            for piece in LogReader([span], file_bytes=file_bytes).pieces():
                chain = piece.chain
        else:
            chain = _chain_of(segment, offsets)
        if chain is not None:
            return chain
    return None


def _chain_of(segment: Segment, offsets: Ints) -> int | None:
    """Return the chain of the last whole entry among intact records that stand back to back."""
    topics = Topics()
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
        walk_here = EntryWalk()
        if walk_here.take(frames, control, np.zeros(len(frames), np.bool_)).rows:
            return walk_here.chain
    return None


def control_rows(frames: Frames, topic: Ints, topics: Topics) -> Bools:
    """Tell which records are of the control records' topic."""
    control: Bools = (frames.magic == MAGIC_V1) & (topic == topics.number(RAFT_TOPIC.encode()))
    return control


def settled(body: bytes) -> tuple[int, ...]:
    """Return the offsets in the body of an operation on halves: decimal, with commas where there are several."""
    return tuple(int(word) for word in body.split(b",") if word.isdigit() and len(word) <= _OFFSET_DIGITS_MAX)


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
