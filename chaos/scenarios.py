"""The scenarios that there are: the smallest matrix in which each fault meets each mode and workload that it concerns.

Every one says what it promises (pipeline/promises); "control" breaks nothing, for what fails there is no fault's doing.
"""

from collections.abc import Mapping
from typing import Any

from chaos.faults.survivable import survivable
from chaos.local import Mode
from chaos.nemesis import FAULTS
from chaos.scenario import Scenario, promised
from chaos.workloads.groups import GROUP as WORKERS
from chaos.workloads.orderly import GROUP as ORDERLY

# A member that is killed, paused or cut off brings another leader when it led.
_CHANGES = (
    "kill-leader",
    "pause-leader",
    "isolate-leader",
    "isolate-leader-hold",
    "power-leader",
    "part-kill",
    "pause-kill",
    "net-isolate-leader",
    "disk-power-leader",
)
_LINKS = (
    "isolate",
    "cut-",
    "majority-ring",
    "flap",
    "slow-links",
    "lossy-links",
    "torn-frames",
    "reset-links",
    "part-kill",
    "swizzle",
)
_ASYNC = {"flushDiskType": "ASYNC_FLUSH"}
_SYNC = {"flushDiskType": "SYNC_FLUSH"}
_EVERYTHING = ("send", "groups", "orderly", "offsets", "admin", "bank")
_CONSUMERS = {"groups": WORKERS, "orderly": ORDERLY}
# What one harness on two cores asks of brokers on the same two cores, and what these acknowledge while they are broken.
RATE, PACE = 3000.0, 1800.0
ACKNOWLEDGED_MIN = 20_000
# The torture goes on for a quarter of an hour: over a million messages, which are judged in a few minutes and 10 GiB.
TORTURE_S = 900.0
TORTURE_RATE, TORTURE_PACE, TORTURE_PERIOD_S = 1800.0, 1200.0, 4.0


