"""Histories of a few operations, in the words of a test. Times are small numbers; one queue unless told otherwise."""

from typing import Any

from pipeline.history.promises import Promises
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Look, Op, Read
from pipeline.plain.evidence import HeldMessage, History, MergedLog

TOPIC = "t"
S = 10**9


class Little:
    """Collects operations; each has a process of its own unless it is named."""

    def __init__(self, **promises: Any) -> None:
        self.ops: list[Op] = []
        self.reads: list[Read] = []
        self.faults: list[Fault] = []
        self.looks: list[Look] = []
        self.beats: list[Beat] = []
        self.held: list[HeldMessage] | None = None
        self.complete = True
        self.promises = Promises(**{"rto_bound_s": 1.0, "hiccup_bound_s": 1.0, **promises})

    def op(self, act: Act, began: int, ended: int = UNKNOWN, kind: Kind = Kind.OK, **fields: Any) -> int:
        number = len(self.ops)
        fields = {"process": 100 + number, "topic": TOPIC, "queue": 0, **fields}
        self.ops.append(Op(op=number, act=act, kind=kind, invoked=began, completed=ended, **fields))
        return number

    def send(
        self, counter: int, began: int, ended: int, offset: int = UNKNOWN, kind: Kind = Kind.OK, **fields: Any
    ) -> int:
        fields = {"writer": 1, "counter": counter, "digest": 7, **fields}
        return self.op(Act.SEND, began, ended, kind, offset=offset, **fields)

    def poll(self, began: int, offset: int, rows: list[tuple[int, int]], act: Act = Act.POLL, **fields: Any) -> int:
        """Answer, one tick after the question, with (offset, counter) rows."""
        value = fields.pop("value", rows[-1][0] + 1 if rows else offset)
        attempt = fields.pop("attempt", 0)
        digest = fields.pop("digest", 7)
        number = self.op(act, began, began + 1, offset=offset, value=value, **fields)
        place = (self.ops[number].topic, self.ops[number].queue)
        self.reads += [Read(number, *place, at, 50 + at, 1, counter, attempt, digest) for at, counter in rows]
        return number

    def scan(self, began: int, rows: list[tuple[int, int]], end: int, **fields: Any) -> int:
        fields = {"address": "n0", "leader": "n0", "end": end, "value": end, **fields}
        return self.poll(began, fields.pop("offset", 0), rows, Act.SCAN, **fields)

    def hold(self, offset: int, counter: int, **fields: Any) -> None:
        values = {"broker": "", "topic": TOPIC, "queue": 0, "position": 50 + offset, "writer": 1, **fields}
        self.held = [
            *(self.held or []),
            HeldMessage(**{"offset": offset, "counter": counter, "attempt": 0, "digest": 7, **values}),
        ]

    def history(self) -> History:
        merged = None if self.held is None else MergedLog(self.held, self.complete)
        return History(self.ops, self.reads, self.faults, self.looks, self.promises, merged, self.beats)
