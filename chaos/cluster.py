"""The cluster that is broken: a NameServer and one broker group of any mode, each a process, with faults built in.

Every broker runs by chaos/member.py, so that its disk can fail and lose power. Where the scenario asks for it, each
directed link between members runs through a proxy (chaos/links.py).
"""

import asyncio
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.clients import Clients
from chaos.links import SiteLinks
from chaos.local import POLL_S, Mode
from chaos.processes import HOST, ProcessError, ServerProcess, broker_process, free_ports, namesrv_process
from pipeline.history import UNKNOWN, Look

READY_TIMEOUT_S = 40.0
FILE_BYTES = 16 * 1024 * 1024
# So that a scenario's verdict does not hang on a full disk of the machine that runs it, and files stay small.
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 50_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "diskMaxUsedSpaceRatio": 97,
    "diskSpaceCleanForciblyRatio": 98,
    "diskSpaceWarningLevelRatio": 99,
    "shutdownForwardMs": 200,
    "slaveReadEnable": True,
}
CLASSIC: Mapping[str, object] = {
    "slaveTimeout": 300,
    "haSendHeartbeatInterval": 200,
    "haHousekeepingInterval": 3000,
}
ROLES: Mapping[Mode, str] = {"async": "ASYNC_MASTER", "sync": "SYNC_MASTER"}
GROUP = "broker-a"


