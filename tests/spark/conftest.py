"""One Spark session for all tests of a process: it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.spark.session import SparkMissing, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores with RaftMQ's data sources; without Java, tests that use it are skipped."""
    try:
        session = spark_session("tests", cores=2, quick=True)
    except SparkMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()
