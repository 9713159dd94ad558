"""What goes wrong with order, groups, transactions and service, beside wrongs.py; and the worlds of those checks."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from pipeline.history.promises import Promises
from pipeline.history.results import Finding
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind
from pipeline.plain.evidence import History
from pipeline.spark.checker.evidence import Evidence
from pipeline.spark.checker.world import World
from tests.planted.plant import found, plant
from tests.planted.plant_edit import Planted
from tests.planted.plant_world import CONSUMED, GROUP, LATER, LEDGER, MEMBERS, clean
from tests.spark.compare import assert_same
from tests.spark.draft import MS, Draft
from tests.spark.histories import COUNT, PROMISED
from tests.spark.wrongs import WRONGS

SpreadCheck = Callable[[Evidence], dict[int, Finding]]
Twin = Callable[[History], Finding]
# Sessions judged; several groups, retention and power loss, all consumers in order; nothing promised.
_PROMISED = (
    PROMISED[0],
    replace(PROMISED[3], orderly_groups=("orderly", GROUP), orderly_bound_s=2.0),
    PROMISED[4],
)
_SEEDS = 3
# Rows are few here and plans are many: what is decided at run time, or spread over tasks, only costs.
_QUICK = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
_S = 10**9
# The log's positions are spread so far that they lie in several ranges of the plans.
_SPREAD = 2**15


def _locks(draft: Draft) -> None:
    """Some processes lock, use and unlock one queue."""
    rng, first = draft.rng, draft.some(Act.POLL)
    if first is None:
        return
    processes = [draft.process() for _ in range(rng.choice((2, 2, 3)))]
    at, step = draft.when(), rng.choice((MS, 20 * _S))
    group = rng.choice(("orderly", "orderly", "others"))
    for _ in range(rng.choice((4, 8, 16))):
        act = rng.choice((Act.LOCK, Act.LOCK, Act.LOCK, Act.UNLOCK, Act.POLL, Act.COMMIT))
        kind = rng.choices((Kind.OK, Kind.FAIL, Kind.INFO), (6, 1, 1))[0]
        at += rng.randrange(step)
        times = {"invoked": at, "completed": at + rng.randrange(1, MS)}
        draft.add(first, act=act, kind=kind, group=group, process=rng.choice(processes), **times)


def _later_due(draft: Draft) -> None:
    delayed = [op for op in draft.ops if op.topic == LATER and op.delay_until != UNKNOWN]
    if delayed:
        op = draft.rng.choice(delayed)
        draft.change(op, delay_until=op.delay_until + draft.rng.choice((MS, 20 * MS, 60 * _S)))


def _changed_places(draft: Draft) -> None:
    """Two transactions change places in one of their queues."""
    rng = draft.rng
    rows = [row for row in draft.held if row.topic == LEDGER and row.transaction]
    if len(rows) < 2:
        return
    one, other = rng.sample(rows, 2)
    swapped = {one[5:8]: other, other[5:8]: one}
    if (one.broker, one.queue) != (other.broker, other.queue):
        return
    draft.held = [_at(row, swapped) for row in draft.held]
    draft.reads = [_at(row, swapped) for row in draft.reads]


def _at(row: Any, swapped: Mapping[Any, Any]) -> Any:
    to = swapped.get((row.writer, row.counter, row.attempt))
    return row if to is None else row._replace(offset=to.offset, position=to.position)


def _transaction_reads(draft: Draft) -> None:
    """A transaction reads what others wrote."""
    rng, names = draft.rng, sorted({op.transaction for op in draft.ops if op.transaction})
    scans = [op for op in draft.ops if op.act == Act.SCAN and op.topic == LEDGER]
    if names and scans:
        scan = rng.choice(scans)
        poll = draft.add(scan, act=Act.POLL, transaction=rng.choice(names), group="others")
        rows = [read._replace(op=poll.op) for read in draft.reads if read.op == scan.op]
        draft.reads += rows[: rng.choice((1, 2, 5))]


def _transaction_ends(draft: Draft) -> None:
    ends = [op for op in draft.ops if op.act in {Act.END_COMMIT, Act.END_ROLLBACK}]
    if not ends:
        return
    rng, op = draft.rng, draft.rng.choice(ends)
    other = Act.END_ROLLBACK if op.act == Act.END_COMMIT else Act.END_COMMIT
    kind, at = rng.choice((Kind.OK, Kind.OK, Kind.INFO)), draft.when()
    what = rng.randrange(4)
    if what == 0:
        draft.change(op, act=other)
    elif what == 1:
        draft.add(op, act=other, kind=kind)
    elif what == 2:
        draft.add(op, act=Act.CHECK, invoked=at, completed=at + 1)
    else:
        draft.change(op, kind=rng.choice(list(Kind)), invoked=at, completed=at + 1)


def _ends_told(draft: Draft) -> None:
    """Somebody asks for the end of a queue."""
    rng, op = draft.rng, draft.some(Act.SEND)
    if op is None:
        return
    at, leader = draft.when(), rng.choice(MEMBERS)
    if rng.random() < 0.5:
        at = op.completed + rng.choice((-1, 0, 1))
    told = {"value": max(0, op.offset + draft.near()), "address": leader, "leader": rng.choice((leader, ""))}
    draft.add(op, act=Act.MAX, kind=Kind.OK, invoked=at, completed=at + rng.randrange(1, MS), writer=UNKNOWN, **told)


def _offsets_told(draft: Draft) -> None:
    """A group's offset is committed, set and asked for."""
    rng, op = draft.rng, draft.some(Act.POLL)
    if op is None:
        return
    at, leader, group = draft.when(), rng.choice(MEMBERS), rng.choice(("others", op.group))
    for _ in range(rng.choice((2, 3, 6))):
        act = rng.choice((Act.COMMIT, Act.COMMIT, Act.QUERY, Act.QUERY, Act.RESET))
        kind = rng.choices((Kind.OK, Kind.FAIL, Kind.INFO), (8, 1, 1))[0]
        at += rng.choice((0, 1, 2, 3))
        told = {"address": leader, "leader": rng.choice((leader, leader, "", "n0")), "group": group}
        times = {"invoked": at, "completed": at + rng.choice((1, 2, 4))}
        draft.add(op, act=act, kind=kind, value=rng.randrange(4), term=rng.choice((UNKNOWN, 1, 2)), **told, **times)


