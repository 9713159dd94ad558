"""What happened to a cluster, as files, and whether it was allowed to: histories, artefacts, checks, verdicts.

The history format is written by `chaos/` and read by every checker. A run is a folder:

* run.json           what was run: scenario, seed, promises, versions, the commands that replay and re-check it
* schedule.json      the faults that were drawn from the seed
* history/*.parquet  ops, reads, nemesis, replicas, as the nouns of `history/rows.py` name their columns
* data/<member>/     the store folders after everything was killed
* results.json …     what the checks found (`history/results.py`), with junit.xml, summary.md and report.html

Times are CLOCK_MONOTONIC nanoseconds of one machine: `invoked` before the first byte is sent, `completed` after the
answer is decoded. An operation that was never answered has no `completed`. One with kind INFO may or may not have
happened, however long afterwards; FAIL only where it is proved that it did not.

Rooms, each using those after it: judge (chooses an engine) over spark (checker, jobs, log, topic: the data sources),
plain (the same checks in plain Python), logs (store folders as columns), history (nouns, Parquet, promises, results).
"""
