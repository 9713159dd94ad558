"""The example with Spark, run as a user would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.spark.session import SparkMissing, check_java
from tests.spark.topics import small_cluster

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_wordcount.py"


@pytest.mark.timeout(240)
def test_word_count(tmp_path: Path) -> None:
    try:
        check_java()
    except SparkMissing as error:
        pytest.skip(str(error))
    with small_cluster(tmp_path) as cluster:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            env={**os.environ, "NAMESRV_ADDR": cluster.address, "FLIGHTS": "1500"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sent 1,500 flights" in done.stdout
    assert done.stdout.endswith("the counts agree with what was sent\n")
