"""What a run promises, by its mode, faults and workloads: the one place, for `raftmq chaos run` and the pytest plugin.

Whatever is judged rests on a promise that stands here: a run that was put together elsewhere would pass with the checks
skipped that nobody had promised anything for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chaos.faults.survivable import survivable
from chaos.host.local import Mode
from chaos.load.workload import Workload
from chaos.runs.scenario import Scenario, promised
from chaos.runs.session import lasting
from chaos.workloads.catalogue import make_workload
from pipeline.history.promises import Promises

# A member that is killed, paused or cut off brings another leader when it led.
CHANGES_LEADER = (
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
# Of these a scenario's promises are made; the others stay when something else of it is changed.
_MADE_OF = ("faults", "workloads")
_MADE = ("consumer_groups", "orderly_groups", "faults_min", "survives", "leader_change_on")
SECONDS = 20.0


def promises_for(
    mode: Mode,
    nodes: int,
    faults: Sequence[str],
    workloads: Sequence[str | Callable[[], Workload]],
    /,
    **changes: Any,
) -> Promises:
    """Return what a run of these faults and workloads promises in a mode; `changes` are fields of Promises.

    Every consumer group of a workload is promised to consume everything (A17), in order where it says so (A19); every
    fault that can must bring another leader (V3), and those that the mode survives must not stop it (A25).
    """
    made = [make_workload(one) for one in workloads]
    given = {
        "consumer_groups": tuple(group for one in made for group in one.groups),
        "orderly_groups": tuple(group for one in made if one.orderly for group in one.groups),
        "faults_min": 1 if faults else 0,
        "survives": tuple(fault for fault in survivable(mode, nodes) if fault in faults),
        "leader_change_on": tuple(fault for fault in dict.fromkeys(faults) if fault in CHANGES_LEADER)
        if mode == "raft"
        else (),
        **changes,
    }
    return promised(mode, nodes, **given)


def composed(name: str, promises: dict[str, Any], changes: dict[str, Any]) -> Scenario:
    """Return a new scenario of these fields; `promises` are fields of Promises that are other than what they imply."""
    # With links that can be cut, so that every fault can be asked for.
    asked: dict[str, Any] = {"mode": "raft", "nodes": 3, "seconds": SECONDS, "links": True, **changes}
    parts = asked["mode"], asked["nodes"], asked.get("faults", ()), asked.get("workloads", ("send",))
    return Scenario(name=name, promises=promises_for(*parts, **promises), **asked)


def changed(base: Scenario, promises: dict[str, Any], changes: dict[str, Any]) -> Scenario:
    """Return a scenario with fields changed, and with the promises that the changed one implies.

    A load that is shorter asks for fewer acknowledged sends, unless `promises` or `changes` say how many.
    """
    fields = dict(changes)
    seconds = fields.pop("seconds", None)
    if seconds is not None:
        base = lasting(base, seconds)
    if fields.keys() & {*_MADE_OF, "mode", "nodes"}:
        fields.setdefault("links", True)
        after = replace(base, **fields)
        implied = promises_for(after.mode, after.nodes, after.faults, after.workloads)
        kept = {} if fields.keys() & {"mode", "nodes"} else _kept(base)
        promises = {**kept, **{one: getattr(implied, one) for one in _MADE}, **promises}
        return replace(after, promises=replace(implied, **promises))
    return replace(base, promises=replace(base.promises, **promises), **fields)


def _kept(base: Scenario) -> dict[str, Any]:
    """Return the fields of the base's promises, under their names."""
    return {name: getattr(base.promises, name) for name in base.promises.as_dict()}
