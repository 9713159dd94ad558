"""Topics as a source and a sink of Spark, batch and streaming: `format("raftmq")`."""
