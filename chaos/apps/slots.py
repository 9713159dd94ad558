"""One place of a run: a process after the other, started, told to end, killed, and started again."""

import asyncio
import contextlib
import random
import subprocess
import time
from pathlib import Path

from chaos.apps.app import CANCEL, CLOSE
from chaos.apps.journal import AppJournal
from chaos.apps.plan import CANCELLED, CLOSED, KILLED, STARTED, PlannedAct, Slot
from chaos.host.interpreter import MODULE

# A process that was told to end and has not ended after so long is killed, and counts as one that did not end.
END_S = 40.0
LOOK_S = 1.0
AGAIN_S = (0.1, 1.5)
TWICE_S = 0.02


class Seat:
    """A slot of a run and who has it now."""

    def __init__(
        self, slot: Slot, folder: Path, namesrv: str, seed: int, journal: AppJournal, module: str = "chaos.apps"
    ) -> None:
        """Make the place; `module` is what is run there, unless the application has no asyncio."""
        self.slot = slot
        self._module = module
        self._folder = folder
        self._namesrv = namesrv
        self._seed = seed
        self._journal = journal
        self._rng = random.Random(f"{seed}/{slot.name}")
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._ordered = ""
        self._ordered_at = 0.0
        self._over = False

    @property
    def name(self) -> str:
        """What the present process is called."""
        return f"{self.slot.name}-{self._number}"

    async def keep(self) -> None:
        """Keep the slot taken until `finish`; a process that is left when this is cancelled is killed."""
        try:
            while not self._over:
                await self._launch()
                code = await self._exit()
                self._note("ended", code=code, ordered=self._ordered)
                self._process = None
                if not self._over:
                    await asyncio.sleep(self._rng.uniform(*AGAIN_S))
        finally:
            if self._process is not None and self._process.returncode is None:
                _kill(self._process)
                await self._process.wait()

    async def act(self, planned: PlannedAct) -> bool:
        """Do to the present process what was planned; False when there is none, or it is ending already."""
        process = self._process
        if process is None or process.returncode is not None or self._ordered:
            return False
        self._ordered, self._ordered_at = planned.act, time.monotonic()
        if planned.act == KILLED:
            at = time.monotonic()
            _kill(process)
            await process.wait()
            # Whatever it was doing has ended by now.
            self._note(KILLED, at=at, gone=time.monotonic())
            return True
        self._note(planned.act)
        await self._order(process, CANCEL if planned.act == CANCELLED else CLOSE)
        if planned.twice:
            await asyncio.sleep(TWICE_S)
            await self._order(process, CANCEL)
        return True

    async def finish(self) -> None:
        """Have the present process end, and start no other one."""
        self._over = True
        await self.act(PlannedAct(0.0, self.slot.name, CLOSED))

    async def _launch(self) -> None:
        self._number += 1
        self._ordered = ""
        log = self._folder / "apps" / f"{self.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        module = "raftmq.blockingapps" if self.slot.blocking else self._module
        arguments = {
            "name": self.name,
            "slot": self.slot.name,
            "namesrv": self._namesrv,
            "folder": str(self._folder),
            "seed": str(self._seed),
        }
        given = [part for name, value in arguments.items() for part in (f"--{name}", value)]
        # Before it: what a process does in its first moments, while this loop is held up, is its own all the same.
        began = time.monotonic()
        with log.open("ab") as out:
            # Its own session: Ctrl-C reaches who gives the orders alone.
            self._process = await asyncio.create_subprocess_exec(
                *(*MODULE, module, self.slot.kind, *given),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._note(STARTED, at=began, pid=self._process.pid)

    async def _exit(self) -> int:
        """Return the code that the process ended with; one that does not end END_S after it was told to is killed."""
        process = self._process
        assert process is not None
        ended = asyncio.create_task(process.wait())
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=LOOK_S)
                if self._ordered and not ended.done() and time.monotonic() - self._ordered_at > END_S:
                    self._note("hung", ordered=self._ordered)
                    _kill(process)
                    await asyncio.wait([ended])
            return ended.result()
        finally:
            ended.cancel()

    async def _order(self, process: asyncio.subprocess.Process, order: bytes) -> None:
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(order + b"\n")
            await process.stdin.drain()

    def _note(self, event: str, **fields: object) -> None:
        slot = self.slot
        self._journal.note(event, app=self.name, slot=slot.name, kind=slot.kind, reader=slot.reader, **fields)


def _kill(process: asyncio.subprocess.Process) -> None:
    # It may have ended by itself a moment ago.
    with contextlib.suppress(ProcessLookupError):
        process.kill()
