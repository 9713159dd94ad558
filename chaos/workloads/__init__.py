"""What clients do while the cluster is broken, one small class each.

* send: senders to many queues, readers at every member
* groups: a consumer group whose members join, leave and are killed; orderly: one that locks its queues
* consumers: what both have in common
* offsets: offsets of many groups, committed and asked for
* admin: topics and groups made under load
* bank: transfers as batches of two, whose total must hold
* transactions: half messages, committed, rolled back, or asked about
* timers: messages that are due later, each sent until it is known to be stored
* requests: messages that are replied to, and the replies
* catalogue: all of them by name
"""
