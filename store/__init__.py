"""The store: one CommitLog for all topics, and what is derived from it; RocketMQ's files byte for byte.

A store folder holds ``commitlog/`` (records back to back in files of equal size, each ending in a blank),
``consumequeue/<topic>/<queue>/`` (20-byte entries that point into the log), ``index/`` (keys to positions),
``checkpoint``, ``abort`` (there while a process runs: found at start, it means an unclean stop) and ``lock``.
Only the CommitLog is the truth: queues and index may lag behind it on disk, never lead it, and match it after a start.

The package is synchronous: no asyncio, no sockets. Threads:

* the caller's thread (the broker's loop) puts, writes, dispatches and reads what is in memory;
* one *flusher* does fdatasync for everything written so far: a group commit for whoever waits;
* one *helper* makes the next file and fills zeros ahead of the writing, syncs the derived files, removes old files;
* the caller's own pool runs read_cold() for what is not in memory.

Straight line of a record: messagestore.put → commitlog (pending buffer) → messagestore.write → disk.pwrite → dispatch →
consumequeue, indexfile, on_dispatched; then flusher → on_flushed.

* types, errors, config: nouns, failures, configuration
* disk: the seam to the operating system; mappedfile: one log file; commitlog: the row of them
* flusher, lockfile, checkpoint, recovery: durability and what happens at start
* consumequeue, indexfile, dispatch, timesearch, retention: derived files and what is forgotten when
* controlrecord, entrylog (face of a Raft group member's log), entrybuild, entrycheck, entryfinder, entryrepair,
  heldback, floorfile, groupscan, grouprecovery: entries in the same log; what is not committed stays out of the queues
* slavelog, recordreader: a slave's log, the master's bytes; cutting: takes back what the master has not
* messagestore, reads, logbytes: the face; inspect: reads a folder offline
"""
