"""Store folders of brokers as a source of Spark: `format("raftmq-log")`."""
