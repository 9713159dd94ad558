"""Checks of what is derived from a log: the ConsumeQueues (B7), the key index and halves (B11), offsets (B12)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from pipeline.history.catalogue import unknown
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Kind
from pipeline.logs.member_files import Artefact
from pipeline.logs.rows import MessageRow, Queue, QueueRow
from pipeline.plain.check_log_parts import NO_HISTORY, each_group, in_gap
from pipeline.plain.replicas import ReplicaGroup, Replicas
from remoting.topics import RAFT_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.files.queuefile import ZEROS
from store.log.dispatch import SCHEDULE_TOPIC, is_hidden

Witness = dict[str, Any]


def check_b7(replicas: Replicas) -> Finding:
    """B7: a ConsumeQueue is not what its log makes of it.

    On each member: an entry of a queue is not (position, size, tags code) of the log's record with that topic, queue
    and offset; zeros stand between entries; a record below what the checkpoint knows as dispatched stands in no queue;
    the offsets of a queue's records do not count up by one. In a Raft group also: a queue knows a record of an entry
    that fewer than a majority of the members hold, so that it was not committed; the queue of the control records
    disagrees with a committed entry. The first entries of a queue may be gone, and the newest not be there yet.
    """
    return each_group("B7", replicas, _queues_apart)


def _queues_apart(group: ReplicaGroup) -> Iterator[Witness]:
    for log in group.logs:
        records = _records_by_queue(log)
        for queue in sorted({*records, *log.queues} - {(RAFT_TOPIC, 0)}):
            rows = log.queues.get(queue, [])
            for witness in _queue_apart(group, log, rows, records.get(queue, {})):
                yield {"member": log.member, "topic": queue[0], "queue": queue[1], **witness}
        yield from _controls_apart(group, log)


def _records_by_queue(log: Artefact) -> Mapping[Queue, dict[int, MessageRow]]:
    """Return each queue's records by offset. One that begins anew at 0 is of a topic that was made anew."""
    found: dict[Queue, dict[int, MessageRow]] = defaultdict(dict)
    for row in log.messages:
        if is_hidden(row.sys_flag):
            continue
        if row.offset == 0:
            found[row.topic, row.queue] = {}
        found[row.topic, row.queue][row.offset] = row
    return found


def _queue_apart(
    group: ReplicaGroup, log: Artefact, rows: list[QueueRow], records: Mapping[int, MessageRow]
) -> Iterator[Witness]:
    for offset, position, size, code in rows:
        record = records.get(offset)
        if (position, size, code) == ZEROS:
            if record is None or not log.gaps:
                yield {"offset": offset, "why": "zeros between entries"}
            continue
        same = record is not None and position == record.position and size == record.size
        if record is None or not same or not _same_code(record, code):
            if not in_gap(log, position):
                of_log = record and [record.position, record.size, record.tags_code]
                yield {"offset": offset, "queue_has": [position, size, code], "log_has": of_log}
        elif _too_early(group, record):
            yield {"offset": offset, "position": position, "why": f"entry {record.index} is on no majority"}
    end = rows[-1][0] + 1 if rows else min(records, default=0)
    before = UNKNOWN
    for offset, record in records.items():
        if offset >= end and record.end <= log.dispatched:
            yield {"offset": offset, "position": record.position, "why": "dispatched, and in no queue"}
        if before != UNKNOWN and offset != before + 1 and not log.gaps:
            yield {"offset": offset, "position": record.position, "why": f"it follows offset {before}"}
        before = offset


def _same_code(record: MessageRow, code: int) -> bool:
    # Of a delayed message it is a time that depends on the broker's delay levels.
    return code == record.tags_code or record.topic == SCHEDULE_TOPIC


def _too_early(group: ReplicaGroup, record: MessageRow) -> bool:
    """Tell whether a record of an entry of this group is held by too few to be committed."""
    if not group.is_raft or record.index == UNKNOWN or group.missing:
        return False
    return (record.index, record.term) not in group.on_majority


def _controls_apart(group: ReplicaGroup, log: Artefact) -> Iterator[Witness]:
    entries = {entry.index: entry for entry in log.entries}
    for index, *held in log.queues.get((RAFT_TOPIC, 0), []):
        entry = entries.get(index)
        if entry is not None and index <= group.known.get(log.member, 0):
            expected = [entry.position, entry.head, entry.term]
            if held != expected:
                yield {
                    "member": log.member,
                    "topic": RAFT_TOPIC,
                    "offset": index,
                    "queue_has": held,
                    "log_has": expected,
                }


