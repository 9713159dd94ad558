"""Checks of logs as logs: that they agree (B1), hold together (B3), are undamaged (B4), equal in bytes (B13)."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from pipeline.history.results import Finding
from pipeline.logs.member_files import CHUNK_BYTES, Artefact
from pipeline.logs.rows import EntryRow, MessageRow
from pipeline.plain.check_log_parts import whole_groups
from pipeline.plain.replicas import ReplicaGroup, Replicas

Witness = dict[str, Any]
# Bytes that are compared together inside of a chunk that differs, and that a witness shows.
BLOCK_BYTES = 4096
SHOWN_BYTES = 16


def check_b1(replicas: Replicas) -> Finding:
    """B1: two members disagree about an entry.

    Raft: for two members and an index that both know as committed, (term, CRC of all bytes, size, position) differ.
    And, for any index, committed or not: two members hold it with one term, and their chains (a CRC over everything up
    to there) differ, although one leader of one term wrote both. Classic modes: below the end of both logs, records at
    one position differ in size, or in what they say: topic, queue, offset, body.
    """
    return whole_groups("B1", replicas, _disagreements)


def _disagreements(group: ReplicaGroup) -> Iterator[Witness]:
    for one, other in combinations(group.logs, 2):
        if group.is_raft:
            yield from _entries_apart(group, one, other)
        else:
            yield from _records_apart(group, one, other)


def _entries_apart(group: ReplicaGroup, one: Artefact, other: Artefact) -> Iterator[Witness]:
    committed = min(group.known.get(one.member, 0), group.known.get(other.member, 0))
    theirs = {entry.index: entry for entry in other.entries}
    for left in one.entries:
        right = theirs.get(left.index)
        if right is None:
            continue
        apart = (left.term, left.crc, left.size, left.position) != (right.term, right.crc, right.size, right.position)
        if (apart and left.index <= committed) or (left.term == right.term and left.chain != right.chain):
            yield {
                "index": left.index,
                "committed": committed,
                one.member: {"term": left.term, "crc": left.crc, "position": left.position},
                other.member: {"term": right.term, "crc": right.crc, "position": right.position},
            }


def _records_apart(group: ReplicaGroup, one: Artefact, other: Artefact) -> Iterator[Witness]:
    theirs = group.by_position[other.member]
    for left in one.messages:
        right = theirs.get(left.position)
        if right is not None and _says(left) != _says(right):
            yield {"position": left.position, one.member: list(_says(left)), other.member: list(_says(right))}


def _says(row: MessageRow) -> tuple[int | str, ...]:
    return row.size, row.topic, row.queue, row.offset, row.digest


def check_b3(replicas: Replicas) -> Finding:
    """B3: what stands in a log does not follow what stands before it.

    Of two entries side by side: the index is not one more, the term is less, `previous term` is not the term before,
    the chain does not continue, or the position is not where the one before ends, nor the start of the next file
    behind it. A record behind the first entry that no entry covers, unless the group has ended. Classic modes and what
    stands before the first entry: a hole, zeros or a missing file, with records behind it. What a gap with other bytes
    parts is B4's.
    """
    return whole_groups("B3", replicas, _breaks)


class _Piece(NamedTuple):
    """An entry, or a record outside of any."""

    start: int
    end: int
    entry: EntryRow | None


def _breaks(group: ReplicaGroup) -> Iterator[Witness]:
    for log in group.logs:
        pieces = [_Piece(entry.position, entry.end, entry) for entry in log.entries]
        pieces += [_Piece(row.position, row.end, None) for row in log.messages if row.index < 0]
        pieces.sort()
        gaps = [gap.start for gap in log.gaps]
        for gap in log.gaps:
            if gap.empty and gap.start < log.end:
                yield {"member": log.member, "position": gap.start, "why": gap.reason}
        last: EntryRow | None = None
        for before, piece in pairwise([_Piece(log.begin, log.begin, None), *pieces]):
            last = before.entry or last
            why = _why_not(last, before, piece, log.log.file_bytes)
            since = min(before.end, last.end) if why and last is not None else before.end
            if why and not any(since <= start <= piece.start for start in gaps):
                index = piece.entry.index if piece.entry is not None else -1
                yield {"member": log.member, "position": piece.start, "index": index, "why": why}


def _why_not(last: EntryRow | None, before: _Piece, piece: _Piece, file_bytes: int) -> str:
    """Tell why a piece cannot follow the one before it, where `last` is the last entry; "" if it can."""
    following = -(-before.end // file_bytes) * file_bytes if file_bytes else before.end
    if piece.start not in {before.end, following}:
        return f"it stands at {piece.start}, the one before ends at {before.end}"
    entry = piece.entry
    if entry is None:
        return "" if last is None or last.classic else "no entry covers it"
    if last is None or last.classic:
        return ""
    if entry.index != last.index + 1:
        return f"it follows index {last.index}"
    if entry.term < last.term:
        return f"its term is {entry.term}, that of the one before {last.term}"
    if entry.previous_term != last.term:
        return f"it follows term {entry.previous_term}, that of the one before is {last.term}"
    return "" if entry.follows else "its chain does not continue that of the one before"


def check_b4(replicas: Replicas) -> Finding:
    """B4: bytes fail their checksum, or are no record, where the member vouched for its log.

    A gap in a log (wrong magic, length, body CRC, CRC of an entry's records, a control record with a changed byte) that
    begins below what floor or checkpoint tell as synced, or below records that are whole. Torn bytes behind both are
    what any crash leaves: the log of a group's member that was killed ends there (Artefact.may_be_torn). And a floor
    file of which no sector is whole.
    """
    return whole_groups("B4", replicas, _damages)


def _damages(group: ReplicaGroup) -> Iterator[Witness]:
    for log in group.logs:
        for gap in log.gaps:
            if gap.start < max(log.vouched, log.end) and not (gap.empty and gap.start < log.end):
                yield {"member": log.member, "position": gap.start, "end": gap.end, "why": gap.reason}
        for name, why in log.damage.items():
            if name.endswith("floor"):
                yield {"member": log.member, "file": name, "why": why}


def check_b13(replicas: Replicas) -> Finding:
    """B13: two members' logs differ in a byte, although a position is part of what all agree on.

    Compared in pieces of 1 MiB by hash, up to the end of what is committed (classic modes: of the shorter log); only
    pieces whose hashes differ are looked into. Bytes that belong to no record, at the end of a file, do not count.
    """
    return whole_groups("B13", replicas, _differences)


def _differences(group: ReplicaGroup) -> Iterator[Witness]:
    reference = max(group.logs, key=lambda log: log.end)
    for other in group.logs:
        if other is reference:
            continue
        begin, end = max(reference.begin, other.begin), min(group.end, reference.end, other.end)
        for start in range(begin - begin % CHUNK_BYTES, end, CHUNK_BYTES):
            first, last = max(begin, start), min(start + CHUNK_BYTES, end)
            if reference.log.digest(first, last) != other.log.digest(first, last):
                yield from first_difference(reference, other, first, last)


def first_difference(one: Artefact, other: Artefact, start: int, end: int) -> Iterator[Witness]:
    """Yield the first byte of a piece that differs and belongs to something."""
    covered = _Covered(one), _Covered(other)
    left, right = one.log.read(start, end), other.log.read(start, end)
    for block in range(0, max(len(left), len(right)), BLOCK_BYTES):
        mine, theirs = left[block : block + BLOCK_BYTES], right[block : block + BLOCK_BYTES]
        if mine == theirs:
            continue
        for at in range(max(len(mine), len(theirs))):
            position = start + block + at
            if mine[at : at + 1] != theirs[at : at + 1] and any(position in each for each in covered):
                shown = slice(block + at, block + at + SHOWN_BYTES)
                yield {
                    "position": position,
                    one.member: left[shown].hex(),
                    other.member: right[shown].hex(),
                }
                return


class _Covered:
    """The positions that belong to a record or to a gap of a log."""

    def __init__(self, log: Artefact) -> None:
        pieces = [(entry.position, entry.end) for entry in log.entries]
        pieces += [(row.position, row.end) for row in log.messages if row.index < 0]
        pieces += [(gap.start, gap.end) for gap in log.gaps]
        self._pieces = sorted(pieces)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._pieces, (position, 2**63)) - 1
        return at >= 0 and position < self._pieces[at][1]
