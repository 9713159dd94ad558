"""How fast Spark gets through logs, runs and topics: `raftmq bench pipeline`. Each figure is of data made for it."""

import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from chaos.host.local import LocalCluster
from client.message import Message
from pipeline.history.folder import DATA, RunFolder
from pipeline.spark.checker.checker import check_run
from pipeline.spark.session import spark_session
from raftmq.bench.bigrun import BODY_BYTES, MEMBERS, make_log, make_run
from raftmq.sync import AdminClient, Producer

CORES = 2
TOPIC, QUEUES, BATCH = "bench", 4, 512
LARGE_BODY_BYTES = 1024
# What docs/spark.md advises for brokers that Spark reads: what the source asks for at a time is given.
LARGE_ANSWERS = {"maxTransferCountOnMessageInMemory": 1024, "maxTransferBytesOnMessageInMemory": 1024 * 1024}
# What is read of a log, by schema.
LOG_COLUMNS = {
    "messages": ("topic", "queueId", "queueOffset", "storeTimestamp", "size", "body"),
    "records": ("queue", "offset", "position", "size", "crc", "writer", "counter", "digest"),
}
# A log is read so often, and what took neither longest nor shortest counts.
PASSES = 3
# A session is slower at first: its workers start, and Java compiles. Such a log is read before anything is measured.
WARM_UP_MESSAGES, WARM_UP_PASSES = 50_000, 10
# Batches that the filler has in flight.
WINDOW = 32
MIB = 1024 * 1024
Say = Callable[[str], None]
Figures = dict[str, Any]


class BenchPart(StrEnum):
    """What can be measured."""

    TOPIC = "topic"
    LOG = "log"
    CHECKER = "checker"


def run_pipeline(messages: int, parts: Collection[BenchPart], folder: Path | None, say: Say) -> Iterator[Figures]:
    """Measure some parts, and tell each figure when it is known.

    The topic source, and a log of larger messages, are measured with a tenth of `messages`; log source and checker on
    a run of a tenth, then on one of all. Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=folder) as work:
        spark = spark_session("raftmq bench", cores=CORES)
        try:
            _warm_up(spark, Path(work) / "warm-up", say)
            if BenchPart.TOPIC in parts:
                yield from _topic_source(spark, messages // 10, Path(work) / "topic", say)
            if BenchPart.LOG in parts:
                store = Path(work) / "large"
                say(f"making a log of {messages // 10:,} messages of {LARGE_BODY_BYTES} B")
                _apart(partial(make_log, store, messages // 10, LARGE_BODY_BYTES, _made))
                yield from _log_source(spark, store, LARGE_BODY_BYTES, say)
                shutil.rmtree(store)
            for count in (messages // 10, messages) if {BenchPart.LOG, BenchPart.CHECKER} & set(parts) else ():
                run = Path(work) / str(count)
                say(f"making a run of {count:,} messages on {len(MEMBERS)} members")
                _apart(partial(make_run, run, count, progress=_made))
                if BenchPart.LOG in parts:
                    yield from _log_source(spark, run / DATA / MEMBERS[0], BODY_BYTES, say)
                if BenchPart.CHECKER in parts:
                    yield _checker(spark, run, count, say)
        finally:
            spark.stop()


def _apart(make: Callable[[], None]) -> None:
    """Make something in another process: what that takes is no memory of the driver's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as maker:
        maker.submit(make).result()


def _made(done: int) -> None:
    print(f"made {done:,}", file=sys.stderr)


def _warm_up(spark: SparkSession, store: Path, say: Say) -> None:
    say("warming up")
    _apart(partial(make_log, store, WARM_UP_MESSAGES, BODY_BYTES, _made))
    for _ in range(WARM_UP_PASSES):
        for schema in LOG_COLUMNS:
            _read_log(spark, store, schema)
    shutil.rmtree(store)


