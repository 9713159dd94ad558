"""The Raft entries of a part of a log: which are whole, which records they cover, which records nothing covers.

An entry counts when its control record and all records that it covers are whole; of one that is not, the control
record and whatever is left of its records become a gap.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.history.rows import UNKNOWN
from pipeline.logs.control import CONFIG, KINDS, VERSION, JudgedControl, continues, decode_control
from pipeline.logs.frames import Bools, Frames, Ints, checksums, gather
from pipeline.logs.rows import Config, EntryRow, GapRow
from remoting.record import HEADS
from runtime.cbor import CborError, read_cbor
from runtime.crc import crc32

TORN = "an entry whose records do not match their CRC"

_BODY = np.dtype(
    [("version", "u1"), ("kind", "u1"), ("flags", ">u2"), ("term", ">i8"), ("previous_term", ">i8"),
     ("covered_bytes", ">u4"), ("covered_count", ">u4"), ("covered_crc", ">u4"), ("commit", ">i8"), ("config", ">i8"),
     ("chain", ">u4")]
)  # fmt: skip
_HOSTS = np.dtype([("born", ">u8"), ("time", ">i8"), ("store", ">u8")])
_HOSTS_AT = 48
# The head's CRC of the body, which has one value that it can have.
_CRC = np.dtype([("crc", ">u4")])
_CRC_AT = 8


@dataclass(frozen=True, slots=True)
class Entries:
    """What became of the control records of a part of a log, and of the records behind them.

    `rows`: the entries that are whole. `gaps`: (row of the record after which it is known, 1 if of the entry, gap).
    `index`, `term`: of the entry that covers each record, UNKNOWN when none does. `kept`: the messages that count.
    """

    rows: list[EntryRow]
    configs: list[Config]
    gaps: list[tuple[int, int, GapRow]]
    index: Ints
    term: Ints
    kept: Bools


class EntryWalk:
    """Goes through a log part by part. `chain`: that of the last whole entry so far, None before the first.

    Without `entry_crcs` UNKNOWN stands for the CRC of each entry, its control record included: whether the entry is
    whole is known without, and it is a second pass over all bytes.
    """

    def __init__(self, chain: int | None = None, *, check_crc: bool = True, entry_crcs: bool = True) -> None:
        self.chain = chain
        self._check_crc = check_crc
        self._entry_crcs = entry_crcs and check_crc
        # What is left of an entry that is not whole ends here.
        self._torn_until = 0

    def take(self, frames: Frames, control: Bools, unreadable: Bools) -> Entries:
        """Take records that stand back to back: no entry begins before and reaches into them, or leaves them whole.

        `control`: which are of the control records' topic; `unreadable`: which no reader takes for a message.
        """
        rows = np.flatnonzero(control)
        position, end = frames.position, frames.end
        found = Entries([], [], [], np.full(len(frames), UNKNOWN), np.full(len(frames), UNKNOWN), ~control)
        found.kept[unreadable] = False
        decoded = decode_controls(frames, rows)
        for row, item in zip(rows.tolist(), decoded, strict=True):
            if isinstance(item, str):
                found.gaps.append((row, 0, GapRow(int(position[row]), int(end[row]), item)))
        controls = [item for item in decoded if not isinstance(item, str)]
        good = np.array([not isinstance(item, str) for item in decoded], np.bool_)
        # Another control record ends an entry as well, whatever it covers.
        after = np.append(rows[1:], len(frames))[: len(rows)][good]
        rows = rows[good]
        ends = np.array([item.end for item in controls], np.int64)
        lasts = np.minimum(np.searchsorted(position, ends), after)
        unread = np.cumsum(unreadable)
        whole = (end[lasts - 1] == ends) & (unread[lasts - 1] == unread[rows])
        for at, (item, last, likely) in enumerate(zip(controls, lasts.tolist(), whole.tolist(), strict=True)):
            if likely and self._matches(frames, item):
                self._note(frames, item, last, found)
            else:
                whole[at] = False
                found.gaps.append((last - 1, 1, GapRow(item.position, item.end, TORN)))
        owner = np.repeat(np.arange(len(rows)), lasts - rows - 1)
        covered = _ranges(rows + 1, lasts)
        found.index[covered] = np.array([item.number for item in controls], np.int64)[owner]
        found.term[covered] = np.array([item.term for item in controls], np.int64)[owner]
        found.kept[covered] &= whole[owner]
        self._drop_torn(position, found, covered, rows[~whole], ends[~whole])
        return found

    def _drop_torn(self, position: Ints, found: Entries, covered: Ints, rows: Ints, ends: Ints) -> None:
        """Leave out what nothing covers and what is left of torn entries, which stand in `rows` and end at `ends`."""
        if not len(rows) and not self._torn_until:
            return
        # The newest torn entry before a record counts.
        until = np.append(self._torn_until, ends)[np.searchsorted(rows, np.arange(len(position)))]
        until[covered] = 0
        found.kept[position < until] = False
        self._torn_until = int(ends[-1]) if len(ends) else self._torn_until

    def _matches(self, frames: Frames, control: JudgedControl) -> bool:
        if not self._check_crc:
            return True
        begin = control.position + control.size - frames.segment.span.start
        return crc32(frames.segment.view[begin : begin + control.covered_bytes]) == control.covered_crc

    def _note(self, frames: Frames, control: JudgedControl, last: int, found: Entries) -> None:
        begin = control.position - frames.segment.span.start
        size = control.size + control.covered_bytes
        crc = crc32(frames.segment.view[begin : begin + size]) if self._entry_crcs else UNKNOWN
        follows = self.chain is None or continues(control, self.chain)
        self.chain = control.chain
        found.rows.append(
            EntryRow(
                control.number, control.term, control.position, size, crc, control.kind,
                control.ends_group, control.size, control.covered_count, control.previous_term, control.commit,
                control.config, control.chain, follows,
            )
        )  # fmt: skip
        if control.kind == CONFIG:
            config = _config_of(control)
            if isinstance(config, str):
                found.gaps.append((last - 1, 1, GapRow(control.position, control.end, config)))
            else:
                found.configs.append(config)


def _ranges(starts: Ints, ends: Ints) -> Ints:
    """Return all numbers of the ranges [start, end), in order."""
    counts = ends - starts
    found: Ints = np.arange(int(counts.sum())) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return found


def _config_of(control: JudgedControl) -> Config | str:
    try:
        # [version, group id, base position, index, term, digest, classic, [[id, address, store id, voter], …]]
        members = read_cbor(control.payload, len(control.payload))[7]
        ids = tuple(str(row[0]) for row in members)
        voters = tuple(str(row[0]) for row in members if row[3])
    except (CborError, TypeError, LookupError) as error:
        return f"a CONFIG entry that cannot be read: {error}"
    return Config(control.number, ids, voters)


def decode_controls(frames: Frames, rows: Ints) -> list[JudgedControl | str]:
    """Return what the control records in the given rows say, in words why one is none."""
    found: list[JudgedControl | str] = []
    part = frames.part(rows)
    plain = _plain(part)
    body = gather(part.segment.data, part.body_at[plain], _BODY)
    # Everything but the payload, which these have none of.
    columns: list[list[Any]] = [
        column[plain].tolist() for column in (part.offset, part.position, part.size, part.stored)
    ]
    columns += [body[name].tolist() for name in _BODY.names[1:] if name != "version"] if _BODY.names else []
    easy = zip(*columns, strict=True)
    starts = part.at.tolist()
    for at, is_plain in zip(starts, plain.tolist(), strict=True):
        if is_plain:
            found.append(JudgedControl._make((*next(easy), b"")))
        else:
            found.append(decode_control(part.segment.view, at))
    return found


def _plain(part: Frames) -> Bools:
    """Tell which records are surely as decode_control wants them: no payload, IPv4, each field as it must be."""
    data, fixed = part.segment.data, HEADS[0].size
    plain: Bools = (part.sys_flag == 0) & (part.body_bytes == _BODY.itemsize) & (part.body_at == part.at + fixed)
    for column in (part.properties_bytes, part.queue, part.flag, part.reconsume, part.prepared):
        plain &= column == 0
    plain &= part.born == part.stored
    hosts = gather(data, np.where(plain, part.at + _HOSTS_AT, 0), _HOSTS)
    plain &= hosts["born"] == hosts["store"]
    body_end = part.body_at + np.where(plain, _BODY.itemsize, 0)
    crcs = checksums(part.segment.view, part.body_at, body_end) & 0x7FFFFFFF
    plain &= crcs == gather(data, part.at + _CRC_AT, _CRC)["crc"]
    body = gather(data, np.where(plain, part.body_at, 0), _BODY)
    plain &= (body["version"] == VERSION) & (body["kind"] < len(KINDS))
    return plain
