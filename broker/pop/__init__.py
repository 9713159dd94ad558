"""POP: messages are taken by whoever asks, invisible to others for a while, and acknowledged one by one.

What was taken is a check point, a record of the topic rmq_sys_REVIVE_LOG_<cluster>, and what was acknowledged another
one; both in RocketMQ's form. Which check points are open is a function of that topic alone, so that whoever leads next
knows it: nothing is remembered beside the log. A check point whose time is over is settled by one append: its open
messages, stored anew in the group's retry topic, and the record that acknowledges them.

What is taken in order (order=true) is a check point too. While it is open its queue gives nothing that follows; when
its time is over, or the same attempt asks, it comes again from its own queue: as a new check point, in one append with
the record that ends the old one (broker/pop/held.py).

RocketMQ keeps these records in its timer wheel until they are due and reads the topic then; here they stand in the
topic at once, and a table in memory says what is due. What RocketMQ left in its wheel comes into the topic when it is
due, as it does there.
"""
