"""How fast Spark gets through logs, runs and topics: `raftmq bench pipeline`. Each figure is of data made for it."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from chaos.local import LocalCluster
from client.message import Message
from pipeline.run import DATA, RunFolder
from pipeline.spark.checker import check_run
from pipeline.spark.session import spark_session
from raftmq.bench.bigrun import MEMBERS, make_run
from raftmq.sync import AdminClient, Producer

CORES = 2
TOPIC, QUEUES, BATCH, BODY_BYTES = "bench", 4, 512, 100
# What docs/spark.md advises for brokers that Spark reads: what the source asks for at a time is given.
LARGE_ANSWERS = {"maxTransferCountOnMessageInMemory": 1024, "maxTransferBytesOnMessageInMemory": 1024 * 1024}
# What is read of a log, by schema.
LOG_COLUMNS = {
    "messages": ("topic", "queueId", "queueOffset", "storeTimestamp", "body"),
    "records": ("queue", "offset", "position", "size", "crc", "writer", "counter", "digest"),
}
# Batches that the filler has in flight.
WINDOW = 32
MIB = 1024 * 1024
Say = Callable[[str], None]
Figures = dict[str, Any]


def run_pipeline(messages: int, folder: Path | None, say: Say) -> Iterator[Figures]:
    """Measure the topic source on a tenth of `messages`, log source and checker on that and on all; told one by one."""
    with tempfile.TemporaryDirectory(prefix="raftmq-bench-", dir=folder) as work:
        spark = spark_session("raftmq bench", cores=CORES)
        try:
            yield from _topic_source(spark, messages // 10, Path(work) / "topic", say)
            for count in (messages // 10, messages):
                run = Path(work) / str(count)
                say(f"making a run of {count:,} messages on {len(MEMBERS)} members")
                # By another process: what making it takes is no memory of the driver's.
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as maker:
                    maker.submit(make_run, run, count, progress=_made).result()
                yield from _log_source(spark, run / DATA / MEMBERS[0], say)
                yield _checker(spark, run, count, say)
        finally:
            spark.stop()


def _made(done: int) -> None:
    print(f"making a run: {done:,}", file=sys.stderr)


def _log_source(spark: SparkSession, store: Path, say: Say) -> Iterator[Figures]:
    """Read a log with every CRC compared: as messages, and as the checker does, which has each record's own CRC too."""
    size = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    for schema, columns in LOG_COLUMNS.items():
        say(f"log source, {schema}")
        read = spark.read.format("raftmq-log").options(schema=schema, columns=",".join(columns))
        wanted = [F.max(F.length(name) if name in {"topic", "body"} else name) for name in columns]
        with _took() as took:
            row = read.load(str(store)).agg(F.count(F.lit(1)).alias("n"), *wanted).collect()[0]
        yield _figures(f"log source, {schema}", int(row.n), took, mb_per_second=round(size / 1e6 / took[0]))


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
