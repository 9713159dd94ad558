"""What befalls the leader of the brokers that are popped from: kills, pauses, changes of the lead, a crash of all."""

import asyncio
import random
from collections.abc import Mapping

from chaos.apps.faults import (
    CRASHED,
    LEAD_MOVED,
    LEADER_KILLED,
    LEADER_STOPPED,
    Fault,
    Tell,
    crash_all,
    kill_leader,
    stop_leader,
    transfer_leader,
)
from chaos.apps.site import AppSite

LEADER_PAUSED = "leader paused"


async def pause_leader(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Have who leads stand still; another one may be elected, and the first believes it leads until it hears of it."""
    leader = await site.leader()
    site.freeze([leader])
    try:
        tell(LEADER_PAUSED, f"SIGSTOP to {leader.name} (pid {leader.pid})")
        await asyncio.sleep(lasts_s)
    finally:
        site.thaw([leader])


POP_FAULTS: Mapping[str, Fault] = {
    "kill-leader": kill_leader,
    "pause-leader": pause_leader,
    "transfer-leader": transfer_leader,
    "stop-leader": stop_leader,
    "crash-all": crash_all,
}
KINDS: Mapping[str, str] = dict(
    zip(POP_FAULTS, (LEADER_KILLED, LEADER_PAUSED, LEAD_MOVED, LEADER_STOPPED, CRASHED), strict=True)
)
"""What a fault is called in the run's history."""
