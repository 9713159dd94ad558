"""Transactions, the broker's side: half messages, their commit or rollback, and asking producers for the undecided.

A prepared message waits in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, until its producer ends it (code 37). A commit writes the
real message and its op message (RMQ_SYS_TRANS_OP_HALF_TOPIC: offsets of halves that are over) in one piece, one entry
of a Raft group: neither is ever there without the other, but for a log that was torn between the two, which is seen
(committed.py). A half that nobody ends is written anew each time its producer is asked about it (code 39), so that the
half queue's offset moves on; after transactionCheckMax rounds it is put into TRANS_CHECK_MAX_TIME_TOPIC.

`records` are the forms that a message takes; `halves` the table of what is undecided, a pure function of the two topics
from the committed offsets of group CID_RMQ_SYS_TRANS on; `loading` reads it, on whoever begins to lead; `ending` serves
37, `checker` does the rounds, `resuming` serves 323 and shows what is pending; `service` is the life around them.

What goes beyond RocketMQ: all copies of a half are one transaction, named by the queue offset of the first (every copy
carries it as TRAN_PREPARED_QUEUE_OFFSET), and it ends once. There a half that is ended while it is being checked is
delivered twice, and one with an immunity time is discarded after transactionCheckMax rounds without being asked for.
"""