def _topic_gone(draft: Draft) -> None:
    if (op := draft.some(Act.CREATE_TOPIC)) is not None:
        at = op.completed + draft.rng.choice((-MS, 0, MS))
        draft.add(op, act=Act.SEEN_TOPIC, value=draft.rng.choice((0, 0, 1)), invoked=at, completed=at + 1)


def _other_term(draft: Draft) -> None:
    told = [op for op in draft.ops if op.term != UNKNOWN]
    if told:
        op, term = draft.rng.choice(told), draft.rng.choice((1, 2, 3))
        draft.change(op, term=term, leader=draft.rng.choice((op.leader, *MEMBERS)))
    if draft.looks:
        look = draft.rng.choice(draft.looks)
        draft.looks.append(look._replace(member=draft.rng.choice((*MEMBERS, "strange")), at=look.at + 1))


def _silence(draft: Draft) -> None:
    """From some time on everything is later, and sends in between are refused."""
    rng, at, first = draft.rng, draft.when(), draft.some(Act.SEND)
    length, step = rng.choice((1, 3, 8, 40)) * _S, rng.choice((_S // 2, _S, 3 * _S))

    def later(time: int) -> int:
        return time + length if time > at else time

    draft.ops = [op._replace(invoked=later(op.invoked), completed=later(op.completed)) for op in draft.ops]
    draft.faults = [fault._replace(began=later(fault.began), ended=later(fault.ended)) for fault in draft.faults]
    draft.looks = [look._replace(at=later(look.at)) for look in draft.looks]
    if rng.random() < 0.5:
        # Through some of it the harness slept; each time anew, so that there may be several such times.
        slept = at + rng.randrange(length), rng.choice((_S // 2, 2 * _S, length))
        draft.beats = [Beat(later(beat.at)) for beat in draft.beats]
        draft.beats += [Beat(slept[0]), Beat(slept[0] + slept[1])]
    if rng.random() < 0.3:
        draft.faults.append(Fault(9, rng.choice(("kill", "pause")), "n0", "", at, at + rng.randrange(length)))
    for counter in range(length // step if first is not None else 0):
        begun = at + 1 + counter * step
        assert first is not None
        draft.add(first, kind=Kind.FAIL, counter=9_000 + at % 997 + counter, invoked=begun, completed=begun + 2)


def other_lives(draft: Draft) -> None:
    """Consumers come, go, are held up, or nobody noted when they lived."""
    rng = draft.rng
    lives = [op for op in draft.ops if op.act == Act.CONSUME]
    if not lives or rng.random() < 0.3:
        draft.ops = [op for op in draft.ops if op.act != Act.CONSUME]
        return
    first = rng.choice(lives)
    began, ended = sorted((draft.when(), draft.when()))
    what = rng.randrange(3)
    if what == 0:
        draft.change(first, invoked=began, completed=rng.choice((ended, ended, UNKNOWN)))
    elif what == 1:
        draft.change(first, completed=began)
        draft.add(first, invoked=ended, completed=max(ended, first.completed))
    else:
        draft.add(first, invoked=began, completed=ended, topic=rng.choice((first.topic, LEDGER, "%RETRY%readers")))


def stuck(draft: Draft) -> None:
    """What was just sent to the consumers waits; others come to lead meanwhile, or the consumers' lives end."""
    rng = draft.rng
    sent = [op for op in draft.ops if (op.act, op.kind, op.topic) == (Act.SEND, Kind.OK, CONSUMED)]
    if not sent:
        return
    at, length = rng.choice(sent).completed, rng.choice((1, 2, 3, 3, 40)) * _S

    def later(time: int) -> int:
        return time + length if time > at else time

    draft.ops = [op._replace(invoked=later(op.invoked), completed=later(op.completed)) for op in draft.ops]
    draft.faults = [fault._replace(began=later(fault.began), ended=later(fault.ended)) for fault in draft.faults]
    draft.looks = [look._replace(at=later(look.at)) for look in draft.looks]
    if draft.looks and rng.random() < 0.5:
        look, term = draft.looks[0], rng.choice((1, 2, 7))
        for _ in range(rng.choice((1, 3))):
            draft.looks.append(look._replace(at=at + rng.randrange(length), role="leader", term=term))
    if rng.random() < 0.4:
        end = at + rng.randrange(length)
        lives = (op for op in draft.ops if op.act == Act.CONSUME and op.invoked < end < op.completed)
        for op in list(lives):
            draft.change(op, completed=end)


def _one_sender(draft: Draft) -> None:
    """Sends of two processes were one's."""
    sends = [op for op in draft.ops if op.act == Act.SEND]
    one, other = draft.rng.choice(sends), draft.rng.choice(sends)
    draft.ops = [op._replace(process=one.process) if op.process == other.process else op for op in draft.ops]
    draft.change(draft.some(Act.SEND), process=one.process)


def _uncertain(draft: Draft) -> None:
    if (op := draft.some(Act.SEND)) is not None:
        draft.change(op, error=draft.rng.choice(("flush_slave_timeout", "Timeout while waiting", "OK")))


def _polled_again(draft: Draft) -> None:
    """A consumer asks from elsewhere than it was told to."""
    if (op := draft.some(Act.POLL)) is not None:
        at = op.completed + 1
        again = draft.add(op, process=op.process, invoked=at, completed=at + 1, offset=op.offset + draft.near())
        rows = [read for read in draft.reads if read.op == op.op]
        draft.reads += [read._replace(op=again.op) for read in rows if draft.rng.random() < 0.8]


MUTATIONS = (
    _locks, _later_due, _changed_places, _transaction_reads, _transaction_ends, _ends_told, _offsets_told, _topic_gone,
    _other_term, _silence, _one_sender, _polled_again, _uncertain,
    other_lives, other_lives, stuck, stuck,
)  # fmt: skip


def _history(seed: int, promises: Promises) -> History:
    rng = random.Random(seed)
    draft = Draft(clean(seed, rng.choice((8, 16, 24))), rng)
    if len(promises.group_members) > 1:
        draft.split()
    for mutation in rng.choices([*MUTATIONS, *MUTATIONS, *WRONGS], k=rng.choice((0, 2, 4, 8))):
        mutation(draft)
    draft.ops = [op._replace(position=_spread(op.position)) for op in draft.ops]
    draft.reads = [read._replace(position=_spread(read.position)) for read in draft.reads]
    draft.held = [row._replace(position=_spread(row.position)) for row in draft.held]
    return draft.history(promises)


def _spread(position: int) -> int:
    return position if position == UNKNOWN else position * _SPREAD


@cache
def _random(promised: int) -> tuple[History, ...]:
    each = -(-COUNT // len(_PROMISED))
    return tuple(_history(promised * 1_000_003 + seed, _PROMISED[promised]) for seed in range(each))


def hold_against_twins(spark: SparkSession, checks: Sequence[SpreadCheck], twins: Sequence[Twin]) -> None:
    """Assert that each check finds what its twin finds: planted anomalies, and much that went wrong at random."""
    names = [twin.__name__.removeprefix("check_").upper() for twin in twins]
    planted = {name: [_planted(seed, name) for seed in range(_SEEDS)] for name in names}
    counts = dict.fromkeys(names, 0)
    before = {name: spark.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    for number in range(len(_PROMISED)):
        some = [one for name in names for one in planted[name]] if number == 0 else []
        histories = [*(one.history for one in some), *_random(number)]
        world = World.of_histories(spark, histories)
        evidence = Evidence(world)
        for name, check, twin in zip(names, checks, twins, strict=True):
            told = check(evidence)
            counts[name] += assert_same(told, histories, twin)
            for run, one in enumerate(some):
                assert one.check != name or found(told[run].witnesses, one.witness), (name, told[run], one.witness)
        world.close()
    for name, old in before.items():
        spark.conf.set(name, old or "")
    assert all(count > COUNT // 100 for count in counts.values()), counts


def _planted(seed: int, check: str) -> Planted:
    one = plant(seed, check)
    return replace(one, history=replace(one.history, promises=_PROMISED[0]))
