"""The example with Spark, run as a user would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.spark.session import SparkMissing, check_java
from tests.spark.topics import small_cluster

# Spark gives a Python worker ten seconds to come up, which no setting of it changes.
WORKER_LATE = "Python worker failed to connect back"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_wordcount.py"


def example(namesrv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**os.environ, "NAMESRV_ADDR": namesrv, "FLIGHTS": "1500"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.timeout(660)
def test_word_count(tmp_path: Path) -> None:
    try:
        check_java()
    except SparkMissing as error:
        pytest.skip(str(error))
    with small_cluster(tmp_path) as cluster:
        done = example(cluster.address)
        # On a busy machine a worker takes longer; what was sent before bears the tag of another run.
        if WORKER_LATE in done.stderr:
            done = example(cluster.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sent 1,500 flights" in done.stdout
    assert done.stdout.endswith("the counts agree with what was sent\n")
