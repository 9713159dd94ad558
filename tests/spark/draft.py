"""A clean history that is being changed."""

import random

from pipeline.history.promises import Promises
from pipeline.history.rows import Act, Beat, Op
from pipeline.plain.evidence import History, MergedLog

MS = 1_000_000


class Draft:
    """A history that is being changed. Operations stay in the order of their numbers."""

    def __init__(self, whole: History, rng: random.Random) -> None:
        assert whole.merged is not None
        self.rng = rng
        self.ops = list(whole.ops)
        self.reads = list(whole.reads)
        self.faults = list(whole.faults)
        self.looks = list(whole.looks)
        self.beats: list[Beat] = []
        self.held = list(whole.merged.messages)
        self.complete = True
        self.is_merged = True
        self._process = 5_000

    def history(self, promises: Promises) -> History:
        """Return what became of it."""
        merged = MergedLog(self.held, complete=self.complete) if self.is_merged else None
        return History(self.ops, self.reads, self.faults, self.looks, promises, merged, self.beats)

    def split(self) -> None:
        """Make the second queue of each topic the first one of another broker group."""
        second = {op.op for op in self.ops if op.queue == 1}
        self.reads = [read._replace(queue=0) if read.op in second else read for read in self.reads]
        self.ops = [op._replace(broker="h", queue=0) if op.queue == 1 else op for op in self.ops]
        self.held = [row._replace(broker="h", queue=0) if row.queue == 1 else row for row in self.held]

    def process(self) -> int:
        """Return a process that did nothing else."""
        self._process += 1
        return self._process

    def some(self, *acts: Act) -> Op | None:
        """Return one of the operations, None if there is none of these acts."""
        found = [op for op in self.ops if not acts or op.act in acts]
        return self.rng.choice(found) if found else None

    def change(self, op: Op | None, /, **fields: object) -> None:
        """Change an operation, if there is one."""
        if op is not None:
            at = next(at for at, one in enumerate(self.ops) if one is op)
            self.ops[at] = op._replace(**fields)  # type: ignore[arg-type]

    def add(self, op: Op, /, **fields: object) -> Op:
        """Add an operation that looks like another one, by a process of its own."""
        number = 1 + max(one.op for one in self.ops)
        added = op._replace(**{"op": number, "process": self.process(), **fields})  # type: ignore[arg-type]
        self.ops.append(added)
        return added

    def at_row(self) -> int | None:
        """Return where one of the messages that were read stands."""
        return self.rng.randrange(len(self.reads)) if self.reads else None

    def near(self) -> int:
        """Return a small step, forward or back."""
        return self.rng.choice((-3, -2, -1, 1, 2, 3))

    def when(self) -> int:
        """Return a time of the run, or a little outside of it."""
        begin, end = self.ops[0].invoked, max(op.completed for op in self.ops)
        return self.rng.randrange(begin - 5 * MS, end + 50 * MS)
