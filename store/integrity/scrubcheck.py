"""Checks a piece of the log that begins at a border: what is wrong in it, and how far it was gone through.

A pure function of bytes, for any thread. Records are checked by their CRC and their lengths; in a group each entry as a
whole, by the CRC in its control record, which covers every byte behind that, and by the chain, which alone covers the
index.
"""

import struct
from typing import NamedTuple

from remoting.record import BLANK_BYTES, BLANK_MAGIC, MAGIC_V1, MAGIC_V2
from remoting.topics import RAFT_TOPIC
from runtime.crc import crc32
from store.controlrecord import Control, ControlError, continues, decode_control
from store.log.logscan import check_record

# Records and entries that are checked before others may have the interpreter: some three milliseconds.
UNITS_MAX = 1000
_SIZE_AND_MAGIC = struct.Struct(">iI")
_MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
_TOPIC = RAFT_TOPIC.encode()
# Size and magic stand together: one more byte would be another's.
_HEAD_BYTES = 8


class Before(NamedTuple):
    """The entry before the next one."""

    position: int
    number: int
    """Its index."""
    chain: int
    sure: bool
    """Whether its index was checked, or found wrong: else the next entry tells."""


# Behind something wrong: up to the next entry records may be of one that is known as damaged.
ASTRAY = Before(-1, -1, 0, True)


class ScrubOutcome(NamedTuple):
    """How it went."""

    end: int
    """Behind the last thing that was looked at: a border, or any position when `searching`."""
    needed: int
    """Bytes that what stands at `end` takes, when it is more than was there; else 0."""
    searching: bool
    """Whether the next border is still looked for, behind something that is wrong."""
    bad: list[tuple[int, str]]
    """Where something is wrong, and what."""
    before: Before | None
    """The entry that ends at `end`, None when none does; ASTRAY."""


def check_piece(
    data: memoryview,
    position: int,
    file_end: int,
    *,
    entries_from: int | None,
    searching: bool = False,
    before: Before | None = None,
) -> ScrubOutcome:
    """Check bytes of one file that begin at `position`, a border unless `searching`.

    `entries_from`: from there on every record is of an entry, None when there are no entries; `before`: of the piece
    before.
    """
    bad: list[tuple[int, str]] = []
    at = units = 0
    while units < UNITS_MAX:
        units += 1
        left = file_end - position - at
        if left < BLANK_BYTES:
            return ScrubOutcome(file_end, 0, False, bad, before)
        if len(data) - at < BLANK_BYTES:
            return ScrubOutcome(position + at, 0, searching, bad, before)
        if searching:
            before = ASTRAY
            at = next_border(data, at, position)
            searching = at < 0
            if searching:
                # A magic may lie across the end of the piece, its size before it; at a file's end nothing follows.
                whole = position + len(data) >= file_end
                end = file_end if whole else position + len(data) - _HEAD_BYTES + 1
                return ScrubOutcome(end, 0, not whole, bad, ASTRAY)
        total, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
        if magic == BLANK_MAGIC and total == left:
            return ScrubOutcome(file_end, 0, False, bad, before)
        unit = _unit(data, at, position + at, group=entries_from is not None)
        if isinstance(unit, str):
            bad.append((position + at, unit))
            searching = True
            at += 1
            continue
        size, control = unit
        if size > left:
            bad.append((position + at, "a size that reaches beyond the file"))
            searching = True
            at += 1
        elif size > len(data) - at:
            return ScrubOutcome(position + at, size, False, bad, before)
        else:
            if control is not None:
                before = _follow(before, control, bad)
            elif entries_from is not None and position + at >= entries_from and before is not ASTRAY:
                bad.append((position + at, "a record that no entry covers"))
                before = ASTRAY
            at += size
    return ScrubOutcome(position + at, 0, searching, bad, before)


def _follow(before: Before | None, control: Control, bad: list[tuple[int, str]]) -> Before:
    """Check the index of an entry, and now that of the one before it if nothing told so far; return the entry."""
    if control.is_classic:
        # What stands behind it is a single broker's, and then a chain begins anew.
        return ASTRAY
    if before is None or before is ASTRAY:
        return Before(control.position, control.index, control.chain, sure=False)
    if not continues(control, before.chain):
        bad.append((control.position, f"an entry {control.index} that does not continue entry {before.number}"))
    elif not before.sure and control.index != before.number + 1:
        bad.append((before.position, f"an entry {before.number} in front of entry {control.index}"))
    return Before(control.position, control.index, control.chain, sure=True)


def _unit(data: memoryview, at: int, position: int, *, group: bool) -> tuple[int, Control | None] | str:
    """Return how many bytes stand together at `at`, more than there are when it is cut short, and of which entry.

    In words what is wrong, instead.
    """
    verdict = check_record(data, at, position, check_crc=True)
    if verdict == "cut short":
        size: int = _SIZE_AND_MAGIC.unpack_from(data, at)[0]
        return max(size, len(data) - at + 1), None
    if isinstance(verdict, str):
        return verdict
    size = verdict[0]
    control = _control(data, at, size) if group else None
    if isinstance(control, str):
        return control
    if control is None:
        return size, None
    begin, size = at + control.size, control.entry_bytes
    if at + size <= len(data) and crc32(data[begin : at + size]) != control.covered_crc:
        return "an entry that does not match its CRC"
    return size, control


def _control(data: memoryview, at: int, size: int) -> Control | str | None:
    """Return the control record at `at`, None when another record stands there, or what is wrong with it."""
    # It ends in its topic and the length of its properties, of which it has none.
    if data[at + size - 2 - len(_TOPIC) : at + size - 2] != _TOPIC:
        return None
    try:
        return decode_control(data, at)
    except ControlError as error:
        return str(error)


def next_border(data: memoryview, start: int, position: int) -> int:
    """Return where the next record, or a file's blank, seems to begin; -1 when none does."""
    content = data.tobytes()
    at = start
    while True:
        hits = [hit for hit in (content.find(magic, at + 4) for magic in _MAGICS) if hit >= 0]
        if not hits:
            return -1
        at = min(hits) - 4
        verdict = check_record(data, at, position + at, check_crc=True)
        # The next piece begins there when it is cut short, if it says of itself that it stands where it does.
        if not isinstance(verdict, str) or (verdict == "cut short" and _stands(content, at, position + at)):
            return at
        at += 1


def _stands(content: bytes, at: int, position: int) -> bool:
    return content[at + 28 : at + 36] == position.to_bytes(8, "big")
