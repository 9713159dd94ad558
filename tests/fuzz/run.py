"""Feeds every decoder that reads bytes of others: `python -m tests.fuzz.run --inputs 100000 --seed 1 --jobs 2`.

Each input has a bound on time and on memory (tests/fuzz/bounds.py), and one of the decoder's documented errors may come
out, nothing else. What breaks that is kept in a temporary folder, with the command that repeats it; the exit code is 1.
"""

import argparse
import gc
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.fuzz.bounds import BOUNDS, KIB, SAMPLE, Bounds, Outcome, Target, measure
from tests.fuzz.targets import input_at, least, shares, targets

CHUNK = 500
# Large inputs cost as much as hundreds of others: so many of them make a chunk.
CHUNK_LARGE = 10
# Of one decoder; a hundred more of the same kind tell nothing.
BREACHES_KEPT = 5


@dataclass
class Row:
    """What a decoder's inputs came to."""

    name: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    ms_per_kib: float = 0.0
    """The worst, above what each input has free."""
    bytes_per_byte: float = 0.0
    time_share: float = 0.0
    """The worst, of what is allowed."""
    memory_share: float = 0.0
    breaches: list[tuple[int, str]] = field(default_factory=list)
    """Index of the input and what is wrong, the first few."""
    broken: int = 0

    def add(self, outcome: Outcome, index: int, bounds: Bounds = BOUNDS) -> None:
        """Count an input."""
        self.inputs += 1
        self.accepted += outcome.accepted
        self.refused += not outcome.accepted
        size = max(1, outcome.size)
        self.ms_per_kib = max(self.ms_per_kib, (outcome.seconds - bounds.seconds_free) * 1000 * KIB / size)
        self.bytes_per_byte = max(self.bytes_per_byte, (outcome.peak - bounds.bytes_free) / size)
        self.time_share = max(self.time_share, outcome.seconds / bounds.seconds(outcome.size))
        self.memory_share = max(self.memory_share, outcome.peak / bounds.bytes(outcome.size))
        if outcome.breach:
            self.broken += 1
            if len(self.breaches) < BREACHES_KEPT:
                self.breaches.append((index, outcome.breach))

    def merge(self, other: "Row") -> None:
        """Add another part of the same decoder's inputs."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.refused += other.refused
        self.ms_per_kib = max(self.ms_per_kib, other.ms_per_kib)
        self.bytes_per_byte = max(self.bytes_per_byte, other.bytes_per_byte)
        self.time_share = max(self.time_share, other.time_share)
        self.memory_share = max(self.memory_share, other.memory_share)
        self.breaches = (self.breaches + other.breaches)[:BREACHES_KEPT]
        self.broken += other.broken


def fed(target: Target, seed: int, indexes: Iterable[int], bounds: Bounds = BOUNDS) -> Row:
    """Give a decoder these of its inputs."""
    row = Row(target.name)
    for index in indexes:
        row.add(measure(target, input_at(target, seed, index), bounds, memory=index % SAMPLE == 0), index, bounds)
    return row


def _fed_quietly(name: str, seed: int, indexes: range) -> Row:
    logging.disable(logging.CRITICAL)
    target = targets()[name]
    # What the harness itself holds is not the decoder's to walk through.
    gc.collect()
    gc.freeze()
    return fed(target, seed, indexes)


def _chunks(counts: dict[str, int]) -> Iterator[tuple[str, range]]:
    """Yield all inputs in pieces, those first that take longest."""
    known = targets()
    for name in counts:
        yield from (
            (name, range(at, min(at + CHUNK_LARGE, least(known[name]))))
            for at in range(0, least(known[name]), CHUNK_LARGE)
        )
    for name, count in counts.items():
        yield from ((name, range(at, min(at + CHUNK, count))) for at in range(least(known[name]), count, CHUNK))


def feed_all(counts: dict[str, int], seed: int, jobs: int, console: Console) -> dict[str, Row]:
    """Feed so many inputs to each decoder, in processes of their own."""
    rows = {name: Row(name) for name in counts}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProcessPoolExecutor(jobs) as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task("inputs", total=sum(counts.values()))
        waiting: dict[Future[Row], int] = {
            pool.submit(_fed_quietly, name, seed, indexes): len(indexes) for name, indexes in _chunks(counts)
        }
        for future in as_completed(waiting):
            row = future.result()
            rows[row.name].merge(row)
            progress.update(task, advance=waiting[future], description=row.name)
        progress.update(task, description="inputs")
    return rows


def table_of(rows: Iterable[Row]) -> Table:
    """Return what people look at: the worst of each decoder, for each KiB and byte, and of what is allowed."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("decoder", no_wrap=True, min_width=24)
    for title in ("inputs", "taken", "refused", "ms/KiB", "time", "x size", "memory", "bad"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name, f"{row.inputs:,}", f"{row.accepted:,}", f"{row.refused:,}", f"{row.ms_per_kib:.3f}",
            f"{row.time_share:.0%}", f"{row.bytes_per_byte:.1f}", f"{row.memory_share:.0%}", f"{row.broken or ''}",
        )  # fmt: skip
    return table