def _log_source(spark: SparkSession, store: Path, body_bytes: int, say: Say) -> Iterator[Figures]:
    """Read a log with every CRC compared: as messages, and as the checker does, which has each record's own CRC too."""
    # What is written to the disk behind the reader's back takes time from it.
    os.sync()
    for schema in LOG_COLUMNS:
        say(f"log source, {schema} of {body_bytes} B")
        passes = []
        for _ in range(PASSES):
            with _took() as took:
                count, size = _read_log(spark, store, schema)
            passes.append(took[0])
        middle = [statistics.median(passes)]
        rate = round(size / 1e6 / middle[0])
        yield _figures(f"log source, {schema} of {body_bytes} B", count, middle, mb_per_second=rate)


def _read_log(spark: SparkSession, store: Path, schema: str) -> tuple[int, int]:
    """Read every row and every column that is wanted; return how many records there are, and their bytes."""
    columns = LOG_COLUMNS[schema]
    frame = spark.read.format("raftmq-log").options(schema=schema, columns=",".join(columns)).load(str(store))
    wanted = [F.max(F.length(name) if name in {"topic", "body"} else name) for name in columns]
    row = frame.agg(F.count(F.lit(1)).alias("n"), F.sum("size").alias("bytes"), *wanted).collect()[0]
    return int(row.n), int(row.bytes)


def _checker(spark: SparkSession, run: Path, count: int, say: Say) -> Figures:
    """Judge a run by all checks; it is valid, or the figure is none."""
    with _took() as took:
        results = check_run(RunFolder(run), progress=say)
    return _figures(
        f"checker, {len(MEMBERS)} replicas", count, took, verdict=str(results.verdict),
        jvm_peak_mib=_peak_mib(spark), driver_peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )  # fmt: skip


def _topic_source(spark: SparkSession, count: int, folder: Path, say: Say) -> Iterator[Figures]:
    """Read a topic of a single broker on this machine: as brokers are by default, and as they suit who reads much."""
    for what, settings in (("topic source, 32 messages an answer", {}), ("topic source, large answers", LARGE_ANSWERS)):
        say(f"filling a topic with {count:,} messages")
        with LocalCluster(folder / ("large" if settings else "default"), broker_settings=settings) as cluster:
            _fill(cluster.address, count)
            say(what)
            given = {"namesrv": cluster.address, "topic": TOPIC, "columns": "queueId,queueOffset,body"}
            frame = spark.read.format("raftmq").options(**given).load()
            with _took() as took:
                row = frame.agg(F.count(F.lit(1)).alias("n"), F.sum(F.length("body")).alias("bytes")).collect()[0]
        yield _figures(what, int(row.n), took, mb_per_second=round(row.bytes / 1e6 / took[0]))


def _fill(namesrv: str, count: int) -> None:
    with AdminClient(namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
    batch = [Message(TOPIC, (b"%d " % number).ljust(BODY_BYTES, b"x")) for number in range(BATCH)]
    with Producer("bench_filler", namesrv, send_timeout=30.0) as producer:
        under_way = []
        for _ in range(-(-count // BATCH)):
            under_way.append(producer.send_async(batch))
            if len(under_way) > WINDOW:
                under_way.pop(0).result(30)
        for one in under_way:
            one.result(30)


@contextmanager
def _took() -> Iterator[list[float]]:
    """Give a list that holds the seconds of the block, once it has ended."""
    seconds: list[float] = []
    began = time.perf_counter()
    yield seconds
    seconds.append(time.perf_counter() - began)


def _figures(what: str, messages: int, took: list[float], **more: Any) -> Figures:
    seconds = took[0]
    return {
        "what": what,
        "messages": messages,
        "seconds": round(seconds, 1),
        "per_second": round(messages / seconds),
        **more,
    }


def _peak_mib(spark: SparkSession) -> int:
    """Return the most memory that Spark's JVM has had, in MiB."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 # PySpark has no other door to it
    pid = jvm.java.lang.ProcessHandle.current().pid()
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise ProcessLookupError(f"no memory of process {pid} is told")
