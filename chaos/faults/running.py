"""Faults of running processes: killed, standing still, restarted one by one, starved of CPU; and crashed clients."""

import asyncio
import functools
import random
import time
from collections.abc import Sequence

from chaos.faults.base import T0, Effect, FaultSite, Node, NotHealed, Unable, wait_until
from chaos.faults.freezer import Still, state_of
from chaos.faults.targets import names, pick
from chaos.host.namespaces import is_inside

# A starved process runs for so many of so many milliseconds.
STARVED_RUNS_MS, STARVED_PERIOD_MS = 5, 100


class Kill:
    """kill -9: what the process held in memory is gone, what it wrote stays in the page cache."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"kill-{role}"
        self._pids: dict[str, int] = {}

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Kill."""
        members = await pick(site, self.role, rng)
        proofs = [await self._kill(member) for member in members if member.process.running]
        return Effect(names(members), self.role, ", ".join(proofs))

    async def heal(self, site: FaultSite) -> str:
        """Start who is down."""
        return await revived(site, self._pids)

    async def _kill(self, member: Node) -> str:
        self._pids[member.name] = pid = member.process.pid
        await asyncio.to_thread(member.process.kill)
        code = member.process.exit_code
        return f"pid {pid} ended with {code}" if code is not None and not state_of(pid) else ""


async def revived(site: FaultSite, pids: dict[str, int]) -> str:
    """Start who is down, and return the new pids of those who had the old ones; empties `pids`."""
    await site.start_missing()
    told = []
    for member in site.members:
        old = pids.pop(member.name, None)
        if old is None:
            continue
        if not member.process.running or member.process.pid == old:
            raise NotHealed(f"{member.name} was not started again")
        told.append(f"{member.name} back as pid {member.process.pid}")
    return ", ".join(told)


class Pause:
    """A process that stands still and goes on: clocks have moved, connections are there, nothing was lost."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"pause-{role}"
        self._still: list[tuple[Node, Still]] = []
        self._since = 0.0

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Let them stand still."""
        members = await pick(site, self.role, rng)
        self._since = time.monotonic()
        proofs = [await self.stop(member) for member in members if member.process.running]
        return Effect(names(members), self.role, ", ".join(proofs))

    async def stop(self, member: Node) -> str:
        """Let one stand still; returns the proof."""
        # In namespaces by signal: nobody can kill what stands still in a cgroup, which outlives them.
        still = Still(member.process.pid, member.name, cgroup=not is_inside())
        self._still.append((member, still))
        member.paused = True
        return await asyncio.to_thread(still.freeze)

    async def heal(self, site: FaultSite) -> str:  # noqa: ARG002 # every fault is handed its site
        """Let them go on."""
        if not self._still:
            return ""
        while self._still:
            member, still = self._still[-1]
            await asyncio.to_thread(still.thaw)
            await goes_on(member)
            self._still.pop()
        return f"stood still for {time.monotonic() - self._since:.1f} s"


async def goes_on(member: Node) -> None:
    """Wait until a process that stood still runs again, and take note of it; one that was killed meanwhile is gone."""

    async def runs() -> bool:
        return state_of(member.process.pid) != "T"

    member.paused = False
    await wait_until(f"{member.name} goes on", runs)


class RollingRestart:
    """Every member is stopped in good order and started again, one after the other, as an upgrade does it."""

    name = "rolling-restart"
    tier = T0
    needs: Sequence[str] = ()

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Restart all, in an order of its own."""
        order = list(site.members)
        rng.shuffle(order)
        proofs = []
        for member in order:
            old = member.process.pid
            await site.restart(member.name)
            if member.process.pid != old:
                proofs.append(f"{member.name} pid {old} now {member.process.pid}")
            # The next one only when this one has come back: that is what makes it an upgrade and no outage.
            await wait_until(f"{member.name} is ready", functools.partial(asyncio.to_thread, member.process.ready))
        return Effect(names(order), "all", ", ".join(proofs) if len(proofs) == len(order) else "")

    async def heal(self, site: FaultSite) -> str:
        """Start whom a restart that was given up left down."""
        await site.start_missing()
        return ""


class Starve:
    """A process that gets the CPU for 5 of 100 ms: slow enough for every timeout, and alive."""

    tier = T0
    needs: Sequence[str] = ()

    def __init__(self, role: str) -> None:
        self.role = role
        self.name = f"starve-{role}"
        self._task: asyncio.Task[None] | None = None
        self._member: Node | None = None
        self._began = self._cpu = 0.0
        self._stops = 0

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """Begin to take the CPU away."""
        (member,) = await pick(site, self.role, rng)
        if not member.process.running:
            raise Unable(f"{member.name} is down")
        self._member = member
        self._began, self._cpu = time.monotonic(), member.process.cpu_seconds()
        self._task = asyncio.create_task(self._starve(Still(member.process.pid, member.name, cgroup=False)))
        return Effect(member.name, self.role, "")

    async def heal(self, site: FaultSite) -> str:  # noqa: ARG002 # every fault is handed its site
        """Give the CPU back; tells how much it had."""
        if self._task is None or self._member is None:
            return ""
        self._task.cancel()
        # Its end is awaited, not its outcome: it never ends by itself, or by an error that the next lines find out.
        await asyncio.wait([self._task])
        self._task = None
        await goes_on(self._member)
        if not self._stops or not self._member.process.running:
            return ""
        seconds = time.monotonic() - self._began
        used = self._member.process.cpu_seconds() - self._cpu
        return f"stopped {self._stops} times; {used:.2f} s of CPU in {seconds:.1f} s"

    async def _starve(self, still: Still) -> None:
        try:
            while True:
                await asyncio.to_thread(still.freeze)
                self._stops += 1
                await asyncio.sleep((STARVED_PERIOD_MS - STARVED_RUNS_MS) / 1000)
                still.thaw()
                await asyncio.sleep(STARVED_RUNS_MS / 1000)
        except ProcessLookupError:
            # Another fault, or its own error, ended it: nobody is left to starve.
            return
        finally:
            still.thaw()


class ClientCrash:
    """A client that is gone without goodbye: its queues, locks and half-done sends are left to the brokers."""

    name = "client-crash"
    tier = T0
    needs: Sequence[str] = ()

    async def fire(self, site: FaultSite, rng: random.Random) -> Effect:
        """End one client."""
        proof = await site.crash_client(rng)
        if not proof:
            raise Unable("there is no client that could crash")
        return Effect("client", "client", proof)

    async def heal(self, site: FaultSite) -> str:  # noqa: ARG002 # every fault is handed its site
        """Nothing to do: workloads start their clients anew."""
        return ""
