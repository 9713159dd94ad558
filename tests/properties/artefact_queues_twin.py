"""The twin of pipeline/artefact_queues: entry by entry, key by key."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.logs.log import Keyed
from pipeline.logs.queues import IndexRows
from pipeline.logs.rows import Queue, QueueRow
from store.derived.indexhash import key_hash
from store.derived.indextable import ENTRY_DTYPE, HEADER_BYTES, IndexHeader, read_header
from store.files.queuefile import ENTRY, ENTRY_BYTES, FILLER, ZEROS, Entry, list_files

Rows = npt.NDArray[np.void]

_SLOT_BYTES = 4


def read_queues(folder: Path) -> dict[Queue, list[QueueRow]]:
    """Return the entries of all ConsumeQueues of a store folder; fillers before and zeros behind them are left out.

    Zeros between entries are not: they are what a lost dispatch leaves. Raises OSError.
    """
    found: dict[Queue, list[QueueRow]] = {}
    for queue in sorted((folder / "consumequeue").glob("*/*")):
        if not queue.name.isdecimal() or not queue.is_dir():
            continue
        rows: list[QueueRow] = []
        for start, size in list_files(queue):
            data = (queue / f"{start:020d}").read_bytes()[: size - size % ENTRY_BYTES]
            entries: list[Entry] = list(ENTRY.iter_unpack(data))
            rows += [(start // ENTRY_BYTES + at, *entry) for at, entry in enumerate(entries)]
        while rows and rows[-1][1:] == ZEROS:
            rows.pop()
        fillers = 0
        while fillers < len(rows) and rows[fillers][1:] == FILLER:
            fillers += 1
        found[queue.parent.name, int(queue.name)] = rows[fillers:]
    return found


def compare_index(folder: Path, keyed: Sequence[Keyed]) -> IndexRows:
    """Compare the key index of a store folder with the keys of its log's messages. Raises OSError."""
    files = {path.name: _read_index(path) for path in sorted((folder / "index").glob("*")) if path.name.isdecimal()}
    unreadable = [name for name, (header, entries) in files.items() if header.next_entry > 1 and not entries]
    known = {entry for _, entries in files.values() for entry in entries}
    headers = [header for header, entries in files.values() if entries]
    if not headers or unreadable:
        return IndexRows([], [], unreadable)
    first, last = headers[0].begin_physical, headers[-1].end_physical
    lacking: list[tuple[int, str]] = []
    keyed_at: set[int] = set()
    for position, topic, keys in keyed:
        if first <= position <= last:
            hashes = {key: key_hash(topic, key) for key in keys}
            keyed_at.add(position)
            # The newest message's entries may be under way.
            if position < last:
                lacking += [(position, key) for key, value in hashes.items() if (value, position) not in known]
    # Messages that the index knows by more than keys (their tags, as RocketMQ 5.5 does) are only sought by place.
    wrong = {position for _, position in known if position not in keyed_at}
    return IndexRows(lacking, sorted(wrong), unreadable)


def _read_index(path: Path) -> tuple[IndexHeader, list[tuple[int, int]]]:
    """Return the header of an index file and (hash, position) of its entries, none when they cannot be told.

    How many slots a file has stands nowhere in it. The entries fill the rest of it, so each begins a multiple of 20
    bytes before its end: number 0 is where zeros stand, and the messages that the header names behind them.
    """
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size > HEADER_BYTES else np.zeros(0, np.uint8)
    header = read_header(bytes(data[:HEADER_BYTES]))
    count = header.next_entry - 1
    rest = len(data) % ENTRY_DTYPE.itemsize
    rows = data[rest:].view(ENTRY_DTYPE)
    if not 0 < count < len(rows):
        return header, []
    # The shape of RocketMQ's defaults first, four entries for each slot: then the file need not be searched.
    usual = (len(data) - HEADER_BYTES) // (_SLOT_BYTES + 4 * ENTRY_DTYPE.itemsize) * _SLOT_BYTES + HEADER_BYTES
    if _begins_at(rows, (usual - rest) // ENTRY_DTYPE.itemsize, count, header):
        starts = [(usual - rest) // ENTRY_DTYPE.itemsize]
    else:
        likely = rows["physical"][1 : len(rows) - count + 1] == header.begin_physical
        likely &= rows["physical"][count:] == header.end_physical
        starts = [start for start in np.flatnonzero(likely).tolist() if _begins_at(rows, start, count, header)]
    if not starts:
        return header, []
    entries = rows[starts[-1] + 1 : starts[-1] + 1 + count]
    return header, list(zip(entries["hash"].tolist(), entries["physical"].tolist(), strict=True))


def _begins_at(rows: Rows, start: int, count: int, header: IndexHeader) -> bool:
    """Tell whether row `start` is entry 0 of an index of `count` entries."""
    entries = rows[start + 1 : start + 1 + count]
    if len(entries) < count or bytes(rows[start].tobytes()) != bytes(ENTRY_DTYPE.itemsize):
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
