"""The history of a small cluster in which every promise was kept: what anomalies are planted into (plant.py).

A Raft group of three with senders, a consumer group, delayed messages and transactions, one killed leader, and the
closings. Nothing runs: a play with a clock, whose every step follows from the seed.
"""

import random
from typing import Any, NamedTuple

from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Fault, Kind, Look, Op, Read
from pipeline.plain.evidence import HeldMessage, History, MergedLog

MEMBERS = ("n0", "n1", "n2")
SCANNED = "events"
"""A topic that only scans read."""
CONSUMED = "orders"
LATER = "later"
LEDGER = "ledger"
QUEUES = {SCANNED: 2, CONSUMED: 2, LATER: 1, LEDGER: 2}
GROUP = "readers"
STEPS = 120
DELAY = 40_000_000
_MS = 1_000_000
# Process numbers from here on are consumers'.
_CONSUMERS = 1000

PROMISES = Promises(
    group_members={"g": MEMBERS},
    consumer_groups=(GROUP,),
    orderly_groups=("orderly",),
    isolated_transactions=True,
    delay_bound_s=0.001,
    clock_bound_s=0.001,
    rto_bound_s=1.0,
    hiccup_bound_s=1.0,
    progress_bound_s=5.0,
    group_bound_s=2.0,
    leader_change_on=("kill",),
    faults_min=1,
)


class Message(NamedTuple):
    """What one attempt sends."""

    topic: str
    queue: int
    writer: int
    counter: int
    attempt: int = 0
    transaction: str = ""

    @property
    def digest(self) -> int:
        """A stand-in for the CRC-32 of its body."""
        return 1 + (self.writer * 7919 + self.counter * 31 + self.attempt) % 1_000_003


