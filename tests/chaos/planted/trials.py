"""What planted bugs are put through: small clusters, short loads, few faults, chosen so that each bug bites fast.

A trial is a scenario and its schedule, written by hand. Without a bug each of them must be valid (its control).
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from chaos.host.local import Mode
from chaos.load.workload import Load, Plain, opened, pause, start_senders
from chaos.runs.scenario import Scenario, promised
from chaos.runs.schedule import Planned, Schedule
from chaos.workloads.groups import GROUP as WORKERS
from chaos.workloads.once import OnceWorkload
from chaos.workloads.orderly import GROUP as ORDERLY
from chaos.workloads.orderly import OrderlyWorkload
from chaos.workloads.timers import TimersWorkload
from pipeline.history.rows import Act
from tests.chaos.planted.poptrial import POP_TRIAL, PopTrial

RATE = 900.0
ACKNOWLEDGED_MIN = 1000
# When nothing is acknowledged for so long, the next fault comes all the same.
IDLE_MS = 4000
ASK_EVERY_S = 0.05
# The last timer messages are due after this.
LATER_S = 11.0


class EndsWorkload(Plain):
    """Senders, and clients that ask every member for the ends of queues: whom it takes for the leader, it answers for.

    Those of the other workloads turn to where senders are answered, and so never to a leader that was left behind.
    """

    name = "ends"
    topic, queues = "chaos_ends", 4

    def __init__(self) -> None:
        super().__init__({self.topic: self.queues})

    async def run(self, load: Load, stop: asyncio.Event) -> None:
        """Send and ask until `stop`."""
        async with opened(self.name) as remoting, asyncio.TaskGroup() as tasks:
            start_senders(tasks, load, remoting, self.topic, self.queues, stop, count=8)
            for address in load.addresses:
                tasks.create_task(self._ask(load, remoting, address, stop))

    async def _ask(self, load: Load, remoting: Any, address: str, stop: asyncio.Event) -> None:
        client, rng = load.client(remoting, "asker"), random.Random(load.rng.random())
        while await pause(stop, ASK_EVERY_S):
            await client.edge(Act.MAX, address, self.topic, rng.randrange(self.queues))


class HandoverWorkload(OrderlyWorkload):
    """A group in order that is never without a consumer for a moment, which would be given its time anew (A26)."""

    name = "handover"
    places = 5


class Trial(NamedTuple):
    """A scenario with its faults: (name, after so many acknowledged sends, lasts so many milliseconds)."""

    scenario: Scenario
    faults: tuple[tuple[str, int, int], ...]

    @property
    def text(self) -> str:
        """What is done to the cluster."""
        return self.scenario.text

    def schedule(self, seed: int) -> Schedule:
        """Return the schedule; the seed is for whom the faults hit."""
        planned = tuple(
            Planned(number, name, after, IDLE_MS, lasts_ms, seed * 100 + number)
            for number, (name, after, lasts_ms) in enumerate(self.faults)
        )
        return Schedule(self.scenario.name, seed, planned)

    def planted(self, bug: str) -> Scenario:
        """Return the scenario with a bug, "module:function", in every member."""
        return replace(self.scenario, planted=bug)


def _trial(
    name: str,
    text: str,
    faults: tuple[tuple[str, int, int], ...] = (),
    workloads: tuple[Any, ...] = ("send",),
    mode: Mode = "raft",
    seconds: float = 12.0,
    promises: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Trial:
    nodes = {"raft": 3, "single": 1}.get(mode, 2)
    given: dict[str, Any] = {
        "consumer_groups": tuple(g for w, g in (("groups", WORKERS), ("orderly", ORDERLY)) if w in workloads),
        "orderly_groups": (ORDERLY,) if "orderly" in workloads else (),
        "faults_min": len(faults),
        **(promises or {}),
    }
    scenario = Scenario(
        name=f"trial-{name}",
        text=text,
        mode=mode,
        nodes=nodes,
        workloads=workloads,
        faults=tuple(dict.fromkeys(fault for fault, _, _ in faults)),
        seconds=seconds,
        promises=promised(mode, nodes, **given),
        links=any(fault.startswith(("isolate", "part-kill")) for fault, _, _ in faults),
        **{"rate": RATE, "acknowledged_min": ACKNOWLEDGED_MIN, **changes},
    )
    return Trial(scenario, faults)


_SYNC = {"flushDiskType": "SYNC_FLUSH"}
_TRIALS: Mapping[str, Trial] = {
    trial.scenario.name.removeprefix("trial-"): trial
    for trial in (
        _trial(
            "calm",
            "Nothing is broken, and all workloads run.",
            workloads=("send", "groups", "orderly", "offsets", "admin", "bank"),
        ),
        _trial(
            "kill",
            "The leader is killed, twice.",
            (("kill-leader", 1500, 1500), ("kill-leader", 4000, 1500)),
            ("send", "offsets"),
            # Its time counts from the fault's begin: by its end, as it is recorded, another one leads already.
            promises={"rto_bound_s": 10.0, "survives": ("kill-leader",)},
        ),
        _trial(
            "cut-leader",
            "The leader is cut off and goes on taking messages; another one is elected.",
            (("isolate-leader", 2000, 4000), ("isolate-leader", 4500, 4000)),
        ),
        _trial(
            "handover",
            "The leader is killed, under consumers who hold their queues; whoever has gone, another one gets them.",
            (("kill-leader", 3000, 1500),),
            (HandoverWorkload,),
            promises={
                "consumer_groups": (ORDERLY,),
                "orderly_groups": (ORDERLY,),
                "rto_bound_s": 10.0,
                "survives": ("kill-leader",),
            },
        ),
        _trial(
            "once",
            "Idempotent sends are repeated until they are answered; the leader is killed, frozen and cut off.",
            (
                ("kill-leader", 1500, 1500),
                ("pause-leader", 3000, 2500),
                ("isolate-leader", 4500, 4000),
                ("kill-leader", 6000, 1500),
            ),
            (OnceWorkload,),
        ),
        _trial(
            "cut-follower",
            "A follower is cut off, and comes back behind the others.",
            (("isolate-follower", 2000, 5000), ("isolate-follower", 6000, 5000)),
        ),
        _trial(
            "stale-leader",
            "The leader is cut off, and takes six seconds to notice; meanwhile clients ask it for the ends of queues.",
            (("isolate-leader-hold", 2000, 8000),),
            (EndsWorkload,),
            settings={"raftElectionMsMin": 500, "raftElectionMsMax": 4000},
        ),
        _trial(
            "part-kill",
            "Power fails at a follower, and then it makes up the majority with one that was cut off.",
            (("part-kill", 1500, 2000), ("part-kill", 3500, 2000)),
        ),
        _trial("power", "Power fails everywhere.", (("power-all", 2000, 500), ("power-all", 5000, 500))),
        _trial(
            "bitrot",
            "A bit in the log of a stopped member flips.",
            (("bitflip-minority", 1500, 500), ("bitflip-minority", 3500, 500), ("bitflip-minority", 5500, 500)),
            # It is recovery that is to find it: the scrub would, some seconds later, whatever recovery believes.
            settings={"scrubBytesPerSecond": 0},
        ),
        _trial(
            "holes",
            "A member has lost a file of its log, and is killed while it repairs that.",
            (("lose-file-killed", 3000, 500), ("lose-file-killed", 7000, 500)),
            settings={"mappedFileSizeCommitLog": 256 * 1024},
        ),
        _trial(
            "queues",
            "A member has lost its ConsumeQueues, and is killed while it builds them anew.",
            (("lose-queues-killed", 7000, 500), ("lose-queues-killed", 12_000, 500)),
            seconds=16.0,
        ),
        _trial(
            "transactions",
            "Transactions, some of which the broker has to ask about; nothing is broken.",
            workloads=("transactions",),
            promises={"delay_bound_s": 1.0},
            settings={"transactionTimeOut": 1000, "transactionCheckInterval": 500},
            rate=200.0,
        ),
        _trial(
            "timers",
            "Timer messages, due within eleven seconds; nothing is broken.",
            workloads=(partial(TimersWorkload, LATER_S),),
            rate=200.0,
        ),
        _trial("requests", "Requests and replies; nothing is broken.", workloads=("requests",), rate=150.0),
        _trial("pair", "A SYNC_MASTER and its slave; nothing is broken.", (), ("send", "bank"), "sync", settings=_SYNC),
        _trial(
            "alone",
            "Power fails at a single broker that flushes before it answers.",
            (("power-leader", 1500, 500), ("power-leader", 3500, 500)),
            mode="single",
            settings=_SYNC,
            promises={"may_lose_acknowledged": False},
        ),
    )
}
TRIALS: Mapping[str, Trial | PopTrial] = {**_TRIALS, "pop": POP_TRIAL}
