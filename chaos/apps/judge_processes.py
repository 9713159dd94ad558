"""What became of calls and processes: calls end in time, closed clients leave nothing, nobody ends by itself."""

import signal
from collections import defaultdict
from typing import Any

from chaos.apps.app import EXIT_FAILED
from chaos.apps.findings import judged
from chaos.apps.history import AppCall, AppHistory
from chaos.apps.plan import CANCELLED, CLOSED, KILLED
from pipeline.history.results import Finding

# A send may outlive its deadline by half a second (client/producer); the rest is what the machine takes.
SLICE_S = 0.75


def late(history: AppHistory) -> Finding:
    """Check that no call took longer than its deadline and a slice; while its process did not run, no time passed."""
    bad = [
        {
            "app": call.app,
            "call": call.what,
            "took_s": round(call.took, 2),
            "deadline_s": call.deadline,
            "stalled_s": round(call.stalled, 2),
            "error": call.error[:200],
        }
        for call in history.calls
        if excess(call) > SLICE_S
    ]
    return judged("C-late", "calls that outlived their deadline", len(history.calls), bad)


def excess(call: AppCall) -> float:
    """Return by how much a call outlived its deadline, in seconds."""
    return call.took - call.stalled - call.deadline


def longest(history: AppHistory) -> list[dict[str, Any]]:
    """Return for each kind of call how many there were and the longest, in seconds."""
    found: dict[str, list[AppCall]] = defaultdict(list)
    kinds = {slot.name: slot.kind for slot in history.plan.slots}
    for call in history.calls:
        found[f"{kinds.get(call.app.rpartition('-')[0], '?')}: {call.what}"].append(call)
    return [
        {
            "call": what,
            "calls": len(calls),
            "errors": sum(bool(call.error) for call in calls),
            "longest_s": round(max(call.took - call.stalled for call in calls), 2),
            "deadline_s": max(call.deadline for call in calls),
        }
        for what, calls in sorted(found.items())
    ]


def leftovers(history: AppHistory) -> Finding:
    """Check that a client that was closed, or whose use was cancelled, left no task, connection or thread."""
    bad = [
        {"app": ending.app, "tasks": ending.tasks, "connections": ending.connections, "threads": ending.threads}
        for ending in history.endings
        if ending.tasks or ending.connections or ending.threads
    ]
    return judged("E-left", "tasks, connections, threads left after close", len(history.endings), bad)


def ends(history: AppHistory) -> Finding:
    """Check that processes ended by order, in time, with exit code 0, or 3 when their client could not start."""
    told = {ending.app: ending for ending in history.endings}
    bad: list[dict[str, Any]] = []
    looked = 0
    for event in history.events:
        if event.kind == "hung":
            bad.append({"app": event.app, "what": f"did not end when it was {event.ordered}"})
        if event.kind != "ended":
            continue
        looked += 1
        ending = told.get(event.app)
        killed = event.code == -signal.SIGKILL and event.ordered
        if event.ordered == KILLED and killed:
            continue
        if event.code not in {0, EXIT_FAILED} and not killed:
            bad.append({"app": event.app, "what": f"ended with {event.code}, ordered: {event.ordered or 'nothing'}"})
        elif ending is None and not killed and event.ordered in {CLOSED, CANCELLED}:
            # A process that was told to end before it could listen is ended by that order as well.
            bad.append({"app": event.app, "what": "said nothing of its end"})
        elif ending is not None and ending.error and ending.started:
            bad.append({"app": event.app, "what": ending.error})
    bad += [{"app": app, "what": text} for app, text in history.complaints]
    return judged("E-ended", "processes that did not end well", looked, bad)
