"""Who has a slot: started again after any end, killed when it does not end, and never given up by an accident."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos.apps import slots
from chaos.apps.journal import AppJournal, Line, Tail
from chaos.apps.plan import CLOSED, KILLED, STARTED, PlannedAct, Slot
from chaos.apps.slots import Seat


class Pipe:
    """A standard input that takes everything."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        """Everything is written already."""


class Process:
    """A process that ends when it is told to by the test, or killed."""

    pid = 1

    def __init__(self) -> None:
        self.stdin = Pipe()
        self.returncode: int | None = None
        self._gone = asyncio.Event()
        self.noticed = True

    async def wait(self) -> int:
        await self._gone.wait()
        assert self.returncode is not None
        return self.returncode

    def end(self, code: int) -> None:
        self.returncode = code
        self._gone.set()

    def kill(self) -> None:
        if not self.noticed:
            # As with a process that has ended by itself, of which the loop does not know yet.
            asyncio.get_running_loop().call_soon(self.end, 0)
            raise ProcessLookupError
        self.end(-9)


class Stage:
    """A seat, its processes, and what was noted of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[Process] = []
        self.started: list[float] = []
        monkeypatch.setattr(slots, "AGAIN_S", (0.0, 0.0))
        monkeypatch.setattr(slots, "LOOK_S", 0.01)
        monkeypatch.setattr(asyncio, "create_subprocess_exec", self._start)
        self._path = folder / "events"
        self.seat = Seat(Slot("send", "send"), folder, "127.0.0.1:1", 1, AppJournal(self._path))

    async def _start(self, *_arguments: object, **_options: object) -> Process:
        self.started.append(time.monotonic())
        self.processes.append(Process())
        return self.processes[-1]

    def told(self) -> list[Line]:
        return list(Tail(self._path).lines())

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Have the seat kept, and its first process there, until it is given up."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.seat.keep())
            await self.until(lambda: len(self.processes) == 1)
            yield

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not enough():
                await asyncio.sleep(0.001)


async def test_a_process_that_ends_is_followed_by_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch)
    async with stage.kept():
        assert await stage.seat.act(PlannedAct(0.0, "send", CLOSED))
        assert not await stage.seat.act(PlannedAct(0.0, "send", KILLED))
        assert stage.processes[0].stdin.written == b"close\n"
        stage.processes[0].end(0)
        await stage.until(lambda: len(stage.processes) == 2)
        await stage.seat.finish()
        stage.processes[1].end(0)
    assert [(line["e"], line["app"]) for line in stage.told()] == [
        (what, f"send-{number}") for number in (1, 2) for what in ("started", "closed", "ended")
    ]


async def test_one_that_does_not_end_is_killed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch)
    monkeypatch.setattr(slots, "END_S", 0.02)
    async with stage.kept():
        # However long it lives: the time counts from the order.
        await asyncio.sleep(0.05)
        assert [line["e"] for line in stage.told()] == ["started"]
        await stage.seat.finish()
    assert [line["e"] for line in stage.told()] == ["started", "closed", "hung", "ended"]


async def test_killing_one_that_has_just_ended_gives_up_no_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    async with stage.kept():
        stage.processes[0].noticed = False
        assert await stage.seat.act(PlannedAct(0.0, "send", KILLED))
        await stage.until(lambda: len(stage.processes) == 2)
        await stage.seat.finish()
        stage.processes[1].end(0)
    assert [line["e"] for line in stage.told()] == ["started", "killed", "ended", "started", "closed", "ended"]


async def test_a_process_has_started_before_anything_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that was held up noted it 0.8 s late, and the first commits of the process were another's before it."""
    stage = Stage(tmp_path, monkeypatch)
    async with stage.kept():
        await stage.seat.finish()
        stage.processes[0].end(0)
    (noted,) = [line["at"] for line in stage.told() if line["e"] == STARTED]
    assert noted <= stage.started[0]
