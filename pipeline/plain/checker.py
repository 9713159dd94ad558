"""Judges a run in plain Python: client checks, log checks and guards together, for up to some 100,000 operations.

The Spark checker gives the same findings at any size; property tests hold the two against each other.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pipeline.history.folder import RunFolder
from pipeline.history.promises import Promises
from pipeline.history.results import Results
from pipeline.logs.member_files import Artefact, read_artefact
from pipeline.plain.check_guards import GUARDS
from pipeline.plain.client_checks import CLIENT_CHECKS
from pipeline.plain.evidence import History
from pipeline.plain.figures import figures_of
from pipeline.plain.guard_stores import check_v8, no_stores_asked
from pipeline.plain.log_checks import LOG_CHECKS
from pipeline.plain.replicas import Replicas
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
    unknown then, and so is the run (V8). Raises HistoryError, OSError for a run that cannot be read.
    """
    with _without_collector():
        return _judged(run, promises, artefacts, earlier)


def _judged(
    run: RunFolder | History,
    promises: Promises | None,
    artefacts: Sequence[Artefact],
    earlier: Sequence[Sequence[Artefact]],
) -> Results:
    has_stores = isinstance(run, RunFolder) or bool(artefacts)
    if isinstance(run, RunFolder):
        artefacts = _readable(run.members())
        earlier = earlier or [_readable(moment) for moment in run.earlier()]
        history = History(
            run.ops(), run.reads(), run.faults(), run.looks(), promises or run.promises(), beats=run.beats()
        )
    else:
        history = run if promises is None else replace(run, promises=promises)
    replicas = Replicas(history, artefacts, earlier)
    if history.merged is None and replicas.groups:
        replicas = replicas.resolved()
        history = replicas.history
    findings = [check(history) for check in CLIENT_CHECKS]
    findings += [check(replicas) for check in LOG_CHECKS]
    findings += [guard(history) for guard in GUARDS]
    findings.append(check_v8(history.promises, stores_read(artefacts)) if has_stores else no_stores_asked())
    return Results(tuple(findings), figures_of(replicas))


def stores_read(artefacts: Sequence[Artefact]) -> dict[str, bool]:
    """Return member → whether its log holds anything, of the store folders that were read."""
    return {log.member: log.end > log.begin for log in artefacts}


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
