"""Plants one anomaly A1 to A26 into a clean history, so that the checks can be proved: each must find its own.

What else must be found, because one follows from the other, stands in IMPLIED. Anomalies of store folders: plant_log.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from pipeline.history.rows import UNKNOWN, Act, Kind, Op, Read
from pipeline.plain.evidence import HeldMessage
from tests.planted.plant_edit import FAR, Edit, Planted
from tests.planted.plant_service import SILENCE_NS, plant_a25, plant_a26
from tests.planted.plant_world import CONSUMED, GROUP, LATER, LEDGER, SCANNED, read_of

IMPLIED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "A1": frozenset({"A13"}),
        "A2": frozenset({"A1", "A12", "A13"}),
        "A3": frozenset({"V4"}),
        "A10": frozenset({"A11"}),
        # Who is not answered is not delivered to either.
        "A25": frozenset({"A26"}),
    }
)
# A number that no writer of a clean history has.
_STRANGER = 77


def plant(seed: int, check: str) -> Planted:
    """Return a history that has exactly one anomaly, and what it implies. KeyError for one that is not in PLANTS."""
    return PLANTS[check](Edit(seed))


def _a1(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    edit.drop(op)
    return edit.done("A1", ops=[op.op], **edit.place(op))


def _a2(edit: Edit) -> Planted:
    op = edit.some(CONSUMED)
    edit.drop(op)
    return edit.done("A2", ops=[op.op], **edit.place(op))


def _a3(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    scans = {one.op for one in edit.ops if one.act == Act.SCAN and (one.topic, one.queue) == (op.topic, op.queue)}
    for number in scans:
        edit.change(edit.ops[number], kind=Kind.INFO, end=UNKNOWN, value=UNKNOWN)
    edit.reads = [read for read in edit.reads if read.op not in scans]
    edit.held = [row for row in edit.held if (row.topic, row.queue) != (op.topic, op.queue)]
    edit.complete = False
    # A process that has an operation of unknown end does nothing more.
    for number in sorted(scans):
        edit.change(edit.ops[number], process=edit.process())
    return edit.done("A3", ops=[op.op])


def _a4(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    at, read = _sight(edit, op)
    edit.reads[at] = read._replace(digest=read.digest + 1)
    return edit.done("A4", ops=[op.op, read.op], why="another body")


def _sight(edit: Edit, op: Op) -> tuple[int, Read]:
    name = (op.writer, op.counter, op.attempt)
    found = [(at, one) for at, one in enumerate(edit.reads) if (one.writer, one.counter, one.attempt) == name]
    return edit.rng.choice(found)


def _a5(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    edit.change(op, kind=Kind.FAIL, offset=UNKNOWN, position=UNKNOWN, error="NOT_LEADER_FOR_QUEUE")
    return edit.done("A5", ops=[op.op])


def _a6(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    rows = [row for row in edit.held if (row.topic, row.queue) == (op.topic, op.queue)]
    copy = edit.row(op)._replace(offset=len(rows), position=edit.held[-1].position + 500)
    edit.held.append(copy)
    for scan in list(edit.ops):
        if scan.act == Act.SCAN and (scan.topic, scan.queue) == (op.topic, op.queue):
            last = scan.value == len(rows)
            edit.change(scan, end=scan.end + 1, value=scan.value + 1 if last else scan.value)
            if last:
                edit.reads.append(read_of(scan.op, copy))
    return edit.done("A6", ops=[op.op], message=[op.writer, op.counter, op.attempt])


def _a7(edit: Edit) -> Planted:
    op = edit.some(CONSUMED)
    poll = edit.poll(edit.stretch(op, 1), edit.end(), group=GROUP)
    return edit.done("A7", ops=[poll.op], group=GROUP, message=[op.writer, op.counter], times=2)


def _a8(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    # Of unknown end, so that no acknowledgement names the place.
    edit.change(op, kind=Kind.INFO, offset=UNKNOWN, position=UNKNOWN, process=edit.process())
    place: dict[str, Any] = {"topic": op.topic, "queue": op.queue, "digest": 5, "writer": _STRANGER, "counter": 1}
    edit.add(Act.SEND, op.invoked, Kind.INFO, **place)
    other = edit.row(op)._replace(writer=_STRANGER, counter=1, digest=5)
    poll = edit.poll([other], edit.end())
    return edit.done("A8", ops=[poll.op], **edit.place(op))


def _a9(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    edit.change(op, position=op.position + 1)
    return edit.done("A9", ops=[op.op], why="at another position")


def _late(edit: Edit, *, one_process: bool) -> list[int]:
    """Move a send behind the acknowledgement of one that stands behind it in the queue; return (later, earlier)."""
    pairs = [
        (low, high)
        for low, high in _neighbours(edit)
        if high.term == low.term and high.completed + 4 < _next_term(edit, high.term)
    ]
    low, high = edit.rng.choice(pairs)
    process = edit.process()
    edit.change(high, process=process)
    late = high.completed + 1
    edit.change(low, process=process if one_process else edit.process(), invoked=late, completed=late + 2)
    return [high.op, low.op]


def _neighbours(edit: Edit) -> Iterable[tuple[Op, Op]]:
    for queue in (0, 1):
        rows = [op for op in edit.history.acknowledged if (op.topic, op.queue) == (SCANNED, queue)]
        rows.sort(key=lambda op: op.offset)
        yield from pairwise(rows)


def _next_term(edit: Edit, term: int) -> int:
    return min((op.completed for op in edit.ops if op.term > term), default=edit.end())


def _a10(edit: Edit) -> Planted:
    high, low = _late(edit, one_process=True)
    return edit.done("A10", ops=[high, low])


def _a11(edit: Edit) -> Planted:
    # Others behind it may show it as well.
    _, low = _late(edit, one_process=False)
    return edit.done("A11", ops=[low])


def _a12(edit: Edit) -> Planted:
    op = next(one for one in edit.history.acknowledged if (one.topic, one.offset) == (SCANNED, 1))
    rows = edit.stretch(op, 3)
    poll = edit.poll([rows[0], rows[2]], edit.end())
    return edit.done("A12", ops=[poll.op])


def _a13(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    unknown: dict[str, Any] = {"kind": Kind.INFO, "offset": UNKNOWN, "position": UNKNOWN, "process": edit.process()}
    edit.change(op, **unknown)
    edit.drop(op)
    return edit.done("A13", **edit.place(op))


def _a14(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    told: dict[str, Any] = {"topic": op.topic, "queue": op.queue, "value": op.offset, "address": "n0", "leader": "n0"}
    asked = edit.add(Act.MAX, op.completed + 1, **told)
    return edit.done("A14", ops=[asked.op], end=op.offset)


def _a15(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    told: dict[str, Any] = {"topic": op.topic, "queue": op.queue, "address": "n0", "leader": "n0"}
    early = edit.add(Act.MAX, op.completed + 1, value=FAR, **told)
    return edit.done("A15", ops=[early.op])


def _a16(edit: Edit) -> Planted:
    told: dict[str, Any] = {"topic": SCANNED, "queue": 0, "group": "others", "address": "n1", "leader": "n1"}
    commits = [edit.add(Act.COMMIT, edit.end(), value=value, **told) for value in (3, 7)]
    query = edit.add(Act.QUERY, edit.end(), value=3, **told)
    return edit.done("A16", ops=[commits[1].op, query.op], offsets=[7, 3])


def _a17(edit: Edit) -> Planted:
    polls = [op for op in edit.ops if op.act == Act.POLL and op.value > op.offset]
    poll = edit.rng.choice(polls)
    rows = [read for read in edit.reads if read.op == poll.op]
    edit.reads.remove(rows[-1])
    edit.change(poll, value=poll.value - 1)
    return edit.done("A17", group=GROUP, offset=rows[-1].offset, message=[rows[-1].writer, rows[-1].counter])


def _a18(edit: Edit) -> Planted:
    op = edit.rng.choice([one for one in edit.ops if one.act == Act.END_COMMIT])
    edit.change(op, act=Act.END_ROLLBACK)
    return edit.done("A18", transaction=op.transaction, why="visible without a commit")


def _a19(edit: Edit) -> Planted:
    at = edit.end()
    place: dict[str, Any] = {"topic": SCANNED, "queue": 0, "group": "orderly"}
    first = edit.add(Act.LOCK, at, process=FAR - 1, **place)
    second = edit.add(Act.LOCK, at + 10, **place)
    edit.add(Act.COMMIT, at + 20, process=FAR - 1, value=1, **place)
    return edit.done("A19", ops=[first.op, second.op], group="orderly")


def _a20(edit: Edit) -> Planted:
    delayed = [op for op in edit.ops if op.topic == LATER and op.delay_until != UNKNOWN]
    op = edit.rng.choice(delayed)
    edit.change(op, delay_until=op.delay_until + SILENCE_NS)
    return edit.done("A20", ops=[op.op])


def _a21(edit: Edit) -> Planted:
    # Two transactions change places in one of the two queues that both wrote.
    names = list(dict.fromkeys(row.transaction for row in edit.held if row.transaction))
    one, other = names[:2]
    rows = [row for row in edit.held if row.topic == LEDGER and row.queue == 1]
    swapped = {row.transaction: row for row in rows if row.transaction in {one, other}}
    partner = {one: swapped[other], other: swapped[one]}
    for at, read in enumerate(edit.reads):
        if read.topic == LEDGER and read.queue == 1 and read.transaction in partner:
            edit.reads[at] = read_of(read.op, _moved(partner[read.transaction], swapped[read.transaction]))
    for at, row in enumerate(edit.held):
        if row.topic == LEDGER and row.queue == 1 and row.transaction in partner:
            edit.held[at] = _moved(partner[row.transaction], row)
    return edit.done("A21", transactions=[min(one, other), max(one, other), min(one, other)])


def _moved(row: HeldMessage, to: HeldMessage) -> HeldMessage:
    return row._replace(offset=to.offset, position=to.position, entry=to.entry, term=to.term)


def _a22(edit: Edit) -> Planted:
    told = [op for op in edit.history.acknowledged if op.term == 2 and op.invoked > _next_term(edit, 1)]
    op = edit.rng.choice(told)
    edit.held[edit.held.index(edit.row(op))] = edit.row(op)._replace(term=1)
    edit.change(op, term=1, leader="n0", address="n0")
    return edit.done("A22", ops=[op.op], terms=[2, 1])


def _a23(edit: Edit) -> Planted:
    op = edit.some(SCANNED, first_term=True)
    edit.change(op, leader="n2", address="n2")
    return edit.done("A23", ops=[op.op], term=1)


def _a24(edit: Edit) -> Planted:
    op = edit.some(SCANNED)
    edit.change(op, error="10 FLUSH_DISK_TIMEOUT")
    return edit.done("A24", ops=[op.op])


PLANTS: Mapping[str, Callable[[Edit], Planted]] = MappingProxyType(
    {
        "A1": _a1, "A2": _a2, "A3": _a3, "A4": _a4, "A5": _a5, "A6": _a6, "A7": _a7, "A8": _a8, "A9": _a9,
        "A10": _a10, "A11": _a11, "A12": _a12, "A13": _a13, "A14": _a14, "A15": _a15, "A16": _a16, "A17": _a17,
        "A18": _a18, "A19": _a19, "A20": _a20, "A21": _a21, "A22": _a22, "A23": _a23, "A24": _a24, "A25": plant_a25,
        "A26": plant_a26,
    }
)  # fmt: skip


def found(witnesses: Iterable[Mapping[str, Any]], wanted: Mapping[str, Any]) -> bool:
    """Return whether one of some witnesses says what it must: the `ops` among its own, the other fields as they are."""
    return any(
        all(set(value) <= set(one["ops"]) if key == "ops" else one.get(key) == value for key, value in wanted.items())
        for one in witnesses
    )
