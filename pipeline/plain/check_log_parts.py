"""What the checks of artefacts share."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipeline.history.catalogue import finding, skipped, unknown
from pipeline.history.results import Finding
from pipeline.logs.member_files import Artefact
from pipeline.plain.replicas import ReplicaGroup, Replicas

Witness = dict[str, Any]
NO_FOLDER = "no store folder was read"
NOTHING_TOLD = "no acknowledgement told where a message stands"
NOTHING_EARLIER = "there is no earlier copy of a store, and no member told what it knew as committed"
NOTHING_REFUSED = "no send was refused, and there is no earlier copy of a store"
NO_HISTORY = "whether offsets went back is not judged: no history tells what was asked for"


def each_group(
    check: str, replicas: Replicas, look: Callable[[ReplicaGroup], Iterable[Witness]], *, judged: bool = True
) -> Finding:
    """Return what a look at each broker group finds; the group's name stands in each witness if there are several."""
    if not replicas.groups:
        return skipped(check, NO_FOLDER)
    return finding(check, _named(replicas, look), judged=judged)


def whole_groups(
    check: str, replicas: Replicas, look: Callable[[ReplicaGroup], Iterable[Witness]], *, judged: bool = True
) -> Finding:
    """As each_group, where a finding of nothing means little unless all members were read."""
    found = each_group(check, replicas, look, judged=judged)
    missing = [member for group in replicas.groups for member in group.missing]
    if judged and not found.count and missing:
        return unknown(check, f"no store folder of {', '.join(missing)}")
    return found


def not_judged(check: str, replicas: Replicas, why: str, *, has_evidence: bool) -> Finding | None:
    """Return that a check of logs has nothing to compare them with, and says nothing therefore; None where it has."""
    return None if has_evidence or not replicas.groups else skipped(check, why)


def _named(replicas: Replicas, look: Callable[[ReplicaGroup], Iterable[Witness]]) -> Iterator[Witness]:
    for group in replicas.groups:
        for witness in look(group):
            yield {"broker": group.name, **witness} if len(replicas.groups) > 1 else witness


def in_gap(log: Artefact, position: int) -> bool:
    """Tell whether a position lies in a part of a log that cannot be read, or is no longer kept."""
    return position < log.begin or any(gap.start <= position < gap.end for gap in log.gaps)
