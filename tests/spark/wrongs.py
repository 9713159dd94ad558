"""What goes wrong in a history at random: each changes a draft a little. Some of it breaks promises, some does not."""

from collections.abc import Callable

from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Op
from tests.planted.plant_world import MEMBERS
from tests.spark.draft import MS, Draft

# Attempts from here on are nobody else's.
_ATTEMPT_FAR = 10


def _read_dropped(draft: Draft) -> None:
    if (at := draft.at_row()) is not None:
        del draft.reads[at : at + draft.rng.choice((1, 1, 2, 5))]


def _read_twice(draft: Draft) -> None:
    if (at := draft.at_row()) is not None:
        draft.reads.insert(at, draft.reads[at])


def _read_elsewhere(draft: Draft) -> None:
    at, op = draft.at_row(), draft.some(Act.POLL, Act.SCAN)
    if at is not None and op is not None:
        row = draft.reads[at]._replace(op=op.op)
        if draft.rng.random() < 0.7:
            row = row._replace(topic=op.topic, queue=op.queue)
        draft.reads.insert(_behind(draft, op.op), row)


def _behind(draft: Draft, number: int) -> int:
    """Return the place behind an answer's rows, so that rows stay in the order of their operations."""
    return sum(1 for read in draft.reads if read.op <= number)


def _read_changed(draft: Draft) -> None:
    at = draft.at_row()
    if at is None:
        return
    rng, read = draft.rng, draft.reads[at]
    draft.reads[at] = rng.choice(
        (
            read._replace(digest=read.digest + 1),
            read._replace(offset=max(0, read.offset + draft.near())),
            read._replace(position=rng.choice((UNKNOWN, read.position + 1))),
            read._replace(attempt=1 - read.attempt),
            read._replace(counter=max(1, read.counter + draft.near())),
            read._replace(writer=(read.writer + 1) % 3),
            read._replace(topic=rng.choice(("events", "orders", "elsewhere"))),
            read._replace(queue=1 - read.queue),
            read._replace(transaction=rng.choice(("", "t7"))),
        )
    )


def _answer_in_disorder(draft: Draft) -> None:
    if (at := draft.at_row()) is not None and at + 1 < len(draft.reads):
        one, other = draft.reads[at : at + 2]
        if one.op == other.op:
            draft.reads[at : at + 2] = [other, one]


def _message_gone(draft: Draft) -> None:
    if not draft.held:
        return
    gone = draft.rng.choice(draft.held)
    name = (gone.writer, gone.counter)
    where = draft.rng.choice(("reads", "held", "both", "both"))
    if where != "held":
        draft.reads = [read for read in draft.reads if (read.writer, read.counter) != name]
    if where != "reads":
        draft.held = [row for row in draft.held if (row.writer, row.counter) != name]


def _held_changed(draft: Draft) -> None:
    if not draft.held:
        return
    rng, at = draft.rng, draft.rng.randrange(len(draft.held))
    row = draft.held[at]
    draft.held[at] = rng.choice(
        (
            row._replace(digest=row.digest + 1),
            row._replace(offset=max(0, row.offset + draft.near())),
            row._replace(position=row.position + 1),
            row._replace(term=rng.choice((UNKNOWN, 3 - row.term))),
            row._replace(attempt=1 - row.attempt),
            row._replace(counter=max(1, row.counter + draft.near())),
            row._replace(queue=1 - row.queue),
            row._replace(transaction=rng.choice(("", "t9"))),
        )
    )


def _held_twice(draft: Draft) -> None:
    if draft.held:
        row = draft.rng.choice(draft.held)
        draft.held.append(row._replace(offset=row.offset + draft.rng.choice((0, 1, 30)), position=row.position + 9))


def _without_log(draft: Draft) -> None:
    draft.is_merged = False


def _log_incomplete(draft: Draft) -> None:
    draft.complete = False
    del draft.held[draft.rng.randrange(len(draft.held) + 1) :]


