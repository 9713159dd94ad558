"""All faults by name, and the one way to do one: fire, let it last, heal in any case, verify, tell.

    effect = await inflict(make("kill-leader"), site, random.Random(7), lasts_s=2.0)

A fault looks its target up by role when it is fired. What it tells holds the proof that it took place, so that a run
in which nothing really broke is not taken for one in which everything held.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

from chaos.faults.base import (
    PATIENCE_S,
    Effect,
    FaultSite,
    Links,
    Nemesis,
    NotHealed,
    Unable,
    wait_until,
)
from chaos.faults.clock import ClockJump, ClockStep
from chaos.faults.composite import PartKill, PauseKill, Swizzle
from chaos.faults.device import DeviceFull, DevicePower
from chaos.faults.disk import DiskFull, FailingSync, PowerLoss, SlowSync
from chaos.faults.files import BitFlip, CutTail
from chaos.faults.group import MembershipChange, Transfer
from chaos.faults.links import (
    Bridge,
    Flap,
    Isolate,
    LossyLinks,
    OneWay,
    ResetLinks,
    SlowLinks,
    TornFrames,
)
from chaos.faults.lost import LostFile, LostQueues
from chaos.faults.net import NetBridge, NetFlap, NetIsolate, NetLoss, NetOneWay
from chaos.faults.pairs import EmptyReturn, LostDisk, NamesrvRestart, PromoteAlive, PromoteShorter
from chaos.faults.rot import Rot
from chaos.faults.running import ClientCrash, Kill, Pause, RollingRestart, Starve

__all__ = ["FAULTS", "Effect", "FaultSite", "Links", "Nemesis", "NotHealed", "Unable", "inflict", "make"]

FAULTS: Mapping[str, Callable[[], Nemesis]] = {
    nemesis().name: nemesis
    for nemesis in (
        lambda: Kill("leader"),
        lambda: Kill("follower"),
        lambda: Kill("minority"),
        lambda: Kill("majority"),
        lambda: Kill("all"),
        lambda: Pause("leader"),
        lambda: Pause("follower"),
        lambda: Pause("majority"),
        RollingRestart,
        lambda: Starve("leader"),
        lambda: Starve("follower"),
        ClientCrash,
        lambda: Isolate("leader"),
        lambda: Isolate("follower"),
        lambda: Isolate("leader", hold=True),
        lambda: OneWay("leader", "follower"),
        lambda: OneWay("follower", "leader"),
        Bridge,
        Flap,
        SlowLinks,
        LossyLinks,
        ResetLinks,
        TornFrames,
        lambda: NetIsolate("leader"),
        lambda: NetIsolate("follower"),
        NetOneWay,
        NetBridge,
        NetFlap,
        NetLoss,
        lambda: SlowSync("leader"),
        lambda: SlowSync("follower"),
        lambda: SlowSync("all"),
        lambda: FailingSync("leader"),
        lambda: FailingSync("follower"),
        lambda: DiskFull("leader"),
        lambda: DiskFull("follower"),
        lambda: PowerLoss("leader"),
        lambda: PowerLoss("follower"),
        lambda: PowerLoss("majority"),
        lambda: PowerLoss("all"),
        lambda: DevicePower("leader"),
        lambda: DevicePower("follower"),
        lambda: DevicePower("majority"),
        lambda: DevicePower("all"),
        lambda: DeviceFull("leader"),
        lambda: DeviceFull("follower"),
        BitFlip,
        CutTail,
        LostFile,
        lambda: LostFile(killed=True),
        LostQueues,
        lambda: Rot(running=False),
        lambda: Rot(running=True),
        lambda: ClockJump("leader"),
        lambda: ClockJump("follower"),
        lambda: ClockStep("leader"),
        Transfer,
        MembershipChange,
        PartKill,
        PauseKill,
        Swizzle,
        LostDisk,
        EmptyReturn,
        PromoteAlive,
        PromoteShorter,
        NamesrvRestart,
    )
}


def make(name: str) -> Nemesis:
    """Return a fault by its name, for one firing; raises Unable when there is none of that name."""
    factory = FAULTS.get(name)
    if factory is None:
        raise Unable(f"no fault is called {name!r}; there are: {', '.join(sorted(FAULTS))}")
    return factory()


async def inflict(
    nemesis: Nemesis,
    site: FaultSite,
    rng: random.Random,
    *,
    lasts_s: float,
    healed: Callable[[], None] = lambda: None,
) -> Effect:
    """Fire a fault, let it last, heal it, and wait until the whole cluster is well; `healed` is called before the wait.

    Raises Unable when it could not be done, NotHealed when something stays broken. A fault that was begun is healed in
    any case, also when this is cancelled.
    """
    try:
        effect = await nemesis.fire(site, rng)
        await asyncio.sleep(lasts_s)
    finally:
        further = await nemesis.heal(site)
    healed()
    seconds = await well(site)
    proofs = [proof for proof in (effect.effect, further) if proof]
    return effect._replace(effect="; ".join([*proofs, f"well after {seconds:.1f} s"]) if proofs else "")


async def well(site: FaultSite, seconds: float = PATIENCE_S) -> float:
    """Wait until every member runs, none is paused, and one leads; returns how many seconds that took."""

    async def good() -> bool:
        standing = all(member.process.running and not member.paused for member in site.members)
        return standing and await site.leader() is not None

    states = "a cluster in which every member runs and one leads"
    return await wait_until(states, good, seconds)
