"""One run from start to verdict: start the cluster, load it, break it, heal it, close it, kill it, judge it."""

import asyncio
import contextlib
import platform
import random
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

from chaos.faults.base import CopyLost, NotWhole
from chaos.host.namespaces import InsideError, is_inside, make_run
from chaos.host.powerloss import lose_power
from chaos.host.processes import ProcessEnded, ProcessError
from chaos.host.security import connecting_to
from chaos.load.clients import Leaders
from chaos.load.recorder import Recorder, compact
from chaos.load.workload import Load, Names
from chaos.runs.closing import Closings, keep_after, keep_earlier, keep_stores
from chaos.runs.nemesis import Effect, NotHealed
from chaos.runs.restart import start_again
from chaos.runs.scenario import Scenario
from chaos.runs.schedule import Planned, Schedule, draw, play, save
from chaos.runs.self_checks import SECURED, own_findings
from chaos.site.site import Site, SiteMember
from chaos.workloads.catalogue import make_workload
from pipeline.history.folder import AFTER, DATA, EARLIER, HISTORY, INFO, LOGS, RESULTS, SCHEDULE, RunFolder
from pipeline.history.parquet import HistoryError
from pipeline.history.results import Results
from pipeline.history.resultsfile import keep_results
from pipeline.history.rows import UNKNOWN, Fault, Look
from pipeline.judge import judge_run
from pipeline.plain.check_liveness import bound_ns
from runtime.loop import still_wanted

LOOK_EVERY_S = 0.1
# How often the loop of this process shows that it runs. What it slept through is not held against the cluster (A25).
BEAT_EVERY_S = 0.1
# Clients learn who leads so often at the latest; until then a member that leads no more passes on what they ask.
ROUTE_EVERY_S = 4.0
# After the last fault the load goes on for so long at least: that sends are acknowledged then is part of the promise.
TAIL_S = 3.0
# Beyond the time that a group of consumers has after the last fault (A26).
TELL_S = 2.0
# This part of that time is silence that is not waited out: with more, A26 says in the end that it cannot tell.
SILENT_PART = 4
# A schedule that waits for operations may take longer than its scenario, by this share and by so many seconds.
LATE_SHARE_MAX = 1.0
LATE_S_MAX = 30.0
# Copies of members' stores of moments before the end: enough to see what went back, few enough to be read quickly.
EARLIER_MAX = 2
# Faults behind which a store is as its member left it, or as its disk kept it: no bytes were tampered with.
EARLIER_AFTER = ("kill-", "power-", "part-kill", "pause-kill")
SITE = "site"
LEADING = ("leader", "master")
Progress = Callable[[str, int], None]
"""Told what happens now, and how many sends have been acknowledged."""


class RunError(Exception):
    """The run could not be made: its cluster or its load did not come up. The text says what to look at."""


