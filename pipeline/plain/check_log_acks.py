"""Checks of what clients were told against what members hold: B2, B8, B9, B10."""

from collections.abc import Iterator
from typing import Any

from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Kind, Op
from pipeline.plain.check_log_parts import (
    NOTHING_EARLIER,
    NOTHING_REFUSED,
    NOTHING_TOLD,
    each_group,
    not_judged,
    whole_groups,
)
from pipeline.plain.replicas import ReplicaGroup, Replicas

Witness = dict[str, Any]


def check_b2(replicas: Replicas) -> Finding:
    """B2: acknowledged, and on too few disks when everything had been killed.

    Of each acknowledged send, the members whose log holds that attempt are counted; one whose log begins behind the
    position that was told counts as well. Raft: fewer than a majority. SYNC_MASTER: fewer than two, as long as there is
    a slave. Otherwise: none. Not judged where nothing was acknowledged; counted where the promise lets acknowledged
    messages be lost.
    """
    if nothing := not_judged("B2", replicas, NOTHING_TOLD, has_evidence=_is_told(replicas)):
        return nothing
    return whole_groups("B2", replicas, lambda group: _too_few(replicas, group), judged=not replicas.history.lossy)


def _too_few(replicas: Replicas, group: ReplicaGroup) -> Iterator[Witness]:
    needed = group.majority if group.is_raft else 1
    if replicas.history.promises.mode == "sync":
        needed = min(2, len(group.logs))
    held = [(log, group.by_attempt[log.member]) for log in group.logs]
    for op in group.acknowledged:
        attempt = (op.writer, op.counter, op.attempt)
        holders = [log.member for log, rows in held if attempt in rows or UNKNOWN < op.position < log.begin]
        if len(holders) < needed - len(group.missing):
            yield {**told(op), "held_by": holders, "needed": needed}


def _is_told(replicas: Replicas) -> bool:
    return any(group.acknowledged for group in replicas.groups)


def _has_earlier(replicas: Replicas) -> bool:
    return any(replicas.grouped(copies) for copies in replicas.earlier)


def told(op: Op) -> Witness:
    """Return what a send was told, for a witness."""
    return {
        "op": op.op,
        "writer": op.writer,
        "counter": op.counter,
        "attempt": op.attempt,
        "topic": op.topic,
        "queue": op.queue,
        "offset": op.offset,
        "position": op.position,
        "term": op.term,
    }


def check_b8(replicas: Replicas) -> Finding:
    """B8: a member holds something else where an acknowledgement said that the message is.

    On each member, below the end of what is committed: the record at the position that was told is of another attempt,
    or says another topic, queue, offset or (where the answer told one) term; or the attempt stands elsewhere only. A
    member that holds it nowhere is B2's.
    """
    if nothing := not_judged("B8", replicas, NOTHING_TOLD, has_evidence=_is_told(replicas)):
        return nothing
    return each_group("B8", replicas, _elsewhere, judged=not replicas.history.lossy)


def _elsewhere(group: ReplicaGroup) -> Iterator[Witness]:
    for log in group.logs:
        there = group.by_position[log.member]
        placed = group.by_attempt[log.member]
        for op in group.acknowledged:
            attempt = (op.writer, op.counter, op.attempt)
            row = there.get(op.position) if op.position != UNKNOWN else placed.get(attempt)
            if row is None and attempt in placed and op.position >= log.begin:
                yield {**told(op), "member": log.member, "found": placed[attempt].position}
            if row is None or row.position >= group.end:
                continue
            says = (row.writer, row.counter, row.attempt, row.topic, row.queue, row.offset)
            same_term = UNKNOWN in {op.term, row.term} or op.term == row.term
            if says != (*attempt, op.topic, op.queue, op.offset) or not same_term:
                yield {**told(op), "member": log.member, "found": [*says, row.term]}


