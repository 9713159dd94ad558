"""The cluster that is broken: a NameServer and one broker group of any mode, each a process, with faults built in.

Every broker runs by member.py, so that its disk can fail and lose power. Where the scenario asks for it, each directed
link runs through a proxy (links.py), members are in network namespaces around a switch (netns.py), and their stores on
file systems of their own (chaos/host/loopdisk.py).
"""

import asyncio
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.host.local import POLL_S, Mode
from chaos.host.loopdisk import LoopDisk
from chaos.host.processes import (
    HOST,
    ProcessError,
    ServerProcess,
    broker_process,
    free_ports,
    namesrv_process,
    reading_s,
)  # fmt: skip
from chaos.host.security import Security
from chaos.load.clients import Clients
from chaos.site.doors import CLIENTS, HA, NAMESRV, RAFT, Doors, try_doors
from chaos.site.links import SiteLinks
from chaos.site.netns import OWN_ADDRESS, NetLinks, Switch
from chaos.site.settings import (
    FULL_DISK,
    SETTINGS,
    addressed,
    group_settings,
    member_names,
    secured,
    store_folder,
)
from pipeline.history.rows import UNKNOWN, Look

READY_TIMEOUT_S = 40.0


class SiteMember:
    """One broker: its process, its store, and the notes of what its disk has not synced."""

    def __init__(
        self, name: str, process: ServerProcess, folder: Path, *, raft: bool, planted: str, own_disk: bool = False
    ) -> None:
        self.name = name
        self.process = process
        self.folder = folder
        self.store = store_folder(folder, own_disk=own_disk)
        self.device = LoopDisk(folder / "disk.ext4", self.store.parent) if own_disk else None
        self.undo: Path | None = folder / "undo"
        self.disk: Path | None = folder / "disk.json"
        self.clock: Path | None = folder / "clock"
        self.paused = False
        self._raft = raft
        self._planted = ["--planted", planted] if planted else []
        self.dial({})

    def dial(self, instead: Mapping[str, str]) -> None:
        """Have the next start dial other addresses than those that it means."""
        pairs = [part for real, proxy in instead.items() for part in ("--dial", f"{real}={proxy}")]
        program = ["chaos.site.member", "--undo", str(self.undo), "--disk", str(self.disk), "--clock", str(self.clock)]
        self.process.run_by([*program, *self._planted, *pairs])

    def state(self) -> dict[str, Any] | None:
        """Return what it says of its group; None from one that is down, paused or silent."""
        if self.paused or not self.process.running:
            return None
        return self.process.state("/v1/raft" if self._raft else "/v1/ha")

    def kill(self) -> None:
        """End it at once, also when it is paused."""
        if self.paused:
            self.process.signal(signal.SIGCONT)
            self.paused = False
        self.process.kill()


