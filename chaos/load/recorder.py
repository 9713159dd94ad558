"""What clients asked and were told, as it happens: fixed-width records in a ring, written to files by a thread.

An operation leaves two records, at its begin and at its end, so that one that never ended is in the history as well.
Texts are kept once, by number, in texts.jsonl. Faults and looks at replicas are few: a JSON line each. At the end
everything becomes Parquet (`compact`); until then a run whose harness dies loses 0.1 s of its history at most.

    history/ops.ring, reads.ring      records of Op and Read: int64 per number, uint32 per text
    history/texts.jsonl               text n in line n
    history/faults.jsonl, looks.jsonl, beats.jsonl
"""

import itertools
import json
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple, get_type_hints

import numpy as np

from chaos.load.errors import outcome, words
from pipeline.history.folder import HISTORY, RunFolder
from pipeline.history.parquet import write_columns, write_rows
from pipeline.history.rows import UNKNOWN, Act, Beat, Fault, Kind, Look, Op, Read

# Records that are collected before they are written.
RING_RECORDS = 4096
# Nothing is kept from the files for longer (s).
FLUSH_S = 0.1
# Full rings that wait for the disk. Beyond it the clients wait: a history with holes would be worth nothing.
RINGS_MAX = 64
# Different texts of a run. Beyond it all others are the one that stands last: workloads make few, by their design.
TEXTS_MAX = 1_000_000
TOO_MANY = "(more different texts than a history keeps)"


class Layout(NamedTuple):
    """How rows of a NamedTuple stand in a ring."""

    kind: type
    texts: tuple[int, ...]
    """Which fields are texts."""
    packer: struct.Struct
    dtype: "np.dtype[np.void]"


def layout(kind: type) -> Layout:
    """Return how a NamedTuple of numbers and texts is packed."""
    hints = get_type_hints(kind)
    texts = tuple(at for at, type_ in enumerate(hints.values()) if type_ is str)
    packer = struct.Struct("<" + "".join("I" if type_ is str else "q" for type_ in hints.values()))
    dtype = np.dtype([(name, "<u4" if type_ is str else "<i8") for name, type_ in hints.items()])
    return Layout(kind, texts, packer, dtype)


OPS = layout(Op)
READS = layout(Read)