class World:
    """The cluster: its log, its clients' history, its clock. Everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 10**12
        """When the operation at hand takes effect; it is invoked before and answered after."""
        self.ops: list[Op] = []
        self.reads: list[Read] = []
        self.faults: list[Fault] = []
        self.looks: list[Look] = []
        self.log: list[HeldMessage] = []
        self.queues: dict[tuple[str, int], list[HeldMessage]] = {
            (topic, queue): [] for topic, count in QUEUES.items() for queue in range(count)
        }
        self.term = 1
        self.busy: dict[int, int] = {}
        """Process → when it was answered last; one of unknown end is taken out."""
        self._processes = 0
        self._position = 1000
        self._counters = [0, 0, 0]
        self._delayed: list[tuple[int, Message]] = []

    @property
    def leader(self) -> str:
        """Who leads."""
        return MEMBERS[self.term - 1]

    def process(self) -> int:
        """Return a process that has nothing under way, perhaps a new one."""
        free = [one for one, until in self.busy.items() if one < _CONSUMERS and until < self.now - 2 * _MS]
        if free and self.rng.random() < 0.95:
            return self.rng.choice(free)
        self._processes += 1
        return self._processes

    def do(self, act: Act, kind: Kind = Kind.OK, process: int | None = None, **fields: Any) -> Op:
        """Record an operation that takes effect now, and let some time pass."""
        process = self.process() if process is None else process
        invoked = max(self.busy.get(process, 0) + 1, self.now - self.rng.randrange(_MS))
        completed = max(self.now, invoked) + self.rng.randrange(1, 2 * _MS)
        op = Op(len(self.ops), process, act, kind, invoked, completed, **{"broker": "g", **fields})
        self.ops.append(op)
        self.busy[process] = completed
        if kind == Kind.INFO:
            del self.busy[process]
        self.now = max(self.now, invoked) + self.rng.randrange(_MS // 10, _MS)
        return op

    def append(self, message: Message) -> HeldMessage:
        """Put a message behind its queue."""
        queue = self.queues[message.topic, message.queue]
        self._position += self.rng.randrange(100, 300)
        held = HeldMessage(
            "g", message.topic, message.queue, len(queue), self._position, message.writer, message.counter,
            message.attempt, message.digest, self.term, len(self.log), message.transaction,
        )  # fmt: skip
        queue.append(held)
        self.log.append(held)
        return held

    def message(self, topic: str, queue: int, transaction: str = "") -> Message:
        """Return a new message of one of the writers."""
        writer = self.rng.randrange(len(self._counters))
        self._counters[writer] += 1
        return Message(topic, queue, writer, self._counters[writer], 0, transaction)

    def send(self, message: Message, kind: Kind = Kind.OK, *, happens: bool = True, delay: int = 0) -> Op:
        """Send a message straight to its queue, or to where delayed messages and halves wait."""
        fields: dict[str, Any] = {
            "topic": message.topic, "queue": message.queue, "writer": message.writer, "counter": message.counter,
            "attempt": message.attempt, "digest": message.digest, "transaction": message.transaction,
        }  # fmt: skip
        due = self.now + delay if delay else UNKNOWN
        if delay or message.transaction:
            self._delayed += [(due, message)] if delay else []
            fields.update(offset=3, delay_until=due)
        elif happens and kind != Kind.FAIL:
            held = self.append(message)
            if kind == Kind.OK:
                fields.update(offset=held.offset, position=held.position)
        if kind == Kind.OK:
            fields.update(address=self.leader, leader=self.leader, term=self.term)
        else:
            fields.update(error="RequestTimeout" if kind == Kind.INFO else "NOT_LEADER_FOR_QUEUE")
        return self.do(Act.SEND, kind, **fields)

    def release(self) -> None:
        """Put delayed messages whose time has come into their queue."""
        due = [message for at, message in self._delayed if at <= self.now]
        self._delayed = [(at, message) for at, message in self._delayed if at > self.now]
        for message in due:
            self.append(message)

    def read(
        self, act: Act, topic: str, queue: int, offset: int, *, address: str, group: str = "", count: int = 8
    ) -> Op:
        """Read from an offset, through one member."""
        rows = self.queues[topic, queue]
        some = rows[offset : offset + count]
        fields: dict[str, Any] = {"address": address, "leader": self.leader, "group": group, "end": len(rows)}
        op = self.do(act, topic=topic, queue=queue, offset=offset, value=offset + len(some), **fields)
        self.reads += [read_of(op.op, held) for held in some]
        return op

    def history(self) -> History:
        """Return all that is known of it."""
        return History(self.ops, self.reads, self.faults, self.looks, PROMISES, MergedLog(self.log, complete=True))


def read_of(op: int, held: HeldMessage) -> Read:
    """Return the message of an answer that brings what stands in the log."""
    return Read(op, *held[1:9], held.transaction)


def clean(seed: int, steps: int = STEPS) -> History:
    """Return a history in which all promises were kept; with fewer steps it is shorter."""
    world = World(seed)
    for topic in QUEUES:
        world.do(Act.CREATE_TOPIC, topic=topic, address="n0", leader="n0", term=1)
    world.do(Act.SEEN_TOPIC, topic=SCANNED, value=1, address="n0", leader="n0")
    consumers = [Consumer(world, queue) for queue in range(QUEUES[CONSUMED])]
    for step in range(steps):
        if step == steps // 2:
            _kill(world)
        world.release()
        _load(world)
        if step % 5 == 0:
            consumers[step % len(consumers)].step()
        if step % 10 == 0:
            world.looks.append(Look(world.now, world.leader, "leader", world.term, world.leader, 1, 1, 1, 1))
    for consumer in consumers:
        consumer.note_life()
    # The closings: everything that is due is there, markers, scans through every member, the group's drain.
    world.now += 2 * DELAY
    world.release()
    for topic, queue in world.queues:
        world.send(world.message(topic, queue))
        end = len(world.queues[topic, queue])
        address = world.leader
        world.do(Act.MAX, topic=topic, queue=queue, value=end, address=address, leader=address)
    world.now += 10 * _MS
    for address in MEMBERS:
        for (topic, queue), rows in world.queues.items():
            at = 0
            while at < len(rows):
                at = world.read(Act.SCAN, topic, queue, at, address=address, count=50).value
    for consumer in consumers:
        while consumer.step():
            pass
    return world.history()


class Consumer:
    """A member of the group, for one queue."""

    def __init__(self, world: World, queue: int) -> None:
        self._world = world
        self._queue = queue
        self._at = 0
        self._process = _CONSUMERS + queue
        self._began = world.now

    def note_life(self) -> None:
        """Have it in the history that it lived until now, as a consumer; it goes on as the drain."""
        world = self._world
        place: dict[str, Any] = {"topic": CONSUMED, "group": GROUP, "broker": "g"}
        process = 2 * _CONSUMERS + self._queue
        life = Op(len(world.ops), process, Act.CONSUME, Kind.OK, self._began, world.now, **place)
        world.ops.append(life)

    def step(self) -> bool:
        """Take some messages and commit behind them; False when there are none."""
        world = self._world
        place: dict[str, Any] = {"topic": CONSUMED, "queue": self._queue, "group": GROUP}
        before = UNKNOWN if not self._at else self._at
        world.do(Act.QUERY, process=self._process, value=before, address=world.leader, leader=world.leader, **place)
        rows = world.queues[CONSUMED, self._queue][self._at : self._at + 8]
        end = len(world.queues[CONSUMED, self._queue])
        told: dict[str, Any] = {"address": world.leader, "leader": world.leader}
        value = self._at + len(rows)
        poll = world.do(Act.POLL, process=self._process, offset=self._at, value=value, end=end, **told, **place)
        world.reads += [read_of(poll.op, held) for held in rows]
        if rows:
            self._at = value
            world.do(Act.COMMIT, process=self._process, value=value, term=world.term, **told, **place)
        return bool(rows)


def _load(world: World) -> None:
    """Let the senders do something."""
    rng = world.rng
    chance = rng.random()
    if chance < 0.08:
        world.send(world.message(LATER, 0), delay=DELAY)
    elif chance < 0.2:
        name = f"t{len(world.ops)}"
        halves = [world.message(LEDGER, queue, name) for queue in range(QUEUES[LEDGER])]
        for half in halves:
            world.send(half)
        if rng.random() < 0.7:
            for half in halves:
                world.append(half)
            world.do(Act.END_COMMIT, transaction=name, address=world.leader, leader=world.leader)
        else:
            world.do(Act.END_ROLLBACK, transaction=name, address=world.leader, leader=world.leader)
    else:
        topic = rng.choice((SCANNED, CONSUMED))
        message = world.message(topic, rng.randrange(QUEUES[topic]))
        kind = rng.choices((Kind.OK, Kind.INFO, Kind.FAIL), (17, 2, 1))[0]
        world.send(message, kind, happens=kind == Kind.OK or rng.random() < 0.6)
        if kind == Kind.INFO and rng.random() < 0.5:
            world.send(message._replace(attempt=1))


def _kill(world: World) -> None:
    """Kill the leader: the next term has another one."""
    began = world.now
    world.looks.append(Look(began - 1, world.leader, "leader", world.term, world.leader, 1, 1, 1, 1))
    victim = world.leader
    world.now += 20 * _MS
    world.term += 1
    world.looks.append(Look(world.now, world.leader, "leader", world.term, world.leader, 1, 1, 1, 1))
    world.faults.append(Fault(0, "kill", victim, "leader", began, world.now + 1, "pid 100 is gone, 200 came"))
    world.now += _MS
    # What a send was told still in the old term was told before the kill took effect.
    world.busy = {process: until for process, until in world.busy.items() if until < world.now}
