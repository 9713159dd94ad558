"""The messages of a piece of a log; what their bodies and properties say is computed when somebody asks for it."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from client.compression import CompressionError, decompress
from pipeline.history.body import HEAD, MAGIC, digest, read_tag
from pipeline.history.rows import UNKNOWN
from pipeline.logs.frames import Frames, Ints, checksums, gather
from pipeline.logs.properties import TopicNumbers, Words, find_words
from remoting.codes import MessageSysFlag
from remoting.properties import PROPERTY_KEYS, PROPERTY_TRANSACTION_ID, PROPERTY_UNIQ_KEY
from remoting.record import decode_record
from remoting.topics import RAFT_TOPIC, TRANS_OP_HALF_TOPIC
from store.log.dispatch import SCHEDULE_TOPIC, dispatched_from_record

_WANTED = (PROPERTY_UNIQ_KEY, PROPERTY_KEYS, PROPERTY_TRANSACTION_ID)
_TAG = np.dtype([("magic", "S4"), ("writer", ">u4"), ("counter", ">i8"), ("attempt", ">u4")])
# What is longer is no offset: it would not fit into 64 bits.
_OFFSET_DIGITS_MAX = 18
# Their records take part in more than a queue: one by one.
_SPECIAL = (TRANS_OP_HALF_TOPIC.encode(), SCHEDULE_TOPIC.encode(), RAFT_TOPIC.encode())


@dataclass(frozen=True, slots=True)
class Notes:
    """What messages say of themselves, a row each.

    `writer`, `counter`, `attempt`: the recorder's tag. `digest`: CRC-32 of the body, unpacked. What few messages have
    stands beside the columns, by row: `transactions` (ids), `refers` (offsets of halves that a record settles), `keys`
    (of those of which `words` cannot tell them).
    """

    tags_code: Ints
    writer: Ints
    counter: Ints
    attempt: Ints
    digest: Ints
    words: Words
    transactions: dict[int, str] = field(default_factory=dict)
    refers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    keys: dict[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Messages:
    """The messages of a piece: records that are no control records, and whole with what covers them.

    `frames`: where and what they are. `topic`: number in `topics.names`. `index`, `term`: of the covering entry.
    Without `check_crc` UNKNOWN stands where a CRC would.
    """

    frames: Frames
    topics: TopicNumbers
    topic: Ints
    index: Ints
    term: Ints
    check_crc: bool

    def __len__(self) -> int:
        return len(self.topic)

    def crcs(self) -> Ints:
        """Compute the CRC-32 of each whole record."""
        if not self.check_crc:
            return np.full(len(self), UNKNOWN)
        frames = self.frames
        return checksums(frames.segment.view, frames.at, frames.at + frames.size)

    @cached_property
    def notes(self) -> Notes:
        """What bodies and properties say."""
        frames, rows = self.frames, len(self)
        words = find_words(frames, _WANTED)
        tagged = np.flatnonzero(frames.body_bytes >= HEAD.size)
        tags = gather(frames.segment.data, frames.body_at[tagged], _TAG)
        # What a column of 64 bits cannot hold is no recorder's count.
        own = (tags["magic"] == MAGIC) & (tags["counter"] >= 0)
        tagged, tags = tagged[own], tags[own]
        writer, counter, attempt = np.full(rows, UNKNOWN), np.full(rows, UNKNOWN), np.zeros(rows, np.int64)
        writer[tagged], counter[tagged], attempt[tagged] = tags["writer"], tags["counter"], tags["attempt"]
        notes = Notes(words.tags_code, writer, counter, attempt, frames.digest.copy(), words)
        special = [self.topics.number(name) for name in _SPECIAL]
        slow = words.odd | (frames.sys_flag & MessageSysFlag.COMPRESSED != 0) | np.isin(self.topic, special)
        for row in np.flatnonzero(slow).tolist():
            self._take_slowly(notes, row)
        ids = words.values[PROPERTY_TRANSACTION_ID]
        for row in np.flatnonzero((ids.size > 0) & ~slow).tolist():
            at = int(ids.at[row])
            notes.transactions[row] = str(frames.segment.view[at : at + int(ids.size[row])], "utf-8")
        return notes

    def _take_slowly(self, notes: Notes, row: int) -> None:
        """Read one message with the readers that know everything."""
        frames = self.frames
        view, at = frames.segment.view, int(frames.at[row])
        record = decode_record(view, at)
        notes.tags_code[row] = dispatched_from_record(view, at).tags_code
        if record.sys_flag & MessageSysFlag.COMPRESSED:
            try:
                body = decompress(record.body, record.sys_flag)
            except CompressionError:
                # What its CRC vouches for, and nobody can unpack: no recorder made it, and consumers get it as it is.
                body = record.body
            tag = read_tag(body)
            if tag is not None and tag.counter < 2**63:
                notes.writer[row], notes.counter[row], notes.attempt[row] = tag
            else:
                notes.writer[row], notes.counter[row], notes.attempt[row] = UNKNOWN, UNKNOWN, 0
            notes.digest[row] = digest(body) if self.check_crc else UNKNOWN
        else:
            body = record.body
        transaction = record.properties.get(PROPERTY_TRANSACTION_ID, "")
        if transaction:
            notes.transactions[row] = transaction
        if record.topic == TRANS_OP_HALF_TOPIC:
            notes.refers[row] = settled(body)
        words = (record.properties.get(PROPERTY_UNIQ_KEY, ""), *record.properties.get(PROPERTY_KEYS, "").split(" "))
        notes.keys[row] = tuple(word for word in words if word)


def settled(body: bytes) -> tuple[int, ...]:
    """Return the offsets in the body of an operation on halves: decimal, with commas where there are several."""
    return tuple(int(word) for word in body.split(b",") if word.isdigit() and len(word) <= _OFFSET_DIGITS_MAX)
