"""What happened to a cluster, as files, and whether it was allowed to: histories, artefacts, checks, verdicts.

The history format is written by `chaos/` and read by every checker. A run is a folder:

* run.json           what was run: scenario, seed, promises, versions, the commands that replay and re-check it
* schedule.json      the faults that were drawn from the seed
* history/*.parquet  ops, reads, nemesis, replicas, as the nouns of `history.py` name their columns
* data/<member>/     the store folders after everything was killed
* results.json …     what the checks found (`results.py`), with junit.xml, summary.md and report.html

Times are CLOCK_MONOTONIC nanoseconds of one machine: `invoked` before the first byte is sent, `completed` after the
answer is decoded. An operation that was never answered has no `completed`. One with kind INFO may or may not have
happened, however long afterwards; FAIL only where it is proved that it did not.

* history: the nouns; parquet: their files; run: the folder; body: what messages of a run carry; bank: its transfers
* results: verdicts, witnesses, results.json
"""