def _send_changed(draft: Draft) -> None:
    op, rng = draft.some(Act.SEND), draft.rng
    if op is None:
        return
    changes: tuple[dict[str, object], ...] = (
        {"offset": max(UNKNOWN, op.offset + draft.near())},
        {"offset": UNKNOWN, "position": UNKNOWN},
        {"position": op.position + 1},
        {"term": 3 - op.term if op.term in {1, 2} else 1},
        {"leader": rng.choice(MEMBERS)},
        {"queue": rng.choice((UNKNOWN, 1 - op.queue))},
        {"counter": op.counter + 500},
        {"digest": rng.choice((0, op.digest + 1))},
        {"delay_until": op.completed + rng.choice((-1, 1, 100)) * MS},
        {"transaction": rng.choice(("", "t5", "t9"))},
        {"error": rng.choice(("", "10 FLUSH_DISK_TIMEOUT", "SYSTEM_BUSY"))},
    )
    draft.change(op, **rng.choice(changes))


def _send_again(draft: Draft) -> None:
    if (op := draft.some(Act.SEND)) is not None:
        kind = draft.rng.choice(list(Kind))
        draft.add(op, attempt=_ATTEMPT_FAR + len(draft.ops), kind=kind, invoked=op.invoked + 1)


def _other_end(draft: Draft) -> None:
    op = draft.some(Act.SEND) if draft.rng.random() < 0.6 else draft.some()
    if op is None:
        return
    kind = draft.rng.choice(list(Kind))
    process = op.process if kind != Kind.INFO or draft.rng.random() < 0.3 else draft.process()
    draft.change(op, kind=kind, process=process)


def _other_time(draft: Draft) -> None:
    op = draft.some()
    if op is None:
        return
    shift = draft.rng.randrange(-20 * MS, 20 * MS)
    times = ((op.invoked + shift, op.completed + shift), (op.invoked, UNKNOWN), (op.invoked, op.completed + shift))
    invoked, completed = draft.rng.choice(times)
    process = op.process if draft.rng.random() < 0.5 else draft.process()
    draft.change(op, invoked=invoked, completed=completed, process=process)


def _answer_changed(draft: Draft) -> None:
    op, rng = draft.some(Act.POLL, Act.SCAN, Act.MAX, Act.QUERY, Act.COMMIT), draft.rng
    if op is None:
        return
    changes: tuple[dict[str, object], ...] = (
        {"value": rng.choice((UNKNOWN, max(0, op.value + draft.near())))},
        {"offset": max(UNKNOWN, op.offset + draft.near())},
        {"end": rng.choice((UNKNOWN, max(0, op.end + draft.near())))},
        {"address": rng.choice(MEMBERS)},
        {"leader": rng.choice(("", *MEMBERS))},
        {"group": rng.choice(("", "orderly", "others"))},
        {"queue": 1 - op.queue},
    )
    draft.change(op, **rng.choice(changes))


def _asked_again(draft: Draft) -> None:
    op = draft.some(Act.POLL, Act.SCAN, Act.MAX, Act.QUERY, Act.COMMIT, Act.SEEN_TOPIC)
    if op is None:
        return
    fields: dict[str, object] = {}
    if draft.rng.random() < 0.5:
        at = draft.when()
        fields = {"invoked": at, "completed": at + MS}
    added = draft.add(op, **fields)
    draft.reads += [read._replace(op=added.op) for read in draft.reads if read.op == op.op]


def _scans_failed(draft: Draft) -> None:
    """Scans of a queue, through one member or all, were not answered."""
    scan = draft.some(Act.SCAN)
    if scan is None:
        return
    members = draft.rng.choice((MEMBERS, (scan.address,)))
    for op in [op for op in draft.ops if op.act == Act.SCAN and (op.topic, op.queue) == (scan.topic, scan.queue)]:
        if op.address in members:
            draft.change(op, kind=Kind.INFO, value=UNKNOWN, end=UNKNOWN, process=draft.process())
            draft.reads = [read for read in draft.reads if read.op != op.op]


