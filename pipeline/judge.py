"""Judges what a run left by whichever checker suits it: plain Python for small histories, Spark for any size."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pipeline.history.folder import RunFolder, logged_bytes, named_folders
from pipeline.history.parquet import HistoryError, count_rows
from pipeline.history.promises import Promises, promises_of
from pipeline.history.results import Results
from pipeline.history.rows import Op
from pipeline.logs.member_files import read_artefact
from pipeline.plain.checker import judge, stores_read
from pipeline.plain.evidence import History
from pipeline.plain.guard_stores import check_v8
from pipeline.plain.log_checks import LOG_CHECKS
from pipeline.plain.replicas import Replicas
from store.errors import StoreError
from store.recovery.inspect import StoreFolder

Engine = Literal["auto", "plain", "spark"]
ENGINES: tuple[Engine, ...] = ("auto", "plain", "spark")
# Plain Python is quicker as long as there is memory for it: Spark takes seconds to plan each check. So much memory
# takes an operation with its share of what was read and of three replicas' logs (6.2 KiB measured), or a byte of a log.
PLAIN_BYTES_AN_OP = 7 * 1024
PLAIN_BYTES_A_LOG_BYTE = 8
# Of the machine's memory: the rest is for the file cache and for who else is there.
PLAIN_MEMORY_SHARE = 0.5
Progress = Callable[[str], None]
"""Told which part is looked at now."""


class EngineMissing(Exception):
    """The engine that was asked for cannot run here; the text says what to install."""


def judge_run(
    run: RunFolder, promises: Promises | None = None, engine: Engine = "auto", progress: Progress | None = None
) -> Results:
    """Judge a run by what it promised, or by `promises`; which engine did it stands in the figures.

    "auto" takes Spark, where it can run, for what plain Python needs more than half of the memory for. Raises
    HistoryError, OSError for a run that cannot be read, EngineMissing for "spark" without PySpark or Java.
    """
    if _is_spark(engine, needed=count_rows(run.file(Op), Op) * PLAIN_BYTES_AN_OP):
        # Only here: whoever judges in plain Python needs no PySpark.
        from pipeline.spark.checker.checker import check_run

        return _told(check_run(run, promises, progress=progress), "spark")
    return _told(judge(run, promises), "plain")


def judge_history(
    run: RunFolder, promises: Promises | None = None, engine: Engine = "auto", progress: Progress | None = None
) -> Results:
    """Judge a run by what its clients saw alone: no store folder is looked at. Raises as judge_run."""
    if _is_spark(engine, needed=count_rows(run.file(Op), Op) * PLAIN_BYTES_AN_OP):
        from pipeline.spark.checker.checker import check_run

        return _told(check_run(run, promises, progress=progress, stores=False), "spark")
    history = History(run.ops(), run.reads(), run.faults(), run.looks(), promises or run.promises(), beats=run.beats())
    return _told(judge(history), "plain")


def judge_stores(
    folders: Sequence[Path], mode: str, engine: Engine = "auto", progress: Progress | None = None
) -> Results:
    """Judge the store folders of one broker group, of which nothing else is known, by the checks of logs alone.

    Members are called as their folders, by as much of the path as tells them apart. A folder in which nothing stands
    makes the result unknown. Raises HistoryError for a folder that is no store's, or that is given twice, and
    EngineMissing.
    """
    members = named_folders(folders)
    promises = promises_of(mode, {"": tuple(members)}, acknowledged_min=0)
    try:
        for path in folders:
            StoreFolder(path)
    except StoreError as error:
        raise HistoryError(str(error)) from error
    if _is_spark(engine, needed=logged_bytes(folders) * PLAIN_BYTES_A_LOG_BYTE):
        from pipeline.spark.checker.checker import check_stores

        return _told(check_stores(folders, promises, progress=progress), "spark")
    try:
        artefacts = [read_artefact(path, name) for name, path in members.items()]
    except StoreError as error:
        raise HistoryError(str(error)) from error
    replicas = Replicas(History((), (), promises=promises), artefacts)
    found = [*(check(replicas) for check in LOG_CHECKS), check_v8(promises, stores_read(artefacts))]
    return _told(Results(tuple(found)), "plain")


def _told(found: Results, engine: str) -> Results:
    return replace(found, figures={**found.figures, "engine": engine})


def _is_spark(engine: Engine, *, needed: int) -> bool:
    """Tell whether Spark judges what plain Python needs so many bytes of memory for."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if engine == "plain" or (engine == "auto" and needed <= memory * PLAIN_MEMORY_SHARE):
        return False
    why = why_no_spark()
    if why and engine == "spark":
        raise EngineMissing(why)
    return not why


def why_no_spark() -> str:
    """Return why Spark cannot run here, and what to do; "" when it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'raftmq[spark]'"
    from pipeline.spark.session import SparkMissing, check_java

    try:
        check_java()
    except SparkMissing as error:
        return str(error)
    return ""