def _make(
    name: str,
    text: str,
    faults: tuple[str, ...],
    workloads: tuple[str, ...] = ("send",),
    mode: Mode = "raft",
    promises: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Scenario:
    nodes = changes.pop("nodes", {"raft": 3, "single": 1}.get(mode, 2))
    given = {
        "consumer_groups": tuple(group for name, group in _CONSUMERS.items() if name in workloads),
        "orderly_groups": (ORDERLY,) if "orderly" in workloads else (),
        "faults_min": 1 if faults else 0,
        "survives": tuple(fault for fault in survivable(mode, nodes) if fault in faults),
        "leader_change_on": tuple(fault for fault in faults if fault in _CHANGES) if mode == "raft" else (),
        **(promises or {}),
    }
    load = {"rate": RATE, "pace": PACE, "acknowledged_min": ACKNOWLEDGED_MIN, **changes}
    return Scenario(
        name=name,
        text=text,
        mode=mode,
        nodes=nodes,
        workloads=workloads,
        faults=faults,
        promises=promised(mode, nodes, **given),
        links=any(fault.startswith(_LINKS) for fault in faults),
        tier=max((FAULTS[fault]().tier for fault in faults), default="T0"),
        **load,
    )


_RAFT = (
    _make("control", "Nothing is broken: everything must hold all the time.", (), _EVERYTHING),
    _make("kill", "Members die at once and come back.", ("kill-leader", "kill-follower", "kill-minority", "kill-all")),
    _make("pause", "Members stand still and wake up with old views.", ("pause-leader", "pause-follower", "pause-kill")),
    _make(
        "partition",
        "Links are cut: the leader or a follower alone, one direction, a ring of majorities, again and again.",
        (
            "isolate-leader", "isolate-follower", "isolate-leader-hold", "cut-leader-to-follower",
            "cut-follower-to-leader", "majority-ring", "flap", "swizzle",
        ),
        seconds=60.0,
    ),
    _make(
        "links",
        "Links are slow, lose connections, tear frames.",
        ("slow-links", "lossy-links", "torn-frames", "reset-links"),
    ),
    _make(
        "power",
        "Power fails at one member, at some, at all: what was not synced is undone.",
        ("power-leader", "power-follower", "power-majority", "power-all"),
        seconds=60.0,
    ),
    _make("part-kill", "The schedule that only a follower survives that syncs before it answers.", ("part-kill",)),
    _make(
        "disk",
        "Disks are slow, full, or fail to sync.",
        (
            "slow-fsync-leader", "slow-fsync-follower", "failing-fsync-leader", "failing-fsync-follower",
            "enospc-leader", "enospc-follower",
        ),
        seconds=60.0,
    ),
    _make(
        "network",
        "Packets are dropped by the kernel, between members on hosts of their own around a switch.",
        (
            "net-isolate-leader", "net-isolate-follower", "net-one-way", "net-majority-ring", "net-flap", "net-loss",
        ),
        seconds=60.0,
    ),
    _make(
        "device",
        "Block devices lose what was not flushed to them, and file systems run full.",
        (
            "disk-power-leader", "disk-power-follower", "disk-power-majority", "disk-power-all", "disk-full-leader",
            "disk-full-follower",
        ),
        seconds=60.0,
    ),
    _make("bitrot", "Files of a minority rot or are cut while it is down.", ("bitflip-minority", "truncate-minority")),
    _make(
        "groups",
        "Consumers come, go and die while brokers do; some lock their queues.",
        ("kill-leader", "client-crash"),
        ("groups", "orderly"),
    ),
    _make(
        "offsets", "Stored offsets stay.", ("kill-leader", "isolate-leader", "power-all"), ("offsets", "groups")
    ),
    _make("admin", "Topics and groups that were made stay.", ("kill-leader", "power-all"), ("admin", "send")),
    _make("bank", "Batches are stored whole or not at all.", ("kill-leader", "power-all", "kill-majority"), ("bank",)),
    # A member that stops serves its clients until they have found the new leader.
    _make(
        "rolling",
        "A rolling restart, and the lead moved by hand.",
        ("rolling-restart", "transfer-leader"),
        period_s=15.0,
    ),
    _make("membership", "Members leave and join under load.", ("membership", "kill-leader"), ("send", "offsets")),
    _make("starve", "A member hardly gets any processor time.", ("starve-leader", "starve-follower")),
    _make("clock", "Wall clocks jump.", ("clock-jump-leader", "clock-jump-follower"), ("send", "groups")),
    _make("everything", "A bit of everything, over all workloads.",
          ("kill-leader", "pause-leader", "isolate-leader", "power-all", "slow-fsync-all", "client-crash"),
          _EVERYTHING, seconds=60.0),
)  # fmt: skip
_ASYNC_RAFT = (
    _make(
        "raft-async",
        "A group that does not sync before it answers: it may lose by power, and by nothing else.",
        ("kill-leader", "kill-all", "pause-leader", "isolate-leader"),
        promises={"mode": "raft-async"},
        settings=_ASYNC,
    ),
)
_CLASSIC = (
    _make(
        "sync-master",
        "A master whose slave has what is acknowledged: kills lose nothing.",
        ("kill-leader", "kill-follower", "pause-follower", "isolate-follower"),
        ("send", "bank"),
        "sync",
        settings=_SYNC,
    ),
    _make(
        "async-master",
        "A master that waits for nobody: what was not copied may be lost, and nothing else is wrong.",
        ("kill-leader", "kill-follower", "pause-follower"),
        mode="async",
    ),
    _make("single", "One broker that syncs: it comes back as it was.", ("kill-leader", "power-leader"), mode="single",
          settings=_SYNC, promises={"may_lose_acknowledged": False}),
)  # fmt: skip
_SMOKE = (
    _make("smoke-kill", "The leader dies under load.", ("kill-leader",)),
    _make(
        "smoke-partition",
        "One direction of a link is cut, members stand still.",
        ("isolate-leader-hold", "cut-leader-to-follower", "pause-leader"),
        ("send", "groups"),
    ),
    _make("smoke-power", "Power fails where it hurts most.", ("part-kill", "power-all"), ("send", "bank")),
)

_LONG = (
    _make(
        "torture",
        "A million messages under one fault after the other, for a quarter of an hour.",
        (
            "kill-leader", "kill-follower", "kill-all", "pause-leader", "pause-follower", "isolate-leader",
            "cut-leader-to-follower", "cut-follower-to-leader", "power-leader", "power-follower", "power-all",
            "part-kill",
        ),
        ("send", "offsets"),
        seconds=TORTURE_S,
        rate=TORTURE_RATE,
        pace=TORTURE_PACE,
        period_s=TORTURE_PERIOD_S,
    ),
)  # fmt: skip

SCENARIOS: Mapping[str, Scenario] = {one.name: one for one in (*_SMOKE, *_RAFT, *_ASYNC_RAFT, *_CLASSIC, *_LONG)}
SUITES: Mapping[str, tuple[str, ...]] = {
    "smoke": tuple(one.name for one in _SMOKE),
    "full": tuple(one.name for one in (*_RAFT, *_ASYNC_RAFT, *_CLASSIC)),
}
