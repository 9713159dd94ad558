"""A Raft group of three real processes that are stopped, killed and started again by hand, and what they say."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.host.processes import ServerProcess, namesrv_process, raft_processes
from client.admin.client import AdminClient
from client.routes import MASTER_ID

Group = tuple[ServerProcess, list[ServerProcess]]
"""The NameServer and the members."""


@contextlib.contextmanager
def process_group(folder: Path, settings: Mapping[str, object]) -> Iterator[Group]:
    """Start a NameServer and three members, and kill them in the end, in whatever state they are."""
    namesrv = namesrv_process(folder / "namesrv")
    members = raft_processes(folder, 3, namesrv=namesrv.address, settings=settings)
    try:
        namesrv.start()
        for member in members:
            member.launch()
        for member in members:
            member.wait_ready()
        yield namesrv, members
    finally:
        for process in (*members, namesrv):
            process.signal(signal.SIGCONT)
            process.kill()


def until(what: str, true: Callable[[], bool], within: float = 30.0) -> None:
    """Wait until something is true, which `what` names."""
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# A question has two seconds, which a process that is held up may take: so often is one that runs asked.
ASKED = 4


def told(process: ServerProcess, path: str) -> Any | None:
    """Return what a process tells at an HTTP path, None of one that is gone, or never answers."""
    for _ in range(ASKED):
        if not process.running:
            break
        if (found := process.state(path)) is not None:
            return found
    return None


def status(member: ServerProcess) -> dict[str, Any]:
    """Return what a member says of its group, nothing when it does not answer."""
    return told(member, "/v1/raft") or {}


def leading(members: Sequence[ServerProcess]) -> int:
    """Wait until one of the members leads; returns its number, as it is now: the lead may move."""
    found: list[int] = []

    def one_leads() -> bool:
        found[:] = [number for number, member in enumerate(members) if status(member).get("leads")]
        return bool(found)

    until("a leader", one_leads)
    return found[0]


async def registered(namesrv: str, *names: str, within: float = 60.0) -> None:
    """Wait until the NameServer knows a master of each of these names: brokers register after they say they serve."""
    async with AdminClient(namesrv) as admin, asyncio.timeout(within):
        while not {broker.name for broker in await admin.brokers() if broker.broker_id == MASTER_ID} >= set(names):
            await asyncio.sleep(0.05)


async def leader_of(members: Sequence[ServerProcess], within: float = 60.0) -> ServerProcess:
    """Wait until one of the members leads; returns it."""
    async with asyncio.timeout(within):
        while True:
            for member in members:
                if (await asyncio.to_thread(status, member)).get("leads"):
                    return member
            await asyncio.sleep(0.05)
