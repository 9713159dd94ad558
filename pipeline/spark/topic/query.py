"""Runs a streaming query to its end, also where Spark gave up on the Python worker that reads the topic.

Spark waits ten seconds for a worker to come up, which no setting of it changes: on a busy machine a query fails before
it has read anything. Its checkpoint says where to go on.
"""

from collections.abc import Callable

import tenacity
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

STARTS = 4
_LATE = "Python worker failed to connect back"


def worker_late(error: BaseException) -> bool:
    """Tell whether Spark gave up on a worker that had not come up yet."""
    return isinstance(error, StreamingQueryException) and _LATE in str(error)


@tenacity.retry(retry=tenacity.retry_if_exception(worker_late), stop=tenacity.stop_after_attempt(STARTS), reraise=True)
def run_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that has a checkpoint, and wait for its end; raises StreamingQueryException when it failed."""
    query = start()
    query.awaitTermination()
    return query
