"""One application in a process of its own: it uses one client object until it is told to end, or killed.

``python -m chaos.apps KIND --name N --slot S --namesrv ADDRESSES --folder DIR --seed N``. Its orders come by
standard input: "close" ends it in good order, "cancel" cancels whatever it is doing; the end of that input means that
who gives the orders is gone, and it ends at once.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from chaos.apps.ending import connections, tasks_left
from chaos.apps.journal import AppJournal
from client.errors import ClientError
from client.lifecycle import Lifecycle

TICK_S = 0.05
EXIT_FAILED, EXIT_ORPHAN = 3, 4
CLOSE, CANCEL = b"close", b"cancel"


@dataclass(frozen=True)
class Setting:
    """Where an application finds things, and who it is: the process `name`, in a place of the run, its `slot`."""

    kind: str
    name: str
    slot: str
    namesrv: str
    folder: Path
    seed: int

    @property
    def journal(self) -> Path:
        """Where it writes down what happens."""
        return self.folder / "apps" / f"{self.name}.jsonl"


class Stalls:
    """How long the loop did not run in time: no call can end while its process gets no processor."""

    def __init__(self) -> None:
        self._total = 0.0
        self._ticked = time.monotonic()

    async def watch(self) -> None:
        """Look from time to time."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self._total += max(0.0, now - self._ticked - 2 * TICK_S)
            self._ticked = now

    def until_now(self) -> float:
        """Return the seconds that were lost so far."""
        return self._total + max(0.0, time.monotonic() - self._ticked - 2 * TICK_S)


class App(ABC):
    """An application. Subclasses make a client and use it."""

    start_s: ClassVar[float] = 5.0
    """`start` may take so long."""
    close_s: ClassVar[float] = 10.0

    def __init__(self, setting: Setting, journal: AppJournal) -> None:
        self.setting = setting
        self.journal = journal
        self.stop = asyncio.Event()
        self.stalls = Stalls()
        self.rng = random.Random(f"{setting.seed}/{setting.name}")
        self.client = self.make()

    @abstractmethod
    def make(self) -> Lifecycle:
        """Return the client that it uses, not started."""

    @abstractmethod
    async def work(self) -> None:
        """Use the client until `stop`, or until cancelled."""

    async def live(self) -> None:
        """Start, use and close the client."""
        with self.timed("start", self.start_s):
            await self.client.start()
        self.journal.note("started")
        try:
            await self.work()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the client; one that is closing already is waited for."""
        with self.timed("close", self.close_s):
            await self.client.close()

    @contextmanager
    def timed(self, what: str, deadline: float) -> Iterator[None]:
        """Write down how long a call took and how it ended."""
        began, stalled, error = time.monotonic(), self.stalls.until_now(), ""
        try:
            yield
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            took = time.monotonic() - began
            lost = self.stalls.until_now() - stalled
            self.journal.note("call", what=what, began=began, took=took, deadline=deadline, stalled=lost, error=error)


def read_setting(arguments: Sequence[str]) -> Setting:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="One application of a run; see chaos/apps.")
    parser.add_argument("kind")
    for name in ("name", "slot", "namesrv"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    return Setting(**vars(parser.parse_args(arguments)))


def log_to_stderr() -> None:
    """Have the library's log on standard error, with times that can be compared with the journal's."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")


async def live(app: App) -> int:
    """Have the application live to its end, write down what it left, and return the exit code."""
    journal, loop = app.journal, asyncio.get_running_loop()
    before = set(connections())
    loop.set_exception_handler(lambda _loop, context: journal.note("complaint", text=_complaint(context)))
    ticking = asyncio.create_task(app.stalls.watch(), name="ticking")
    body = asyncio.create_task(app.live(), name="application")
    orders: list[bytes] = []

    def order() -> None:
        read = os.read(sys.stdin.fileno(), 4096)
        if not read:
            os._exit(EXIT_ORPHAN)
        for one in read.split():
            orders.append(one)
            journal.note("order", what=one.decode())
            app.stop.set()
            if one == CANCEL:
                body.cancel()

    loop.add_reader(sys.stdin.fileno(), order)
    failure = await _end_of(body)
    # A cancelled close goes on by itself; whoever calls it again waits for the same one.
    with contextlib.suppress(asyncio.CancelledError, ClientError):
        await app.close()
    left = await tasks_left({body, ticking})
    how = orders[0].decode() if orders else "itself"
    sockets = sorted(set(connections()) - before)
    journal.note("closed", how=how, tasks=left, connections=sockets, threads=[], error=failure)
    loop.remove_reader(sys.stdin.fileno())
    ticking.cancel()
    return EXIT_FAILED if failure else 0


async def _end_of(body: "asyncio.Task[None]") -> str:
    """Wait for the application's end; return the error that it ended with, "" when that was by order."""
    await asyncio.wait([body])
    if body.cancelled():
        return ""
    error = body.exception()
    return f"{type(error).__name__}: {error}" if error is not None else ""


def _complaint(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception') or context.get('task') or ''!r}"


async def until(stop: asyncio.Event, seconds: float) -> bool:
    """Wait so long; False as soon as `stop` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return not stop.is_set()


async def all_of(*works: Awaitable[None]) -> None:
    """Do several things side by side; when one fails or this is cancelled, none is left."""
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(_awaited(work))


async def _awaited(work: Awaitable[None]) -> None:
    await work
