"""Topics and properties of many records at once, without making a string of each.

Most records of a log are written alike: the same names of properties, with values of the same lengths. So the records
are put side by side by the length of their properties, one of them is taken apart, and all that have its names and
separators at the same places are taken apart with it. What is left over, and what is no plain ASCII, is `odd`: it
is for the readers of remoting/, one by one.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.logs.frames import Bools, Bytes, Frames, Ints, gather_texts
from remoting.properties import PROPERTY_TAGS

NAME_END, PAIR_END = 1, 2

# Fewer records of one kind are taken apart one by one: that is faster.
_ALIKE_MIN = 8
# Kinds that are tried among records whose properties are equally long.
_KINDS_MAX = 16
_TAGS = PROPERTY_TAGS.encode()
_JAVA_BASE = 31


class TopicNumbers:
    """Numbers the topics that were met, so that columns hold numbers."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._numbers: dict[bytes, int] = {}

    def number(self, name: bytes) -> int:
        """Return the number of a topic."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def column(self, frames: Frames) -> Ints:
        """Return the number of each record's topic."""
        found = np.zeros(len(frames), np.int64)
        for rows, length in alike(frames.topic_bytes):
            texts = gather_texts(frames.segment.data, frames.topic_at[rows], length)
            left = np.arange(len(rows))
            for _ in range(_KINDS_MAX):
                if not len(left):
                    break
                same = (texts[left] == texts[left[0]]).all(axis=1)
                found[rows[left[same]]] = self.number(texts[left[0]].tobytes())
                left = left[~same]
            found[rows[left]] = [self.number(texts[row].tobytes()) for row in left.tolist()]
        return found


def alike(lengths: Ints) -> list[tuple[Ints, int]]:
    """Return (rows, length) of each length; rows in order."""
    if not len(lengths):
        return []
    order = np.argsort(lengths, kind="stable")
    borders = np.flatnonzero(np.diff(lengths[order])) + 1
    return [(rows, int(lengths[rows[0]])) for rows in np.split(order, borders)]


@dataclass(frozen=True, slots=True)
class Values:
    """Where the values of one property stand: bytes from the file's start, and how many; -1 of records without it."""

    at: Ints
    size: Ints


@dataclass(frozen=True, slots=True)
class Words:
    """The properties of records. `tags_code` is that of TAGS, 0 without; of odd rows nothing is told here."""

    values: dict[str, Values]
    tags_code: Ints
    odd: Bools


class _Shape(NamedTuple):
    """How a record's properties are written. `words`: (name, start, end) of the values."""

    fixed: Ints
    free: Ints
    words: list[tuple[bytes, int, int]]


def find_words(frames: Frames, wanted: Collection[str]) -> Words:
    """Find the values of the wanted properties in all records."""
    rows = len(frames)
    names = {name.encode(): Values(np.full(rows, -1, np.int64), np.full(rows, -1, np.int64)) for name in wanted}
    words = Words({name.decode(): values for name, values in names.items()}, np.zeros(rows, np.int64), _none(rows))
    for group, length in alike(frames.properties_bytes):
        if length == 0:
            continue
        texts = gather_texts(frames.segment.data, frames.properties_at[group], length)
        left = np.arange(len(group))
        for _ in range(_KINDS_MAX):
            if len(left) < _ALIKE_MIN:
                break
            first = texts[left[0]]
            shape = _shape(first.tobytes())
            if shape is None:
                words.odd[group[left[0]]] = True
                left = left[1:]
                continue
            same = _fits(texts[left], first, shape)
            _note(words, names, frames, group[left[same]], texts[left[same]], shape)
            left = left[~same]
        words.odd[group[left]] = True
    return words


def _none(rows: int) -> Bools:
    return np.zeros(rows, np.bool_)


def _shape(text: bytes) -> _Shape | None:
    """Take properties apart; None when they are not `name 0x01 value 0x02` throughout, in ASCII, each name once."""
    words: list[tuple[bytes, int, int]] = []
    free: list[int] = []
    at = 0
    while at < len(text):
        # The last 0x02 may be missing.
        end = text.find(PAIR_END, at)
        end = len(text) if end < 0 else end
        value_at = text.find(NAME_END, at, end) + 1
        if value_at <= at + 1 or text.find(NAME_END, value_at, end) >= 0:
            return None
        words.append((text[at : value_at - 1], value_at, end))
        free += range(value_at, end)
        at = end + 1
    if len({name for name, _, _ in words}) < len(words) or not text.isascii() or 0 in text:
        return None
    fixed = np.setdiff1d(np.arange(len(text)), np.array(free, np.int64))
    return _Shape(fixed, np.array(free, np.int64), words)


def _fits(texts: Bytes, first: Bytes, shape: _Shape) -> Bools:
    """Tell which texts are written as the first one: its names, its separators, values of ASCII without any."""
    same: Bools = (texts[:, shape.fixed] == first[shape.fixed]).all(axis=1)
    # Less 3, all that is no text of its own ends up above: separators, zeros, bytes beyond ASCII.
    same &= ((texts[:, shape.free] - np.uint8(3)) < np.uint8(125)).all(axis=1)
    return same


def _note(words: Words, names: dict[bytes, Values], frames: Frames, rows: Ints, texts: Bytes, shape: _Shape) -> None:
    for name, start, end in shape.words:
        values = names.get(name)
        if values is not None:
            values.at[rows] = frames.properties_at[rows] + start
            values.size[rows] = end - start
        if name == _TAGS:
            words.tags_code[rows] = java_hashes(texts[:, start:end])


def java_hashes(texts: Bytes) -> Ints:
    """Return String.hashCode() of each row of ASCII text."""
    powers = np.ones(texts.shape[1], np.uint32)
    powers[:-1] = _JAVA_BASE
    weights = np.cumprod(powers[::-1], dtype=np.uint32)[::-1] if len(powers) else powers
    # Java's ints overflow, and so do these.
    sums: npt.NDArray[np.uint32] = (texts * weights).sum(axis=1, dtype=np.uint32)
    return sums.view(np.int32).astype(np.int64)
