"""Topics, logs and verdicts in Spark: all that imports pyspark, and nothing else of this project does.

session     the one place where a SparkSession is made
topic…      `format("raftmq")`: topics as batches and streams, and back
log…        `format("raftmq-log")`: the files of store folders, of RaftMQ and of RocketMQ itself
world       the evidence of a run, or of many small runs at once, as DataFrames
evidence    what several checks of a history share, derived from it; standing: where messages stand, cut down
replicas    what members left behind, and the one log that they agree on
check_…     the checks A1 to A26 and B1 to B14 and the guards, as plans; each has the definition of its twin
checker     all of them over a run's folder: the same results.json as the twin's
jobs/       audit, reconcile, archive, restore, compare
"""
