"""What is to happen in a POP run, drawn from its seed: how many messages, and what befalls whom when."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from chaos.apps.plan import CANCELLED, CLOSED, KILLED, AppPlan, PlannedAct, PlannedFault, Slot, bag_of, times_of
from chaos.pop.faults import KINDS

PLAN = "plan.json"
TOPIC, GROUP = "pop_tasks", "pop_workers"
PRODUCER, CONSUMER = "pop-send", "pop"
CONSUMERS = 5
QUEUES = 8
# Sends per second that are asked of the producer: consumers keep up with it on two cores, faults included.
RATE = 400.0
INVISIBLE_S = (3.0, 6.0)
# A consumer is killed, closed or cancelled once in so many seconds, and something befalls the leader. Seconds are of
# sending at the plan's rate: what happens comes by how much was sent, on a slow machine later.
ACT_PERIOD_S, FAULT_PERIOD_S = 2.5, 10.0
FAULT_LASTS_S = (0.5, 4.0)
# Kills are what this is about.
ACTS = (KILLED, KILLED, KILLED, CLOSED, CANCELLED)
FIRST = "kill-leader"
# Nothing new for so long while something is missing: it does not come any more.
STILL_S = 60.0
SLOTS = (Slot("send", PRODUCER), *(Slot(f"pop{number}", CONSUMER, GROUP) for number in range(CONSUMERS)))


@dataclass(frozen=True)
class PopPlan:
    """All of a run; `apps` has the seed, who takes part, and what happens when."""

    apps: AppPlan
    messages: int
    rate: float = RATE
    invisible_s: tuple[float, float] = INVISIBLE_S
    """Each pop, and each putting off, draws from it for how long."""
    still_s: float = STILL_S
    planted: str = ""
    """A bug that members are started with, "module:function" (chaos/site/member.py): such a run must not be valid."""

    def as_dict(self) -> dict[str, Any]:
        """Return it for plan.json."""
        return {**vars(self), "apps": self.apps.as_dict()}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "PopPlan":
        """Read what `as_dict` returned."""
        low, high = value["invisible_s"]
        return cls(**{**value, "apps": AppPlan.from_dict(value["apps"]), "invisible_s": (low, high)})

    def save(self, folder: Path) -> None:
        """Write it where the applications and the judge find it."""
        (folder / PLAN).write_bytes(orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2))


def read_pop_plan(folder: Path) -> PopPlan:
    """Read the plan of a run's folder."""
    return PopPlan.from_dict(orjson.loads((folder / PLAN).read_bytes()))


def make_pop_plan(seed: int, messages: int, rate: float = RATE, faults: Sequence[str] = tuple(KINDS)) -> PopPlan:
    """Draw a plan that lasts as long as sending does: everything that can happen happens once before it does again.

    A kill of the leader comes first, without which nothing is proved: so short runs have it too.
    """
    rng, seconds = random.Random(seed), messages / rate
    consumers = [slot.name for slot in SLOTS if slot.kind == CONSUMER]
    hits = bag_of(rng, [(name, act) for name in consumers for act in ACTS])
    acts = tuple(PlannedAct(at, *next(hits)) for at in times_of(rng, seconds, ACT_PERIOD_S))
    named = chain([FIRST], bag_of(random.Random(seed), list(faults)))
    planned = tuple(
        PlannedFault(at, next(named), rng.uniform(*FAULT_LASTS_S), rng.randrange(2**31))
        for at in times_of(rng, seconds, FAULT_PERIOD_S)
    )
    return PopPlan(AppPlan(seed, seconds, SLOTS, acts, planned), messages, rate)