class Texts:
    """Numbers for texts."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self.new: list[str] = [""]

    def number(self, text: str) -> int:
        """Return the number of a text."""
        found = self._numbers.get(text)
        if found is not None:
            return found
        if len(self._numbers) >= TEXTS_MAX:
            return self._numbers.get(TOO_MANY, 0)
        if len(self._numbers) == TEXTS_MAX - 1:
            text = TOO_MANY
        number = self._numbers[text] = len(self._numbers)
        self.new.append(text)
        return number


class Ring:
    """Collects packed rows."""

    def __init__(self, how: Layout, texts: Texts) -> None:
        self._how = how
        self._texts = texts
        self._size = how.packer.size
        self._buffer = bytearray(RING_RECORDS * self._size)
        self._used = 0

    @property
    def full(self) -> bool:
        """Whether it must be taken before the next row."""
        return self._used == len(self._buffer)

    def put(self, row: tuple[Any, ...]) -> None:
        """Take a row; there must be room."""
        values = list(row)
        for at in self._how.texts:
            values[at] = self._texts.number(values[at])
        self._how.packer.pack_into(self._buffer, self._used, *values)
        self._used += self._size

    def take(self) -> bytes:
        """Return what has been collected, and begin anew."""
        data = bytes(memoryview(self._buffer)[: self._used])
        self._used = 0
        return data


class Recorder:
    """The history of one run. All calls come from one thread, the event loop's; files are written by another."""

    def __init__(self, run: Path, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._folder = run / HISTORY
        self._folder.mkdir(parents=True, exist_ok=True)
        self.now = clock
        self._texts = Texts()
        self._rings = {"ops": Ring(OPS, self._texts), "reads": Ring(READS, self._texts)}
        self._numbers = itertools.count()
        self._processes = itertools.count()
        self._faults = itertools.count()
        self._full: queue.Queue[tuple[str, bytes] | None] = queue.Queue(RINGS_MAX)
        self._flushed = clock()
        self.counts = dict.fromkeys(Kind, 0)
        self.acknowledged = 0
        """Sends that ended OK."""
        # Where queues end, by topic; when a group got something new of one last, and up to where. As many as the
        # workloads have queues.
        self._ends: dict[tuple[str, int], int] = {}
        self._given: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._failure: BaseException | None = None
        self._writer = threading.Thread(target=self._write, name="recorder", daemon=True)
        self._writer.start()

    def process(self) -> int:
        """Return a process number that nobody has had."""
        return next(self._processes)

    def invoke(self, act: Act, process: int, **fields: Any) -> Op:
        """Note that an operation begins now, before its first byte is sent; it is INFO until it ends."""
        op = Op(next(self._numbers), process, act, Kind.INFO, self.now(), **fields)
        self._put("ops", op)
        return op

    def ok(self, op: Op, **fields: Any) -> Op:
        """Note that it happened, and what was told."""
        return self._end(op, Kind.OK, fields)

    def ended(self, op: Op, error: BaseException, **fields: Any) -> Op:
        """Note that it ended with an error: FAIL or INFO, by the table of chaos/load/errors.py."""
        return self._end(op, outcome(error), {"error": words(error), **fields})

    def fail(self, op: Op, error: str, **fields: Any) -> Op:
        """Note that it certainly did not happen."""
        return self._end(op, Kind.FAIL, {"error": error, **fields})

    def info(self, op: Op, error: str, **fields: Any) -> Op:
        """Note that nobody knows whether it happened."""
        return self._end(op, Kind.INFO, {"error": error, **fields})

    def reads(self, rows: Iterable[Read]) -> None:
        """Note the messages of an answer."""
        for row in rows:
            self._put("reads", row)

    def fault(self, fault: Fault) -> None:
        """Note an act of the nemesis; the same number again replaces what was noted."""
        self._hand("faults", json.dumps(fault._asdict()).encode() + b"\n")

    def fault_number(self) -> int:
        """Return a number for an act of the nemesis."""
        return next(self._faults)

    def look(self, look: Look) -> None:
        """Note what a member said of itself."""
        self._hand("looks", json.dumps(look._asdict()).encode() + b"\n")

    def beat(self) -> None:
        """Note that the loop of the harness has its turn now: a time without any is the harness's and no member's."""
        self._hand("beats", json.dumps(Beat(self.now())._asdict()).encode() + b"\n")

    def waits(self, group: str, topic: str, since: int) -> bool:
        """Tell whether a queue holds more than a consumer group has had of it, and nothing new of it came since."""
        for (name, number), end in self._ends.items():
            at, reached = self._given.get((group, topic, number), (UNKNOWN, 0))
            if name == topic and reached < end and at <= since:
                return True
        return False

    def flush(self) -> None:
        """Hand everything that was noted to the writer."""
        self._flushed = self.now()
        new, self._texts.new = self._texts.new, []
        if new:
            self._hand("texts", b"".join(json.dumps(text).encode() + b"\n" for text in new))
        for name, ring in self._rings.items():
            if data := ring.take():
                self._hand(name, data)

    def close(self) -> None:
        """Write what is left and end; raises what the writer failed with."""
        if self._writer.is_alive():
            self.flush()
            self._full.put(None)
            self._writer.join()
        self._raise()

    def _end(self, op: Op, kind: Kind, fields: dict[str, Any]) -> Op:
        done = op._replace(kind=kind, completed=self.now(), **fields)
        self.counts[kind] += 1
        if kind is Kind.OK and op.act == Act.SEND:
            self.acknowledged += 1
            if done.delay_until == UNKNOWN and not done.transaction:
                place = (done.topic, done.queue)
                self._ends[place] = max(done.offset + 1, self._ends.get(place, 0))
        elif kind is Kind.OK and op.act == Act.POLL:
            place = (op.topic, op.queue)
            if done.value > self._given.get((op.group, *place), (UNKNOWN, 0))[1]:
                self._given[op.group, *place] = (done.completed, done.value)
        self._put("ops", done)
        return done

    def _put(self, name: str, row: tuple[Any, ...]) -> None:
        ring = self._rings[name]
        ring.put(row)
        if ring.full or self.now() - self._flushed > FLUSH_S * 1e9:
            self.flush()

    def _hand(self, name: str, data: bytes) -> None:
        self._raise()
        self._full.put((name, data))

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        files: dict[str, IO[bytes]] = {}
        try:
            while (item := self._full.get()) is not None:
                name, data = item
                if name not in files:
                    files[name] = (self._folder / f"{name}{'.ring' if name in self._rings else '.jsonl'}").open("ab")
                files[name].write(data)
                files[name].flush()
        except OSError as error:
            self._failure = error
            # Whoever waits for room is to hear of it.
            while self._full.get() is not None:
                pass
        finally:
            for file in files.values():
                file.close()


def compact(run: Path) -> None:
    """Make the Parquet files of a history of what a recorder wrote, and remove that; a cut last record is left out."""
    folder, target = run / HISTORY, RunFolder(run)
    texts = np.array([json.loads(line) for line in _lines(folder / "texts.jsonl")], dtype=object)
    ops = _records(folder / "ops.ring", OPS, len(texts))
    # The last record of an operation counts: a sort that keeps their order, then the last of each number.
    ops = ops[np.argsort(ops["op"], kind="stable")]
    last = np.append(ops["op"][1:] != ops["op"][:-1], [True] * bool(len(ops))).astype(bool)
    write_columns(target.file(Op), Op, [_columns(ops[last], OPS, texts)])
    write_columns(target.file(Read), Read, [_columns(_records(folder / "reads.ring", READS, len(texts)), READS, texts)])
    faults = {row["fault"]: Fault(**row) for row in map(json.loads, _lines(folder / "faults.jsonl"))}
    write_rows(target.file(Fault), faults.values(), Fault)
    write_rows(target.file(Look), (Look(**json.loads(line)) for line in _lines(folder / "looks.jsonl")), Look)
    write_rows(target.file(Beat), (Beat(**json.loads(line)) for line in _lines(folder / "beats.jsonl")), Beat)
    for name in ("ops.ring", "reads.ring", "texts.jsonl", "faults.jsonl", "looks.jsonl", "beats.jsonl"):
        (folder / name).unlink(missing_ok=True)


def _records(path: Path, how: Layout, texts: int) -> "np.ndarray[Any, np.dtype[np.void]]":
    data = path.read_bytes() if path.exists() else b""
    rows = np.frombuffer(data[: len(data) - len(data) % how.packer.size], dtype=how.dtype)
    # A record whose texts were not written any more is as good as cut.
    whole = np.ones(len(rows), dtype=bool)
    for at in how.texts:
        whole &= rows[how.dtype.names[at] if how.dtype.names else ""] < texts
    return rows[whole]


def _columns(rows: "np.ndarray[Any, np.dtype[np.void]]", how: Layout, texts: Any) -> dict[str, Any]:
    names = how.dtype.names or ()
    return {name: texts[rows[name]] if at in how.texts else rows[name] for at, name in enumerate(names)}


def _lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    return path.read_bytes().split(b"\n")[:-1]
