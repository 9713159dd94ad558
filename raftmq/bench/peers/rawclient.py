"""The load's client: C that is built on the spot, run for one measurement, and read."""

import asyncio
import os
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from chaos.host.processes import ProcessError
from raftmq.bench.frames import BadAnswer
from raftmq.bench.peers.processes import run_to_end

SOURCES = Path(__file__).with_name("rawload")
FLAGS = ("-O2", "-std=gnu11")
BUILD_TIMEOUT_S = 120.0
# It gives up by itself after 20 s without an answer, while it measures and after.
BEYOND_S = 60.0
MARKS = ("begin", "end")


@dataclass(frozen=True, slots=True)
class RawLoad:
    """What the client is told: whom to load with what, and for how long."""

    protocol: str
    port: int
    name: str
    """The topic, subject or queue."""
    in_flight: int
    body_bytes: int
    lead_in_s: float
    """The same load before measuring begins."""
    seconds: float

    def words(self) -> list[str]:
        """Return the client's arguments."""
        whole = (self.port, self.name, self.in_flight, self.body_bytes)
        return [self.protocol, *map(str, whole), f"{self.lead_in_s:.3f}", f"{self.seconds:.3f}"]


@dataclass(frozen=True, slots=True)
class RawResult:
    """What the client has measured; errors are those of all its answers, before measuring began too."""

    acknowledged: int
    """Messages: sends that were acknowledged, or what pulls brought."""
    errors: int
    first_error: str
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    client_busy: float
    """The share of the time in which the client was at work."""


def compiler() -> str | None:
    """Return the C compiler of this machine: CC, or cc; None without one."""
    return shutil.which(os.environ.get("CC", "cc"))


def build(folder: Path) -> Path:
    """Build the client in `folder`; raises ProcessError."""
    cc = compiler()
    if cc is None:
        raise ProcessError("the load is written in C and there is no compiler: install gcc and libc6-dev, or set CC")
    made = folder / "rawload-client"
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    try:
        run_to_end([cc, *FLAGS, "-o", str(made), *sources], BUILD_TIMEOUT_S, {})
    except ProcessError as error:
        raise ProcessError(f"the load is not built (are the C library's headers there?): {error}") from None
    return made


def result_of(line: str) -> RawResult:
    """Read the client's line; raises BadAnswer."""
    try:
        found: Any = orjson.loads(line)
        return RawResult(**found)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise BadAnswer(f"the load printed what is no result: {line[:200]!r} ({error})") from None


async def run_raw(program: Path, load: RawLoad, at_mark: Callable[[], None] | None = None) -> RawResult:
    """Load a broker; `at_mark` is called when measuring begins and when it ends. Raises BadAnswer.

    The client is gone when this returns.
    """
    process = await asyncio.create_subprocess_exec(str(program), *load.words(), stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(load.lead_in_s + load.seconds + BEYOND_S):
            return await _read(process, at_mark)
    except TimeoutError:
        raise BadAnswer(f"the load did not end within {BEYOND_S:g} s after its time") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read(process: Process, at_mark: Callable[[], None] | None) -> RawResult:
    assert process.stdout is not None
    assert process.stderr is not None
    last = ""
    while line := (await process.stdout.readline()).decode().strip():
        if line in MARKS and at_mark is not None:
            at_mark()
        last = line
    why = (await process.stderr.read()).decode(errors="replace").strip()
    if await process.wait():
        raise BadAnswer(why or f"the load ended with {process.returncode}")
    return result_of(last)
