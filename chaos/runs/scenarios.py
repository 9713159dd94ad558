"""The scenarios that there are: the smallest matrix in which each fault meets each mode and workload that it concerns.

Every one says what it promises (pipeline/promises); "control" breaks nothing, for what fails there is no fault's doing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from chaos.host.local import Mode
from chaos.runs.nemesis import FAULTS
from chaos.runs.pledges import promises_for
from chaos.runs.scenario import Scenario
from chaos.workloads.catalogue import WORKLOADS
from pipeline.history.promises import MODES

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
# What one harness on two cores asks of brokers on the same two cores, and what these acknowledge while they are broken.
RATE, PACE = 3000.0, 1800.0
ACKNOWLEDGED_MIN = 20_000
# The torture goes on for a quarter of an hour: about a million messages, which are judged in a few minutes.
TORTURE_S = 900.0
# Small files: old ones, which rot, are lost and expire, are there after seconds. And whatever expires goes at once.
_OLD_FILES = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "cleanResourceInterval": 1000,
    # Faults that let files rot tell when the log is checked (chaos/faults/rot.py).
    "scrubBytesPerSecond": 0,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
}
# What is left undecided is asked about while the run lasts.
_CHECKED_SOON = {"transactionTimeOut": 1000, "transactionCheckInterval": 500}
# Whatever reads a log anew (a repair, a check of all of it, queues made from it) goes by its length, and the next fault
# waits for it: at 1,800 a second half an hour's faults took over an hour.
TORTURE_RATE, TORTURE_PACE, TORTURE_PERIOD_S = 1000.0, 700.0, 4.0


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
    load = {"rate": RATE, "pace": PACE, "acknowledged_min": ACKNOWLEDGED_MIN, **changes}
    return Scenario(
        name=name,
        text=text,
        mode=mode,
        nodes=nodes,
        workloads=workloads,
        faults=faults,
        promises=promises_for(mode, nodes, faults, workloads, **(promises or {})),
        links=any(fault.startswith(_LINKS) for fault in faults),
        tier=max((FAULTS[fault]().tier for fault in faults), default="T0"),
        **load,
    )


_RAFT = (
    _make("control", "Nothing is broken: everything must hold all the time.", (), _EVERYTHING),
    _make("kill", "Members die at once and come back.", ("kill-leader", "kill-follower", "kill-minority", "kill-all")),
    _make("pause", "Members stand still and wake up with old views.", ("pause-leader", "pause-follower", "pause-kill")),
    _make(
        "once",
        "Senders repeat idempotent sends until they are answered: each must stand once.",
        ("kill-leader", "pause-leader", "isolate-leader", "kill-all"),
        ("once",),
    ),
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
    _make(
        "bitrot",
        "Files rot or are cut, of members that are down and of such that run.",
        ("bitflip-minority", "truncate-minority", "rot-follower", "rot-running-follower"),
        settings=_OLD_FILES,
    ),
    _make(
        "repair",
        "Files of the log or all queues of a member are lost, and it is killed while it brings them back.",
        ("lose-file-follower", "lose-file-killed", "lose-queues-killed"),
        settings=_OLD_FILES,
    ),
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
    _make("clock", "Wall clocks jump, or step days ahead.",
          ("clock-jump-leader", "clock-jump-follower", "clock-step-leader"), ("send", "groups"), settings=_OLD_FILES),
    _make("transactions", "Transactions while the leader dies, stands still or is cut off, and while power fails.",
          ("kill-leader", "pause-leader", "isolate-leader", "power-all"), ("transactions",), settings=_CHECKED_SOON,
          rate=600.0, pace=250.0, acknowledged_min=3000),
    _make("timers", "Timer messages fall due while the leader dies, stands still or is cut off, and while power fails.",
          ("kill-leader", "pause-leader", "isolate-leader", "power-all"), ("timers",), rate=600.0, pace=250.0,
          acknowledged_min=3000),
    _make("requests", "Requests are replied to while the leader dies, stands still or is cut off.",
          ("kill-leader", "pause-leader", "isolate-leader", "kill-follower"), ("requests",), rate=300.0, pace=120.0,
          acknowledged_min=1500, period_s=11.0, seconds=60.0),
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
_PAIR_MODES: tuple[Mode, ...] = ("sync", "async")
_PAIR_FAULTS: Mapping[str, str] = {
    "lose-disk": "A master's disk is lost: its slave is promoted, and the master copies everything back.",
    "empty-return": "A master comes back with an empty disk, under load: its slave keeps what it has.",
    "promote-alive": "A slave is promoted by force beside a master that lives.",
    "promote-shorter": "A slave that is behind another one is to be promoted, with the master dead.",
    "promote-namesrv-restart": "A promoted slave and the NameServer die before the old master comes back.",
}
# One fault at a time, and a whole copy of the log behind it.
_PAIR_LOAD: Mapping[str, Any] = {"rate": 1500.0, "pace": 700.0, "acknowledged_min": 3000, "period_s": 15.0}
# What a master showed before a slave had it is gone with the master: nobody was promised it. And an empty master shows
# a log that begins anew.
_PAIR_PROMISES: Mapping[str, Any] = {"linearizable_reads": False, "stable_reads": False}
_EMPTY_PROMISES: Mapping[str, Any] = {"real_time_order": False}
_PAIRS = tuple(
    _make(
        f"{mode}-{fault}",
        text,
        (fault,),
        mode=mode,
        nodes=3 if fault == "promote-shorter" else 2,
        promises={**_PAIR_PROMISES, **(_EMPTY_PROMISES if fault == "empty-return" else {})},
        settings={} if mode == "async" else _SYNC,
        **_PAIR_LOAD,
    )
    for mode in _PAIR_MODES
    for fault, text in _PAIR_FAULTS.items()
)
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
            "part-kill", "lose-file-follower", "lose-file-killed", "lose-queues-killed", "rot-follower",
            "rot-running-follower", "clock-step-leader",
        ),
        ("send", "offsets"),
        settings=_OLD_FILES,
        seconds=TORTURE_S,
        rate=TORTURE_RATE,
        pace=TORTURE_PACE,
        period_s=TORTURE_PERIOD_S,
    ),
)  # fmt: skip

_FULL = (*_RAFT, *_ASYNC_RAFT, *_CLASSIC, *_PAIRS)
SCENARIOS: Mapping[str, Scenario] = {one.name: one for one in (*_SMOKE, *_FULL, *_LONG)}
SUITES: Mapping[str, tuple[str, ...]] = {
    "smoke": tuple(one.name for one in _SMOKE),
    "full": tuple(one.name for one in _FULL),
}


def misnamed(mode: str, faults: Iterable[str], workloads: Iterable[object]) -> str:
    """Return in a sentence which names of a scenario's parts there are not, and which there are; "" if all are."""
    asked = (
        ("mode", [mode], MODES),
        ("fault", faults, sorted(FAULTS)),
        ("workload", (one for one in workloads if isinstance(one, str)), tuple(WORKLOADS)),
    )
    for what, names, known in asked:
        strange = sorted(set(names) - set(known))
        if strange:
            return f"no {what} is called {', '.join(map(repr, strange))}; there are: {', '.join(known)}"
    return ""
