"""Judges a run in plain Python: client checks, log checks and guards together, for up to some 100,000 operations.

The Spark checker gives the same findings at any size; property tests hold the two against each other.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pipeline.artefacts import Artefact, read_artefact
from pipeline.evidence import History
from pipeline.figures import figures_of
from pipeline.guards import GUARDS
from pipeline.promises import Promises
from pipeline.replicas import Replicas
from pipeline.results import Results
from pipeline.run import RunFolder
from pipeline.twin_client import CLIENT_CHECKS
from pipeline.twin_log import LOG_CHECKS
from store.errors import StoreError


def judge(
    run: RunFolder | History,
    promises: Promises | None = None,
    artefacts: Sequence[Artefact] = (),
    earlier: Sequence[Sequence[Artefact]] = (),
) -> Results:
    """Judge a run by what it promised; `promises`, when given, count instead of its own.

    Of a folder the store folders are read, earlier copies too; beside a history come the `artefacts` of its members.
    `earlier` are those of moments before the end. The merged log of the members tells of sends without an answer
    whether they happened. A member's folder that is no store folder counts as missing: what needs all members is
    unknown then. Raises HistoryError, OSError for a run that cannot be read.
    """
    with _without_collector():
        return _judged(run, promises, artefacts, earlier)


def _judged(
    run: RunFolder | History,
    promises: Promises | None,
    artefacts: Sequence[Artefact],
    earlier: Sequence[Sequence[Artefact]],
) -> Results:
    if isinstance(run, RunFolder):
        artefacts = _readable(run.members())
        earlier = earlier or [_readable(moment) for moment in run.earlier()]
        history = History(run.ops(), run.reads(), run.faults(), run.looks(), promises or run.promises())
    else:
        history = run if promises is None else replace(run, promises=promises)
    replicas = Replicas(history, artefacts, earlier)
    if history.merged is None and replicas.groups:
        replicas = replicas.resolved()
        history = replicas.history
    findings = [check(history) for check in CLIENT_CHECKS]
    findings += [check(replicas) for check in LOG_CHECKS]
    findings += [guard(history) for guard in GUARDS]
    return Results(tuple(findings), figures_of(replicas))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Hold the search for objects that refer to one another: rows do not, and are looked through again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _readable(folders: Sequence[Path]) -> list[Artefact]:
    found = []
    for path in folders:
        with suppress(StoreError):
            found.append(read_artefact(path))
    return found