def keep_broken(rows: Iterable[Row], seed: int) -> list[dict[str, str]]:
    """Keep the inputs that broke a bound as files; return what is wrong with each, and the command that repeats it."""
    found: list[dict[str, str]] = []
    for row in rows:
        for index, why in sorted(row.breaches):
            folder = Path(tempfile.mkdtemp(prefix="raftmq-fuzz-"))
            path = folder / f"{row.name}-{index}"
            path.write_bytes(input_at(targets()[row.name], seed, index))
            command = f"python -m tests.fuzz.run --only {row.name} --file {path}"
            found.append({"decoder": row.name, "why": why, "file": str(path), "repeat": command})
    return found


def repeat(target: Target, path: Path, console: Console) -> int:
    """Give one input to a decoder and say what came of it."""
    outcome = measure(target, path.read_bytes())
    said = "accepted" if outcome.accepted else "refused"
    console.print(
        f"{target.name}: {outcome.size} bytes, {outcome.seconds * 1000:.1f} ms, {outcome.peak} bytes of memory"
    )
    console.print(outcome.breach or said, markup=False)
    return 1 if outcome.breach else 0


def main() -> int:
    """Run what the command line says; 1 when a bound broke or a wrong error came out."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many, of all decoders together")
    parser.add_argument("--seed", type=int, default=1, help="what they are made from")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="only decoders whose names begin so")
    parser.add_argument("--file", type=Path, help="give this file to the decoder that --only names")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    console = Console(stderr=arguments.json)
    if arguments.file is not None:
        if arguments.only not in targets():
            parser.error(f"--only names one of {', '.join(targets())}")
        return repeat(targets()[arguments.only], arguments.file, console)
    chosen = [target for name, target in targets().items() if name.startswith(arguments.only)]
    if not chosen:
        parser.error(f"no decoder begins with {arguments.only!r}; there are {', '.join(targets())}")
    began = time.monotonic()
    rows = feed_all(shares(chosen, arguments.inputs), arguments.seed, arguments.jobs, console)
    broken = keep_broken(rows.values(), arguments.seed)
    inputs, seconds = sum(row.inputs for row in rows.values()), time.monotonic() - began
    if arguments.json:
        print(json.dumps({"seed": arguments.seed, "inputs": inputs, "seconds": round(seconds, 1), "broken": broken,
                          "decoders": [vars(row) for row in rows.values()]}, indent=1))  # fmt: skip
    else:
        console.print(table_of(rows.values()))
        for each in broken:
            console.print(f"{each['decoder']}: {each['why']}\n  {each['repeat']}", markup=False, soft_wrap=True)
        verdict = (
            "all within their bounds" if not broken else f"{sum(row.broken for row in rows.values())} broke theirs"
        )
        console.print(
            f"{inputs:,} inputs for {len(rows)} decoders in {seconds:.0f} s, seed {arguments.seed}: {verdict}"
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
