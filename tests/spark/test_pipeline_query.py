"""A query whose Python worker was late is started again, others are not, and no query for ever."""

from collections.abc import Callable
from typing import cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.spark.topic.query import STARTS, run_query

LATE = "Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


class Failing:
    """A query that fails with these words, one after the other, and then ends well."""

    def __init__(self, *words: str) -> None:
        self._words = list(words)
        self.starts = 0

    def start(self) -> "Failing":
        self.starts += 1
        return self

    def awaitTermination(self) -> None:
        if self._words:
            raise StreamingQueryException(self._words.pop(0))


def starter(query: Failing) -> Callable[[], StreamingQuery]:
    return cast("Callable[[], StreamingQuery]", query.start)


def test_one_that_was_late_is_started_again() -> None:
    query = Failing(LATE, LATE)
    assert run_query(starter(query)) is cast("StreamingQuery", query)
    assert query.starts == 3


def test_what_is_wrong_is_told_at_once() -> None:
    query = Failing("the topic ends at 0")
    with pytest.raises(StreamingQueryException, match="ends at 0"):
        run_query(starter(query))
    assert query.starts == 1


def test_no_query_is_started_for_ever() -> None:
    query = Failing(*[LATE] * 10)
    with pytest.raises(StreamingQueryException, match="connect back"):
        run_query(starter(query))
    assert query.starts == STARTS
