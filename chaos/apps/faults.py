"""What befalls the cluster while applications use it: each is inflicted, lasts, and is made good again."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from chaos.apps.site import AppSite
from chaos.host.processes import ServerProcess

# Tells that something of a kind happened just now, with what shows it.
Tell = Callable[[str, str], None]
Fault = Callable[[AppSite, random.Random, float, Tell], Awaitable[None]]

LEADER_KILLED, LEADER_STOPPED, LEAD_MOVED = "leader killed", "leader stopped", "lead handed over"
NAMESRV_KILLED, NAMESRV_FROZEN = "NameServer killed", "NameServer frozen"
NAMESRVS_KILLED, NAMESRVS_FROZEN = "all NameServers killed", "all NameServers frozen"
RESTARTED, CRASHED = "restart of everything", "crash of everything"


def _names(servers: Sequence[ServerProcess]) -> str:
    return ", ".join(f"{server.name} (pid {server.pid})" for server in servers)


async def kill_leader(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Kill who leads, as kill -9 does."""
    leader = await site.leader()
    await site.kill([leader])
    tell(LEADER_KILLED, f"{_names([leader])} ended with {leader.exit_code}")
    await asyncio.sleep(lasts_s)
    await site.start([leader])


async def stop_leader(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Have who leads end in good order."""
    leader = await site.leader()
    tell(LEADER_STOPPED, f"SIGTERM to {_names([leader])}")
    await site.stop([leader])
    await asyncio.sleep(lasts_s)
    await site.start([leader])


async def transfer_leader(site: AppSite, rng: random.Random, _lasts_s: float, tell: Tell) -> None:
    """Move the lead, as an administrator does."""
    leader = await site.leader()
    to = rng.choice([broker.name for broker in site.brokers if broker is not leader]).rpartition(" ")[2]
    before, after = await site.hand_over(to)
    if before != after:
        tell(LEAD_MOVED, f"{before} led, {after} leads")


async def kill_namesrv(site: AppSite, rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Kill one of two: it forgets all that it knew."""
    await _without(site, [rng.choice(site.namesrvs)], lasts_s, lambda text: tell(NAMESRV_KILLED, text))


async def kill_namesrvs(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Kill both: clients go on by what they know."""
    await _without(site, site.namesrvs, lasts_s, lambda text: tell(NAMESRVS_KILLED, text))


async def freeze_namesrv(site: AppSite, rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Have one of two stand still: it takes connections and answers nothing."""
    await _still(site, [rng.choice(site.namesrvs)], lasts_s, lambda text: tell(NAMESRV_FROZEN, text))


async def freeze_namesrvs(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Have both stand still."""
    await _still(site, site.namesrvs, lasts_s, lambda text: tell(NAMESRVS_FROZEN, text))


async def restart_all(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Stop everything in good order and start it again."""
    tell(RESTARTED, f"SIGTERM to {_names(site.servers)}")
    await site.stop(site.servers)
    await asyncio.sleep(lasts_s / 2)
    await site.start(site.servers)
    await site.leader()


async def crash_all(site: AppSite, _rng: random.Random, lasts_s: float, tell: Tell) -> None:
    """Kill everything and start it again."""
    await site.kill(site.servers)
    tell(CRASHED, f"{_names(site.servers)} ended with {site.servers[0].exit_code}")
    await asyncio.sleep(lasts_s / 2)
    await site.start(site.servers)
    await site.leader()


async def _without(
    site: AppSite, servers: Sequence[ServerProcess], lasts_s: float, tell: Callable[[str], None]
) -> None:
    await site.kill(servers)
    tell(f"{_names(servers)} ended with {servers[0].exit_code}")
    await asyncio.sleep(lasts_s)
    await site.start(servers)


async def _still(site: AppSite, servers: Sequence[ServerProcess], lasts_s: float, tell: Callable[[str], None]) -> None:
    site.freeze(servers)
    try:
        tell(f"SIGSTOP to {_names(servers)}")
        await asyncio.sleep(lasts_s)
    finally:
        site.thaw(servers)


FAULTS: Mapping[str, Fault] = {
    "kill-leader": kill_leader,
    "stop-leader": stop_leader,
    "transfer-leader": transfer_leader,
    "kill-namesrv": kill_namesrv,
    "kill-namesrvs": kill_namesrvs,
    "freeze-namesrv": freeze_namesrv,
    "freeze-namesrvs": freeze_namesrvs,
    "restart-all": restart_all,
    "crash-all": crash_all,
}
# Those that leave the brokers alone.
NAMESRV_FAULTS = frozenset({"kill-namesrv", "kill-namesrvs", "freeze-namesrv", "freeze-namesrvs"})
# What a fault is called in the run's history.
KINDS: Mapping[str, str] = dict(
    zip(
        FAULTS,
        (
            LEADER_KILLED, LEADER_STOPPED, LEAD_MOVED, NAMESRV_KILLED, NAMESRVS_KILLED, NAMESRV_FROZEN,
            NAMESRVS_FROZEN, RESTARTED, CRASHED,
        ),
        strict=True,
    )
)  # fmt: skip