class Run:
    """One run. `folder` is its own; what it left there before is replaced."""

    def __init__(
        self, scenario: Scenario, seed: int, folder: Path, schedule: Schedule, progress: Progress | None = None
    ) -> None:
        self._scenario = scenario
        self._schedule = schedule
        self._seed = seed
        self._folder = folder
        self._progress = progress
        self._dice = random.Random(seed)
        self._recorder = Recorder(folder)
        self._site = Site(
            folder / SITE,
            mode=scenario.mode,
            nodes=scenario.nodes,
            settings=scenario.settings,
            links=scenario.links,
            network=scenario.network,
            own_disks=scenario.own_disks,
            secure=scenario.secure,
            planted=scenario.planted,
            seed=seed,
        )
        self._site.before_start = self._keep_earlier
        addresses = self._site.addresses
        self._leaders = Leaders(addresses if scenario.moves else addresses[:1])
        self._workloads = [make_workload(one) for one in scenario.workloads]
        self._earlier = 0
        self._fault = Fault(0, "", "", "", 0)
        self._fired: list[dict[str, Any]] = []
        self._told: dict[str, Any] = {"fired": self._fired, **({SECURED: {}} if scenario.secure else {})}
        self._over = False

    async def run(self) -> None:
        """Do everything up to the store folders of the killed members; the history is written in any case."""
        self._write_info()
        with connecting_to(self._site.security):
            await self._run()
        still_wanted()

    async def _run(self) -> None:
        try:
            self._say("starting")
            await self._site.open()
            await self._try_doors("at the beginning")
            async with self._looking():
                await self._broken_load()
        except ExceptionGroup as group:
            error = group.exceptions[0]
            self._told["crashed"] = f"{type(error).__name__}: {error}"
            raise RunError(f"{self._scenario.name} broke down: {self._told['crashed']}; see {self._folder}") from error
        finally:
            await self._end()

    async def _end(self) -> None:
        """Kill everything, by a power cut where nothing may be lost by one; put the history in order; start again."""
        try:
            await self._site.kill_members()
            promises = self._scenario.promises
            if not promises.may_lose_acknowledged and not promises.may_lose_after_power_loss:
                self._told["lost_at_end"] = await asyncio.to_thread(self._cut_power)
            self._recorder.close()
            await asyncio.to_thread(compact, self._folder)
            await asyncio.to_thread(keep_stores, self._site, self._folder)
            if self._over and self._fired:
                self._say("starting all again")
                with contextlib.suppress(NotHealed):
                    await self._site.links.heal()
                self._told["starts"] = await start_again(self._site)
        finally:
            await self._site.close()
        if "starts" in self._told:
            await asyncio.to_thread(keep_after, self._site, self._folder)
        self._write_info()

    def _cut_power(self) -> dict[str, int]:
        """Undo what the killed members had not synced; return how many bytes, by member."""
        return {
            member.name: lose_power(member.undo, random.Random(f"{self._seed}/{member.name}"))
            for member in self._site.members
            if member.undo is not None
        }

    async def _broken_load(self) -> None:
        load = self._load()
        for workload in self._workloads:
            await workload.setup(load)
        # Each gets its share of the rate.
        load.rate /= len(self._workloads)
        stop = asyncio.Event()
        self._say("under load")
        async with asyncio.TaskGroup() as tasks:
            for workload in self._workloads:
                tasks.create_task(workload.run(load, stop))
            try:
                await self._break_things()
            finally:
                stop.set()
        still_wanted()
        if "not_healed" in self._told:
            # What is broken answers no closing question; the stores tell what they hold.
            self._over = True
            return
        self._say("closing")
        closings = Closings(self._site, load, self._workloads)
        self._told["closings"] = closings.told
        await closings.run()
        await self._try_doors("in the end")
        self._over = True

    async def _try_doors(self, when: str) -> None:
        """See that a secured cluster refuses strangers (V-secured); nothing is asked of others."""
        if self._site.security is not None:
            self._told[SECURED][when] = await self._site.try_doors()

    async def _break_things(self) -> None:
        """Play the schedule, all of it; the load goes on for its time, and for a while after the last fault."""
        loop, late = asyncio.get_running_loop(), asyncio.Event()
        end = loop.time() + self._scenario.seconds
        timer = loop.call_at(end + self._scenario.seconds * LATE_SHARE_MAX + LATE_S_MAX, late.set)
        try:
            done = await play(self._schedule, self._site, lambda: self._recorder.acknowledged, self, stop=late)
            if done < len(self._schedule.faults):
                self._told["cut_short"] = self._schedule.cut_short(done, self._recorder.acknowledged)
        except (NotHealed, ProcessError) as error:
            self._told["not_healed"] = str(error)
            if isinstance(error, (NotWhole, ProcessEnded)):
                self._told["not_whole"] = str(error)
            if isinstance(error, CopyLost):
                self._told["copy_lost"] = str(error)
            return
        finally:
            timer.cancel()
        await asyncio.sleep(max(TAIL_S, end - loop.time()))
        await self._groups_moved()

    async def _groups_moved(self) -> None:
        """Have the load go on until something of each queue came to each group after the last fault, or A26 can tell.

        A lock whose holder left while there was no leader is another's 30 s later: most loads are over by then. A queue
        that has been silent for a while is waited for as well, whatever came before: it may be so for good.
        """
        promises, now = self._scenario.promises, self._recorder.now
        healed, began = self._fault.ended, now()
        excused = began if healed == UNKNOWN else max(began, healed + int(promises.rto_bound_s * 1e9))
        topics = {group: topic for one in self._workloads for group, topic in one.groups.items()}
        for group in sorted(topics.keys() & set(promises.consumer_groups)):
            bound, said = bound_ns(group, promises), False
            until = excused + bound + int(TELL_S * 1e9)
            while now() < until:
                since = max(healed, now() - bound // SILENT_PART)
                if not self._recorder.waits(group, topics[group], since):
                    break
                if not said:
                    self._say(f"waiting for {group} to move on")
                    said = True
                await asyncio.sleep(LOOK_EVERY_S)

    def began(self, planned: Planned, acknowledged: int) -> None:
        """Note that a fault fires."""
        self._say(planned.name)
        number = self._recorder.fault_number()
        self._fault = Fault(number, planned.name, "", "", self._recorder.now())
        self._recorder.fault(self._fault)
        self._fired.append({"number": planned.number, "name": planned.name, "acknowledged": acknowledged})

    def healed(self) -> None:
        """Note when it was healed: how long the cluster takes from then on is judged (A25)."""
        self._fault = self._fault._replace(ended=self._recorder.now())

    def ended(self, planned: Planned, effect: Effect) -> None:
        """Note what came of it."""
        # One that could not be done was never healed.
        ended = self._fault.ended if self._fault.ended != UNKNOWN else self._recorder.now()
        self._fault = self._fault._replace(ended=ended, **effect._asdict())
        self._recorder.fault(self._fault)
        self._fired[-1] |= effect._asdict()
        self._say(f"{planned.name} is over")

    @contextlib.asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        """Look at every member all the time."""

        async def look() -> None:
            loop, routed = asyncio.get_running_loop(), 0.0
            while True:
                looks = await self._site.look(self._recorder.now)
                for found in looks:
                    self._recorder.look(found)
                leading = max((found for found in looks if found.role in LEADING), key=_term, default=None)
                if leading is not None and loop.time() - routed > ROUTE_EVERY_S:
                    routed = loop.time()
                    self._leaders.routed(self._site.member(leading.member).process.address)
                await asyncio.sleep(LOOK_EVERY_S)

        tasks = [asyncio.create_task(look()), asyncio.create_task(beat(self._recorder))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _load(self) -> Load:
        return Load(
            self._recorder,
            self._site.namesrv,
            self._site.addresses,
            self._leaders,
            self._site.clients,
            random.Random(self._dice.random()),
            self._scenario.rate,
            Names(),
            self._site.leads,
        )

    def _keep_earlier(self, member: SiteMember) -> None:
        """Copy the store of a member that was killed, before it goes on: a few times, spread over the schedule."""
        done, planned = len(self._fired), len(self._schedule.faults)
        due = self._earlier < EARLIER_MAX and done * (EARLIER_MAX + 1) >= planned * (self._earlier + 1)
        kept = self._scenario.mode == "raft" and self._fault.name.startswith(EARLIER_AFTER)
        if due and kept and keep_earlier(member, self._folder / EARLIER / str(self._earlier) / member.name):
            self._earlier += 1

    def _write_info(self) -> None:
        scenario = self._scenario
        least = max(scenario.acknowledged_min, scenario.promises.acknowledged_min)
        info = {
            "scenario": scenario.name,
            "text": scenario.text,
            "seed": self._seed,
            "mode": scenario.mode,
            "workloads": scenario.workload_names,
            "seconds": scenario.seconds,
            "rate": scenario.rate,
            "settings": dict(scenario.settings),
            "planted": scenario.planted,
            "promises": replace(scenario.promises, acknowledged_min=least).as_dict(),
            "members": {member.name: member.process.address for member in self._site.members},
            "versions": _versions(),
            "replay": f"raftmq chaos run {scenario.name}{' --secure' if scenario.secure else ''} --seed {self._seed}"
            f" --seconds {scenario.seconds:g} --schedule {SCHEDULE}",
            "recheck": "raftmq chaos recheck .",
            **self._told,
        }
        (self._folder / INFO).write_bytes(orjson.dumps(info, option=orjson.OPT_INDENT_2))

    def _say(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, self._recorder.acknowledged)


async def beat(recorder: Recorder, every_s: float = BEAT_EVERY_S) -> None:
    """Note again and again that this loop runs, until it is cancelled."""
    while True:
        recorder.beat()
        await asyncio.sleep(every_s)


async def run(
    scenario: Scenario, seed: int, folder: Path, schedule: Schedule | None = None, progress: Progress | None = None
) -> Results:
    """Make a run in `folder` and judge it; results.json stands there then."""
    played = draw(seed, scenario) if schedule is None else schedule
    await asyncio.to_thread(_clear, folder)
    save(played, folder / SCHEDULE)
    if (scenario.network or scenario.own_disks) and not is_inside():
        try:
            where = await asyncio.to_thread(folder.resolve)
            await make_run((scenario, seed), where, network=scenario.network, say=progress)
        except InsideError as error:
            raise RunError(str(error)) from error
    else:
        await Run(scenario, seed, folder, played, progress).run()
    if progress is not None:
        progress("judging", 0)
    return await asyncio.to_thread(recheck, folder)


def recheck(folder: Path) -> Results:
    """Judge a run (again) by what its folder holds, and write results.json.

    Raises HistoryError, also when the results that are there rest on stores that are not there any more: they stay.
    """
    found = RunFolder(folder)
    judged = judge_run(found)
    results = Results((*judged.findings, *own_findings(found)), judged.figures)
    if why := keep_results(folder, results):
        raise HistoryError(why)
    return results


def _term(look: Look) -> int:
    return look.term


def _clear(folder: Path) -> None:
    """Make a run's folder; what an earlier run left there goes, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (HISTORY, DATA, EARLIER, AFTER, LOGS, SITE):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (INFO, SCHEDULE, RESULTS):
        (folder / name).unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    try:
        own = metadata.version("raftmq")
    except metadata.PackageNotFoundError:
        own = "from a folder"
    return {"raftmq": own, "python": platform.python_version(), "system": platform.platform()}
