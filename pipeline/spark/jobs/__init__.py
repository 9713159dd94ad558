"""Jobs over topics and logs that people run: each a function of a session and plain options, giving a plain report.

audit       what is in a topic between two times
reconcile   a producer's own ledger against a topic
archive     a topic into Parquet files by date, resumable, each message once
restore     such files back into a topic
compare     the logs of a group's members against one another

`raftmq pipeline NAME` runs them on this machine, raftmq/submit.py under spark-submit on a cluster.
"""