def _short_queue(draft: Draft) -> None:
    """The last messages of a queue are gone, and every scan says that it ends before them."""
    scan = draft.some(Act.SCAN)
    if scan is None:
        return
    end = draft.rng.randrange(max(1, scan.end + 1))
    place = (scan.broker, scan.topic, scan.queue)
    numbers = set()
    for op in [op for op in draft.ops if op.act == Act.SCAN and (op.broker, op.topic, op.queue) == place]:
        draft.change(op, end=end, value=min(op.value, end))
        numbers.add(op.op)
    draft.reads = [read for read in draft.reads if read.op not in numbers or read.offset < end]


def _removed(draft: Draft) -> None:
    """Old messages of a queue are gone; perhaps somebody is told the first offset."""
    scan = draft.some(Act.SCAN)
    if scan is None:
        return
    start = draft.rng.randrange(1, 5)
    place = (scan.broker, scan.topic, scan.queue)
    numbers = {op.op for op in draft.ops if op.act == Act.SCAN and (op.broker, op.topic, op.queue) == place}
    draft.reads = [read for read in draft.reads if read.op not in numbers or read.offset >= start]
    if draft.rng.random() < 0.6:
        draft.add(scan, act=Act.MIN, value=draft.rng.choice((UNKNOWN, start)), offset=UNKNOWN)


def _locked(draft: Draft) -> None:
    """Somebody locks a queue; others lock, unlock, poll and commit it."""
    rng = draft.rng
    at, queue = draft.when(), rng.randrange(2)
    some = [draft.process() for _ in range(2)]
    for _ in range(rng.randrange(2, 7)):
        act = rng.choice((Act.LOCK, Act.LOCK, Act.UNLOCK, Act.COMMIT, Act.POLL, Act.RESET))
        at += rng.randrange(1, 30 * MS)
        op = Op(0, 0, act, rng.choice((Kind.OK, Kind.OK, Kind.INFO)), at, at + MS, topic="orders", queue=queue)
        group = rng.choice(("orderly", "orderly", "readers"))
        draft.add(op, process=rng.choice(some), group=group, value=rng.randrange(5), broker="g")


def _faults_changed(draft: Draft) -> None:
    rng, at = draft.rng, draft.when()
    name = rng.choice(("kill", "pause", "power-cut", "clock"))
    ended, effect = rng.choice((UNKNOWN, at + 5 * MS)), rng.choice(("", "pid 7"))
    extra = Fault(len(draft.faults), name, "n1", "", at, ended, effect)
    draft.faults = rng.choice(([], [*draft.faults, extra], [*draft.faults, extra], [extra]))
    draft.faults = [fault._replace(fault=number) for number, fault in enumerate(draft.faults)]


def _looks_changed(draft: Draft) -> None:
    rng = draft.rng
    look = Look(draft.when(), rng.choice(MEMBERS), rng.choice(("leader", "follower")), rng.choice((UNKNOWN, 1, 2, 3)),
                rng.choice(("", *MEMBERS)), 1, 1, 1, 1)  # fmt: skip
    draft.looks = rng.choice(([], [*draft.looks, look], [*draft.looks, look], draft.looks[:-1]))


def _transaction_changed(draft: Draft) -> None:
    op = draft.some(Act.END_COMMIT, Act.END_ROLLBACK)
    if op is not None:
        act, kind = draft.rng.choice((Act.END_COMMIT, Act.END_ROLLBACK, Act.CHECK)), draft.rng.choice(list(Kind))
        draft.change(op, act=act, kind=kind, process=draft.process())


def _went_on(draft: Draft) -> None:
    """One process did what two did."""
    one, other = draft.some(), draft.some()
    if one is not None and other is not None and one is not other:
        draft.change(one, process=other.process)


