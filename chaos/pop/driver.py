"""One POP run: all is started, the plan is inflicted, what was sent is acknowledged, and all is closed."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from chaos.apps.journal import AppJournal, Line, Tail
from chaos.apps.producing import ACKED
from chaos.apps.site import SiteError
from chaos.apps.slots import Seat
from chaos.host.processes import ServerProcess
from chaos.pop.consuming import ACK, HOLDS_S
from chaos.pop.faults import KINDS, POP_FAULTS
from chaos.pop.plan import CONSUMER, PRODUCER, PopPlan
from chaos.pop.site import PopSite

Progress = Callable[[str, float, int], None]
"""Is told what goes on, how much of the plan is over (0 to 1), and how many messages were sent."""

EVENTS, APPS = "events.jsonl", "apps"
LOOK_S = 0.1
TERM_S = 0.3
# How long an act waits for its consumer to hold something: to have popped so shortly before.
ACT_WAIT_S, FRESH_S = 4.0, 0.3
# A cluster that takes nothing for so long, or consumers that do not start, end a run without a verdict.
STUCK_S = 120.0
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
        self._missing: set[str] = set()
        self._tried: set[str] = set()
        self._started: set[str] = set()
        self._newest: dict[str, float] = {}
        self.popped = 0
        self.acknowledged = 0
        """Sends that were."""
        self.all_sent = False

    def look(self) -> int:
        """Read on; returns how many are outstanding."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in self._tails.setdefault(path, Tail(path)).lines():
                self._take(path.stem, line)
        return len(self._missing)

    def started(self) -> set[str]:
        """Return the processes whose client was started."""
        return self._started

    def holds(self, app: str, now: float) -> bool:
        """Tell whether a process has popped something just now."""
        return now - self._newest.get(app, 0.0) < FRESH_S

    def _take(self, app: str, line: Line) -> None:
        match line["e"]:
            case "started":
                self._started.add(app)
            case "popped":
                self.popped += len(line["ids"])
                self._newest[app] = line["at"]
            case "settling" if line["what"] == ACK:
                self._tried.add(line["id"])
                self._missing.discard(line["id"])
            case "sent" if line["fate"] == ACKED:
                self.acknowledged += len(line["ids"])
                self._missing.update(one for one in line["ids"] if one not in self._tried)
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
        self._doing = "starting"

    async def run(self) -> None:
        """Make the run; whatever ends it, no process is left."""
        try:
            self._progress("starting", 0.0, 0)
            await self._site.open()
            watching = [asyncio.create_task(self._watch(broker)) for broker in self._site.brokers]
            watching.append(asyncio.create_task(self._look()))
            try:
                async with asyncio.TaskGroup() as keeping:
                    await self._take_seats(keeping)
                    await self._under_faults()
                    await self._drain()
                    self._doing = "closing"
                    await asyncio.gather(*(seat.finish() for seat in self._seats.values()))
                self._journal.note("over")
            finally:
                for one in watching:
                    one.cancel()
        finally:
            await self._site.close()
            self._journal.close()

    async def _take_seats(self, keeping: asyncio.TaskGroup) -> None:
        """Start the consumers, and when they are there the producer: on any machine there is somebody to be killed."""
        consumers = [seat for seat in self._seats.values() if seat.slot.kind == CONSUMER]
        for seat in consumers:
            keeping.create_task(seat.keep(), name=seat.slot.name)
        deadline = time.monotonic() + STUCK_S
        while not {seat.name for seat in consumers} <= self._outstanding.started():
            if time.monotonic() > deadline:
                raise SiteError(f"the consumers did not all start within {STUCK_S:g} s")
            await asyncio.sleep(LOOK_S)
        for seat in self._seats.values():
            if seat not in consumers:
                keeping.create_task(seat.keep(), name=seat.slot.name)

    async def _look(self) -> None:
        """Keep up with what the processes write, and show it."""
        while True:
            self._outstanding.look()
            sent = self._outstanding.acknowledged
            self._progress(self._doing, min(1.0, sent / self._plan.messages), sent)
            await asyncio.sleep(LOOK_S)

    async def _watch(self, broker: ServerProcess) -> None:
        """Write down each new term, for what is asked while the lead moves may be done twice."""
        while True:
            state = await asyncio.to_thread(broker.state, "/v1/raft") if broker.running else None
            if state is not None and state["term"] > self._term:
                self._term = state["term"]
                self._journal.note("term", term=self._term)
            await asyncio.sleep(TERM_S)

    async def _under_faults(self) -> None:
        """Have happen what was planned, while messages are sent."""
        self._doing = "under faults"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inflict())
            group.create_task(self._act())
            group.create_task(self._come_to(self._plan.apps.seconds))

    async def _come_to(self, at: float) -> None:
        """Wait until as much is sent as the plan's rate makes of so many seconds: a slow machine takes longer."""
        outstanding, changed = self._outstanding, time.monotonic()
        sent = outstanding.acknowledged
        while sent < min(at * self._plan.rate, self._plan.messages):
            await asyncio.sleep(LOOK_S)
            if outstanding.acknowledged != sent:
                sent, changed = outstanding.acknowledged, time.monotonic()
            elif time.monotonic() - changed > STUCK_S:
                raise SiteError(f"no message was taken for {STUCK_S:g} s")

    async def _inflict(self) -> None:
        """Have the faults come one after the other."""
        for planned in self._plan.apps.faults:
            await self._come_to(planned.at)
            self._journal.note("planned", fault=planned.fault)
            rng = random.Random(planned.seed)
            await POP_FAULTS[planned.fault](self._site, rng, planned.lasts_s, self._tell)
            self._journal.note("healed", fault=planned.fault, kind=KINDS[planned.fault])
            await asyncio.sleep(REST_S)

    async def _act(self) -> None:
        """Do to consumers what was planned, as soon as they hold something."""
        for planned in self._plan.apps.acts:
            await self._come_to(planned.at)
            seat, until = self._seats[planned.slot], time.monotonic() + ACT_WAIT_S
            while not self._outstanding.holds(seat.name, time.monotonic()):
                if time.monotonic() > until:
                    break
                await asyncio.sleep(LOOK_S)
            await seat.act(planned)

    async def _drain(self) -> None:
        """Wait until all is sent, and acknowledged, and nothing has come for as long as anything can be invisible.

        What does not come within `still_s` never does; the judge says so.
        """
        self._journal.note("drain")
        self._doing = "waiting for what may come again"
        loop, plan = asyncio.get_running_loop(), self._plan
        quiet_s = HOLDS_S[1] + plan.invisible_s[1] + REVIVAL_S
        missing = self._outstanding.look()
        before, since = (self._outstanding.popped, missing), loop.time()
        until = loop.time() + DRAIN_S_MAX
        while loop.time() < until:
            done = not missing and self._outstanding.all_sent
            if loop.time() - since > (quiet_s if done else max(plan.still_s, quiet_s)):
                break
            await asyncio.sleep(LOOK_S)
            missing = self._outstanding.look()
            now = (self._outstanding.popped, missing)
            if now != before:
                before, since = now, loop.time()
        self._journal.note("drained", missing=missing)
        await asyncio.gather(*(seat.finish() for seat in self._seats.values() if seat.slot.kind == PRODUCER))

    def _tell(self, kind: str, effect: str) -> None:
        self._journal.note("fault", kind=kind, effect=effect)


async def pop_torture(plan: PopPlan, folder: Path, progress: Progress | None = None) -> None:
    """Make a run in a folder; raises ProcessError or SiteError when the cluster does not do its part."""
    await PopDriver(plan, folder, progress or _say_nothing).run()


def _say_nothing(_what: str, _part: float, _sent: int) -> None:
    """Tell nobody."""
