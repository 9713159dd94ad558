"""One run: all is started, the plan is inflicted, what was acknowledged is consumed, and all is closed."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import orjson

from chaos.apps.faults import FAULTS, KINDS
from chaos.apps.journal import AppJournal, Line, Tail
from chaos.apps.names import BROADCAST, GROUPS
from chaos.apps.plan import AppPlan
from chaos.apps.producing import ACKED
from chaos.apps.site import AppSite
from chaos.apps.slots import Seat

Progress = Callable[[str, float, int], None]
"""Is told what goes on, how much of the plan is over (0 to 1), and how many sends were acknowledged."""

PLAN, EVENTS, APPS = "plan.json", "events.jsonl", "apps"
# After the last fault, with all servers there: a group that consumes nothing new for so long has lost something. A
# killed holder's locks live for 60 s, and a new leader grants none for 30 s.
DRAIN_STILL_S = 100.0
LOOK_S = 0.5
ACT_WAIT_S = 2.0
# The plan's clock begins when all applications work, at the latest after so long: on a busy machine a process takes
# seconds to come up, and one that is to go before that has done nothing that could be judged.
ALL_WORK_S = 60.0
# Between the end of a fault and the next one, however late: applications are to do something in between.
REST_S = 3.0


class Missing:
    """What was acknowledged and has not come to everybody yet, by what the processes have written so far."""

    def __init__(self, folder: Path, readers: dict[str, str]) -> None:
        """`readers`: who consumes → the topic."""
        self._folder = folder
        self._tails: dict[Path, Tail] = {}
        self._readers = readers
        self._reader_of: dict[str, str] = {}
        self._acked: dict[str, set[str]] = defaultdict(set)
        self._consumed: dict[str, set[str]] = defaultdict(set)
        # (process, number of a delivery) → what it is busy with.
        self._open: dict[tuple[str, int], list[str]] = {}
        self.acknowledged = 0
        # The processes whose client was started.
        self.at_work: set[str] = set()

    def look(self) -> dict[str, int]:
        """Read on; returns how many messages everybody still misses."""
        for path in sorted(self._folder.glob("*.jsonl")):
            tail = self._tails.setdefault(path, Tail(path))
            for line in tail.lines():
                self._take(path.stem, line)
        return {reader: len(self._acked[topic] - self._consumed[reader]) for reader, topic in self._readers.items()}

    def _take(self, app: str, line: Line) -> None:
        match line["e"]:
            case "started":
                self.at_work.add(app)
            case "consumes":
                group = line["group"]
                self._reader_of[app] = f"{group}/{app.rpartition('-')[0]}" if group == BROADCAST else group
            case "got":
                self._open[app, line["n"]] = line["ids"]
            case "done":
                ids = self._open.pop((app, line["n"]))
                if line["ok"]:
                    self._consumed[self._reader_of[app]].update(ids)
            case "sent" if line["fate"] == ACKED:
                self.acknowledged += len(line["ids"])
                self._acked[line["topic"]].update(line["ids"])


class Driver:
    """One run in a folder of its own."""

    def __init__(self, plan: AppPlan, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PLAN).write_bytes(orjson.dumps(plan.as_dict(), option=orjson.OPT_INDENT_2))
        self._journal = AppJournal(folder / EVENTS)
        self._site = AppSite(folder / "site")
        seed = plan.seed
        self._seats = {slot.name: Seat(slot, folder, self._site.address, seed, self._journal) for slot in plan.slots}
        readers = {slot.reader: GROUPS[slot.group] for slot in plan.slots if slot.group}
        self._missing = Missing(folder / APPS, readers)

    async def run(self) -> None:
        """Make the run; whatever ends it, no process is left."""
        try:
            self._progress("starting", 0.0, 0)
            await self._site.open()
            # A seat that is not kept any more ends the run: what its reader misses would be nobody's loss.
            async with asyncio.TaskGroup() as keeping:
                for name, seat in self._seats.items():
                    keeping.create_task(seat.keep(), name=name)
                await self._all_at_work()
                await self._under_faults()
                await self._drain()
                self._progress("closing", 1.0, self._missing.acknowledged)
                await asyncio.gather(*(seat.finish() for seat in self._seats.values()))
            self._journal.note("over")
        finally:
            await self._site.close()
            self._journal.close()

    async def _all_at_work(self) -> None:
        """Wait until each application's client was started."""
        deadline = asyncio.get_running_loop().time() + ALL_WORK_S
        while asyncio.get_running_loop().time() < deadline:
            self._missing.look()
            if all(seat.name in self._missing.at_work for seat in self._seats.values()):
                return
            await asyncio.sleep(LOOK_S)

    async def _under_faults(self) -> None:
        """Have happen what was planned."""
        began = asyncio.get_running_loop().time()
        showing = asyncio.create_task(self._show(began))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inflict(began))
                group.create_task(self._act(began))
                group.create_task(_sleep_until(began + self._plan.seconds))
        finally:
            showing.cancel()

    async def _inflict(self, began: float) -> None:
        """Have the faults come one after the other."""
        for planned in self._plan.faults:
            await _sleep_until(began + planned.at)
            rng = random.Random(planned.seed)
            self._journal.note("planned", fault=planned.fault)
            await FAULTS[planned.fault](self._site, rng, planned.lasts_s, self._tell)
            self._journal.note("healed", fault=planned.fault, kind=KINDS[planned.fault])
            await asyncio.sleep(REST_S)

    async def _act(self, began: float) -> None:
        """Do to applications what was planned."""
        for planned in self._plan.acts:
            await _sleep_until(began + planned.at)
            deadline = asyncio.get_running_loop().time() + ACT_WAIT_S
            while not await self._seats[planned.slot].act(planned):
                if asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(0.05)

    async def _drain(self) -> None:
        """Have producers end, and wait until consumers have all that was acknowledged, or come no further."""
        self._journal.note("drain")
        await asyncio.gather(*(seat.finish() for seat in self._seats.values() if not seat.slot.group))
        missing = self._missing.look()
        still_since = asyncio.get_running_loop().time()
        while any(missing.values()) and asyncio.get_running_loop().time() - still_since < DRAIN_STILL_S:
            self._progress(f"draining, {max(missing.values())} to come", 1.0, self._missing.acknowledged)
            await asyncio.sleep(LOOK_S)
            before, missing = missing, self._missing.look()
            if missing != before:
                still_since = asyncio.get_running_loop().time()
        self._journal.note("drained", missing=missing)

    async def _show(self, began: float) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._missing.look()
            part = (asyncio.get_running_loop().time() - began) / self._plan.seconds
            self._progress("under faults", min(part, 1.0), self._missing.acknowledged)

    def _tell(self, kind: str, effect: str) -> None:
        self._journal.note("fault", kind=kind, effect=effect)


async def _sleep_until(time: float) -> None:
    await asyncio.sleep(max(0.0, time - asyncio.get_running_loop().time()))


async def torture(plan: AppPlan, folder: Path, progress: Progress | None = None) -> None:
    """Make a run in a folder; raises ProcessError or SiteError when the cluster does not do its part."""
    await Driver(plan, folder, progress or _say_nothing).run()


def _say_nothing(_what: str, _part: float, _acknowledged: int) -> None:
    """Tell nobody."""
