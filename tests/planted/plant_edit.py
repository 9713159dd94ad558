"""A clean history that is being changed, so that exactly one thing is wrong about it (plant.py, plant_service.py)."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pipeline.history.rows import Act, Kind, Op
from pipeline.plain.evidence import HeldMessage, History
from tests.planted.plant_world import clean, read_of

# A number that no process of a clean history has: those of what is added begin here.
FAR = 50_000


@dataclass(frozen=True)
class Planted:
    """A history with an anomaly, and what a witness of it must say: these fields, and these among its `ops`."""

    history: History
    check: str
    witness: dict[str, Any]


class Edit:
    """A clean history that is being changed."""

    def __init__(self, seed: int) -> None:
        self.history = clean(seed)
        self.rng = random.Random(seed ^ 0x5EED)
        self.ops = list(self.history.ops)
        self.reads = list(self.history.reads)
        merged = self.history.merged
        self.held: list[HeldMessage] = list(merged.messages) if merged else []
        self.complete = True
        self._process = FAR

    def done(self, check: str, **witness: Any) -> Planted:
        """Return the changed history and what must be found."""
        merged = self.history.merged
        assert merged is not None
        log = merged._replace(messages=self.held, complete=self.complete)
        changed = replace(self.history, ops=self.ops, reads=self.reads, merged=log)
        return Planted(changed, check, witness)

    def some(self, topic: str, *, first_term: bool = False) -> Op:
        """Return an acknowledged send of a message that nobody had to repeat, with others before and behind it."""
        rows = [
            op
            for op in self.history.acknowledged
            if op.topic == topic and op.attempt == 0 and (op.term == 1 or not first_term)
        ]
        ends = {queue: max(op.offset for op in rows if op.queue == queue) for queue in {op.queue for op in rows}}
        return self.rng.choice([op for op in rows if 0 < op.offset < ends[op.queue]])

    def process(self) -> int:
        """Return a process that did nothing else."""
        self._process += 1
        return self._process

    def add(self, act: Act, invoked: int, kind: Kind = Kind.OK, **fields: Any) -> Op:
        """Add an operation that took 2 ns."""
        defaults = {"process": self.process(), "broker": "g", **fields}
        op = Op(op=FAR + len(self.ops), act=act, kind=kind, invoked=invoked, completed=invoked + 2, **defaults)
        self.ops.append(op)
        return op

    def change(self, op: Op, **fields: Any) -> Op:
        """Change an operation."""
        changed = op._replace(**fields)
        self.ops[op.op] = changed
        return changed

    def drop(self, op: Op) -> None:
        """Take a message out of the log and of everything that was read."""
        message = (op.writer, op.counter)
        self.reads = [read for read in self.reads if (read.writer, read.counter) != message]
        self.held = [row for row in self.held if (row.writer, row.counter) != message]

    def row(self, op: Op) -> HeldMessage:
        """Return what stands in the log of a send."""
        name = (op.writer, op.counter, op.attempt)
        return next(row for row in self.held if (row.writer, row.counter, row.attempt) == name)

    def end(self) -> int:
        """Return a time behind everything."""
        return max(op.completed for op in self.ops) + 1000

    def place(self, op: Op) -> dict[str, Any]:
        """Return the witness' fields for a send's place."""
        return {"queue": ["", op.topic, op.queue], "offset": op.offset}

    def poll(self, rows: Iterable[HeldMessage], at: int, **fields: Any) -> Op:
        """Add a poll that answers with some messages."""
        rows = list(rows)
        first, last = rows[0], rows[-1]
        place: dict[str, Any] = {
            "topic": first.topic,
            "queue": first.queue,
            "offset": first.offset,
            "value": last.offset + 1,
        }
        op = self.add(Act.POLL, at, **place, **fields)
        self.reads += [read_of(op.op, row) for row in rows]
        return op

    def stretch(self, op: Op, count: int) -> list[HeldMessage]:
        """Return what stands in a send's queue, from it on."""
        rows = [row for row in self.held if (row.topic, row.queue) == (op.topic, op.queue)]
        return rows[op.offset : op.offset + count]