class Member:
    """One broker: its process, its store, and the notes of what its disk has not synced."""

    def __init__(self, name: str, process: ServerProcess, folder: Path, *, raft: bool, planted: str) -> None:
        self.name = name
        self.process = process
        self.folder = folder
        self.store = folder / "store"
        self.undo: Path | None = folder / "undo"
        self.disk: Path | None = folder / "disk.json"
        self.paused = False
        self._raft = raft
        self._planted = ["--planted", planted] if planted else []
        self.dial({})

    def dial(self, instead: Mapping[str, str]) -> None:
        """Have the next start dial other addresses than those that it means."""
        pairs = [part for real, proxy in instead.items() for part in ("--dial", f"{real}={proxy}")]
        program = ["chaos.member", "--undo", str(self.undo), "--disk", str(self.disk), *self._planted, *pairs]
        self.process.run_by(program)

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
        planted: str = "",
        seed: int = 0,
    ) -> None:
        """Make a cluster of `nodes` members in a folder of its own; `settings` are keys of broker.conf.

        `links`: the members reach one another through fault proxies, of the server that `toxiproxy` names
        (chaos.toxiproxy.server). `planted`: see chaos/member.py.
        """
        self.folder = folder
        self.mode: Mode = mode
        self.clients = Clients()
        self._namesrv = namesrv_process(folder / "namesrv")
        names = member_names(mode, nodes)
        given = {**SETTINGS, **({} if mode == "raft" else CLASSIC), **(settings or {})}
        peers = dict(zip(names, free_ports(nodes), strict=True))
        self.members: Sequence[Member] = [
            Member(
                name,
                broker_process(
                    folder / name, namesrv=self.namesrv, name=name, settings={**self._own(name, peers), **given}
                ),
                folder / name,
                raft=mode == "raft",
                planted=planted,
            )
            for name in names
        ]
        door = "raft" if mode == "raft" else "ha"
        doors = {
            member.name: {door: f"{HOST}:{peers[member.name]}", "clients": member.process.address}
            for member in self.members
        }
        self.links = SiteLinks(doors if links and nodes > 1 else {}, seed, where=toxiproxy)

    @property
    def namesrv(self) -> str:
        """The NameServer's address, as clients take it."""
        return self._namesrv.address

    @property
    def addresses(self) -> list[str]:
        """The members' addresses for clients, the first one's first."""
        return [member.process.address for member in self.members]

    def member(self, name: str) -> Member:
        """Return a member by its name; KeyError."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)

    async def open(self) -> None:
        """Start everything, and return when it serves; raises ProcessError, and then nothing is left running."""
        try:
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

    async def close(self) -> None:
        """End everything at once."""
        for member in self.members:
            await asyncio.to_thread(member.kill)
        await asyncio.to_thread(self._namesrv.kill)
        await self.links.close()

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
        return "master" if state["brokerId"] == 0 else "slave"

    async def leader(self) -> Member | None:
        """Return who leads in the highest term, or the master; None while there is none."""
        leading = [
            (int(state["term"] if self.mode == "raft" else state["epoch"]), name)
            for name, state in (await self.states()).items()
            if state is not None and self._leads(state)
        ]
        return self.member(max(leading)[1]) if leading else None

    async def start(self, name: str) -> None:
        """Start a member that is down, and return when it is ready; raises ProcessError."""
        member = self.member(name)
        member.process.launch()
        await self._ready([member])

    async def restart(self, name: str) -> None:
        """Stop a member in good order, start it again, and return when it is ready; raises ProcessError."""
        await asyncio.to_thread(self.member(name).process.stop)
        await self.start(name)

    async def start_missing(self) -> None:
        """Start all members that are down, and return when they are ready; raises ProcessError."""
        missing = [member for member in self.members if not member.process.running]
        for member in missing:
            member.process.launch()
        await self._ready(missing)

    async def crash_client(self, rng: random.Random) -> str:
        """End a client without goodbye; return what shows it, "" when there is no client to crash."""
        return await self.clients.crash(rng)

    async def settle(self, timeout_s: float) -> bool:
        """Wait until one leads and all members have the same, on disk; False when that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(self._level, "", timeout_s)
        except (TimeoutError, ProcessError):
            return False
        return True

    async def look(self, now: Callable[[], int]) -> list[Look]:
        """Return what the members say now that answer."""
        return [self._look(now(), name, state) for name, state in (await self.states()).items() if state is not None]

    def last_words(self) -> str:
        """Return the ends of all members' logs."""
        return "\n".join(f"-- {member.name}\n{member.process.last_words()}" for member in self.members)

    def _own(self, name: str, ports: Mapping[str, int]) -> dict[str, object]:
        """Return what makes a member of the group out of a broker; `ports` are those for the other members."""
        first = next(iter(ports))
        match self.mode:
            case "raft":
                return {
                    "enableDLegerCommitLog": True,
                    "dLegerGroup": GROUP,
                    "dLegerPeers": ";".join(f"{peer}-{HOST}:{port}" for peer, port in ports.items()),
                    "dLegerSelfId": name,
                }
            case "single":
                return {}
            case _ if name == first:
                return {"brokerRole": ROLES[self.mode], "brokerId": 0, "haListenPort": ports[name]}
            case _:
                number = list(ports).index(name)
                return {"brokerRole": "SLAVE", "brokerId": number, "haListenPort": ports[name]}

    def _leads(self, state: Mapping[str, Any]) -> bool:
        if self.mode == "raft":
            return bool(state["leads"])
        return state["brokerId"] == 0 and not state["fenced"]

    async def _led(self) -> bool:
        return await self.leader() is not None

    async def _level(self) -> bool:
        states = list((await self.states()).values())
        known = [state for state in states if state is not None]
        if len(known) < len(states) or sum(self._leads(state) for state in known) != 1:
            return False
        if self.mode == "raft":
            return len({(state["last"], state["commit"], state["applied"]) for state in known}) == 1
        followed = [len(state["slaves"]) for state in known if self._leads(state)]
        ends = {state.get("dispatched", state["max"]) for state in known}
        return followed == [len(known) - 1] and len(ends) == 1

    def _look(self, at: int, name: str, state: Mapping[str, Any]) -> Look:
        if self.mode == "raft":
            return Look(
                at, name, str(state["role"]).lower(), state["term"], state["leader"] or "",
                state["last"], state["commit"], state["durable"], state["end"],
            )  # fmt: skip
        role = "master" if state["brokerId"] == 0 else "slave"
        leader = name if role == "master" else ""
        end = int(state["max"])
        return Look(at, name, role, state["epoch"], leader, UNKNOWN, UNKNOWN, state["flushed"], end)

    async def _ready(self, members: Sequence[Member]) -> None:
        await asyncio.gather(*(asyncio.to_thread(one.process.wait_ready, READY_TIMEOUT_S) for one in members))

    async def _until(self, what: Any, words: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await what():
            if asyncio.get_running_loop().time() > deadline:
                raise ProcessError(f"{words} after {timeout_s:g} s:\n{self.last_words()}")
            await asyncio.sleep(POLL_S)


def member_names(mode: Mode, nodes: int) -> list[str]:
    """Return what the members are called."""
    match mode:
        case "raft":
            return [f"n{number}" for number in range(nodes)]
        case "single":
            return ["single"]
        case _:
            return ["master", *(f"slave{number}" for number in range(1, nodes))]
