"""The verdict on a run of applications: every check, and whether there was enough to look at."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson

from chaos.apps.faults import KINDS
from chaos.apps.findings import counted, missing
from chaos.apps.history import AppHistory, read_history
from chaos.apps.judge_delivery import ghosts, inversions, lost, readers, resumed, skipped, together
from chaos.apps.judge_duplicates import duplicates
from chaos.apps.judge_moving import longest_stalls, moving
from chaos.apps.judge_processes import ends, late, leftovers, longest
from chaos.apps.plan import CANCELLED, CLOSED
from chaos.apps.producing import ACKED, ONE_WAY
from pipeline.history.results import Finding, Results, Verdict

RESULTS = "results.json"
EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 254}
"""A run that cannot be judged ends as one that was not made."""

# With fewer acknowledged sends than this times the seconds of the plan nothing is proved.
ACKED_PER_S_MIN = 10.0


def judge(history: AppHistory) -> Results:
    """Return what a history proves."""
    repeated = duplicates(history)
    total = sum(count for row in repeated for group, count in row.items() if group not in {"after", "events"})
    findings = (
        evidence(history),
        _when_over(history, lost(history)),
        _when_over(history, skipped(history)),
        ghosts(history),
        inversions(history),
        together(history),
        resumed(history),
        moving(history),
        late(history),
        leftovers(history),
        ends(history),
        counted("D-twice", "deliveries of what had come before", total, "at least once: counted, not judged"),
    )
    fates = Counter(send.fate for send in history.sends for _one in send.ids)
    figures = {
        "seed": history.plan.seed,
        "seconds": history.plan.seconds,
        "messages": dict(fates),
        "deliveries": sum(len(delivery.ids) for delivery in history.deliveries),
        "processes": sum(event.kind == "started" for event in history.events),
        "duplicates": repeated,
        "calls": longest(history),
        "silences": longest_stalls(history),
    }
    return Results(findings, figures)


def evidence(history: AppHistory) -> Finding:
    """Tell whether what was planned took place, and there was enough of it."""
    plan = history.plan
    kinds = {slot.name: slot.kind for slot in plan.slots}
    good = Counter(
        kinds.get(send.app.rpartition("-")[0], "") for send in history.sends if send.fate in {ACKED, ONE_WAY}
    )
    happened = Counter(event.kind for event in history.events)
    consumed = {delivery.reader for delivery in history.deliveries if delivery.ok}
    acked = sum(len(send.ids) for send in history.sends if send.fate == ACKED)
    ended = Counter(event.ordered for event in history.events if event.kind == "ended" and event.code == 0)
    gaps = [
        *(["the run was ended before its plan was over"] if not history.over else []),
        *(["nothing was planned to befall the cluster"] if not plan.faults else []),
        *(["nothing was planned to befall applications"] if not plan.acts else []),
        *(
            [f"{acked:,} acknowledged sends, {ACKED_PER_S_MIN * plan.seconds:,.0f} are asked for"]
            if acked < ACKED_PER_S_MIN * plan.seconds
            else []
        ),
        *(f"{slot.name} sent nothing" for slot in plan.slots if not slot.group and not good[slot.kind]),
        *(f"{reader} consumed nothing" for reader in readers(history) if reader not in consumed),
        *(f"no {KINDS[one]}" for one in sorted({one.fault for one in plan.faults}) if not happened[KINDS[one]]),
        *(f"no application was {act}" for act in sorted({one.act for one in plan.acts}) if not happened[act]),
        *(
            f"no application ended after it was {act}"
            for act in (CLOSED, CANCELLED)
            if any(one.act == act for one in plan.acts) and not ended[act]
        ),
    ]
    return missing("V-evidence", "what was planned was seen", gaps)


def _when_over(history: AppHistory, finding: Finding) -> Finding:
    """Return what a check found of what was still to come: in a run that was ended before, that is no verdict."""
    return finding if history.over else replace(finding, verdict=Verdict.UNKNOWN)


def judge_folder(folder: Path) -> Results:
    """Judge a run by its folder, and write results.json there."""
    results = judge(read_history(folder))
    (folder / RESULTS).write_bytes(orjson.dumps(results.as_dict(), option=orjson.OPT_INDENT_2))
    return results
