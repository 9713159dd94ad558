"""Pieces of the log for a slave, each record in them checked: whoever gets bytes as they are does not look (R18).

A slave goes on at any byte, and a record's CRC covers it from its begin to its end. So a check needs a border at or
before that byte: the one at which the piece before ended, one that is found close by, or the begin of the file.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from remoting.record import BLANK_BYTES, FIXED_BYTES, MAGIC_V1, MAGIC_V2
from store.integrity.scrubcheck import check_piece, next_border
from store.log.commitlog import CommitLog

# A border is looked for so far before a position, and records are walked through in pieces of this size.
NEAR_BYTES = 1024 * 1024
_SIZE_AND_MAGIC = struct.Struct(">iI")


class PushedPiece(NamedTuple):
    """What may go to a slave, perhaps nothing."""

    data: memoryview | bytes
    border: int
    """The last border at or before the end of the piece, for the next one; -1 when that must be looked for."""
    damaged: tuple[int, str] | None
    """Where a record begins that is not what was written, and what is wrong; then there is no data."""


def read_checked(
    log: CommitLog, position: int, size_max: int, border: int, known: Callable[[int], bool]
) -> PushedPiece:
    """Return checked bytes of one file from `position` on. For any thread.

    `border`: what the piece before ended with, -1 for none. `known` tells of places that were found damaged
    before. Raises OSError, FileNotFoundError when the file is not kept any more, EOFError.
    """
    begin = position - position % log.file_bytes
    end = min(position + size_max, begin + log.file_bytes, log.written)
    found = PushedPiece(b"", -1, None)
    if position >= end:
        return found
    for start in _starts(log, max(begin, log.min_position), position, border):
        found = _checked(log, _walked(log, start, position), position, end)
        # Borders that are only found may stand in a body: what is wrong from there on is asked from elsewhere too.
        if found.damaged is None or start == border or known(found.damaged[0]):
            break
    if found.damaged is not None and found.damaged[0] < position:
        # A wrong size may reach over what is asked for.
        start = _searched(log, found.damaged[0] + 1, position)
        if start <= position:
            return _checked(log, _walked(log, start, position), position, end)
    return found


def _starts(log: CommitLog, begin: int, position: int, border: int) -> Iterator[int]:
    """Yield borders at or before a position, the best one first; `begin`: the file's."""
    if begin <= border <= position:
        yield border
        return
    near = position - NEAR_BYTES
    if near > begin and (found := _searched(log, near, position)) <= position:
        yield found
    yield begin


def _checked(log: CommitLog, border: int, position: int, end: int) -> PushedPiece:
    """Check every record that has a byte in [position, end), the first of which begins at `border`."""
    file_end = position - position % log.file_bytes + log.file_bytes
    first = border
    data = log.read_blocking(first, end - first)
    while True:
        checked = check_piece(memoryview(data)[border - first :], border, file_end, entries_from=None)
        if checked.bad:
            wrong, reason = checked.bad[0]
            if wrong <= position:
                return PushedPiece(b"", -1, (wrong, reason))
            return PushedPiece(memoryview(data)[position - first : wrong - first], wrong, None)
        if checked.end >= end:
            # The last record may reach beyond what was asked for.
            last = end if checked.end == end else border
            return PushedPiece(memoryview(data)[position - first : end - first], last, None)
        if checked.end > border:
            border = checked.end
            continue
        until = border + max(checked.needed, BLANK_BYTES)
        if until > log.written or until <= first + len(data):
            if border > position:
                return PushedPiece(memoryview(data)[position - first : border - first], border, None)
            return PushedPiece(b"", -1, (border, "a record that reaches beyond the end of the log"))
        data = b"".join((data, log.read_blocking(first + len(data), until - first - len(data))))


def _walked(log: CommitLog, border: int, position: int) -> int:
    """Return the last border at or before a position, by the sizes that records name of themselves.

    What stands between is not looked at otherwise: it does not go out. A begin that cannot be one is searched past.
    """
    base, piece = border, b""
    while border < position:
        at = border - base
        if at + BLANK_BYTES > len(piece):
            base, piece = border, _window(log, border)
            at = 0
        size, magic = _SIZE_AND_MAGIC.unpack_from(piece, at) if len(piece) >= BLANK_BYTES else (0, 0)
        if magic not in {MAGIC_V1, MAGIC_V2} or size < FIXED_BYTES:
            found = _searched(log, border + 1, position)
            # A file's blank, or damage up to the position.
            if found > position:
                break
            border, piece = found, b""
        elif border + size > position:
            break
        else:
            border += size
    return border


def _searched(log: CommitLog, start: int, position: int) -> int:
    """Return the first place from `start` on where a whole record seems to begin; beyond `position` when none does."""
    while start <= position:
        piece = _window(log, start)
        at = next_border(memoryview(piece), 0, start)
        if at >= 0:
            return start + at
        if len(piece) <= BLANK_BYTES:
            break
        # A magic may lie across the end of a piece.
        start += len(piece) - BLANK_BYTES + 1
    return position + 1


def _window(log: CommitLog, start: int) -> bytes:
    file_end = start - start % log.file_bytes + log.file_bytes
    return bytes(log.read_blocking(start, min(NEAR_BYTES, file_end - start, log.written - start)))