def check_b9(replicas: Replicas) -> Finding:
    """B9: what was committed at one time is gone later.

    Raft: an entry that a member knew as committed in an earlier copy of the store folders, or that it said it knew as
    committed (a look), which the merged log at the end does not hold with the same term and CRC. Classic modes: a
    record that all members held in an earlier copy, and at the end none does. What was deleted from the front does not
    count.
    """
    known = _has_earlier(replicas) or any(group.is_raft and group.looks for group in replicas.groups)
    if nothing := not_judged("B9", replicas, NOTHING_EARLIER, has_evidence=known):
        return nothing
    return whole_groups("B9", replicas, lambda group: _gone(replicas, group), judged=not replicas.history.lossy)


def _gone(replicas: Replicas, group: ReplicaGroup) -> Iterator[Witness]:
    begin = min(log.begin for log in group.logs)
    for number, copies in enumerate(replicas.earlier):
        for before in replicas.grouped(copies):
            if before.name == group.name:
                looked = _entries_gone if group.is_raft else _records_gone
                for witness in looked(before, group, begin):
                    yield {"copy": number, **witness}
    if not group.is_raft:
        return
    last = max(group.entries, default=0)
    for member in sorted({look.member for look in group.looks}):
        highest = max(look.commit for look in group.looks if look.member == member)
        if highest > last:
            yield {"member": member, "index": highest, "why": f"it was told as committed, the log ends at {last}"}


def _entries_gone(before: ReplicaGroup, group: ReplicaGroup, begin: int) -> Iterator[Witness]:
    for log in before.logs:
        # Not what it said, which may have been later: what its own log knew.
        known = max((entry.commit for entry in log.entries), default=0)
        for entry in log.entries:
            now = group.entries.get(entry.index)
            there = now is not None and (now.term, now.crc) == (entry.term, entry.crc)
            if entry.index <= known and entry.position >= begin and not there:
                yield {"member": log.member, "index": entry.index, "term": entry.term, "now": now and now.term}


def _records_gone(before: ReplicaGroup, group: ReplicaGroup, begin: int) -> Iterator[Witness]:
    now = {(row.position, row.crc) for log in group.logs for row in log.messages}
    everywhere = [{(row.position, row.crc) for row in log.messages} for log in before.logs]
    for position, crc in sorted(set.intersection(*everywhere)):
        if position >= begin and (position, crc) not in now:
            yield {"position": position, "crc": crc}


def check_b10(replicas: Replicas) -> Finding:
    """B10: what certainly did not happen is committed.

    A send that ended in FAIL stands in the merged log. Or an attempt stood in an entry of an earlier copy that was cut
    later, and stands at another position at the end. One of a later term in a Raft group is right: a member may pass
    a request on, once, when a committed entry has overwritten the one that held it.
    """
    known = _has_earlier(replicas) or any(_refused(replicas, group) for group in replicas.groups)
    if nothing := not_judged("B10", replicas, NOTHING_REFUSED, has_evidence=known):
        return nothing
    return each_group("B10", replicas, lambda group: _risen(replicas, group))


def _refused(replicas: Replicas, group: ReplicaGroup) -> list[Op]:
    history = replicas.history
    return [op for op in history.sends if op.kind == Kind.FAIL and history.group_of(op) in {"", group.name}]


def _risen(replicas: Replicas, group: ReplicaGroup) -> Iterator[Witness]:
    for op in _refused(replicas, group):
        for row in group.placed.get((op.writer, op.counter, op.attempt), ()):
            yield {**told(op), "error": op.error, "found": row.position, "index": row.index}
    kept = {(row.position, row.crc) for log in group.logs for row in log.messages} if replicas.earlier else set()
    cut = {
        (row.writer, row.counter, row.attempt): (row.position, row.term)
        for copies in replicas.earlier
        for before in replicas.grouped(copies)
        if before.name == group.name
        for log in before.logs
        for row in log.messages
        if row.writer != UNKNOWN and row.topic in replicas.history.topics and (row.position, row.crc) not in kept
    }
    for attempt, (position, term) in cut.items():
        for row in group.placed.get(attempt, ()):
            passed_on = group.is_raft and row.term > term
            if row.position != position and not passed_on and row.topic in replicas.history.topics:
                names = dict(zip(("writer", "counter", "attempt"), attempt, strict=True))
                yield {**names, "cut_at": position, "found": row.position, "index": row.index}
