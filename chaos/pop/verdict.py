"""The verdict on a POP run: every check, and whether there was enough to look at."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from chaos.apps.faults import LEADER_KILLED
from chaos.apps.findings import missing
from chaos.apps.judge import RESULTS
from chaos.apps.judge_processes import ends, late, leftovers
from chaos.apps.plan import KILLED
from chaos.apps.producing import ACKED
from chaos.pop.faults import KINDS
from chaos.pop.history import PopHistory, read_pop_history
from chaos.pop.judge import Holds, again, comings, ghosts, lost, records, together, unsettled
from chaos.pop.plan import CONSUMER
from pipeline.history.results import Finding, Results, Verdict

# By how much the time of day may move against the clock that never goes back, between so many looks at both and the
# next ones: with more, handles prove nothing. A process that had to wait between its two looks shows too little.
DRIFT_MS_MAX = 25.0
LOOKS = 20


def judge_pops(history: PopHistory) -> Results:
    """Return what a history proves."""
    holds, processes = Holds(history), history.processes
    killed = [event.app for event in processes.events if event.kind == KILLED]
    figures = comings(history, holds, killed)
    found_again = again(holds)
    findings = (
        evidence(history, figures),
        clock(history),
        _when_over(history, lost(history, holds)),
        _when_over(history, unsettled(holds)),
        found_again,
        together(holds),
        records(holds),
        ghosts(history, holds),
        late(processes),
        leftovers(processes),
        ends(processes),
    )
    happened = Counter(event.kind for event in processes.events)
    figures |= {
        "seed": history.plan.apps.seed,
        "messages": dict(Counter(send.fate for send in history.sends for _one in send.ids)),
        "settled": dict(Counter(one.what for hold in history.holds for one in hold.settlements if one.ok)),
        "happened": {kind: happened[kind] for kind in (KILLED, *KINDS.values()) if happened[kind]},
        "terms": len(history.leads),
    }
    return Results(findings, figures)


def evidence(history: PopHistory, figures: dict[str, Any]) -> Finding:
    """Tell whether what was planned took place, and there was enough of it: kills of holders and of leaders."""
    plan, processes = history.plan, history.processes
    happened = Counter(event.kind for event in processes.events)
    sent = sum(len(send.ids) for send in history.sends if send.fate == ACKED)
    popped = Counter(hold.app.rpartition("-")[0] for hold in history.holds)
    gaps = [
        *(["the run was ended before its plan was over"] if not history.over else []),
        *([f"{sent:,} of {plan.messages:,} messages were sent"] if sent < plan.messages else []),
        *(["nothing was popped"] if not history.holds else []),
        *(f"{slot.name} popped nothing" for slot in plan.apps.slots if slot.kind == CONSUMER and not popped[slot.name]),
        *(["no consumer was killed"] if not happened[KILLED] else []),
        *(["no leader was killed"] if not happened[LEADER_KILLED] else []),
        *(["the lead never changed"] if len(history.leads) < 2 else []),
        *(["nothing that a killed consumer held came again"] if not figures["again"].get("holder killed") else []),
        *(f"no {KINDS[one]}" for one in sorted({one.fault for one in plan.apps.faults}) if not happened[KINDS[one]]),
    ]
    return missing("V-evidence", "what was planned was seen", gaps)


def clock(history: PopHistory) -> Finding:
    """Tell whether the time of day went as the other clock did: else invisible times were not what handles say."""
    looks = sorted(history.clocks)
    apart = [
        max(ms - at * 1000 for at, ms in looks[place : place + LOOKS])
        for place in range(0, len(looks) - LOOKS + 1, LOOKS)
    ]
    moved = max((abs(after - before) for before, after in pairwise(apart)), default=0.0)
    gaps = [f"the time of day moved by {moved:.0f} ms"] if moved > DRIFT_MS_MAX else []
    return missing("V-clock", "the machine's clock was not set", gaps)


def _when_over(history: PopHistory, finding: Finding) -> Finding:
    """Return what a check found of what was still to come: in a run that was ended before, that is no verdict."""
    return finding if history.over else replace(finding, verdict=Verdict.UNKNOWN)


def judge_pop_folder(folder: Path) -> Results:
    """Judge a run by its folder, and write results.json there."""
    results = judge_pops(read_pop_history(folder))
    (folder / RESULTS).write_bytes(orjson.dumps(results.as_dict(), option=orjson.OPT_INDENT_2))
    return results
