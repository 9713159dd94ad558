"""The store: one CommitLog for all topics, and what is derived from it; RocketMQ's files byte for byte.

A store folder holds ``commitlog/`` (records back to back in files of equal size, each ending in a blank),
``consumequeue/<topic>/<queue>/`` (20-byte entries that point into the log), ``index/`` (keys to positions),
``checkpoint``, ``abort`` (there while a process runs: found at start, it means an unclean stop) and ``lock``.
Only the CommitLog is the truth: queues and index may lag behind it on disk, never lead it, and match it after a start.

The package is synchronous: no asyncio, no sockets. Threads:

* the caller's thread (the broker's loop) puts, writes, dispatches and reads what is in memory;
* one *flusher* does fdatasync for everything written so far: a group commit for whoever waits; where it can the kernel
  does it for them, and the caller's thread collects what it did (unless kernelSyncEnable is false);
* one *helper* makes the next file and fills zeros ahead of the writing, syncs the derived files, removes old files;
* the caller's own pool runs read_cold() for what is not in memory.

Straight line of a record: messagestore.put → commitlog (pending buffer) → messagestore.write → disk.pwrite → dispatch →
consumequeue, indexfile, StoreEvents.dispatched; then flusher → StoreEvents.flushed.

Rooms, each using those below it:

* messagestore: the face; events: what it tells of; worker: the thread for what the loop must not wait for
* slave: a slave's log, the master's bytes; truncation takes back what the master has not
* recovery: what happens at start; inspect reads a folder offline
* raftlog: a group member's entries in the same log; what is not committed stays out of the queues. reads: answers
* integrity: what is served was checked; the scrub
* log: the CommitLog while it grows, dispatch, flusher, checkpointer, retention
* derived: ConsumeQueues and index
* files: files of a store and the seam to the operating system (disk)
* controlrecord: the record that opens an entry; types, errors, config: nouns, failures, configuration
"""
