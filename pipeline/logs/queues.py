"""Reads what is derived from a log: the ConsumeQueues as they stand, holes included, and the key index against keys."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.logs.log import Keyed
from pipeline.logs.rows import Queue, QueueRow
from remoting.javahash import java_hash
from store.derived.indexhash import hash_all
from store.derived.indextable import ENTRY_DTYPE as INDEX_DTYPE
from store.derived.indextable import HEADER_BYTES, IndexHeader, read_header
from store.derived.queuescan import ENTRY_DTYPE
from store.files.queuefile import ENTRY_BYTES, FILLER, list_files

Rows = npt.NDArray[np.void]
Int64s = npt.NDArray[np.int64]

_SLOT_BYTES = 4
_ZEROS = bytes(64 * 1024)
# What the index stores is an absolute value of 32 bits; that of Java's smallest number is 0.
_HASH_BITS = 31
_JAVA_MIN = 2**31
_ONES = 0xFFFFFFFF


def read_queues(folder: Path) -> dict[Queue, list[QueueRow]]:
    """Return the entries of all ConsumeQueues of a store folder; fillers before and zeros behind them are left out.

    Zeros between entries are not: they are what a lost dispatch leaves. Raises OSError.
    """
    found: dict[Queue, list[QueueRow]] = {}
    for queue in sorted((folder / "consumequeue").glob("*/*")):
        if not queue.name.isdecimal() or not queue.is_dir():
            continue
        numbers, entries = queue_columns(queue)
        columns = [entries[name].tolist() for name in ("physical", "size", "tags")]
        found[queue.parent.name, int(queue.name)] = list(zip(numbers.tolist(), *columns, strict=True))
    return found


def queue_columns(folder: Path) -> tuple[Int64s, Rows]:
    """Return (offsets, entries) of one ConsumeQueue's folder, as read_queues has them. Raises OSError."""
    numbers, parts = [np.zeros(0, np.int64)], [np.zeros(0, ENTRY_DTYPE)]
    written = False
    for start, size in reversed(list_files(folder)):
        data = (folder / f"{start:020d}").read_bytes()[: size - size % ENTRY_BYTES]
        if not written:
            # Files are as long as configured from the start: zeros count only where something stands behind them.
            data = data[: -(-_written(data) // ENTRY_BYTES) * ENTRY_BYTES]
            written = bool(data)
        entries = np.frombuffer(data, ENTRY_DTYPE)
        parts.append(entries)
        numbers.append(np.arange(len(entries)) + start // ENTRY_BYTES)
    offsets, rows = np.concatenate(numbers[::-1]), np.concatenate(parts[::-1])
    others = (rows["physical"] != FILLER[0]) | (rows["size"] != FILLER[1]) | (rows["tags"] != FILLER[2])
    fillers = int(others.argmax()) if others.any() else len(rows)
    return offsets[fillers:], rows[fillers:]


def _written(data: bytes) -> int:
    """Return the length of `data` without the zeros at its end."""
    end = len(data)
    while end >= len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    begin = max(end - len(_ZEROS), 0)
    return begin + len(data[begin:end].rstrip(b"\0"))


class IndexRows(NamedTuple):
    """How a key index compares with a log.

    `lacking`: (position, key) of what it lacks, of messages from its first to before its newest one. `wrong`: positions
    that it knows where no message with keys begins. `unreadable`: files of which it cannot be told where entries begin.
    """

    lacking: list[tuple[int, str]]
    wrong: list[int]
    unreadable: list[str]


def compare_index(folder: Path, keyed: Sequence[Keyed]) -> IndexRows:
    """Compare the key index of a store folder with the keys of its log's messages. Raises OSError."""
    files = {path.name: read_index(path) for path in sorted((folder / "index").glob("*")) if path.name.isdecimal()}
    unreadable = [name for name, (header, entries) in files.items() if header.next_entry > 1 and not len(entries)]
    full = [(header, entries) for header, entries in files.values() if len(entries)]
    if not full or unreadable:
        return IndexRows([], [], unreadable)
    first, last = full[0][0].begin_physical, full[-1][0].end_physical
    known = np.concatenate([entries for _, entries in full])
    places = known["physical"].astype(np.int64)
    within = [item for item in keyed if first <= item.position <= last]
    at = np.array([item.position for item in within], np.int64)
    # Messages that the index knows by more than keys (their tags, as RocketMQ 5.5 does) are only sought by place.
    wrong = np.setdiff1d(places, at).tolist()
    words = [list(dict.fromkeys(item.keys)) for item in within]
    counts = np.array([len(keys) for keys in words], np.int64)
    hashes = hash_keys([item.topic for item in within], list(chain.from_iterable(words)), counts)
    # Places are numbered, so that place and hash are one number.
    numbers = np.unique(np.concatenate((places, at)))
    told = np.searchsorted(numbers, places) << _HASH_BITS | known["hash"].astype(np.int64)
    due = np.repeat(np.searchsorted(numbers, at), counts) << _HASH_BITS | hashes
    # The newest message's entries may be under way.
    lost = np.flatnonzero(~np.isin(due, told) & (np.repeat(at, counts) < last))
    owner = np.repeat(np.arange(len(within)), counts)
    firsts = np.cumsum(counts) - counts
    lacking = [
        (within[item].position, words[item][key])
        for item, key in zip(owner[lost].tolist(), (lost - firsts[owner[lost]]).tolist(), strict=True)
    ]
    return IndexRows(lacking, wrong, unreadable)


def hash_keys(topics: Sequence[str], keys: Sequence[str], counts: Int64s) -> Int64s:
    """Return key_hash of each key; `counts`: how many each of the topics has."""
    prefixes = {topic: java_hash(f"{topic}#") & _ONES for topic in set(topics)}
    before = np.repeat(np.array([prefixes[topic] for topic in topics], np.uint32), counts)
    found, _ = hash_all([key.encode() for key in keys], before)
    signed: Int64s = np.abs(found.view(np.int32).astype(np.int64))
    signed[signed == _JAVA_MIN] = 0
    return signed


def read_index(path: Path) -> tuple[IndexHeader, Rows]:
    """Return the header of an index file and its entries, none when they cannot be told.

    How many slots a file has stands nowhere in it. The entries fill the rest of it, so each begins a multiple of 20
    bytes before its end: number 0 is where zeros stand, and the messages that the header names behind them.
    """
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size > HEADER_BYTES else np.zeros(0, np.uint8)
    header = read_header(bytes(data[:HEADER_BYTES]))
    count = header.next_entry - 1
    rest = len(data) % INDEX_DTYPE.itemsize
    rows = data[rest:].view(INDEX_DTYPE)
    if not 0 < count < len(rows):
        return header, rows[:0]
    # The shape of RocketMQ's defaults first, four entries for each slot: then the file need not be searched.
    usual = (len(data) - HEADER_BYTES) // (_SLOT_BYTES + 4 * INDEX_DTYPE.itemsize) * _SLOT_BYTES + HEADER_BYTES
    if _begins_at(rows, (usual - rest) // INDEX_DTYPE.itemsize, count, header):
        starts = [(usual - rest) // INDEX_DTYPE.itemsize]
    else:
        likely = rows["physical"][1 : len(rows) - count + 1] == header.begin_physical
        likely &= rows["physical"][count:] == header.end_physical
        starts = [start for start in np.flatnonzero(likely).tolist() if _begins_at(rows, start, count, header)]
    if not starts:
        return header, rows[:0]
    return header, np.array(rows[starts[-1] + 1 : starts[-1] + 1 + count])


def _begins_at(rows: Rows, start: int, count: int, header: IndexHeader) -> bool:
    """Tell whether row `start` is entry 0 of an index of `count` entries."""
    entries = rows[start + 1 : start + 1 + count]
    if len(entries) < count or bytes(rows[start].tobytes()) != bytes(INDEX_DTYPE.itemsize):
        return False
    places = entries["physical"].astype(np.int64)
    older = entries["older"].astype(np.int64)
    return bool(
        places[0] == header.begin_physical
        and places[-1] == header.end_physical
        and older[0] == 0
        and (older <= np.arange(count)).all()
        and (np.diff(places) >= 0).all()
    )
