"""Runs seeds: `python -m tests.simulation.run 42` tells the story of one, `--seeds 10000 --jobs 2` runs many."""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.simulation.faults import Storm
from tests.simulation.member import Parts
from tests.simulation.world import Failure, World

# Memory is a hundred times faster than a disk for what is never kept.
_MEMORY = Path("/dev/shm")
CHUNK = 20


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for disks, in memory where there is such a place."""
    return tempfile.TemporaryDirectory(prefix="raftmq-sim-", dir=_MEMORY if _MEMORY.is_dir() else None)


def run_seed(seed: int, *, parts: Parts | None = None, trace: Callable[[str], None] | None = None) -> World:
    """Run one seed to its end; Failure when anything that must hold does not."""
    with scratch() as folder:
        storm = Storm(Path(folder), seed, parts=parts, trace=trace)
        try:
            storm.run()
        finally:
            storm.world.shut()
        return storm.world


def run_chunk(seeds: range) -> list[str]:
    """Run seeds quietly; return what failed."""
    logging.disable(logging.CRITICAL)
    failures = []
    for seed in seeds:
        try:
            run_seed(seed)
        except Failure as failure:
            failures.append(str(failure))
    return failures


def main() -> int:
    """Run what the command line says; 1 when anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="the seed to replay with a trace")
    parser.add_argument("--seeds", type=int, default=0, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--quiet", action="store_true", help="no trace")
    arguments = parser.parse_args()
    if arguments.seeds:
        return _many(arguments.start, arguments.seeds, arguments.jobs)
    if arguments.seed is None:
        parser.error("name a seed, or --seeds")
    logging.disable(logging.CRITICAL)
    try:
        world = run_seed(arguments.seed, trace=None if arguments.quiet else print)
    except Failure as failure:
        print(failure)
        return 1
    print(f"seed {arguments.seed} holds: {_summary(world)}")
    return 0


def _summary(world: World) -> str:
    ledger = world.watch.ledger
    return f"{world.events_done} events, {ledger.last} entries, {len(ledger.acknowledged)} acknowledgements"


def _many(start: int, seeds: int, jobs: int) -> int:
    began = time.monotonic()
    done = failed = 0
    chunks = [range(at, min(at + CHUNK, start + seeds)) for at in range(start, start + seeds, CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(run_chunk, chunk) for chunk in chunks]):
            failures = future.result()
            done += CHUNK
            failed += len(failures)
            for failure in failures:
                print(f"\r{failure}", flush=True)
            rate = done / (time.monotonic() - began)
            print(f"\r{min(done, seeds)} of {seeds} seeds, {failed} failed, {rate:.1f}/s ", end="", flush=True)
    print()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
