"""What the checks of artefacts share."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipeline.artefacts import Artefact
from pipeline.catalogue import finding, skipped, unknown
from pipeline.replicas import Group, Replicas
from pipeline.results import Finding

Witness = dict[str, Any]
NO_FOLDER = "no store folder was read"


def each_group(
    check: str, replicas: Replicas, look: Callable[[Group], Iterable[Witness]], *, judged: bool = True
) -> Finding:
    """Return what a look at each broker group finds; the group's name stands in each witness if there are several."""
    if not replicas.groups:
        return skipped(check, NO_FOLDER)
    return finding(check, _named(replicas, look), judged=judged)


def whole_groups(
    check: str, replicas: Replicas, look: Callable[[Group], Iterable[Witness]], *, judged: bool = True
) -> Finding:
    """As each_group, where a finding of nothing means little unless all members were read."""
    found = each_group(check, replicas, look, judged=judged)
    missing = [member for group in replicas.groups for member in group.missing]
    if judged and not found.count and missing:
        return unknown(check, f"no store folder of {', '.join(missing)}")
    return found


def _named(replicas: Replicas, look: Callable[[Group], Iterable[Witness]]) -> Iterator[Witness]:
    for group in replicas.groups:
        for witness in look(group):
            yield {"broker": group.name, **witness} if len(replicas.groups) > 1 else witness


def in_gap(log: Artefact, position: int) -> bool:
    """Tell whether a position lies in a part of a log that cannot be read, or is no longer kept."""
    return position < log.begin or any(gap.start <= position < gap.end for gap in log.gaps)
