"""The trial of POP: consumers are killed while they hold messages, and their leader is; see chaos/pop."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from chaos.apps.plan import CLOSED, KILLED, AppPlan, PlannedAct, PlannedFault
from chaos.pop.driver import pop_torture
from chaos.pop.plan import SLOTS, PopPlan
from chaos.pop.verdict import judge_pop_folder
from pipeline.history.results import Results

MESSAGES, RATE = 900, 110.0
ACTS = (
    PlannedAct(3.0, "pop0", KILLED),
    PlannedAct(4.0, "pop1", KILLED),
    PlannedAct(5.0, "pop2", CLOSED),
    PlannedAct(7.0, "pop3", KILLED),
)
# Consumers have much in hand when it dies.
KILL = PlannedFault(3.6, "kill-leader", 0.5, 1)


class PopTrial(NamedTuple):
    """A plan of chaos/pop."""

    text: str
    plan: PopPlan

    def planned(self, plant: str, seed: int) -> PopPlan:
        """Return the plan with a bug, "module:function", in every member; the seed is for what consumers do."""
        return replace(self.plan, planted=plant, apps=replace(self.plan.apps, seed=seed))

    async def run(self, plant: str, seed: int, folder: Path) -> Results:
        """Make the run, and judge it."""
        await pop_torture(self.planned(plant, seed), folder)
        return judge_pop_folder(folder)


POP_TRIAL = PopTrial(
    "Five consumers pop, hold, acknowledge, put off and give back; they are killed, and the leader is.",
    PopPlan(
        AppPlan(1, MESSAGES / RATE, SLOTS, ACTS, (KILL,)),
        MESSAGES,
        RATE,
        # Longer than it takes to elect a leader: what comes again before is not due.
        invisible_s=(2.0, 4.0),
        still_s=12.0,
    ),
)
