"""`format("raftmq")`: a topic as a batch or streaming source and as a sink.

spark.read.format("raftmq").option("namesrv", "127.0.0.1:9876").option("topic", "flights").load()
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.spark.topic.batch import PushingTopicReader, TopicReader
from pipeline.spark.topic.options import COLUMNS, OptionError, TopicOptions, topic_options
from pipeline.spark.topic.sink import StreamTopicWriter, TopicWriter
from pipeline.spark.topic.stream import TopicStreamReader

_TYPES: dict[str, DataType] = {
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "properties": MapType(StringType(), StringType()),
    "body": BinaryType(),
}


class TopicDataSource(DataSource):
    """See docs/spark.md for the options."""

    @classmethod
    def name(cls) -> str:
        """Return what format(...) takes."""
        return "raftmq"

    def schema(self) -> StructType:
        """Return the columns that the option `columns` names, or all."""
        return StructType([StructField(name, _TYPES.get(name, StringType())) for name in self._read().columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads a batch."""
        options = self._read()
        kind = PushingTopicReader if options.push_tags else TopicReader
        return kind(options, _checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what plans and reads a stream's micro-batches."""
        return TopicStreamReader(self._read(), _checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes a batch."""
        return TopicWriter(self._read(), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what writes a stream's micro-batches."""
        return StreamTopicWriter(self._read(), schema, overwrite=overwrite)

    def _read(self) -> TopicOptions:
        return topic_options(self.options)


def _checked(schema: StructType) -> StructType:
    """Return the schema that a user gave, if it is one of a topic's columns; raises OptionError."""
    for wanted in schema:
        kind = _TYPES.get(wanted.name, StringType())
        if wanted.name not in COLUMNS or wanted.dataType != kind:
            raise OptionError(
                f"a topic has no column {wanted.name} of type {wanted.dataType.simpleString()}: leave the schema out, "
                f"or choose among {', '.join(COLUMNS)} by the option columns"
            )
    return schema
