"""Judges what a run left by whichever checker suits it: plain Python for small histories, Spark for any size."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pipeline.artefacts import read_artefact
from pipeline.evidence import History
from pipeline.history import Op
from pipeline.parquet import HistoryError, count_rows
from pipeline.promises import Promises, promises_of
from pipeline.replicas import Replicas
from pipeline.results import Results
from pipeline.run import RunFolder, logged_bytes
from pipeline.twin import judge
from pipeline.twin_log import LOG_CHECKS
from store.errors import StoreError

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
        from pipeline.spark.checker import check_run

        return _told(check_run(run, promises, progress=progress), "spark")
    return _told(judge(run, promises), "plain")


def judge_history(
    run: RunFolder, promises: Promises | None = None, engine: Engine = "auto", progress: Progress | None = None
) -> Results:
    """Judge a run by what its clients saw alone: no store folder is looked at. Raises as judge_run."""
    if _is_spark(engine, needed=count_rows(run.file(Op), Op) * PLAIN_BYTES_AN_OP):
        from pipeline.spark.checker import check_run

        return _told(check_run(run, promises, progress=progress, stores=False), "spark")
    history = History(run.ops(), run.reads(), run.faults(), run.looks(), promises or run.promises())
    return _told(judge(history), "plain")


def judge_stores(
    folders: Sequence[Path], mode: str, engine: Engine = "auto", progress: Progress | None = None
) -> Results:
    """Judge the store folders of one broker group, of which nothing else is known, by the checks of logs alone.

    Members are called as their folders. Raises HistoryError for a folder that is no store's, EngineMissing.
    """
    names = tuple(path.name for path in folders)
    if len(set(names)) < len(names):
        raise HistoryError(f"two of the folders have one name, and members are called by it: {', '.join(names)}")
    promises = promises_of(mode, {"": names}, acknowledged_min=0)
    if _is_spark(engine, needed=logged_bytes(folders) * PLAIN_BYTES_A_LOG_BYTE):
        from pipeline.spark.checker import check_stores

        return _told(check_stores(folders, promises, progress=progress), "spark")
    try:
        artefacts = [read_artefact(path) for path in folders]
    except StoreError as error:
        raise HistoryError(str(error)) from error
    replicas = Replicas(History((), (), promises=promises), artefacts)
    return _told(Results(tuple(check(replicas) for check in LOG_CHECKS)), "plain")


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
        return 'PySpark is not installed: pip install "raftmq[spark]"'
    from pipeline.spark.session import SparkMissing, check_java

    try:
        check_java()
    except SparkMissing as error:
        return str(error)
    return ""