class Site:
    """A running cluster. Methods that ask processes run in threads: the clients of the same loop go on."""

    def __init__(
        self,
        folder: Path,
        *,
        mode: Mode = "raft",
        nodes: int = 3,
        settings: Mapping[str, object] | None = None,
        links: bool = False,
        toxiproxy: str = "process",
        network: bool = False,
        own_disks: bool = False,
        secure: bool = False,
        planted: str = "",
        seed: int = 0,
    ) -> None:
        """Make a cluster of `nodes` members in a folder of its own; `settings` are keys of broker.conf.

        `links`: members reach one another through fault proxies, of the server that `toxiproxy` names. `network`: in
        namespaces around a switch, and no proxies; `own_disks`: each on a file system of its own: both need namespaces.
        `secure`: all servers take signed requests and TLS only. Raises ProcessError when certificates cannot be made.
        """
        self.folder = folder
        self.mode: Mode = mode
        self.clients = Clients()
        names = member_names(mode, nodes)
        self._switch = Switch(names) if network else None
        hosts = self._switch.addresses if self._switch is not None else dict.fromkeys(names, HOST)
        own_host = dict.fromkeys(("bindAddress", "httpBindAddress"), OWN_ADDRESS) if network else {}
        served = (OWN_ADDRESS if network else HOST, *hosts.values())
        self.security = Security(folder / "security", served) if secure else None
        self._namesrv = namesrv_process(folder / "namesrv", settings={**own_host, **secured(self.security)})
        given = {**SETTINGS, **secured(self.security, mode), **(settings or {})}
        ports = free_ports(nodes)
        peers = {name: f"{hosts[name]}:{port}" for name, port in zip(names, ports, strict=True)}
        self.members: Sequence[SiteMember] = [
            SiteMember(
                name,
                broker_process(
                    folder / name,
                    namesrv=self.namesrv,
                    name=name,
                    settings={
                        **({} if not network else addressed(hosts[name], folder / "secret")),
                        **({} if not own_disks else FULL_DISK),
                        "storePathRootDir": store_folder(folder / name, own_disk=own_disks),
                        **group_settings(mode, name, peers),
                        **given,
                    },
                ),
                folder / name,
                raft=mode == "raft",
                planted=planted,
                own_disk=own_disks,
            )
            for name in names
        ]
        self._trust()
        door = RAFT if mode == "raft" else HA
        doors = {member.name: {door: peers[member.name], CLIENTS: member.process.address} for member in self.members}
        self._doors: Doors = {"NameServer": {NAMESRV: self.namesrv}, **doors}
        self.before_start: Callable[[SiteMember], None] = _nothing
        """Is called, in a thread, with each member that is down before it is started again."""
        self.links: SiteLinks | NetLinks = (
            NetLinks(self._switch)
            if self._switch is not None
            else SiteLinks(doors if links and nodes > 1 else {}, seed, where=toxiproxy)
        )

    @property
    def namesrv(self) -> str:
        """The NameServer's address, as clients take it."""
        return self._namesrv.address

    @property
    def addresses(self) -> list[str]:
        """The members' addresses for clients, the first one's first."""
        return [member.process.address for member in self.members]

    def member(self, name: str) -> SiteMember:
        """Return a member by its name; KeyError."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)

    async def open(self) -> None:
        """Start everything, and return when it serves; raises ProcessError, and then nothing is left running."""
        try:
            await asyncio.to_thread(self._make_ground)
            await self.links.start()
            for member in self.members:
                member.dial(self.links.dials(member.name))
            await asyncio.to_thread(self._namesrv.start)
            for member in self.members:
                member.process.launch()
            await self._ready(self.members)
            await self._until(self._led, "nobody led")
        except BaseException:
            await self.close()
            raise

    async def kill_members(self) -> None:
        """End all members at once."""
        await asyncio.gather(*(asyncio.to_thread(member.kill) for member in self.members))

    async def close(self) -> None:
        """End everything at once."""
        await self.kill_members()
        await asyncio.to_thread(self._namesrv.kill)
        await self.links.close()
        await asyncio.to_thread(self._leave_ground)

    async def states(self) -> dict[str, dict[str, Any] | None]:
        """Return what every member says of itself, by name."""
        found = await asyncio.gather(*(asyncio.to_thread(member.state) for member in self.members))
        return {member.name: state for member, state in zip(self.members, found, strict=True)}

    async def role_of(self, name: str) -> str:
        """Return the role that a member says it has, "" when it does not answer."""
        state = await asyncio.to_thread(self.member(name).state)
        if state is None:
            return ""
        if self.mode == "raft":
            return "leader" if state["leads"] else "follower"
        return "master" if self._leads(state) else "slave"

    async def leader(self) -> SiteMember | None:
        """Return who leads in the highest term, or the master; None while there is none."""
        leading = [
            (int(state["term"] if self.mode == "raft" else state["epoch"]), name)
            for name, state in (await self.states()).items()
            if state is not None and self._leads(state)
        ]
        return self.member(max(leading)[1]) if leading else None

    async def start(self, name: str) -> None:
        """Start a member that is down, and return when it is ready; raises ProcessError."""
        await self._launch([self.member(name)])

    async def launch(self, name: str) -> None:
        """Start a member that is down, and do not wait until it is ready."""
        member = self.member(name)
        await asyncio.to_thread(self.before_start, member)
        member.process.launch()

    async def restart_namesrv(self) -> str:
        """Kill the NameServer and start it again; return what shows it."""
        old = self._namesrv.pid
        await asyncio.to_thread(self._namesrv.kill)
        await asyncio.to_thread(self._namesrv.start)
        return f"NameServer pid {old} now {self._namesrv.pid}"

    async def restart(self, name: str) -> None:
        """Stop a member in good order, start it again, and return when it is ready; raises ProcessError."""
        await asyncio.to_thread(self.member(name).process.stop)
        await self.start(name)

    async def start_missing(self) -> None:
        """Start all members that are down, and return when they are ready; raises ProcessError."""
        await self._launch([member for member in self.members if not member.process.running])

    async def crash_client(self, rng: random.Random) -> str:
        """End a client without goodbye; return what shows it, "" when there is no client to crash."""
        return await self.clients.crash(rng)

    async def settle(self, timeout_s: float) -> list[dict[str, Any]]:
        """Wait until one leads and all members have the same, on disk and committed; returns what they said then.

        Nothing when that takes too long.
        """
        found: list[dict[str, Any]] = []

        async def level() -> bool:
            found[:] = await self._level()
            return bool(found)

        try:
            async with asyncio.timeout(timeout_s):
                await self._until(level, "", timeout_s)
        except (TimeoutError, ProcessError):
            return []
        return found

    async def leads(self, address: str) -> int:
        """Return the term in which the member at an address leads, by its word; UNKNOWN too when it has no lease."""
        for member in self.members:
            if member.process.address == address:
                state = await asyncio.to_thread(member.state)
                if state is not None and self._leads(state) and state.get("lease", True):
                    return int(state["term"] if self.mode == "raft" else state["epoch"])
        return UNKNOWN

    async def try_doors(self) -> dict[str, list[str]]:
        """Try what a secured site must refuse at all ports of servers that run; returns what came of it."""
        assert self.security is not None, "nobody is refused by a site that is not secured"
        return await try_doors(self._doors, self.security)

    async def look(self, now: Callable[[], int]) -> list[Look]:
        """Return what the members say now that answer."""
        return [self._look(now(), name, state) for name, state in (await self.states()).items() if state is not None]

    def last_words(self) -> str:
        """Return the ends of all members' logs."""
        return "\n".join(f"-- {member.name}\n{member.process.last_words()}" for member in self.members)

    def _trust(self) -> None:
        """Have HTTP ports asked with TLS where servers speak it."""
        for process in (self._namesrv, *(member.process for member in self.members)):
            process.tls = None if self.security is None else self.security.trusting()

    def _leads(self, state: Mapping[str, Any]) -> bool:
        if self.mode == "raft":
            return bool(state["leads"])
        return state["brokerId"] == 0 and not state["fenced"]

    def _make_ground(self) -> None:
        """Make what the members stand on: namespaces, file systems."""
        if self._switch is not None:
            self._switch.open()
        for member in self.members:
            if self._switch is not None:
                member.process.within = self._switch.enter(member.name)
            if member.device is not None:
                member.device.open()

    def _leave_ground(self) -> None:
        """Take it away; the stores stay where they were, in plain folders."""
        for member in self.members:
            if member.device is not None:
                member.device.close()
        if self._switch is not None:
            self._switch.close()

    async def _led(self) -> bool:
        return await self.leader() is not None

    async def _level(self) -> list[dict[str, Any]]:
        """Return what the members say when they are level, otherwise nothing."""
        states = list((await self.states()).values())
        known = [state for state in states if state is not None]
        if len(known) < len(states) or sum(self._leads(state) for state in known) != 1:
            return []
        if self.mode == "raft":
            level = group_is_level(known)
        else:
            followed = [len(state["slaves"]) for state in known if self._leads(state)]
            ends = {state.get("dispatched", state["max"]) for state in known}
            level = followed == [len(known) - 1] and len(ends) == 1
        return known if level else []

    def _look(self, at: int, name: str, state: Mapping[str, Any]) -> Look:
        if self.mode == "raft":
            return Look(
                at, name, str(state["role"]).lower(), state["term"], state["leader"] or "",
                state["last"], state["commit"], state["durable"], state["end"],
            )  # fmt: skip
        role = "master" if self._leads(state) else "slave"
        leader = name if role == "master" else ""
        end = int(state["max"])
        return Look(at, name, role, state["epoch"], leader, UNKNOWN, UNKNOWN, state["flushed"], end)

    async def _launch(self, members: Sequence[SiteMember]) -> None:
        """Start members that are down, and return when they are ready; raises ProcessError."""
        for member in members:
            await asyncio.to_thread(self.before_start, member)
            member.process.launch()
        await self._ready(members)

    async def _ready(self, members: Sequence[SiteMember]) -> None:
        waits = [(one.process, READY_TIMEOUT_S + reading_s(one.store)) for one in members]
        await asyncio.gather(*(asyncio.to_thread(process.wait_ready, seconds) for process, seconds in waits))

    async def _until(self, what: Any, words: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await what():
            if asyncio.get_running_loop().time() > deadline:
                raise ProcessError(f"{words} after {timeout_s:g} s:\n{self.last_words()}")
            await asyncio.sleep(POLL_S)


def group_is_level(states: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a group's members are whole, and all have the same log, on disk and known to all as committed.

    An entry that all have and nobody knows as committed yet is in no queue: whoever is stopped then vouches for less.
    """
    if not all(state["whole"] and state["damaged"] is None for state in states):
        return False
    ends = {(state["last"], state["end"]) for state in states}
    reached = {state[what] for state in states for what in ("last", "commit", "applied", "durable")}
    return len(ends) == 1 and len(reached) == 1


def _nothing(member: SiteMember) -> None:
    """Do nothing before a member is started."""
