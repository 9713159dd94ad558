"""What every process of RaftMQ stands on: clock, configuration, durable small files, CRCs, logs, metrics, tasks.

Nothing here knows a message, a topic or a broker. Whatever cannot be known in a test (time, the loop, the
disk's answer) enters the rooms above through a value made here, so that they can be driven by hand.
"""