def _order_swapped(draft: Draft) -> None:
    """Two acknowledged sends to a queue happen in the other order; perhaps one process sent both."""
    first = draft.some(Act.SEND)
    others = [
        op for op in draft.ops if first and op.act == Act.SEND and (op.topic, op.queue) == (first.topic, first.queue)
    ]
    if first is None or not others:
        return
    second = draft.rng.choice(others)
    if second is first:
        return
    process = draft.process() if draft.rng.random() < 0.7 else first.process
    draft.change(first, invoked=second.invoked, completed=second.completed, process=process)
    draft.change(second, invoked=first.invoked, completed=first.completed, process=process)


def _early(draft: Draft) -> None:
    delayed = [op for op in draft.ops if op.delay_until != UNKNOWN]
    if delayed:
        op = draft.rng.choice(delayed)
        draft.change(op, delay_until=op.delay_until + draft.rng.choice((10, 30, 60, 1000)) * MS)


def _halves_swapped(draft: Draft) -> None:
    """Messages of two transactions change places in a queue."""
    halves = [row for row in draft.held if row.transaction]
    if not halves:
        return
    one, other = draft.rng.choice(halves), draft.rng.choice(halves)
    if (one.broker, one.queue) != (other.broker, other.queue):
        return
    places = {
        (one.writer, one.counter): (other.offset, other.position),
        (other.writer, other.counter): (one.offset, one.position),
    }
    for at, row in enumerate(draft.held):
        offset, position = places.get((row.writer, row.counter), (row.offset, row.position))
        draft.held[at] = row._replace(offset=offset, position=position)
    for at, read in enumerate(draft.reads):
        offset, position = places.get((read.writer, read.counter), (read.offset, read.position))
        draft.reads[at] = read._replace(offset=offset, position=position)


def _silence(draft: Draft) -> None:
    """For a while senders are refused, and nothing else happens."""
    at, count = draft.when(), draft.rng.choice((2, 8, 40))

    def later(time: int) -> int:
        return time + count * 1000 * MS if time > at else time

    draft.ops = [
        op._replace(invoked=later(op.invoked), completed=later(op.completed), delay_until=later(op.delay_until))
        for op in draft.ops
    ]
    if draft.rng.random() < 0.7:
        draft.faults = [fault._replace(began=later(fault.began), ended=later(fault.ended)) for fault in draft.faults]
    draft.looks = [look._replace(at=later(look.at)) for look in draft.looks]
    kind = draft.rng.choice((Kind.FAIL, Kind.INFO))
    for number in range(count):
        op = Op(0, 0, Act.SEND, kind, at + number * 1000 * MS, at + (number * 1000 + 1) * MS, topic="events", queue=0)
        draft.add(op, writer=77, counter=len(draft.ops), broker="g", error="SYSTEM_BUSY")


def _bodies_changed(draft: Draft) -> None:
    """Everything that is read has another body."""
    draft.reads = [read._replace(digest=read.digest + 1) for read in draft.reads]


def _read_by_nobody(draft: Draft) -> None:
    if (at := draft.at_row()) is not None:
        draft.reads[at] = draft.reads[at]._replace(op=9_000 + draft.rng.randrange(20))


def _number_twice(draft: Draft) -> None:
    one, other = draft.some(), draft.some()
    if one is not None and other is not None and one is not other:
        draft.change(one, op=other.op)


def _attempt_twice(draft: Draft) -> None:
    if (op := draft.some(Act.SEND)) is not None:
        draft.add(op, invoked=op.invoked + 1)


Wrong = Callable[[Draft], None]
WRONGS: tuple[Wrong, ...] = (
    _read_dropped, _read_twice, _read_elsewhere, _read_changed, _read_changed, _answer_in_disorder, _message_gone,
    _message_gone, _held_changed, _held_twice, _without_log, _log_incomplete, _send_changed, _send_changed, _send_again,
    _other_end, _other_end, _other_time, _answer_changed, _asked_again, _scans_failed, _short_queue, _removed, _locked,
    _faults_changed, _looks_changed, _transaction_changed, _went_on, _read_by_nobody, _order_swapped, _early, _silence,
    _halves_swapped, _bodies_changed, _locked,
)  # fmt: skip
MALFORMED: tuple[Wrong, ...] = (_number_twice, _attempt_twice) * 3
