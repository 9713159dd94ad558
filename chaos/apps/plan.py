"""What is to happen in a run, drawn from its seed: which applications there are, and what befalls whom when."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from chaos.apps.faults import FAULTS
from chaos.apps.names import BROADCAST, LITE, LITE_AUTO, ORDERLY, WORKERS

T = TypeVar("T")

CLOSED, CANCELLED, KILLED, STARTED = "closed", "cancelled", "killed", "started"
ACTS = (CLOSED, CANCELLED, KILLED)
# So long after the start of everything, and before the end, nothing is done to anybody.
QUIET_S = 3.0
ACT_PERIOD_S, FAULT_PERIOD_S = 2.5, 11.0
FAULT_LASTS_S = (0.5, 4.0)


@dataclass(frozen=True)
class Slot:
    """A place in the run that one process after the other takes."""

    name: str
    kind: str
    group: str = ""
    """Whom it consumes with; "" for a producer."""
    blocking: bool = False
    """Whether it uses raftmq.sync, and so cannot be cancelled."""

    @property
    def reader(self) -> str:
        """Who consumes: the group, or of a broadcasting one this slot alone."""
        return f"{self.group}/{self.name}" if self.group == BROADCAST else self.group


SLOTS = (
    Slot("send", "send"),
    Slot("futures", "futures"),
    Slot("batch", "batch"),
    Slot("oneway", "oneway"),
    Slot("order", "in-order"),
    Slot("thread", "blocking-send", blocking=True),
    Slot("push0", "push", WORKERS),
    Slot("push1", "push", WORKERS),
    Slot("push2", "blocking-push", WORKERS, blocking=True),
    Slot("cast0", "broadcast", BROADCAST),
    Slot("cast1", "broadcast", BROADCAST),
    Slot("orderly0", "orderly", ORDERLY),
    Slot("orderly1", "orderly", ORDERLY),
    Slot("lite0", "lite", LITE),
    Slot("lite1", "lite", LITE),
    Slot("auto0", "lite-auto", LITE_AUTO),
    Slot("auto1", "lite-auto", LITE_AUTO),
)


@dataclass(frozen=True)
class PlannedAct:
    """Something is done to who has a slot, `at` s after the start."""

    at: float
    slot: str
    act: str
    twice: bool = False
    """Cancelled a second time while the first cancellation is being obeyed."""


@dataclass(frozen=True)
class PlannedFault:
    """Something befalls the cluster, `at` s after the start, or when the one before it is over."""

    at: float
    fault: str
    lasts_s: float
    seed: int


@dataclass(frozen=True)
class AppPlan:
    """All of a run."""

    seed: int
    seconds: float
    slots: tuple[Slot, ...]
    acts: tuple[PlannedAct, ...]
    faults: tuple[PlannedFault, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it for plan.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "AppPlan":
        """Read what `as_dict` returned."""
        return cls(
            value["seed"],
            value["seconds"],
            tuple(Slot(**one) for one in value["slots"]),
            tuple(PlannedAct(**one) for one in value["acts"]),
            tuple(PlannedFault(**one) for one in value["faults"]),
        )


def make_plan(
    seed: int,
    seconds: float,
    *,
    slots: Sequence[Slot] = SLOTS,
    faults: Sequence[str] = tuple(FAULTS),
    act_period_s: float = ACT_PERIOD_S,
    fault_period_s: float = FAULT_PERIOD_S,
) -> AppPlan:
    """Draw a plan: everything that can happen happens once before anything happens again."""
    rng = random.Random(seed)
    chances = [(slot, act) for slot in slots for act in ACTS if act != CANCELLED or not slot.blocking]
    hits = bag_of(rng, chances)
    acts = []
    for at in times_of(rng, seconds, act_period_s):
        slot, act = next(hits)
        acts.append(PlannedAct(at, slot.name, act, twice=act == CANCELLED and rng.random() < 0.3))
    named = bag_of(rng, list(faults))
    planned = [
        PlannedFault(at, next(named), rng.uniform(*FAULT_LASTS_S), rng.randrange(2**31))
        for at in times_of(rng, seconds, fault_period_s)
    ]
    return AppPlan(seed, seconds, tuple(slots), tuple(acts), tuple(planned))


def times_of(rng: random.Random, seconds: float, period_s: float) -> Iterator[float]:
    """Return when things happen: once in each period, anywhere in its first half."""
    at = QUIET_S
    while at + period_s <= seconds - QUIET_S:
        yield round(at + rng.uniform(0.0, period_s / 2), 3)
        at += period_s


def bag_of(rng: random.Random, things: list[T]) -> Iterator[T]:
    """Return all things in a random order, again and again."""
    while things:
        yield from rng.sample(things, len(things))
