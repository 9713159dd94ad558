"""RaftMQ in Spark: sessions that know topics and logs as data sources; `pip install 'raftmq[spark]'`, Java 17 or newer.

    spark = spark_session("flights", cores=2)
    flights = spark.read.format("raftmq").option("namesrv", "127.0.0.1:9876").option("topic", "flights").load()

These are the public names. A session of one's own learns the sources by `register(session)`.
"""

from pipeline.spark.log.logsource import LogDataSource
from pipeline.spark.session import SparkMissing, register, spark_session
from pipeline.spark.topic.source import TopicDataSource

__all__ = ["LogDataSource", "SparkMissing", "TopicDataSource", "register", "spark_session"]