def check_b11(replicas: Replicas) -> Finding:
    """B11: the key index or the bookkeeping of transactions disagrees with the log.

    On each member: a message between the first and the newest that the index knows cannot be found by its unique key or
    one of its KEYS; the index knows a position where no message begins. In the merged log: a half was settled twice, or
    has more than one real message (a record whose prepared transaction offset is the half's position). Unknown when an
    index file's entries cannot be found at all.
    """
    found = each_group("B11", replicas, _index_apart)
    closed = [f"{log.member}: {name}" for log in replicas.artefacts for name in log.damage if name.startswith("index/")]
    if closed and not found.count:
        return unknown("B11", f"entries cannot be found in {', '.join(closed)}")
    return found


def _index_apart(group: ReplicaGroup) -> Iterator[Witness]:
    for log in group.logs:
        for position, key in log.unindexed:
            yield {"member": log.member, "position": position, "key": key, "why": "not in the index"}
        for position in log.misindexed:
            if not in_gap(log, position):
                yield {"member": log.member, "position": position, "why": "in the index, and no message"}
    halves = {row.position: row for row in group.messages if row.topic == TRANS_HALF_TOPIC}
    settled = Counter(
        (row.queue, offset) for row in group.messages if row.topic == TRANS_OP_HALF_TOPIC for offset in row.refers
    )
    real = Counter(row.prepared for row in group.messages if row.topic != TRANS_HALF_TOPIC and row.prepared in halves)
    for (queue, offset), count in settled.items():
        if count > 1:
            yield {"half": offset, "queue": queue, "why": f"settled {count} times"}
    for position, count in real.items():
        if count > 1:
            yield {"half": halves[position].offset, "position": position, "why": f"{count} real messages"}


def check_b12(replicas: Replicas) -> Finding:
    """B12: a stored offset of a consumer group is beyond its queue's end, or went back.

    On each member: consumerOffset.json holds more than the end of the queue in this member's log; or less than its
    .bak, or than an earlier copy of the same member, and no commit or reset to just that offset was asked for. Going
    back does not count where the promise does not keep offsets; nor without a history, for only that tells whether
    somebody set the offset back.
    """
    is_told = bool(replicas.history.ops)
    kept = replicas.history.promises.offsets_kept and is_told
    found = each_group("B12", replicas, lambda group: _offsets_apart(replicas, group, kept))
    return found if is_told or not replicas.groups else replace(found, text=NO_HISTORY)


def _offsets_apart(replicas: Replicas, group: ReplicaGroup, kept: bool) -> Iterator[Witness]:
    earlier = [
        (log.member, log.offsets)
        for copies in replicas.earlier
        for before in replicas.grouped(copies)
        if before.name == group.name
        for log in before.logs
    ]
    asked = {
        (op.group, op.topic, op.queue, op.value)
        for op in replicas.history.ops
        if op.act in {Act.COMMIT, Act.RESET} and op.kind != Kind.FAIL
    }
    for log in group.logs:
        before = [log.offsets_before, *(offsets for member, offsets in earlier if member == log.member)]
        yield from offsets_apart(log, _ends(log), before, asked, kept=kept)


def offsets_apart(
    log: Artefact,
    ends: Mapping[Queue, int],
    before: Sequence[Mapping[tuple[str, str, int], int]],
    asked: AbstractSet[tuple[str, str, int, int]],
    *,
    kept: bool,
) -> Iterator[Witness]:
    """Yield the offsets of a member beyond the `ends` of queues, or below those of `before` and not `asked` for."""
    for (name, topic, queue), offset in sorted(log.offsets.items()):
        place = {"member": log.member, "group": name, "topic": topic, "queue": queue, "offset": offset}
        end = ends.get((topic, queue), 0 if log.begin == 0 else offset)
        if offset > end:
            yield {**place, "end": end}
        highest = max(offsets.get((name, topic, queue), 0) for offsets in before)
        if kept and highest > offset and (name, topic, queue, offset) not in asked:
            yield {**place, "before": highest}


def _ends(log: Artefact) -> dict[Queue, int]:
    """Return the end of each queue as log and ConsumeQueue tell it."""
    ends: dict[Queue, int] = {queue: rows[-1][0] + 1 for queue, rows in log.queues.items() if rows}
    for row in log.messages:
        if not is_hidden(row.sys_flag):
            ends[row.topic, row.queue] = max(ends.get((row.topic, row.queue), 0), row.offset + 1)
    return ends
