"""One POP run: all is started, the plan is inflicted, what was sent is acknowledged, and all is closed."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from chaos.apps.journal import AppJournal, Line, Tail
from chaos.apps.producing import ACKED
from chaos.apps.slots import Seat
from chaos.host.processes import ServerProcess
from chaos.pop.consuming import ACK, PUT_OFF_AFTER_S
from chaos.pop.faults import KINDS, POP_FAULTS
from chaos.pop.plan import PRODUCER, PopPlan
from chaos.pop.site import PopSite

Progress = Callable[[str, float, int], None]
"""Is told what goes on, how much of the plan is over (0 to 1), and how many messages were sent."""

EVENTS, APPS = "events.jsonl", "apps"
LOOK_S = 0.5
TERM_S = 0.3
ACT_WAIT_S = 2.0
# Between the end of a fault and the next one, however late.
REST_S = 3.0
# What is taken last can come again so long after its invisible time, as whoever leads gets to it.
REVIVAL_S = 3.0
# A cluster that gives the same messages again and again does not keep a run from its end.
DRAIN_S_MAX = 1800.0


class Outstanding:
    """What was sent and nobody has tried to acknowledge, by what the processes have written so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[Path, Tail] = {}
        self._sent: set[str] = set()
        self._tried: set[str] = set()
        self.popped = 0
        self.all_sent = False

    @property
    def acknowledged(self) -> int:
        """How many sends were acknowledged."""
        return len(self._sent)

    def look(self) -> int:
        """Read on; returns how many are outstanding."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in self._tails.setdefault(path, Tail(path)).lines():
                self._take(line)
        return len(self._sent - self._tried)

    def _take(self, line: Line) -> None:
        match line["e"]:
            case "popped":
                self.popped += len(line["ids"])
            case "settling" if line["what"] == ACK:
                self._tried.add(line["id"])
            case "sent" if line["fate"] == ACKED:
                self._sent.update(line["ids"])
            case "all-sent":
                self.all_sent = True


class PopDriver:
    """One run in a folder of its own."""

    def __init__(self, plan: PopPlan, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._progress = progress
        folder.mkdir(parents=True, exist_ok=True)
        plan.save(folder)
        self._journal = AppJournal(folder / EVENTS)
        self._site = PopSite(folder / "site", plan.planted)
        self._seats = {
            slot.name: Seat(slot, folder, self._site.address, plan.apps.seed, self._journal, "chaos.pop")
            for slot in plan.apps.slots
        }
        self._outstanding = Outstanding(folder / APPS)
        self._term = 0

    async def run(self) -> None:
        """Make the run; whatever ends it, no process is left."""
        try:
            self._progress("starting", 0.0, 0)
            await self._site.open()
            watching = [asyncio.create_task(self._watch(broker)) for broker in self._site.brokers]
            try:
                async with asyncio.TaskGroup() as keeping:
                    for name, seat in self._seats.items():
                        keeping.create_task(seat.keep(), name=name)
                    await self._under_faults()
                    await self._drain()
                    self._progress("closing", 1.0, self._outstanding.acknowledged)
                    await asyncio.gather(*(seat.finish() for seat in self._seats.values()))
                self._journal.note("over")
            finally:
                for one in watching:
                    one.cancel()
        finally:
            await self._site.close()
            self._journal.close()

    async def _watch(self, broker: ServerProcess) -> None:
        """Write down each new term, for what is asked while the lead moves may be done twice."""
        while True:
            state = await asyncio.to_thread(broker.state, "/v1/raft") if broker.running else None
            if state is not None and state["term"] > self._term:
                self._term = state["term"]
                self._journal.note("term", term=self._term)
            await asyncio.sleep(TERM_S)

    async def _under_faults(self) -> None:
        """Have happen what was planned."""
        began = asyncio.get_running_loop().time()
        showing = asyncio.create_task(self._show(began))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inflict(began))
                group.create_task(self._act(began))
                group.create_task(_sleep_until(began + self._plan.apps.seconds))
        finally:
            showing.cancel()

    async def _inflict(self, began: float) -> None:
        """Have the faults come one after the other."""
        for planned in self._plan.apps.faults:
            await _sleep_until(began + planned.at)
            self._journal.note("planned", fault=planned.fault)
            rng = random.Random(planned.seed)
            await POP_FAULTS[planned.fault](self._site, rng, planned.lasts_s, self._tell)
            self._journal.note("healed", fault=planned.fault, kind=KINDS[planned.fault])
            await asyncio.sleep(REST_S)

    async def _act(self, began: float) -> None:
        """Do to consumers what was planned."""
        for planned in self._plan.apps.acts:
            await _sleep_until(began + planned.at)
            deadline = asyncio.get_running_loop().time() + ACT_WAIT_S
            while not await self._seats[planned.slot].act(planned):
                if asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(0.05)

    async def _drain(self) -> None:
        """Wait until all is sent, and acknowledged, and nothing has come for as long as anything can be invisible.

        What does not come within `still_s` never does; the judge says so.
        """
        self._journal.note("drain")
        loop, plan = asyncio.get_running_loop(), self._plan
        quiet_s = PUT_OFF_AFTER_S[1] + plan.invisible_s[1] + REVIVAL_S
        missing = self._outstanding.look()
        before, since = (self._outstanding.popped, missing), loop.time()
        until = loop.time() + DRAIN_S_MAX
        while loop.time() < until:
            done = not missing and self._outstanding.all_sent
            if loop.time() - since > (quiet_s if done else max(plan.still_s, quiet_s)):
                break
            self._progress("waiting for what may come again", 1.0, self._outstanding.acknowledged)
            await asyncio.sleep(LOOK_S)
            missing = self._outstanding.look()
            now = (self._outstanding.popped, missing)
            if now != before:
                before, since = now, loop.time()
        self._journal.note("drained", missing=missing)
        await asyncio.gather(*(seat.finish() for seat in self._seats.values() if seat.slot.kind == PRODUCER))

    async def _show(self, began: float) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._outstanding.look()
            part = (asyncio.get_running_loop().time() - began) / self._plan.apps.seconds
            self._progress("under faults", min(part, 1.0), self._outstanding.acknowledged)

    def _tell(self, kind: str, effect: str) -> None:
        self._journal.note("fault", kind=kind, effect=effect)


async def _sleep_until(time: float) -> None:
    await asyncio.sleep(max(0.0, time - asyncio.get_running_loop().time()))


async def pop_torture(plan: PopPlan, folder: Path, progress: Progress | None = None) -> None:
    """Make a run in a folder; raises ProcessError or SiteError when the cluster does not do its part."""
    await PopDriver(plan, folder, progress or _say_nothing).run()


def _say_nothing(_what: str, _part: float, _sent: int) -> None:
    """Tell nobody."""
