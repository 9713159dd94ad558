"""Makes SparkSessions: the right Java, workers on this interpreter, on loopback, quiet."""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

JAVA_MIN = 17
MEMORY_MB = 2048
# Tasks that shuffle, for each core: more only cost scheduling on one machine.
PARTITIONS_A_CORE = 2
# Rows that go to a Python worker at a time: bounds its memory.
ARROW_ROWS = 65_536
_VERSION = re.compile(r'version "(\d+)')
_SOURCES = (
    ("pipeline.spark.topic.source", "TopicDataSource"),
    ("pipeline.spark.log.logsource", "LogDataSource"),
)
# Short jobs end before the second compiler pays; one thread collects what they leave. Without that compiler Java keeps
# no more than 48 MB of compiled code, which Spark's classes outgrow: it would compile the same again and again.
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xshare:auto"
_LONG = "-XX:+UseParallelGC"
_LOG4J = Path(__file__).with_name("log4j2.properties")


class SparkMissing(Exception):
    """Spark cannot run on this machine; the text says what to install."""


def spark_session(
    name: str = "raftmq", *, cores: int | None = None, memory_mb: int = MEMORY_MB, quick: bool = False, **conf: str
) -> SparkSession:
    """Return the session of this process, with RaftMQ's data sources; under spark-submit it is the submitted one.

    `quick`: for jobs of seconds, such as tests. `conf` are settings of Spark, with _ for each dot. Raises SparkMissing.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return register(active)
    builder: Any = SparkSession.builder.appName(name)
    if not _submitted():
        check_java()
        count = cores or os.cpu_count() or 1
        builder = builder.master(f"local[{count}]")
        for key, value in _settings(count, memory_mb, quick=quick).items():
            builder = builder.config(key, value)
    for key, value in conf.items():
        builder = builder.config(key.replace("_", "."), value)
    # Workers are found by PATH otherwise, which is another interpreter as often as not.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return register(session)


def register(session: SparkSession) -> SparkSession:
    """Make `format("raftmq")` and `format("raftmq-log")` known to a session, and return it."""
    for module, source in _SOURCES:
        session.dataSource.register(getattr(import_module(module), source))
    return session


def check_java() -> None:
    """Raise SparkMissing unless there is a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"Spark needs Java {JAVA_MIN} or newer: on Debian, apt-get install openjdk-{JAVA_MIN}-jre-headless"
    if program is None or not Path(program).exists():
        raise SparkMissing(f"there is no java{' in JAVA_HOME' if home else ' on PATH'}. {advice}")
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    found = _VERSION.search(told)
    if found is None or int(found[1]) < JAVA_MIN:
        raise SparkMissing(f"{program} is Java {found[1] if found else 'of unknown version'}. {advice}")


def _submitted() -> bool:
    """Tell whether spark-submit started this program: its settings count then."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _settings(cores: int, memory_mb: int, *, quick: bool) -> dict[str, str]:
    java = f"{_QUICK if quick else _LONG} -Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    return {
        "spark.driver.memory": f"{memory_mb}m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores if quick else cores * PARTITIONS_A_CORE),
        # Planned anew behind each exchange, a job of a few rows takes half as long again.
        "spark.sql.adaptive.enabled": str(not quick).lower(),
        # By what an exchange has measured; without it this is what is set for the sizes of files.
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.worker.reuse": "true",
    }
