"""Makes rows of what stands in the log of a store folder: entries, messages, gaps, configurations, the messages' keys.

An entry counts when its control record and all records that it covers are whole; of one that is not, the control
record and whatever is left of its records become a gap.
"""

from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.logs.frames import Ints, list_spans
from pipeline.logs.messages import Messages
from pipeline.logs.properties import Values
from pipeline.logs.reader import LogReader
from pipeline.logs.rows import Config, EntryRow, GapRow, MessageRow
from remoting.properties import KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_UNIQ_KEY


class Keyed(NamedTuple):
    """The keys under which the index should know the message at a position."""

    position: int
    topic: str
    keys: tuple[str, ...]


@dataclass(slots=True)
class LogRows:
    """What stands in a log. `end`: behind its last whole record or entry."""

    entries: list[EntryRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    configs: list[Config] = field(default_factory=list)
    keyed: list[Keyed] = field(default_factory=list)
    end: int = 0


def read_log(folder: Path) -> LogRows:
    """Read the whole log of a store folder. Raises OSError."""
    rows = LogRows()
    for piece in LogReader(list_spans(folder)).pieces():
        rows.entries += piece.entries
        rows.gaps += piece.gaps
        rows.configs += piece.configs
        rows.end = max(rows.end, piece.end)
        if piece.messages is not None:
            rows.messages += message_rows(piece.messages)
            rows.keyed += keyed_rows(piece.messages)
    return rows


def message_rows(messages: Messages) -> list[MessageRow]:
    """Return the messages as rows."""
    frames, notes, rows = messages.frames, messages.notes, len(messages)
    transactions, refers = [""] * rows, [()] * rows  # type: list[str], list[tuple[int, ...]]
    for row, transaction in notes.transactions.items():
        transactions[row] = transaction
    for row, offsets in notes.refers.items():
        refers[row] = offsets
    columns = (
        frames.queue, frames.offset, frames.position, frames.size, notes.tags_code, frames.stored, messages.crcs(),
        messages.index, messages.term, notes.writer, notes.counter, notes.attempt, notes.digest,
        frames.sys_flag,
    )  # fmt: skip
    listed: list[list[Any]] = [column.tolist() for column in columns]
    together = zip(topic_names(messages), *listed, transactions, frames.prepared.tolist(), refers, strict=True)
    return list(starmap(MessageRow, together))


def topic_names(messages: Messages) -> list[str]:
    """Return the topic of each message."""
    names = [name.decode("utf-8", "replace") for name in messages.topics.names]
    return [names[topic] for topic in messages.topic.tolist()]


def keyed_rows(messages: Messages) -> list[Keyed]:
    """Return each message's place, topic and keys."""
    unique = texts_of(messages, PROPERTY_UNIQ_KEY)
    words = texts_of(messages, PROPERTY_KEYS)
    keys = [
        ((first,) if first else ()) + (tuple(word for word in rest.split(KEY_SEPARATOR) if word) if rest else ())
        for first, rest in zip(unique, words, strict=True)
    ]
    for row, odd in messages.notes.keys.items():
        keys[row] = odd
    return list(starmap(Keyed, zip(messages.frames.position.tolist(), topic_names(messages), keys, strict=True)))


def texts_of(messages: Messages, name: str) -> list[str]:
    """Return the values of a property that `words` tells of, "" of records without."""
    values: Values = messages.notes.words.values[name]
    view = messages.frames.segment.view
    starts: Ints = values.at
    return [
        str(view[at : at + size], "ascii") if size > 0 else ""
        for at, size in zip(starts.tolist(), values.size.tolist(), strict=True)
    ]
