"""One Spark session for all tests of a process: it takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.spark.session import SparkMissing, spark_session

# The code that Spark would make of a check's plan and compile runs once, on a few rows: that was a quarter of the time.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_CHECKS = ("test_pipeline_check", "test_pipeline_parity", "test_pipeline_figures")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores with RaftMQ's data sources; without Java, tests that use it are skipped."""
    try:
        session = spark_session("tests", cores=2, quick=True)
    except SparkMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _as_it_pays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have `make test` interpret plans of checks; the long tests of the same have code made of them, as users do."""
    if not request.path.name.startswith(_CHECKS) or "not long" not in request.config.getoption("markexpr"):
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = {name: conf.get(name) for name in _INTERPRETED}
    for name, value in _INTERPRETED.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)
