"""Timer messages, the broker's side: which are pending (index, feed), when they go (timers), how they are recalled.

What is pending is a function of the log alone. rmq_sys_wheel_timer's queue 0 holds the messages that wait, as RocketMQ
has them. Its queue 1, ours, holds marks (marks.py): "from here on everything up to this slot is to be delivered", and
"delivered up to here", the latter in one append, in a group in one entry, with the messages it speaks of. Who takes
over, after a restart, a failover, a promotion or from a copied store, reads the last mark and goes on: nothing is
delivered twice, and nothing is forgotten. A message that comes when its slot was already closed gets the next moment
instead; that too is decided by the order of the log, so that all members hold the same.

The index (index.py, store/timerruns.py) is derived: a bounded buffer in memory and sorted files of fixed entries beside
the log (timerindex/), each written once, named by a manifest that says up to where the two queues are in it. Every
member keeps its own; one that does not fit the log is built anew from it. Of RocketMQ's files only timercheck is read:
what waits in a folder of its stands in the topic's queue, as far as that is retained.
"""
